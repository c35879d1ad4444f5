//! Link between the log records of a client's request and of its origin requests, and the clock that both
//! use.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use engine::cores::clock;

use super::with_log;

/// A point in time, on both the monotonic clock and the wall clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(super) ns: u64,
    pub(super) unix_us: u64,
}

impl Moment {
    /// Returns the current moment if the log has a reader.
    #[inline]
    pub(crate) fn now() -> Option<Self> {
        with_log(|_, scribe| scribe.is_read()).unwrap_or(false).then(Self::taken)
    }

    fn taken() -> Self {
        Self { ns: clock::monotonic_ns(), unix_us: clock::unix_ns() / 1000 }
    }
}

/// Link between the record of a client's request and the records of the origin requests made for it.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Number of the client's record.
    pub(super) id: u64,
    /// Number of the origin's record that was begun last for this request; 0 if there is none.
    pub(super) fetch: AtomicU64,
    /// Time at which the origin request in `fetch` began.
    pub(super) asked_ns: AtomicU64,
    /// Bytes of the request's content that were read.
    pub(super) bytes_in: AtomicU64,
    /// Trace of the request whose fetch this one has joined.
    pub(super) joined: OnceLock<Arc<Trace>>,
}

impl Trace {
    /// Records that one request waits for a fetch that another request has begun.
    pub(crate) fn joins(mine: Option<&Arc<Self>>, theirs: Option<&Arc<Self>>) {
        if let (Some(mine), Some(theirs)) = (mine, theirs)
            && mine.id != theirs.id
        {
            // A request that joins a second fetch got no answer from the first; the first link stays.
            let _ = mine.joined.set(Arc::clone(theirs));
        }
    }

    /// Counts bytes of the request's content that were read.
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
