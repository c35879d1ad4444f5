//! Mail's messages on the feed: subjects, and the JSON of each message.
//!
//! | subject | when |
//! |---|---|
//! | `mail.arrived.<domain>.<inbox>` | a mail can be read |
//! | `mail.deleted.<domain>.<inbox>` | a mail was deleted or has expired |
//! | `mail.missed` | some events were lost on their way here: a client that needs all of them must read its inboxes again |
//!
//! Each label of the domain is a separate token (`mail.arrived.example.org.alice`), so that
//! `mail.arrived.example.org.>` matches a domain; the inbox is always the last token. Characters that a token
//! cannot hold (dots of the local part, spaces, `*`, `>`) are percent-encoded, as in a URL. The message
//! repeats the names without encoding:
//!
//! ```json
//! {"event":"arrived","inbox":"alice@example.org","id":"…16 letters…","from":"…","subject":"…",
//!  "envelope_from":"…","arrived_ms":0,"expires_ms":0,"size_bytes":0}
//! {"event":"deleted","inbox":"alice@example.org","id":"…"}
//! {"event":"missed"}
//! ```
//! `from` and `subject` are copied from the mail's header; encoded words (RFC 2047) are not decoded.

use mail::mailboxes::Event;
use serde::Serialize;

/// Pattern that matches all of mail's subjects.
pub(crate) const ALL: &str = "mail.>";

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum EventPayload {
    Arrived {
        inbox: String,
        id: String,
        from: String,
        subject: String,
        envelope_from: String,
        arrived_ms: u64,
        expires_ms: u64,
        size_bytes: u64,
    },
    Deleted {
        inbox: String,
        id: String,
    },
    Missed,
}

/// Returns the subject and the message of an event. `None` for the event that reports a mail as gone from all
/// inboxes, because each inbox has an event of its own.
pub(crate) fn announcement(event: &Event) -> Option<(String, Vec<u8>)> {
    Some((subject(event)?, message(event)?))
}

fn subject(event: &Event) -> Option<String> {
    let (word, inbox) = match event {
        Event::Arrived(summary) => ("arrived", &summary.inbox),
        Event::Deleted { inbox, .. } => ("deleted", inbox),
        Event::Over { .. } => return None,
        Event::Missed => return Some("mail.missed".to_owned()),
    };
    let mut subject = format!("mail.{word}");
    for label in inbox.domain.split('.').chain([&*inbox.local]) {
        subject.push('.');
        encode(label, &mut subject);
    }
    Some(subject)
}

/// Encodes a token so that it holds no dot, space or wildcard; an empty token becomes `%00`, because a token
/// cannot be empty.
fn encode(token: &str, out: &mut String) {
    if token.is_empty() {
        out.push_str("%00");
    }
    for byte in token.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'.' | b'*' | b'>' | b'%') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

fn message(event: &Event) -> Option<Vec<u8>> {
    let said = match event {
        Event::Arrived(summary) => EventPayload::Arrived {
            inbox: summary.inbox.to_string(),
            id: summary.id.to_string(),
            from: String::from_utf8_lossy(&summary.from).into_owned(),
            subject: String::from_utf8_lossy(&summary.subject).into_owned(),
            envelope_from: summary.envelope_from.to_string(),
            arrived_ms: summary.arrived_ms,
            expires_ms: summary.expires_ms,
            size_bytes: summary.size_bytes,
        },
        Event::Deleted { inbox, id, .. } => {
            EventPayload::Deleted { inbox: inbox.to_string(), id: id.to_string() }
        }
        Event::Over { .. } => return None,
        Event::Missed => EventPayload::Missed,
    };
    // The payload has only strings and numbers, so that its serialization cannot fail.
    Some(serde_json::to_vec(&said).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mail::mailboxes::{Inbox, MailId, RemainingName, Summary};
    use serde_json::{Value, json};

    use super::*;

    fn inbox(local: &str, domain: &str) -> Inbox {
        Inbox { local: local.into(), domain: domain.into() }
    }

    #[test]
    fn subjects_are_literal_whatever_the_address() {
        for (local, domain, expected) in [
            ("alice", "example.org", "mail.deleted.example.org.alice"),
            ("a.b", "example.org", "mail.deleted.example.org.a%2Eb"),
            ("*", "x", "mail.deleted.x.%2A"),
            ("a b>", "x", "mail.deleted.x.a%20b%3E"),
            ("grüße", "x", "mail.deleted.x.gr%C3%BC%C3%9Fe"),
        ] {
            let remains = RemainingName::OtherName;
            let deleted = Event::Deleted { inbox: inbox(local, domain), id: MailId(7), remains };
            let subject = subject(&deleted).expect("it is told");
            assert_eq!(subject, expected);
            assert!(wire::nats::subject::is_valid_literal(subject.as_bytes()));
            assert!(wire::nats::subject::matches(ALL.as_bytes(), subject.as_bytes()));
        }
    }

    #[test]
    fn a_message_says_what_the_event_said() {
        let summary = Summary {
            id: MailId(77),
            letter: MailId(77),
            inboxes: 1,
            inbox: inbox("a.b", "example.org"),
            envelope_from: "x@y".into(),
            from: b"\"X\" <x@y>".to_vec().into(),
            subject: b"=?utf-8?q?hi?=".to_vec().into(),
            arrived_ms: 1,
            expires_ms: 2,
            size_bytes: 3,
        };
        let said = |event: &Event| {
            serde_json::from_slice::<Value>(&message(event).expect("it is told")).expect("JSON")
        };
        let id = MailId(77).to_string();
        assert_eq!(
            said(&Event::Arrived(Arc::new(summary))),
            json!({
                "event": "arrived", "inbox": "a.b@example.org", "id": id, "from": "\"X\" <x@y>",
                "subject": "=?utf-8?q?hi?=", "envelope_from": "x@y", "arrived_ms": 1, "expires_ms": 2, "size_bytes": 3,
            })
        );
        let deleted = Event::Deleted {
            inbox: inbox("a.b", "example.org"),
            id: MailId(77),
            remains: RemainingName::Nothing,
        };
        assert_eq!(said(&deleted), json!({ "event": "deleted", "inbox": "a.b@example.org", "id": id }));
        assert_eq!(said(&Event::Missed), json!({ "event": "missed" }));
        let missed = subject(&Event::Missed).expect("it is told");
        assert!(wire::nats::subject::matches(ALL.as_bytes(), missed.as_bytes()));
        assert_eq!(announcement(&Event::Over { letter: MailId(77) }), None);
    }
}
