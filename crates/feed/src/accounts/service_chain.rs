//! Messages on their way through service imports: one level for each account, as far as they have come.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::{
    accounts::imports::ServiceImport,
    delivery::{origin::Origin, run::Run, suspended::SuspendedDelivery},
};

/// A message on its way through service imports.
#[derive(Debug)]
pub(crate) struct ServiceImportChain {
    /// Steps so far; the first is the message that the client published.
    pub(super) levels: Vec<Level>,
}

#[derive(Debug)]
pub(super) struct Level {
    pub(super) of: Origin,
    pub(super) message: Message,
    /// Indices of the exports that the message has passed through; no export may occur twice.
    pub(super) passed: SmallVec<[usize; 4]>,
    pub(super) ways: SmallVec<[Way; 2]>,
    /// `way`: index of the next destination. `at`: index in the run of the next message for that destination.
    pub(super) way: usize,
    pub(super) at: usize,
    /// The message has not been delivered to all subscribers of its own account yet.
    pub(super) is_new: bool,
    pub(super) begun: Option<Box<SuspendedDelivery>>,
    /// Token of the pending request that was opened for this message, if it wants an answer.
    pub(super) asks: Option<u64>,
    /// Token of the pending request that this message answers, and whether the answer is the last.
    pub(super) answers: Option<(u64, bool)>,
    pub(super) reached: bool,
}

/// A message at a level.
#[derive(Debug)]
pub(super) enum Message {
    /// The run of messages that the client published.
    Published,
    /// A message of the level above, under another subject.
    Renamed { subject: Box<[u8]>, at: usize },
    /// A rewritten message that owns its bytes.
    Written(RequestInfo),
}

#[derive(Debug)]
pub(super) struct RequestInfo {
    pub(super) bytes: Vec<u8>,
    pub(super) subject: Box<[u8]>,
    pub(super) reply: Vec<u8>,
    pub(super) tail_at: usize,
    pub(super) body_bytes: usize,
    pub(super) header_bytes: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) enum Way {
    Service(Rc<ServiceImport>),
    Answer(u64),
}

impl ServiceImportChain {
    /// Returns the messages of the level at this depth.
    #[inline]
    pub(super) fn run<'a>(&'a self, depth: usize, published: &Run<'a>) -> Run<'a> {
        match &self.levels[depth].message {
            Message::Published => *published,
            Message::Renamed { subject, at } => {
                Run { subject, shown: None, reply: b"", ..self.run(depth - 1, published).one(*at) }
            }
            Message::Written(written) => Run {
                bytes: &written.bytes,
                stride: written.bytes.len(),
                tail_at: written.tail_at,
                body_bytes: written.body_bytes,
                header_bytes: written.header_bytes,
                subject: &written.subject,
                shown: None,
                reply: &written.reply,
            },
        }
    }
}

impl Level {
    #[inline]
    pub(super) fn new(of: &Origin, message: Message) -> Self {
        Self {
            of: *of,
            message,
            passed: SmallVec::new(),
            ways: SmallVec::new(),
            way: 0,
            at: 0,
            is_new: true,
            begun: None,
            asks: None,
            answers: None,
            reached: false,
        }
    }
}
