//! Permissions of a client to publish and to subscribe.
//!
//! Lists are short (tens of patterns) and read far more often than written, so they are plain vectors,
//! searched without allocating. Nothing is cached here; the caller should remember the result for a client
//! that publishes often to one subject.

use std::{sync::Arc, time::Duration};

use super::pattern::{covers, overlaps};

/// A pattern in a permission list, with the queue group that it is limited to (`"orders workers"` in NATS
/// configuration files).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Pattern of subjects.
    pub subject: String,
    /// Pattern of queue names; `None`: the entry applies to plain subscriptions and to all queue groups.
    pub queue: Option<String>,
}

impl Entry {
    /// Builds an entry without a queue group.
    pub fn of(subject: &str) -> Self {
        Self { subject: subject.to_owned(), queue: None }
    }
}

/// Allowed and denied patterns of one operation. A denial overrides a permission.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// Allowed patterns; `None`: everything is allowed; an empty list: nothing is.
    pub allow: Option<Vec<Entry>>,
    /// Denied patterns.
    pub deny: Vec<Entry>,
}

/// Permission to answer requests on reply subjects that no list allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Responses {
    /// Messages that may be published to one reply subject; `None`: any number.
    pub messages_max: Option<u32>,
    /// Time within which a request may be answered; `None`: no time limit (the bound on remembered requests
    /// still applies).
    pub expires: Option<Duration>,
}

impl Default for Responses {
    /// nats-server's defaults: one message, within two minutes (`DEFAULT_ALLOW_RESPONSE_MAX_MSGS`,
    /// `…_EXPIRATION`).
    fn default() -> Self {
        Self { messages_max: Some(1), expires: Some(Duration::from_secs(120)) }
    }
}

/// Permissions of one client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permissions {
    /// Rules for publishing.
    pub publish: Rules,
    /// Rules for subscribing.
    pub subscribe: Rules,
    /// Permission to answer requests that the client has received.
    pub responses: Option<Responses>,
}

/// Decision on a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeVerdict {
    /// Allowed; the client receives everything that the pattern matches.
    Whole,
    /// Allowed, but the pattern overlaps a denied one: each message must be checked by
    /// [`Permissions::may_receive`].
    Filtered,
    /// Denied: the client gets `Permissions Violation for Subscription to "x"`, and the connection stays
    /// open.
    Denied,
}

impl Permissions {
    /// Returns whether there are no lists, so that everything is allowed.
    pub fn is_everything(&self) -> bool {
        self.publish.allow.is_none()
            && self.publish.deny.is_empty()
            && self.subscribe.allow.is_none()
            && self.subscribe.deny.is_empty()
    }

    /// Returns whether the lists allow publishing to a subject. If they do not, the subject may still be the
    /// reply subject of an open request: [`super::Replies::may_answer`].
    pub fn may_publish(&self, subject: &[u8]) -> bool {
        let in_list = |list: &[Entry]| list.iter().any(|entry| covers(entry.subject.as_bytes(), subject));
        self.publish.allow.as_deref().is_none_or(in_list) && !in_list(&self.publish.deny)
    }

    /// Returns whether the lists allow a subscription to a pattern, with or without a queue group.
    pub fn subscribe_verdict(&self, subject: &[u8], queue: Option<&[u8]>) -> SubscribeVerdict {
        let allowed = self.subscribe.allow.as_deref().is_none_or(|list| allows(list, subject, queue));
        if !allowed || !self.may_receive(subject, queue) {
            return SubscribeVerdict::Denied;
        }
        let reaches = |entry: &Entry| entry.is_of(queue) && overlaps(entry.subject.as_bytes(), subject);
        if self.subscribe.deny.iter().any(reaches) {
            SubscribeVerdict::Filtered
        } else {
            SubscribeVerdict::Whole
        }
    }

    /// Returns whether a message on this subject may reach a [`SubscribeVerdict::Filtered`] subscription, in
    /// this queue group or in none. As in nats-server (`checkDenySub`), a denied entry without a group
    /// applies to members of groups, too. An entry with a group denies that group's members every subject
    /// that it covers, however wide their pattern is.
    pub fn may_receive(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        let denied = |entry: &Entry| entry.is_of(queue) && covers(entry.subject.as_bytes(), subject);
        !self.subscribe.deny.iter().any(denied)
    }
}

impl Entry {
    /// Returns whether this entry applies to a subscription with this queue group, or without one.
    fn is_of(&self, queue: Option<&[u8]>) -> bool {
        match (&self.queue, queue) {
            (None, _) => true,
            (Some(pattern), Some(queue)) => covers(pattern.as_bytes(), queue),
            (Some(_), None) => false,
        }
    }
}

/// Returns whether a list allows a subscription. As in nats-server (`canSubscribe`), if the subscription has
/// a group and entries with a group cover the subject, only those entries count.
fn allows(list: &[Entry], subject: &[u8], queue: Option<&[u8]>) -> bool {
    let covering = |entry: &&Entry| covers(entry.subject.as_bytes(), subject);
    let mut groups = list.iter().filter(covering).filter_map(|entry| entry.queue.as_deref()).peekable();
    match queue {
        Some(queue) if groups.peek().is_some() => groups.any(|group| covers(group.as_bytes(), queue)),
        _ => list.iter().filter(covering).any(|entry| entry.queue.is_none()),
    }
}

/// Permissions that all clients of one user share; `None`: everything is allowed.
pub type SharedPermissions = Option<Arc<Permissions>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[&str]) -> Vec<Entry> {
        list.iter()
            .map(|text| match text.split_once(' ') {
                Some((subject, queue)) => Entry { subject: subject.into(), queue: Some(queue.into()) },
                None => Entry::of(text),
            })
            .collect()
    }

    fn subscribing(allow: Option<&[&str]>, deny: &[&str]) -> Permissions {
        Permissions {
            subscribe: Rules { allow: allow.map(entries), deny: entries(deny) },
            ..Permissions::default()
        }
    }

    #[test]
    fn publishing() {
        let mut permissions = Permissions::default();
        assert!(permissions.is_everything() && permissions.may_publish(b"a.b"));
        permissions.publish.deny = entries(&["secret.>"]);
        assert!(permissions.may_publish(b"a.b") && permissions.may_publish(b"secret"));
        assert!(!permissions.may_publish(b"secret.a"));
        permissions.publish.allow = Some(entries(&["a.*", "secret.>"]));
        assert!(permissions.may_publish(b"a.b"));
        assert!(!permissions.may_publish(b"a.b.c") && !permissions.may_publish(b"secret.a"));
        permissions.publish.allow = Some(Vec::new());
        assert!(!permissions.may_publish(b"a.b"), "an empty list allows nothing");
    }

    #[test]
    fn a_wildcard_beyond_permissions_is_denied() {
        let permissions = subscribing(Some(&["a.*", "b.>"]), &[]);
        for (subject, expected) in [
            ("a.x", SubscribeVerdict::Whole),
            ("a.*", SubscribeVerdict::Whole),
            ("a.>", SubscribeVerdict::Denied),
            ("b.*.c", SubscribeVerdict::Whole),
            ("b.>", SubscribeVerdict::Whole),
            ("b", SubscribeVerdict::Denied),
            (">", SubscribeVerdict::Denied),
            ("*.x", SubscribeVerdict::Denied),
        ] {
            assert_eq!(permissions.subscribe_verdict(subject.as_bytes(), None), expected, "{subject}");
        }
    }

    #[test]
    fn a_wildcard_reaching_denied_subjects_is_filtered() {
        let permissions = subscribing(None, &["a.secret"]);
        assert_eq!(permissions.subscribe_verdict(b"a.*", None), SubscribeVerdict::Filtered);
        assert_eq!(permissions.subscribe_verdict(b"a.secret", None), SubscribeVerdict::Denied);
        assert_eq!(permissions.subscribe_verdict(b"b.*", None), SubscribeVerdict::Whole);
        assert!(permissions.may_receive(b"a.open", None) && !permissions.may_receive(b"a.secret", None));
    }

    #[test]
    fn queue_groups_in_a_list() {
        let allowed = subscribing(Some(&["jobs dev.*", "news"]), &[]);
        assert_eq!(allowed.subscribe_verdict(b"jobs", Some(b"dev.a")), SubscribeVerdict::Whole);
        assert_eq!(allowed.subscribe_verdict(b"jobs", Some(b"prod")), SubscribeVerdict::Denied);
        assert_eq!(allowed.subscribe_verdict(b"jobs", None), SubscribeVerdict::Denied);
        assert_eq!(allowed.subscribe_verdict(b"news", None), SubscribeVerdict::Whole);
        assert_eq!(allowed.subscribe_verdict(b"news", Some(b"any")), SubscribeVerdict::Whole);
        let denied = subscribing(None, &["jobs prod"]);
        assert_eq!(denied.subscribe_verdict(b"jobs", Some(b"prod")), SubscribeVerdict::Denied);
        assert_eq!(denied.subscribe_verdict(b"jobs", Some(b"dev")), SubscribeVerdict::Whole);
        assert_eq!(denied.subscribe_verdict(b"jobs", None), SubscribeVerdict::Whole);
        let both = subscribing(None, &["jobs", "jobs prod"]);
        assert_eq!(
            both.subscribe_verdict(b"jobs", Some(b"dev")),
            SubscribeVerdict::Denied,
            "the plain entry holds"
        );
    }

    /// A denied entry with a queue group filters the messages of that group's wider subscriptions
    /// (nats-server 2.14.4).
    #[test]
    fn a_deny_of_a_group_filters_its_wildcards() {
        for (deny, member, other) in [
            ("a.secret workers", "workers", "auditors"),
            ("a.secret work.*", "work.a", "work"),
            ("*.secret g", "g", "h"),
        ] {
            let permissions = subscribing(None, &[deny]);
            for (queue, is_denied) in [(Some(member), true), (Some(other), false), (None, false)] {
                let queue = queue.map(str::as_bytes);
                let expected = if is_denied { SubscribeVerdict::Filtered } else { SubscribeVerdict::Whole };
                assert_eq!(permissions.subscribe_verdict(b"a.*", queue), expected, "{deny} {queue:?}");
                assert_eq!(permissions.may_receive(b"a.secret", queue), !is_denied, "{deny} {queue:?}");
                assert!(permissions.may_receive(b"a.open", queue), "{deny} {queue:?}");
            }
        }
    }
}
