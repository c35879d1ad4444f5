//! Permissions of a leaf node at its hub, and the subjects that JetStream reserves.
//!
//! The hub's second INFO says what this server may *import* (which of its subscriptions may be announced to
//! the hub) and *export* (on which subjects it may publish to the hub). The hub closes connections that
//! violate this (since 2026, for half a minute). So each announcement and each message is checked here first.

use serde::Deserialize;

use super::Remote;
use crate::accounts::identity::{Entry, Rules, covers};

/// Subjects of JetStream. A server with JetStream responds to them itself, so, as in nats-server,
/// subscriptions to them are not announced across a leaf connection; a hub closes a connection that announces
/// one without a wildcard.
pub(crate) const OF_JETSTREAM: [&[u8]; 3] = [b"$JS.API.>", b"$KV.>", b"$OBJ.>"];

/// Subject for requesting single messages of a stream, and the queue group with which JetStream answers such
/// requests.
pub(crate) const DIRECT_GETS: (&[u8], &[u8]) = (b"$JS.API.DIRECT.GET.>", b"_sys_");

/// Permissions for one direction (import or export), as in the hub's INFO.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct SubjectRules {
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
}

/// Permissions for both directions, from the hub's INFO and from the local configuration.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct HubRules {
    import: Rules,
    export: Rules,
    /// Subjects that are not accepted from the hub; the hub does not know this rule.
    kept_out: Vec<Entry>,
}

impl HubRules {
    pub(crate) fn new(import: Option<&SubjectRules>, export: Option<&SubjectRules>, remote: &Remote) -> Self {
        let entries = |list: &[String]| list.iter().map(|subject| Entry::of(subject)).collect::<Vec<_>>();
        let (mut import, mut export) = (rules(import), rules(export));
        let kept_out = entries(&remote.deny_imports);
        import.deny.extend(kept_out.iter().cloned());
        export.deny.extend(entries(&remote.deny_exports));
        Self { import, export, kept_out }
    }

    /// Returns whether the local configuration accepts messages from the hub on this subject.
    pub(crate) fn may_come(&self, subject: &[u8]) -> bool {
        !self.kept_out.iter().any(|entry| covers(entry.subject.as_bytes(), subject))
    }

    /// Returns whether a subscription may be announced to the hub. (As in nats-server's `canSubscribe` for a
    /// leaf, a wildcard may cover more than is allowed, because the hub checks each message as well.)
    pub(crate) fn may_tell(&self, pattern: &[u8], queue: Option<&[u8]>) -> bool {
        if OF_JETSTREAM.iter().any(|of| covers(of, pattern)) {
            return false;
        }
        let is_wild = wire::nats::subject::has_wildcard(pattern);
        let is_of = |entry: &Entry| match (&entry.queue, queue) {
            (None, _) => true,
            (Some(allowed), Some(queue)) => covers(allowed.as_bytes(), queue),
            (Some(_), None) => false,
        };
        let allows = |entry: &Entry| {
            let subject = entry.subject.as_bytes();
            is_of(entry) && (covers(subject, pattern) || is_wild && covers(pattern, subject))
        };
        let denies = |entry: &Entry| is_of(entry) && covers(entry.subject.as_bytes(), pattern);
        self.import.allow.as_deref().is_none_or(|list| list.iter().any(allows))
            && !self.import.deny.iter().any(denies)
    }

    /// Returns whether a message on this subject may be sent to the hub. Acknowledgements of stored messages,
    /// and answers to requests from another account, are always allowed.
    pub(crate) fn may_send(&self, subject: &[u8]) -> bool {
        if subject.starts_with(b"$JS.ACK.") || subject.starts_with(b"_R_.") {
            return true;
        }
        let names = |entry: &Entry| covers(entry.subject.as_bytes(), subject);
        self.export.allow.as_deref().is_none_or(|list| list.iter().any(names))
            && !self.export.deny.iter().any(names)
    }

    /// Returns whether messages on all subjects may be sent to the hub.
    pub(crate) fn allows_all(&self) -> bool {
        self.export.allow.is_none() && self.export.deny.is_empty()
    }
}

fn rules(said: Option<&SubjectRules>) -> Rules {
    let Some(said) = said else { return Rules::default() };
    let entries = |list: &Vec<String>| list.iter().map(|text| entry(text)).collect();
    Rules {
        allow: said.allow.as_ref().map(entries),
        deny: said.deny.as_ref().map(entries).unwrap_or_default(),
    }
}

/// Parses an entry of the form `subject` or `subject queue`.
fn entry(text: &str) -> Entry {
    match text.split_once(' ') {
        Some((subject, queue)) => Entry { subject: subject.to_owned(), queue: Some(queue.trim().to_owned()) },
        None => Entry::of(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_and_hub_denies_both_apply() {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let remote = Remote {
            deny_imports: texts(&["in.secret.>"]),
            deny_exports: texts(&["out.secret"]),
            ..Remote::default()
        };
        let rules = HubRules::new(
            Some(&said(r#"{"deny": ["in.theirs"]}"#)),
            Some(&said(r#"{"deny": ["out.theirs"]}"#)),
            &remote,
        );
        assert!(rules.may_tell(b"in.x", None) && rules.may_tell(b">", None));
        assert!(!rules.may_tell(b"in.secret.x", None) && !rules.may_tell(b"in.theirs", None));
        assert!(rules.may_send(b"out.x") && !rules.may_send(b"out.secret") && !rules.may_send(b"out.theirs"));
        // The wildcard may be announced, so the hub sends everything that matches it.
        assert!(!rules.may_come(b"in.secret.x") && rules.may_come(b"in.x") && rules.may_come(b"in.theirs"));
    }

    fn said(json: &str) -> SubjectRules {
        serde_json::from_str(json).expect("JSON")
    }

    #[test]
    fn what_a_hub_may_be_told() {
        let import = said(r#"{"allow": ["a.*", "b.>", "jobs w"], "deny": ["b.secret.>"]}"#);
        let rules = HubRules::new(Some(&import), None, &Remote::default());
        for (pattern, may) in [
            ("a.x", true),
            ("a.*", true),
            ("a.x.y", false),
            // A wildcard may cover more than is allowed, because the hub checks each message.
            ("a.>", true),
            (">", true),
            ("c.*", false),
            ("b.secret.x", false),
            ("b.secret.>", false),
            ("b.*.x", true),
            ("jobs", false),
        ] {
            assert_eq!(rules.may_tell(pattern.as_bytes(), None), may, "{pattern}");
        }
        assert!(rules.may_tell(b"jobs", Some(b"w")) && !rules.may_tell(b"jobs", Some(b"v")));
        let all = HubRules::default();
        assert!(all.may_tell(b"a", None) && all.may_tell(b">", None) && all.allows_all());
        for of_jetstream in ["$JS.API.>", "$JS.API.INFO", "$KV.b.k", "$OBJ.*.x"] {
            assert!(!all.may_tell(of_jetstream.as_bytes(), None), "{of_jetstream}");
        }
        assert!(all.may_tell(b"$JS.ACK.>", None) && all.may_tell(b"$JS.hub.API.>", None));
    }

    #[test]
    fn what_a_hub_may_be_sent() {
        let rules = HubRules::new(
            None,
            Some(&said(r#"{"allow": ["a.>"], "deny": ["a.secret"]}"#)),
            &Remote::default(),
        );
        assert!(rules.may_send(b"a.b") && !rules.may_send(b"a.secret") && !rules.may_send(b"b"));
        assert!(
            rules.may_send(b"$JS.ACK.s.c.1.2.3.4.5") && rules.may_send(b"_R_.x.y") && !rules.allows_all()
        );
    }
}
