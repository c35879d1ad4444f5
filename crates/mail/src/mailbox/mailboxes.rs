//! What pages and APIs may ask of the stored mail, and what they are told. The one seam between receiving and reading.
//!
//! ```text
//!  SMTP sessions ──▶ store + index of inboxes (owner: a core, by the inbox's hash)
//!                          ▲ questions          │ events (arrived, deleted)
//!                 pages, APIs (their own thread) ◀┘
//! ```
//! Times are milliseconds since 1970, sizes bytes. Two implementations: the real one over the engine's store, and a
//! slow twin in plain memory ([`crate::mailbox::twin`]) that tests compare it with and that pages are tested on.

use std::{future::Future, net::IpAddr, sync::Arc};

#[cfg(doc)]
use crate::render::PARSED_BYTES_MAX;
use crate::store::annotations::{Note, RecoveredNote};

/// An inbox: a local part by the rules of the address (case folded, plus-tag cut), at a domain in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inbox {
    /// Local part, folded.
    pub local: Box<str>,
    /// Domain, lower case, as A-labels.
    pub domain: Box<str>,
}

impl Inbox {
    /// The inbox, where nobody will ask for it again; what is left is none.
    pub(crate) fn take(&mut self) -> Self {
        Self { local: std::mem::take(&mut self.local), domain: std::mem::take(&mut self.domain) }
    }
}

/// A mail's name for as long as it is kept: 16 lower-case base-32 characters where people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MailId(pub u64);

/// One mail in one inbox as a list shows it; taken from the mail's head when it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub id: MailId,
    /// Its name in the first inbox that it came into, which is its name over all of them.
    pub letter: MailId,
    /// How many inboxes it came into.
    pub inboxes: u16,
    /// Where it lies; over all, the first inbox that it came into.
    pub inbox: Inbox,
    /// MAIL FROM, empty for a bounce.
    pub envelope_from: Box<str>,
    /// The head's From and Subject as they stand there, at most 998 bytes each (RFC 5322, 2.1.1), not decoded.
    pub from: Box<[u8]>,
    /// See `from`.
    pub subject: Box<[u8]>,
    /// When its 250 was said.
    pub arrived_ms: u64,
    /// When it will be forgotten.
    pub expires_ms: u64,
    /// Of the whole mail.
    pub size_bytes: u64,
}

impl Summary {
    /// Whether this is how the mail is shown over all inboxes.
    #[must_use]
    pub fn is_letter(&self) -> bool {
        self.id == self.letter
    }
}

/// A mail as it came.
#[derive(Debug, Clone)]
pub struct Mail {
    /// What lists show.
    pub summary: Summary,
    /// The recipients' addresses of its transaction, as said in RCPT TO: over all inboxes all of them, else those within
    /// the scope. Who was sent a copy without being told of is not told to the others.
    pub recipients: Arc<[Box<str>]>,
    /// The bytes after dot-unstuffing, with the Received field that we added in front; of a mail with more than
    /// [`PARSED_BYTES_MAX`] as many and one more, so that whoever takes it apart sees that it is not all.
    pub raw: Arc<[u8]>,
}

impl Mail {
    /// Whether `raw` is all of it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.raw.len() as u64 == self.summary.size_bytes
    }
}

/// A mail of whatever size, to be taken a piece at a time.
#[derive(Debug)]
pub struct Source {
    /// What lists show.
    pub summary: Summary,
    /// Its beginning; all of it if there are no pieces.
    pub front: Vec<u8>,
    /// The rest, in order.
    pub pieces: Vec<PieceLocation>,
}

/// Where a piece of a mail is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceLocation {
    /// What the store makes of it.
    pub(crate) location: u64,
    /// How long it is.
    pub(crate) bytes: u32,
}

/// Which mails a list is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// One inbox.
    Inbox(Inbox),
    /// Inboxes of a domain whose local part begins so ("" for all).
    Prefix {
        /// Begin of the local part.
        local: Box<str>,
        /// The domain.
        domain: Box<str>,
    },
    /// Everything (Mailpit's one box): each mail once, however many inboxes it came into.
    All,
}

impl Scope {
    /// Whether a mail of this inbox belongs to it.
    #[must_use]
    pub fn contains(&self, inbox: &Inbox) -> bool {
        self.contains_address(&inbox.local, &inbox.domain)
    }

    /// The same, of an inbox in its parts.
    #[must_use]
    pub fn contains_address(&self, own_local: &str, own_domain: &str) -> bool {
        match self {
            Self::Inbox(only) => *only.local == *own_local && *only.domain == *own_domain,
            Self::Prefix { local, domain } => **domain == *own_domain && own_local.starts_with(&**local),
            Self::All => true,
        }
    }

    /// Whether a list of this scope shows it: over all, each mail once.
    #[must_use]
    pub fn shows(&self, summary: &Summary) -> bool {
        match self {
            Self::All => summary.is_letter(),
            _ => self.contains(&summary.inbox),
        }
    }
}

/// What happened, told to all who listen.
#[derive(Debug, Clone)]
pub enum Event {
    /// A mail can be read now.
    Arrived(Arc<Summary>),
    /// A mail is gone from an inbox.
    Deleted {
        /// Where it was.
        inbox: Inbox,
        /// Which.
        id: MailId,
        /// Whether other inboxes have it.
        remains: RemainingName,
    },
    /// No inbox has a mail any more that came into several.
    Over {
        /// Its name over all inboxes.
        letter: MailId,
    },
    /// Events were lost on their way, of any inbox: who wants to know what is there has to look. A listener that lags
    /// is told the same by its receiver.
    Missed,
}

/// What is left of a mail that an inbox has let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemainingName {
    /// Nothing: no inbox has it.
    Nothing,
    /// Over all inboxes it goes on by this name, because others have it.
    ThisName,
    /// Over all inboxes it has another name, and goes on until [`Event::Over`] says otherwise.
    OtherName,
}

/// Counts that pages show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Mails that are stored now.
    pub stored: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Inboxes that hold a mail.
    pub inboxes: u64,
    /// Mails that got their 250 since the start.
    pub accepted: u64,
    /// Mails refused since the start.
    pub refused: u64,
}

/// Why a question got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// The disk failed.
    #[error("the store cannot be read: {0}")]
    Disk(String),
    /// The reader has no room for the mail.
    #[error("there is no room to read the mail")]
    NoRoom,
    /// An injected mail was not accepted.
    #[error("the mail was not accepted: {0}")]
    Refused(String),
    /// What is asked for comes too often.
    #[error("{0}")]
    TooOften(&'static str),
}

/// What a mail is read into: asked for room before its bytes are read, perhaps for parts of them one after the other.
pub trait ReadBudget: Send + 'static {
    /// Whether there is room for so many bytes more.
    fn make(&mut self, bytes: u64) -> bool;
}

/// Whatever comes.
impl ReadBudget for () {
    fn make(&mut self, _: u64) -> bool {
        true
    }
}

/// Some of the stored mails over all inboxes, each with its arrival, and where to go on.
pub type StoredPage<At> = (Vec<(MailId, u64)>, Option<At>);

/// The stored mail.
pub trait Mailboxes: Clone + Send + Sync + 'static {
    /// Newest first; what many ask for is the same memory to all of them.
    fn list(
        &self,
        scope: &Scope,
        skip: usize,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Arc<Summary>>, Unavailable>> + Send;
    /// How many a list has in all.
    fn count(&self, scope: &Scope) -> impl Future<Output = Result<u64, Unavailable>> + Send;
    /// What lists show of these mails, as far as they are there and within the scope.
    fn find(
        &self,
        scope: &Scope,
        ids: &[MailId],
    ) -> impl Future<Output = Result<Vec<Arc<Summary>>, Unavailable>> + Send;
    /// One mail of a scope and the room that was made for it; nothing if it is gone, never was, or lies elsewhere.
    /// [`Unavailable::NoRoom`] if there was none. Over all inboxes a mail is found by each of its names.
    fn mail_into<R: ReadBudget>(
        &self,
        scope: &Scope,
        id: MailId,
        room: R,
    ) -> impl Future<Output = Result<Option<(Mail, R)>, Unavailable>> + Send;
    /// The same of several, each with a room of its own, in the order in which they are asked for.
    fn mails_into<R: ReadBudget>(
        &self,
        scope: &Scope,
        wanted: Vec<(MailId, R)>,
    ) -> impl Future<Output = Result<Vec<Option<(Mail, R)>>, Unavailable>> + Send {
        async move {
            let mut mails = Vec::with_capacity(wanted.len());
            for (id, room) in wanted {
                mails.push(self.mail_into(scope, id, room).await?);
            }
            Ok(mails)
        }
    }
    /// One mail over all inboxes, whatever its size; nothing if it is gone or never was.
    fn mail(&self, id: MailId) -> impl Future<Output = Result<Option<Mail>, Unavailable>> + Send {
        async move { Ok(self.mail_into(&Scope::All, id, ()).await?.map(|(mail, ())| mail)) }
    }
    /// One mail of a scope as it came, whatever its size, and the room that was made for its beginning.
    fn source_into<R: ReadBudget>(
        &self,
        scope: &Scope,
        id: MailId,
        room: R,
    ) -> impl Future<Output = Result<Option<(Source, R)>, Unavailable>> + Send {
        async move {
            let read = self.mail_into(scope, id, room).await?;
            let whole =
                |mail: Mail| Source { front: mail.raw.to_vec(), summary: mail.summary, pieces: Vec::new() };
            Ok(read.map(|(mail, room)| (whole(mail), room)))
        }
    }
    /// A piece of a mail; nothing if the mail has gone meanwhile, or the piece is damaged.
    fn piece(&self, at: PieceLocation) -> impl Future<Output = Result<Option<Vec<u8>>, Unavailable>> + Send {
        let _ = at;
        async { Ok(None) }
    }
    /// The mails over all inboxes, each with its arrival, in no order: about `most` of them, and where to go on, beginning
    /// with 0. A mail that comes or goes meanwhile may be among them.
    fn stored(
        &self,
        from: u64,
        most: usize,
    ) -> impl Future<Output = Result<StoredPage<u64>, Unavailable>> + Send {
        async move {
            let skip = usize::try_from(from).unwrap_or(usize::MAX);
            let listed = self.list(&Scope::All, skip, most).await?;
            let next = (listed.len() == most).then_some(from + most as u64);
            Ok((listed.iter().map(|summary| (summary.id, summary.arrived_ms)).collect(), next))
        }
    }
    /// Which of these mails are there over all inboxes.
    fn are_there(&self, ids: &[MailId]) -> impl Future<Output = Result<Vec<bool>, Unavailable>> + Send {
        async move {
            let found = self.find(&Scope::All, ids).await?;
            Ok(ids.iter().map(|id| found.iter().any(|summary| summary.id == *id)).collect())
        }
    }
    /// All names of a mail over all inboxes: one for each inbox that it came into.
    fn names_of(&self, letter: MailId) -> impl Future<Output = Result<Vec<MailId>, Unavailable>> + Send;
    /// Deletes one: over all inboxes from each of them, else from its own; whether it was there. On return it cannot be
    /// read there any more, and a crash does not bring it back.
    fn delete(&self, scope: &Scope, id: MailId) -> impl Future<Output = Result<bool, Unavailable>> + Send;
    /// Deletes all of a scope; how many, counted once for each inbox that had them.
    fn delete_all(&self, scope: &Scope) -> impl Future<Output = Result<u64, Unavailable>> + Send;
    /// Has mails forgotten at a time, unless they are before. On return a crash does not take that back. Those that are
    /// gone are passed over.
    fn hurry(&self, ids: &[MailId], expires_ms: u64) -> impl Future<Output = Result<(), Unavailable>> + Send;
    /// Writes down what is said about mails, in the place of what was said before. On return a crash does not take it
    /// back. Those that are gone are passed over.
    fn note(&self, notes: Vec<(MailId, Note)>) -> impl Future<Output = Result<(), Unavailable>> + Send;
    /// What was said before the start; the first who asks is told.
    fn noted(&self) -> Vec<RecoveredNote>;
    /// Takes a mail that `peer` handed over by the API, as if by SMTP: bans and rates hold.
    fn deliver(
        &self,
        peer: IpAddr,
        envelope_from: &str,
        recipients: &[String],
        raw: &[u8],
    ) -> impl Future<Output = Result<Vec<MailId>, Unavailable>> + Send;
    /// All events from now on; a listener that lags loses the oldest and is told so.
    fn events(&self) -> tokio::sync::broadcast::Receiver<Event>;
    /// Counts.
    fn totals(&self) -> Totals;
}
