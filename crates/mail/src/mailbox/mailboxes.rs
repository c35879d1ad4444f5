//! The interface between receiving and reading: questions of pages and APIs about the stored mail, and their
//! answers.
//!
//! ```text
//!  SMTP sessions ──▶ store + index of inboxes (owner: a core, by the inbox's hash)
//!                          ▲ questions          │ events (arrived, deleted)
//!                 pages, APIs (their own thread) ◀┘
//! ```
//! Times are in milliseconds since 1970, sizes in bytes. There are two implementations: the real one on the
//! engine's store, and a slow twin in plain memory ([`crate::mailbox::twin`]). Tests compare the real one
//! with the twin, and tests of pages run on the twin.

use std::{future::Future, net::IpAddr, sync::Arc};

#[cfg(doc)]
use crate::render::PARSED_BYTES_MAX;
use crate::store::annotations::{Note, RecoveredNote};

/// An inbox: a normalized local part (case folded, plus-tag removed) at a lower-case domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inbox {
    /// Local part, folded.
    pub local: Box<str>,
    /// Domain, lower case, as A-labels.
    pub domain: Box<str>,
}

impl Inbox {
    /// Moves the inbox out of a value that is no longer needed, and leaves empty texts.
    pub(crate) fn take(&mut self) -> Self {
        Self { local: std::mem::take(&mut self.local), domain: std::mem::take(&mut self.domain) }
    }
}

/// ID of a stored mail: shown to people as 16 lower-case base-32 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MailId(pub u64);

/// One mail in one inbox as a list shows it, taken from the mail's head when it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// ID of the mail.
    pub id: MailId,
    /// ID of the mail in its first inbox, which identifies it across all inboxes.
    pub letter: MailId,
    /// Number of inboxes that the mail was delivered to.
    pub inboxes: u16,
    /// Inbox of the mail; in the list of all mails the first inbox that it was delivered to.
    pub inbox: Inbox,
    /// MAIL FROM, empty for a bounce.
    pub envelope_from: Box<str>,
    /// The head's From as it was received, not decoded, at most 998 bytes (RFC 5322, 2.1.1).
    pub from: Box<[u8]>,
    /// The head's Subject, in the same form as `from`.
    pub subject: Box<[u8]>,
    /// Time at which the 250 was sent.
    pub arrived_ms: u64,
    /// Time at which the mail expires.
    pub expires_ms: u64,
    /// Size of the whole mail.
    pub size_bytes: u64,
}

impl Summary {
    /// Returns whether this summary represents the mail in the list of all mails.
    #[must_use]
    pub fn is_letter(&self) -> bool {
        self.id == self.letter
    }
}

/// A stored mail as it was received.
#[derive(Debug, Clone)]
pub struct Mail {
    /// Summary of the mail.
    pub summary: Summary,
    /// Recipients as given in RCPT TO. Over all inboxes these are all recipients; otherwise only those within
    /// the scope, so that Bcc recipients stay hidden from the others.
    pub recipients: Arc<[Box<str>]>,
    /// Content after dot-unstuffing, preceded by our Received field. For a mail larger than
    /// [`PARSED_BYTES_MAX`] these are the first `PARSED_BYTES_MAX` + 1 bytes, so that a parser can tell that
    /// the mail is cut.
    pub raw: Arc<[u8]>,
}

impl Mail {
    /// Returns whether `raw` is the whole mail.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.raw.len() as u64 == self.summary.size_bytes
    }
}

/// A mail of any size, to be read piece by piece.
#[derive(Debug)]
pub struct Source {
    /// Summary of the mail.
    pub summary: Summary,
    /// Beginning of the mail; the whole mail if there are no pieces.
    pub front: Vec<u8>,
    /// Further pieces, in order.
    pub pieces: Vec<PieceLocation>,
}

/// Location of a piece of a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceLocation {
    /// Location in the store.
    pub(crate) location: u64,
    /// Length of the piece.
    pub(crate) bytes: u32,
}

/// Set of mails that a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// One inbox.
    Inbox(Inbox),
    /// Inboxes of a domain whose local part has this prefix ("" for all).
    Prefix {
        /// Prefix of the local part.
        local: Box<str>,
        /// The domain.
        domain: Box<str>,
    },
    /// All mails (Mailpit's single mailbox): each mail once, however many inboxes it was delivered to.
    All,
}

impl Scope {
    /// Returns whether an inbox is within the scope.
    #[must_use]
    pub fn contains(&self, inbox: &Inbox) -> bool {
        self.contains_address(&inbox.local, &inbox.domain)
    }

    /// Returns whether an inbox, given as local part and domain, is within the scope.
    #[must_use]
    pub fn contains_address(&self, own_local: &str, own_domain: &str) -> bool {
        match self {
            Self::Inbox(only) => *only.local == *own_local && *only.domain == *own_domain,
            Self::Prefix { local, domain } => **domain == *own_domain && own_local.starts_with(&**local),
            Self::All => true,
        }
    }

    /// Returns whether a list of this scope shows the summary; the list of all mails shows each mail once.
    #[must_use]
    pub fn shows(&self, summary: &Summary) -> bool {
        match self {
            Self::All => summary.is_letter(),
            _ => self.contains(&summary.inbox),
        }
    }
}

/// Events sent to all listeners.
#[derive(Debug, Clone)]
pub enum Event {
    /// A mail has arrived and can be read.
    Arrived(Arc<Summary>),
    /// A mail is gone from an inbox.
    Deleted {
        /// The inbox.
        inbox: Inbox,
        /// ID of the mail.
        id: MailId,
        /// Tells whether other inboxes still have the mail.
        remains: RemainingName,
    },
    /// The last of several inboxes has dropped a mail.
    Over {
        /// ID of the mail across all inboxes.
        letter: MailId,
    },
    /// Events were lost, possibly for any inbox: listeners must read the lists again. A listener that lags is
    /// informed of lost events by its receiver instead.
    Missed,
}

/// State of a mail after one inbox has dropped it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemainingName {
    /// No inbox has the mail.
    Nothing,
    /// The list of all mails keeps the mail under this ID, because other inboxes have it.
    ThisName,
    /// The list of all mails keeps the mail under another ID, until [`Event::Over`].
    OtherName,
}

/// Counts that pages show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Mails stored now.
    pub stored: u64,
    /// Size of these mails.
    pub stored_bytes: u64,
    /// Inboxes with at least one mail.
    pub inboxes: u64,
    /// Mails accepted with a 250 since the start.
    pub accepted: u64,
    /// Mails refused since the start.
    pub refused: u64,
}

/// Reason why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// The disk failed.
    #[error("cannot read the store: {0}")]
    Disk(String),
    /// The reader's budget has no room for the mail.
    #[error("no memory to read the mail")]
    NoRoom,
    /// An injected mail was not accepted.
    #[error("the mail was not accepted: {0}")]
    Refused(String),
    /// The request was made too often.
    #[error("{0}")]
    TooOften(&'static str),
}

/// Memory budget of a reader, checked before the bytes of a mail are read, possibly in several steps.
pub trait ReadBudget: Send + 'static {
    /// Reserves more bytes; returns false if there is no room.
    fn reserve(&mut self, bytes: u64) -> bool;
}

/// A budget without a limit.
impl ReadBudget for () {
    fn reserve(&mut self, _: u64) -> bool {
        true
    }
}

/// A page of the stored mails across all inboxes, each with its arrival time, and the position to continue
/// from.
pub type StoredPage<At> = (Vec<(MailId, u64)>, Option<At>);

/// Access to the stored mail.
pub trait Mailboxes: Clone + Send + Sync + 'static {
    /// Lists mails, newest first. Readers of the same mail share one summary in memory.
    fn list(
        &self,
        scope: &Scope,
        skip: usize,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Arc<Summary>>, Unavailable>> + Send;
    /// Returns the number of mails in a list.
    fn count(&self, scope: &Scope) -> impl Future<Output = Result<u64, Unavailable>> + Send;
    /// Returns the summaries of the given mails, except for those that do not exist within the scope.
    fn find(
        &self,
        scope: &Scope,
        ids: &[MailId],
    ) -> impl Future<Output = Result<Vec<Arc<Summary>>, Unavailable>> + Send;
    /// Reads a mail of a scope and returns it with the budget that was used; `None` if the mail is gone,
    /// never existed, or is outside the scope. With [`Scope::All`], any of the mail's IDs finds it.
    ///
    /// # Errors
    /// [`Unavailable::NoRoom`] if the budget has no room.
    fn mail_into<R: ReadBudget>(
        &self,
        scope: &Scope,
        id: MailId,
        room: R,
    ) -> impl Future<Output = Result<Option<(Mail, R)>, Unavailable>> + Send;
    /// Reads several mails, each with its own budget, in the order requested.
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
    /// Reads a mail of any size, in whichever inbox it is; `None` if the mail was deleted or never existed.
    fn mail(&self, id: MailId) -> impl Future<Output = Result<Option<Mail>, Unavailable>> + Send {
        async move { Ok(self.mail_into(&Scope::All, id, ()).await?.map(|(mail, ())| mail)) }
    }
    /// Opens a mail of a scope, of any size, and returns it with the budget used for its beginning.
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
    /// Reads a piece of a mail; `None` if the mail has been deleted or the piece is damaged.
    fn piece(&self, at: PieceLocation) -> impl Future<Output = Result<Option<Vec<u8>>, Unavailable>> + Send {
        let _ = at;
        async { Ok(None) }
    }
    /// Lists the mails across all inboxes in arbitrary order: about `most` of them, each with its arrival
    /// time, and the position to continue from, beginning with 0. Mails that arrive or are deleted during the
    /// walk may or may not be included.
    fn list_stored(
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
    /// Returns which of these mails exist in any inbox.
    fn check_existence(&self, ids: &[MailId]) -> impl Future<Output = Result<Vec<bool>, Unavailable>> + Send {
        async move {
            let found = self.find(&Scope::All, ids).await?;
            Ok(ids.iter().map(|id| found.iter().any(|summary| summary.id == *id)).collect())
        }
    }
    /// Returns all IDs of a mail, one for each inbox that it was delivered to.
    fn names_of(&self, letter: MailId) -> impl Future<Output = Result<Vec<MailId>, Unavailable>> + Send;
    /// Deletes a mail: from each of its inboxes if the scope is all inboxes, otherwise from its own. Returns
    /// whether it existed. Once this returns, the mail cannot be read there any more, and a crash does not
    /// bring it back.
    fn delete(&self, scope: &Scope, id: MailId) -> impl Future<Output = Result<bool, Unavailable>> + Send;
    /// Deletes all mails of a scope. Returns their number; a mail counts once for each inbox that had it.
    fn delete_all(&self, scope: &Scope) -> impl Future<Output = Result<u64, Unavailable>> + Send;
    /// Makes mails expire at a given time, unless they expire earlier. Once this returns, a crash does not
    /// undo it. Mails that no longer exist are skipped.
    fn expire_early(
        &self,
        ids: &[MailId],
        expires_ms: u64,
    ) -> impl Future<Output = Result<(), Unavailable>> + Send;
    /// Replaces the flags and tags of mails. Once this returns, a crash does not undo it. Mails that no
    /// longer exist are skipped.
    fn write_note(&self, notes: Vec<(MailId, Note)>) -> impl Future<Output = Result<(), Unavailable>> + Send;
    /// Takes the flags and tags that were recovered at the start; only the first call returns them.
    fn take_recovered_notes(&self) -> Vec<RecoveredNote>;
    /// Accepts a mail that `peer` submitted through the API, with the same bans and rates as SMTP.
    fn deliver(
        &self,
        peer: IpAddr,
        envelope_from: &str,
        recipients: &[String],
        raw: &[u8],
    ) -> impl Future<Output = Result<Vec<MailId>, Unavailable>> + Send;
    /// Subscribes to all events from now on. A listener that lags loses the oldest events and is notified of
    /// it.
    fn events(&self) -> tokio::sync::broadcast::Receiver<Event>;
    /// Returns the counts that pages show.
    fn totals(&self) -> Totals;
}
