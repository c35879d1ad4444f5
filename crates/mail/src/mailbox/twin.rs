//! The stored mail in plain memory: a slow, obvious twin that the real store is compared with, and that
//! serves the tests of pages.
//!
//! The twin is one list in order of arrival behind one lock; each question walks the whole list. Retention
//! follows the same rules as in the real store: by age, by count per inbox, by total bytes, oldest first. The
//! rules are applied at each delivery and each question.

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{Arc, MutexGuard},
};

use engine::{cold_mutex::ColdMutex, cores::clock};
use tokio::sync::broadcast;

use crate::{
    mailbox::mailboxes::{
        Event, Inbox, Mail, MailId, Mailboxes, ReadBudget, RemainingName, Scope, Summary, Totals, Unavailable,
    },
    store::annotations::{Note, RecoveredNote},
};

/// Number of events that a listener may lag behind before it loses the oldest.
const EVENTS_BEHIND_MAX: usize = 1024;
/// Maximum number of bytes kept from a header field: no line is longer (RFC 5322, 2.1.1).
const FIELD_BYTES_MAX: usize = 998;

/// Limits on stored mail.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Milliseconds from a mail's arrival to its expiry.
    pub age_ms: u64,
    /// Maximum number of mails in one inbox; another arrival drops the oldest of the inbox.
    pub per_inbox_max: usize,
    /// Maximum size of all mails in bytes; when it is exceeded, the oldest mails are dropped.
    pub bytes_max: u64,
    /// Largest mail; a larger one is refused.
    pub mail_bytes_max: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age_ms: 24 * 60 * 60 * 1000,
            per_inbox_max: 500,
            bytes_max: 256 * 1024 * 1024,
            mail_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// The in-memory store; clones share the mail.
#[derive(Debug, Clone)]
pub struct Twin {
    shared: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    retention: Retention,
    default_domain: Box<str>,
    state: ColdMutex<State>,
    events: broadcast::Sender<Event>,
}

#[derive(Debug, Default)]
struct State {
    /// One entry for each inbox of a mail, oldest first.
    mails: Vec<Mail>,
    /// One entry for each mail as the list of all mails shows it, kept as long as any inbox has the mail.
    letters: Vec<Mail>,
    last_id: u64,
    accepted: u64,
    refused: u64,
}

impl Twin {
    /// Creates an empty store. Names without a domain belong to `default_domain`.
    #[must_use]
    pub fn new(retention: Retention, default_domain: &str) -> Self {
        Self {
            shared: Arc::new(Inner {
                retention,
                default_domain: default_domain.into(),
                state: ColdMutex::default(),
                events: broadcast::Sender::new(EVENTS_BEHIND_MAX),
            }),
        }
    }

    /// Delivers a mail as if it had arrived at `now_ms`.
    ///
    /// # Errors
    /// [`Unavailable::Refused`] if the mail is too large or an address is invalid.
    pub fn deliver_at(
        &self,
        now_ms: u64,
        envelope_from: &str,
        recipients: &[String],
        raw: &[u8],
    ) -> Result<Vec<MailId>, Unavailable> {
        let mut state = self.shared.state.lock();
        let refuse = |state: &mut State, why: String| {
            state.refused += 1;
            Err(Unavailable::Refused(why))
        };
        if raw.len() as u64 > self.shared.retention.mail_bytes_max {
            return refuse(&mut state, format!("it has {} bytes", raw.len()));
        }
        if recipients.is_empty() {
            return refuse(&mut state, "the mail has no recipient".to_owned());
        }
        let mut inboxes: Vec<Inbox> = Vec::new();
        for recipient in recipients {
            match Inbox::of(recipient, &self.shared.default_domain) {
                Ok(inbox) if inboxes.contains(&inbox) => {}
                Ok(inbox) => inboxes.push(inbox),
                Err(fault) => return refuse(&mut state, format!("{recipient}: {fault}")),
            }
        }
        let addresses: Arc<[Box<str>]> = recipients.iter().map(|r| r.as_str().into()).collect();
        let raw: Arc<[u8]> = raw.into();
        let mut ids = Vec::new();
        let count = u16::try_from(inboxes.len()).unwrap_or(u16::MAX);
        let letter = MailId(state.last_id + 1);
        for inbox in inboxes {
            state.last_id += 1;
            let summary = Summary {
                id: MailId(state.last_id),
                letter,
                inboxes: count,
                inbox,
                envelope_from: envelope_from.into(),
                from: field(&raw, b"from").into(),
                subject: field(&raw, b"subject").into(),
                arrived_ms: now_ms,
                expires_ms: now_ms.saturating_add(self.shared.retention.age_ms),
                size_bytes: raw.len() as u64,
            };
            ids.push(summary.id);
            let event = Event::Arrived(Arc::new(summary.clone()));
            let mail = Mail { summary, recipients: Arc::clone(&addresses), raw: Arc::clone(&raw) };
            if mail.summary.is_letter() {
                state.letters.push(mail.clone());
            }
            state.mails.push(mail);
            // The send fails if there is no listener.
            let _ = self.shared.events.send(event);
        }
        state.accepted += 1;
        self.forget(&mut state, now_ms);
        Ok(ids)
    }

    /// Drops the mails that have expired at `now_ms`.
    pub fn expire(&self, now_ms: u64) {
        let mut state = self.shared.state.lock();
        self.forget(&mut state, now_ms);
    }

    /// Sends an event to listeners, whether it happened or not.
    #[cfg(test)]
    pub(crate) fn send_event(&self, event: Event) {
        let _ = self.shared.events.send(event);
    }

    /// Returns the state after retention was applied.
    fn expired_state(&self) -> MutexGuard<'_, State> {
        let mut state = self.shared.state.lock();
        self.forget(&mut state, clock::unix_ms());
        state
    }

    /// Applies retention in the simplest way: by age, then by count, then by bytes; the oldest mails are
    /// dropped.
    fn forget(&self, state: &mut State, now_ms: u64) {
        let retention = self.shared.retention;
        let mut gone: HashSet<MailId> = state
            .mails
            .iter()
            .filter(|mail| mail.summary.expires_ms <= now_ms)
            .map(|mail| mail.summary.id)
            .collect();
        let mut newer_in: std::collections::HashMap<&Inbox, usize> = std::collections::HashMap::new();
        let mut bytes = 0;
        for mail in state.mails.iter().rev().filter(|mail| mail.summary.expires_ms > now_ms) {
            let newer = newer_in.entry(&mail.summary.inbox).or_default();
            *newer += 1;
            if *newer > retention.per_inbox_max {
                gone.insert(mail.summary.id);
                continue;
            }
            bytes += mail.summary.size_bytes;
            if bytes > retention.bytes_max {
                gone.insert(mail.summary.id);
            }
        }
        self.remove(state, |mail| gone.contains(&mail.summary.id));
    }

    fn remove(&self, state: &mut State, is_gone: impl Fn(&Mail) -> bool) -> u64 {
        let mut removed = 0;
        let gone: Vec<Mail> = state.mails.extract_if(.., |mail| is_gone(mail)).collect();
        for mail in gone {
            removed += 1;
            let Summary { id, letter, inbox, .. } = mail.summary;
            let is_over = !state.mails.iter().any(|other| other.summary.letter == letter);
            let known = state.letters.iter_mut().find(|known| known.summary.id == letter);
            let was_known = known.is_some();
            if let Some(known) = known.filter(|_| id == letter) {
                // The mail now expires when its entries in the other inboxes do.
                known.summary.expires_ms =
                    known.summary.arrived_ms.saturating_add(self.shared.retention.age_ms);
            }
            let remains = match () {
                () if id != letter => RemainingName::OtherName,
                () if is_over => RemainingName::Nothing,
                () => RemainingName::ThisName,
            };
            let _ = self.shared.events.send(Event::Deleted { inbox, id, remains });
            if is_over && was_known {
                state.letters.retain(|known| known.summary.id != letter);
                if id != letter {
                    let _ = self.shared.events.send(Event::Over { letter });
                }
            }
        }
        removed
    }
}

impl State {
    /// Finds a mail by ID. Over all inboxes, any of the mail's IDs finds it.
    fn find(&self, scope: &Scope, id: MailId) -> Option<&Mail> {
        let letters = self.letters.iter().filter(|_| *scope == Scope::All);
        letters.chain(&self.mails).find(|mail| mail.summary.id == id && scope.contains(&mail.summary.inbox))
    }

    /// Iterates over the mails that a list of the scope shows, oldest first.
    fn shown<'a>(&'a self, scope: &'a Scope) -> impl DoubleEndedIterator<Item = &'a Mail> {
        let mails = if *scope == Scope::All { &self.letters } else { &self.mails };
        mails.iter().filter(|mail| scope.contains(&mail.summary.inbox))
    }
}

impl Mailboxes for Twin {
    async fn list(&self, scope: &Scope, skip: usize, limit: usize) -> Result<Vec<Arc<Summary>>, Unavailable> {
        let state = self.expired_state();
        let asked = state.shown(scope).rev().map(|mail| &mail.summary).skip(skip).take(limit);
        Ok(asked.cloned().map(Arc::new).collect())
    }

    async fn count(&self, scope: &Scope) -> Result<u64, Unavailable> {
        Ok(self.expired_state().shown(scope).count() as u64)
    }

    async fn find(&self, scope: &Scope, ids: &[MailId]) -> Result<Vec<Arc<Summary>>, Unavailable> {
        let state = self.expired_state();
        Ok(ids
            .iter()
            .filter_map(|id| state.find(scope, *id))
            .map(|mail| Arc::new(mail.summary.clone()))
            .collect())
    }

    async fn mail_into<R: ReadBudget>(
        &self,
        scope: &Scope,
        id: MailId,
        mut room: R,
    ) -> Result<Option<(Mail, R)>, Unavailable> {
        let Some(mut mail) = self.expired_state().find(scope, id).cloned() else { return Ok(None) };
        let within = |said: &str| {
            let inbox = Inbox::of(said, &self.shared.default_domain);
            inbox.is_ok_and(|inbox| scope.contains(&inbox))
        };
        mail.recipients = mail.recipients.iter().filter(|said| within(said)).cloned().collect();
        if room.reserve(mail.summary.size_bytes) { Ok(Some((mail, room))) } else { Err(Unavailable::NoRoom) }
    }

    async fn names_of(&self, letter: MailId) -> Result<Vec<MailId>, Unavailable> {
        let state = self.expired_state();
        let names = state.mails.iter().filter(|mail| mail.summary.letter == letter);
        Ok(names.map(|mail| mail.summary.id).collect())
    }

    async fn delete(&self, scope: &Scope, id: MailId) -> Result<bool, Unavailable> {
        let mut state = self.expired_state();
        let known = state.letters.iter().chain(&state.mails).find(|mail| mail.summary.id == id);
        let letter = known.map(|mail| mail.summary.letter);
        let is_it = |mail: &Mail| match scope {
            Scope::All => Some(mail.summary.letter) == letter,
            _ => mail.summary.id == id,
        };
        Ok(self.remove(&mut state, is_it) > 0)
    }

    async fn delete_all(&self, scope: &Scope) -> Result<u64, Unavailable> {
        let mut state = self.expired_state();
        Ok(self.remove(&mut state, |mail| scope.contains(&mail.summary.inbox)))
    }

    async fn expire_early(&self, ids: &[MailId], expires_ms: u64) -> Result<(), Unavailable> {
        let mut state = self.expired_state();
        let state = &mut *state;
        for mail in
            state.letters.iter_mut().chain(&mut state.mails).filter(|mail| ids.contains(&mail.summary.id))
        {
            mail.summary.expires_ms = mail.summary.expires_ms.min(expires_ms);
        }
        Ok(())
    }

    /// Notes are not stored, as the twin itself ends with the process.
    async fn write_note(&self, _: Vec<(MailId, Note)>) -> Result<(), Unavailable> {
        Ok(())
    }

    fn take_recovered_notes(&self) -> Vec<RecoveredNote> {
        Vec::new()
    }

    async fn deliver(
        &self,
        _: IpAddr,
        envelope_from: &str,
        recipients: &[String],
        raw: &[u8],
    ) -> Result<Vec<MailId>, Unavailable> {
        self.deliver_at(clock::unix_ms(), envelope_from, recipients, raw)
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    fn totals(&self) -> Totals {
        let state = self.expired_state();
        let inboxes: HashSet<&Inbox> = state.mails.iter().map(|mail| &mail.summary.inbox).collect();
        Totals {
            stored: state.mails.len() as u64,
            stored_bytes: state.mails.iter().map(|mail| mail.summary.size_bytes).sum(),
            inboxes: inboxes.len() as u64,
            accepted: state.accepted,
            refused: state.refused,
        }
    }
}

/// Returns the first field with this name in the head, unfolded (RFC 5322, 2.2.3) and trimmed.
fn field(raw: &[u8], name: &[u8]) -> Vec<u8> {
    let mut value: Option<Vec<u8>> = None;
    for line in raw.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        let continues = matches!(line.first(), Some(b' ' | b'\t'));
        match (&mut value, continues) {
            (Some(value), true) => value.extend_from_slice(line),
            (Some(_), false) => break,
            (None, true) => {}
            (None, false) => {
                if let Some(colon) = line.iter().position(|&byte| byte == b':')
                    && line[..colon].trim_ascii_end().eq_ignore_ascii_case(name)
                {
                    value = Some(line[colon + 1..].to_vec());
                }
            }
        }
    }
    let mut value = value.unwrap_or_default().trim_ascii().to_vec();
    value.truncate(FIELD_BYTES_MAX);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &[u8] = b"From: Ann\r\n <ann@example.org>\r\nSubject: one\r\n\r\nbody";

    fn twin(retention: Retention) -> Twin {
        Twin::new(retention, "night.test")
    }

    fn to(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn inbox(name: &str) -> Scope {
        Scope::Inbox(Inbox::of(name, "night.test").unwrap())
    }

    fn stored(twin: &Twin, scope: &Scope) -> usize {
        let state = twin.shared.state.lock();
        state.mails.iter().filter(|mail| scope.contains(&mail.summary.inbox)).count()
    }

    #[test]
    fn a_mail_is_stored_once_per_inbox() {
        let twin = twin(Retention::default());
        let mut events = twin.events();
        let ids = twin.deliver_at(1, "b@x", &to(&["bob", "BOB+x", "eve@other.test"]), MAIL).unwrap();
        assert_eq!(ids.len(), 2);
        assert_eq!((stored(&twin, &inbox("bob")), stored(&twin, &inbox("eve@other.test"))), (1, 1));
        let Ok(Event::Arrived(summary)) = events.try_recv() else { panic!("no event") };
        assert_eq!(&*summary.from, b"Ann <ann@example.org>");
        assert_eq!(&*summary.subject, b"one");
    }

    #[test]
    fn age_count_and_bytes_each_drop_the_oldest() {
        let limits = Retention {
            age_ms: 100,
            per_inbox_max: 2,
            bytes_max: 3 * MAIL.len() as u64,
            mail_bytes_max: 1000,
        };
        let twin = twin(limits);
        let mut events = twin.events();
        for at in 0..3 {
            twin.deliver_at(at, "", &to(&["bob"]), MAIL).unwrap();
        }
        assert_eq!(stored(&twin, &inbox("bob")), 2, "by count");
        for name in ["c", "d"] {
            twin.deliver_at(10, "", &to(&[name]), MAIL).unwrap();
        }
        assert_eq!((stored(&twin, &inbox("bob")), stored(&twin, &Scope::All)), (1, 3), "by bytes");
        twin.expire(102);
        assert_eq!(stored(&twin, &Scope::All), 2, "by age");
        let deleted =
            std::iter::from_fn(|| events.try_recv().ok()).filter(|e| matches!(e, Event::Deleted { .. }));
        assert_eq!(deleted.count(), 3, "each is told");
    }

    #[test]
    fn oversized_or_unaddressed_mail_is_refused() {
        let twin = twin(Retention { mail_bytes_max: 3, ..Retention::default() });
        assert!(matches!(twin.deliver_at(0, "", &to(&["bob"]), b"four"), Err(Unavailable::Refused(_))));
        assert!(matches!(twin.deliver_at(0, "", &[], b"a"), Err(Unavailable::Refused(_))));
        assert!(matches!(twin.deliver_at(0, "", &to(&["a b"]), b"a"), Err(Unavailable::Refused(_))));
        assert_eq!(twin.totals().refused, 3);
    }
}
