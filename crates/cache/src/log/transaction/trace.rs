//! When a request came and which fetch it led to, kept between the records of a client and of an origin.

use super::with_log;
use engine::cores::clock;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A moment, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(super) ns: u64,
    pub(super) unix_us: u64,
}

impl Moment {
    /// Now, if anybody reads the log.
    #[inline]
    pub(crate) fn now() -> Option<Self> {
        with_log(|_, scribe| scribe.is_read()).unwrap_or(false).then(Self::taken)
    }

    fn taken() -> Self {
        Self { ns: clock::monotonic_ns(), unix_us: clock::unix_ns() / 1000 }
    }
}

/// What the records of a client's request and of those that an origin was asked for it know of each other.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The client's record.
    pub(super) id: u64,
    /// The origin's that was begun for it last; 0: none.
    pub(super) fetch: AtomicU64,
    /// When that was.
    pub(super) asked_ns: AtomicU64,
    /// Bytes of its content that were read.
    pub(super) bytes_in: AtomicU64,
    /// Whose fetch it has joined.
    pub(super) joined: OnceLock<Arc<Trace>>,
}

impl Trace {
    /// One waits for a fetch that another has begun.
    pub(crate) fn joins(mine: Option<&Arc<Self>>, theirs: Option<&Arc<Self>>) {
        if let (Some(mine), Some(theirs)) = (mine, theirs)
            && mine.id != theirs.id
        {
            // Who joins a second one has not had its answer of the first.
            let _ = mine.joined.set(Arc::clone(theirs));
        }
    }

    /// So many bytes of the request's content were read.
    pub(crate) fn add_content(of: Option<&Arc<Self>>, bytes: usize) {
        if let Some(trace) = of {
            trace.bytes_in.fetch_add(bytes as u64, Relaxed);
        }
    }

    pub(super) fn fetch(&self) -> u64 {
        match (self.fetch.load(Relaxed), self.joined.get()) {
            (0, Some(theirs)) => theirs.fetch.load(Relaxed),
            (own, _) => own,
        }
    }
}
