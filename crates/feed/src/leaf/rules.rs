//! What a hub lets a leaf node do: its permissions, and what JetStream keeps to itself.
//!
//! The hub says in its second INFO what we may *import* (which of our subscriptions it may be told) and *export* (what we
//! may publish to it), and closes who does not keep to it: since 2026 for half a minute. So each is asked here first.

use serde::Deserialize;

use super::Remote;
use crate::accounts::identity::{Entry, Rules, covers};

/// Subjects of a JetStream: whoever has one answers on them itself. As in nats-server nobody is told of subscriptions
/// to them across a leaf connection, and a hub closes who tells of one without a wildcard.
pub(crate) const OF_JETSTREAM: [&[u8]; 3] = [b"$JS.API.>", b"$KV.>", b"$OBJ.>"];

/// Requests for single messages of a stream, and the queue group of a JetStream that answers them.
pub(crate) const DIRECT_GETS: (&[u8], &[u8]) = (b"$JS.API.DIRECT.GET.>", b"_sys_");

/// One direction, as INFO says it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct SubjectRules {
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
}

/// Both directions: what the hub says, and what is configured here.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct HubRules {
    import: Rules,
    export: Rules,
    /// What is not had of the hub, which does not know of it.
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

    /// Whether a message may come from the hub, by what is configured here.
    pub(crate) fn may_come(&self, subject: &[u8]) -> bool {
        !self.kept_out.iter().any(|entry| covers(entry.subject.as_bytes(), subject))
    }

    /// Whether the hub may be told that somebody here subscribes. (`canSubscribe` of a leaf: a wildcard may reach beyond
    /// what is allowed, since the hub looks at each message, too.)
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

    /// Whether the hub may be sent a message. What answers a stored message, or a request of another account, always may.
    pub(crate) fn may_send(&self, subject: &[u8]) -> bool {
        if subject.starts_with(b"$JS.ACK.") || subject.starts_with(b"_R_.") {
            return true;
        }
        let names = |entry: &Entry| covers(entry.subject.as_bytes(), subject);
        self.export.allow.as_deref().is_none_or(|list| list.iter().any(names))
            && !self.export.deny.iter().any(names)
    }

    /// Whether all may be sent.
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

/// `subject`, or `subject queue`.
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
    fn what_is_configured_here_is_denied_beside_what_the_hub_denies() {
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
        // The hub, which may be told of a wildcard, sends what that matches.
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
            // Reaches beyond what is allowed: the hub looks at each message.
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
