//! How far a writer's records have come: appended, written (they survive the process), durable (they survive the
//! power).
//!
//! ```text
//! loop: append ─▶ appended          helper: write ─▶ written ─▶ wake          syncer: fdatasync ─▶ durable ─▶ wake
//! ```
//! *Which memory:* one cache line pair a writer. One wake-up for all that a write or a sync covered.

use std::{
    pin::pin,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use tokio::sync::Notify;

/// A writer's n-th record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ticket(pub(super) u64);

/// What a record waits for in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurabilityError {
    /// The disk refuses to write; it is tried again, so that the record may yet become written.
    #[error("the disk refuses to write (error {0})")]
    Failing(i32),
    /// The disk failed to make durable what it had taken: nothing is known of it, and no durability is promised until
    /// the store is opened anew.
    #[error("the disk failed to sync; durability is not promised until a restart")]
    SyncFailed,
}

/// One writer's progress. Read by anybody.
#[derive(Debug)]
#[repr(align(128))]
pub struct Progress {
    appended: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    durable_wanted: AtomicU64,
    /// The last write's error, or 0.
    failing: AtomicU32,
    sync_failed: AtomicU32,
    /// Somebody is writing this writer's blocks: what is written counts when all of it is, so two at once would not do.
    is_being_written: AtomicBool,
    changed: Notify,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            appended: AtomicU64::new(0),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            durable_wanted: AtomicU64::new(0),
            failing: AtomicU32::new(0),
            sync_failed: AtomicU32::new(0),
            is_being_written: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Whether the record survives a crash of the process.
    pub fn is_written(&self, ticket: Ticket) -> bool {
        self.written.load(Acquire) >= ticket.0
    }

    /// Whether the record survives a loss of power.
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.durable.load(Acquire) >= ticket.0
    }

    /// Waits until the record survives a crash of the process. Somebody must ask for it ([`super::Writer::flush`]), or
    /// it takes up to the interval.
    ///
    /// # Errors
    /// [`DurabilityError::Failing`]
    pub async fn written(&self, ticket: Ticket) -> Result<(), DurabilityError> {
        self.until(|| match self.failing.load(Acquire) {
            _ if self.is_written(ticket) => Some(Ok(())),
            0 => None,
            error => Some(Err(DurabilityError::Failing(error as i32))),
        })
        .await
    }

    /// Waits until the record survives a loss of power. Somebody must ask for it ([`super::Writer::make_durable`]).
    ///
    /// # Errors
    /// [`DurabilityError`]
    pub async fn durable(&self, ticket: Ticket) -> Result<(), DurabilityError> {
        self.until(|| {
            if self.is_durable(ticket) {
                return Some(Ok(()));
            }
            if self.sync_failed.load(Acquire) != 0 {
                return Some(Err(DurabilityError::SyncFailed));
            }
            match self.failing.load(Acquire) {
                0 => None,
                error => Some(Err(DurabilityError::Failing(error as i32))),
            }
        })
        .await
    }

    async fn until<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        loop {
            // Listening before looking: what changes in between wakes us.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(result) = done() {
                return result;
            }
            changed.await;
        }
    }

    pub(super) fn appended(&self) -> u64 {
        self.appended.load(Acquire)
    }

    pub(super) fn append(&self, ticket: Ticket) {
        // Release: whoever sees the number sees the bytes and their marks.
        self.appended.store(ticket.0, Release);
    }

    pub(super) fn want_durable(&self, ticket: Ticket) {
        self.durable_wanted.fetch_max(ticket.0, AcqRel);
    }

    /// Whether a sync would help anybody: something is wanted and written that is not durable.
    pub(super) fn wants_sync(&self) -> bool {
        let durable = self.durable.load(Acquire);
        self.durable_wanted.load(Acquire) > durable && self.written.load(Acquire) > durable
    }

    /// Whether there is something to write, or to try again.
    pub(super) fn wants_write(&self) -> bool {
        self.appended.load(Acquire) != self.written.load(Acquire) || self.failing.load(Acquire) != 0
    }

    pub(super) fn written_now(&self) -> u64 {
        self.written.load(Acquire)
    }

    /// Takes the right to write this writer's blocks, until [`Progress::leave`]; `false` if somebody has it.
    pub(super) fn enter(&self) -> bool {
        !self.is_being_written.swap(true, AcqRel)
    }

    pub(super) fn leave(&self) {
        self.is_being_written.store(false, Release);
    }

    pub(super) fn set_written(&self, upto: u64) {
        let failed_before = self.failing.swap(0, AcqRel) != 0;
        if self.written.fetch_max(upto, AcqRel) < upto || failed_before {
            self.changed.notify_waiters();
        }
    }

    pub(super) fn set_failing(&self, error: &std::io::Error) {
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        self.failing.store(number.unsigned_abs(), Release);
        self.changed.notify_waiters();
    }

    pub(super) fn set_durable(&self, upto: u64) {
        if self.durable.fetch_max(upto, AcqRel) < upto {
            self.changed.notify_waiters();
        }
    }

    pub(super) fn set_sync_failed(&self) {
        self.sync_failed.store(1, Release);
        self.changed.notify_waiters();
    }

    /// Records that are not written yet.
    pub(super) fn waiting(&self) -> u64 {
        self.appended.load(Relaxed).saturating_sub(self.written.load(Relaxed))
    }
}
