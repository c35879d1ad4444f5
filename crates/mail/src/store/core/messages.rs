//! Kinds of log records, and messages between the cores of the mail store.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use engine::log::Kind;
use tokio::sync::oneshot;

use crate::{
    mailbox::mailboxes::{Event, MailId, Scope, StoredPage, Summary, Unavailable},
    smtp::ListenerKind as Listening,
    store::{
        annotations::Note,
        index::{NewEntry, Place},
    },
};

/// A mail with its recipients.
pub(crate) const MAIL: Kind = Kind(1);
/// One of several inboxes deleted the mail; the tag is the mail's ID in that inbox.
pub(crate) const UNLINKED: Kind = Kind(2);
/// A mail expires before its age; the tag is the mail's ID, the hash field is the time in Unix milliseconds.
pub(crate) const HURRIED: Kind = Kind(3);

/// The note on a mail; the tag is the mail's ID, the hash field and the payload are encoded by
/// [`crate::store::annotations::Note`].
pub(crate) const NOTED: Kind = Kind(4);

/// A part of a large mail; the tag is the mail's ID in its first inbox. A part that no mail record names is
/// garbage.
pub(crate) const PART: Kind = Kind(5);

/// A stored mail that is to be entered into the index of an inbox.
pub(crate) struct Arrival {
    pub(crate) entry: NewEntry,
    pub(crate) summary: Arc<Summary>,
}

/// Messages to cores and to the event listeners.
pub(crate) enum Message {
    /// To the owner of an inbox: mails that enter its index.
    Arrived(Vec<Arrival>),
    /// To the owner of a mail's first inbox: another inbox has dropped the mail.
    LetGo(InboxRemoval),
    /// A request from a page or an API.
    Ask(Question),
    /// Summaries that were read from the log, for the core's cache.
    Remember(Vec<Arc<Summary>>),
    /// To all cores: drop the index entries whose records are in this segment of the log.
    Reclaim(u32),
    /// To the listeners: an event.
    Told(Event),
    /// A connection handed over by a core that has too many.
    Accept(std::net::TcpStream, SocketAddr, Listening),
    /// The ban lists were reloaded.
    Lists(Arc<crate::abuse::Lists>),
}

/// Removal of a mail from one of several inboxes.
pub(crate) struct InboxRemoval {
    /// ID of the mail in its first inbox.
    pub(crate) letter: MailId,
    /// Location of the record of the removal, if one is written.
    pub(crate) marker: Option<u64>,
    /// True if the mail must not come back after a crash.
    pub(crate) for_good: bool,
}

/// Location of a mail, and its summary if that is in memory.
pub(crate) struct ListEntry {
    pub(crate) place: Place,
    pub(crate) summary: Option<Arc<Summary>>,
}

/// Requests from pages and APIs to a core.
pub(crate) enum Question {
    List {
        scope: Scope,
        skip: usize,
        limit: usize,
        answer: oneshot::Sender<Vec<ListEntry>>,
    },
    Count {
        scope: Scope,
        answer: oneshot::Sender<u64>,
    },
    Mail {
        id: MailId,
        answer: oneshot::Sender<Option<ListEntry>>,
    },
    /// Looks up the given mails; the answer has those that exist.
    Mails {
        ids: Vec<MailId>,
        answer: oneshot::Sender<Vec<ListEntry>>,
    },
    Delete {
        ids: Vec<MailId>,
        answer: oneshot::Sender<Result<u64, String>>,
    },
    DeleteAll {
        scope: Scope,
        answer: oneshot::Sender<Result<u64, String>>,
    },
    Hurry {
        ids: Vec<MailId>,
        expires_ms: u64,
        answer: oneshot::Sender<Result<(), Unavailable>>,
    },
    /// Lists mails across all inboxes by slot, from a given slot on; the answer contains the slot to continue
    /// from.
    Stored {
        from: u32,
        most: usize,
        answer: oneshot::Sender<StoredPage<u32>>,
    },
    /// Sets the flags and tags of mails.
    Note {
        notes: Vec<(MailId, Note)>,
        answer: oneshot::Sender<Result<(), Unavailable>>,
    },
    Deliver {
        /// Address of the client that submitted the mail.
        peer: IpAddr,
        from: String,
        recipients: Vec<String>,
        raw: Vec<u8>,
        answer: oneshot::Sender<Result<Vec<MailId>, Unavailable>>,
    },
}
