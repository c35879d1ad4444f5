//! Kinds of log records, and messages between the cores of the mail store.

use crate::{
    mailbox::mailboxes::{Event, MailId, Scope, StoredPage, Summary, Unavailable},
    smtp::ListenerKind as Listening,
    store::{
        annotations::Note,
        index::{NewEntry, Place},
    },
};
use engine::log::Kind;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use tokio::sync::oneshot;

/// A mail with its recipients.
pub(crate) const MAIL: Kind = Kind(1);
/// One inbox of several deleted the mail; the tag is the mail's name there.
pub(crate) const UNLINKED: Kind = Kind(2);
/// A mail goes before its age; the tag is its name, the hash the millisecond.
pub(crate) const HURRIED: Kind = Kind(3);

/// What is said about a mail; the tag is its name, the hash and the payload as [`crate::store::annotations::Note`] has them.
pub(crate) const NOTED: Kind = Kind(4);

/// A part of a large mail; the tag is the mail's name over all inboxes. Without a record that names it, it is nobody's.
pub(crate) const PART: Kind = Kind(5);

/// A mail that can be read from now on.
pub(crate) struct Arrival {
    pub(crate) entry: NewEntry,
    pub(crate) summary: Arc<Summary>,
}

/// What cores and askers say to each other.
pub(crate) enum Message {
    /// To the owner of an inbox: these can be read.
    Arrived(Vec<Arrival>),
    /// To the owner of a mail's first inbox: another inbox has let it go.
    LetGo(InboxRemoval),
    /// Somebody asks.
    Ask(Question),
    /// Summaries that were read from the log, for the next who asks.
    Remember(Vec<Arc<Summary>>),
    /// To all: forget what lies in this segment of the log.
    Reclaim(u32),
    /// To the listeners.
    Told(Event),
    /// A connection that another core had too many of.
    Accept(std::net::TcpStream, SocketAddr, Listening),
    /// The lists were read again.
    Lists(Arc<crate::abuse::Lists>),
}

/// An inbox of several has let a mail go.
pub(crate) struct InboxRemoval {
    /// The mail's name in its first inbox.
    pub(crate) letter: MailId,
    /// Where that is written, if it is.
    pub(crate) marker: Option<u64>,
    /// It must not come back after a crash.
    pub(crate) for_good: bool,
}

/// Where a mail lies, and what lists show of it if that is in memory.
pub(crate) struct ListEntry {
    pub(crate) place: Place,
    pub(crate) summary: Option<Arc<Summary>>,
}

/// What pages and APIs ask of a core.
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
    /// Those of them that are there.
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
    /// Mails over all inboxes, by their slots from one on; and where to go on.
    Stored {
        from: u32,
        most: usize,
        answer: oneshot::Sender<StoredPage<u32>>,
    },
    /// What is said about mails from now on.
    Note {
        notes: Vec<(MailId, Note)>,
        answer: oneshot::Sender<Result<(), Unavailable>>,
    },
    Deliver {
        /// Who handed it over.
        peer: IpAddr,
        from: String,
        recipients: Vec<String>,
        raw: Vec<u8>,
        answer: oneshot::Sender<Result<Vec<MailId>, Unavailable>>,
    },
}
