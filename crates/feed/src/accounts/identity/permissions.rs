//! What a client may publish and subscribe to.
//!
//! Lists are short (tens of patterns) and read far more often than written: plain vectors, walked without allocating.
//! A client that publishes again and again to one subject should remember the answer; nothing here caches.

use std::{sync::Arc, time::Duration};

use super::pattern::{covers, overlaps};

/// A pattern of a permission list, and the queue group that it is limited to (`"orders workers"` in NATS's files).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The pattern of subjects.
    pub subject: String,
    /// A pattern of queue names; none where the entry is about subscribing by oneself as well as in any group.
    pub queue: Option<String>,
}

impl Entry {
    /// An entry without a queue group.
    pub fn of(subject: &str) -> Self {
        Self { subject: subject.to_owned(), queue: None }
    }
}

/// What is allowed and what denied of one kind of operation. Denying is the stronger word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// Patterns that are allowed; none: everything is; an empty list: nothing is.
    pub allow: Option<Vec<Entry>>,
    /// Patterns that are denied.
    pub deny: Vec<Entry>,
}

/// Whether one may answer requests on subjects that no list allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Responses {
    /// Messages that may be published to one reply subject; none: any number.
    pub messages_max: Option<u32>,
    /// For how long after the request; none: for ever (the bound on remembered requests still holds).
    pub expires: Option<Duration>,
}

impl Default for Responses {
    /// nats-server's: one message, within two minutes (`DEFAULT_ALLOW_RESPONSE_MAX_MSGS`, `…_EXPIRATION`).
    fn default() -> Self {
        Self { messages_max: Some(1), expires: Some(Duration::from_secs(120)) }
    }
}

/// Everything that one client may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permissions {
    /// Publishing.
    pub publish: Rules,
    /// Subscribing.
    pub subscribe: Rules,
    /// Answering requests that came in on a subscription of one's own.
    pub responses: Option<Responses>,
}

/// Whether a subscription may be made, and what must be kept back from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeVerdict {
    /// It may, and receives all that it matches.
    Whole,
    /// It may; its pattern reaches into what is denied, so each message is to be checked by
    /// [`Permissions::may_receive`].
    Filtered,
    /// It may not: `Permissions Violation for Subscription to "x"`, and the connection stays open.
    Denied,
}

impl Permissions {
    /// No lists: everything is allowed.
    pub fn is_everything(&self) -> bool {
        self.publish.allow.is_none()
            && self.publish.deny.is_empty()
            && self.subscribe.allow.is_none()
            && self.subscribe.deny.is_empty()
    }

    /// Whether the lists allow to publish on a subject. Where they do not, an open request may:
    /// [`super::Replies::may_answer`].
    pub fn may_publish(&self, subject: &[u8]) -> bool {
        let in_list = |list: &[Entry]| list.iter().any(|entry| covers(entry.subject.as_bytes(), subject));
        self.publish.allow.as_deref().is_none_or(in_list) && !in_list(&self.publish.deny)
    }

    /// Whether the lists allow to subscribe to a pattern, by oneself or in a queue group.
    pub fn may_subscribe(&self, subject: &[u8], queue: Option<&[u8]>) -> SubscribeVerdict {
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

    /// Returns whether a message on this subject may reach a [`SubscribeVerdict::Filtered`] subscription in this queue group, or
    /// in none. As in nats-server (`checkDenySub`) a plain entry denies members of groups, too, and an entry with a
    /// group denies that group's members what it covers, however wide their pattern is.
    pub fn may_receive(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        let denied = |entry: &Entry| entry.is_of(queue) && covers(entry.subject.as_bytes(), subject);
        !self.subscribe.deny.iter().any(denied)
    }
}

impl Entry {
    /// Whether the entry is about a subscription in this queue group, or in none.
    fn is_of(&self, queue: Option<&[u8]>) -> bool {
        match (&self.queue, queue) {
            (None, _) => true,
            (Some(pattern), Some(queue)) => covers(pattern.as_bytes(), queue),
            (Some(_), None) => false,
        }
    }
}

/// Whether a list allows a subscription. As in nats-server (`canSubscribe`): where entries with a queue group cover the
/// subject and the subscription has a group, they decide and the plain entries do not.
fn allows(list: &[Entry], subject: &[u8], queue: Option<&[u8]>) -> bool {
    let covering = |entry: &&Entry| covers(entry.subject.as_bytes(), subject);
    let mut groups = list.iter().filter(covering).filter_map(|entry| entry.queue.as_deref()).peekable();
    match queue {
        Some(queue) if groups.peek().is_some() => groups.any(|group| covers(group.as_bytes(), queue)),
        _ => list.iter().filter(covering).any(|entry| entry.queue.is_none()),
    }
}

/// Permissions that many clients of one user share; none: everything is allowed.
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
    fn a_wildcard_may_not_reach_beyond_what_is_allowed() {
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
            assert_eq!(permissions.may_subscribe(subject.as_bytes(), None), expected, "{subject}");
        }
    }

    #[test]
    fn a_wildcard_that_reaches_into_what_is_denied_is_filtered() {
        let permissions = subscribing(None, &["a.secret"]);
        assert_eq!(permissions.may_subscribe(b"a.*", None), SubscribeVerdict::Filtered);
        assert_eq!(permissions.may_subscribe(b"a.secret", None), SubscribeVerdict::Denied);
        assert_eq!(permissions.may_subscribe(b"b.*", None), SubscribeVerdict::Whole);
        assert!(permissions.may_receive(b"a.open", None) && !permissions.may_receive(b"a.secret", None));
    }

    #[test]
    fn queue_groups_in_a_list() {
        let allowed = subscribing(Some(&["jobs dev.*", "news"]), &[]);
        assert_eq!(allowed.may_subscribe(b"jobs", Some(b"dev.a")), SubscribeVerdict::Whole);
        assert_eq!(allowed.may_subscribe(b"jobs", Some(b"prod")), SubscribeVerdict::Denied);
        assert_eq!(allowed.may_subscribe(b"jobs", None), SubscribeVerdict::Denied);
        assert_eq!(allowed.may_subscribe(b"news", None), SubscribeVerdict::Whole);
        assert_eq!(allowed.may_subscribe(b"news", Some(b"any")), SubscribeVerdict::Whole);
        let denied = subscribing(None, &["jobs prod"]);
        assert_eq!(denied.may_subscribe(b"jobs", Some(b"prod")), SubscribeVerdict::Denied);
        assert_eq!(denied.may_subscribe(b"jobs", Some(b"dev")), SubscribeVerdict::Whole);
        assert_eq!(denied.may_subscribe(b"jobs", None), SubscribeVerdict::Whole);
        let both = subscribing(None, &["jobs", "jobs prod"]);
        assert_eq!(
            both.may_subscribe(b"jobs", Some(b"dev")),
            SubscribeVerdict::Denied,
            "the plain entry holds"
        );
    }

    /// A deny with a queue group filters what a wider subscription of that group gets (nats-server 2.14.4).
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
                assert_eq!(permissions.may_subscribe(b"a.*", queue), expected, "{deny} {queue:?}");
                assert_eq!(permissions.may_receive(b"a.secret", queue), !is_denied, "{deny} {queue:?}");
                assert!(permissions.may_receive(b"a.open", queue), "{deny} {queue:?}");
            }
        }
    }
}
