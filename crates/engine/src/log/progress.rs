//! Progress of a writer's records: appended, written (they survive the end of the process), durable (they
//! survive a loss of power).
//!
//! ```text
//! loop: append ─▶ appended          helper: write ─▶ written ─▶ wake          syncer: fdatasync ─▶ durable ─▶ wake
//! ```
//! *Memory:* one pair of cache lines per writer. One wake-up for all records that a write or a sync covered.

use std::{
    pin::pin,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use tokio::sync::Notify;

/// Ticket for awaiting an appended record: the record's number among those of its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ticket(pub(super) u64);

/// Reasons why a record could not be made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurabilityError {
    /// The disk refuses to write. The write is retried, so the record may still be written.
    #[error("the disk refuses writes (error {0})")]
    Failing(i32),
    /// The disk failed to sync data that it had accepted: its state is unknown, and no durability is promised
    /// until the store is reopened.
    #[error("the disk failed to sync; durability is not guaranteed until a restart")]
    SyncFailed,
}

/// Progress of one writer. Any thread may read it.
#[derive(Debug)]
#[repr(align(128))]
pub struct Progress {
    appended: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    durable_wanted: AtomicU64,
    /// Error number of the last write to the disk; 0 if it succeeded.
    failing: AtomicU32,
    sync_failed: AtomicU32,
    /// True while a thread writes this writer's blocks. Progress is recorded only after a complete write, so
    /// two threads must not write at once.
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

    /// Returns whether the record survives a crash of the process.
    pub fn is_written(&self, ticket: Ticket) -> bool {
        self.written.load(Acquire) >= ticket.0
    }

    /// Returns whether the record survives a loss of power.
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.durable.load(Acquire) >= ticket.0
    }

    /// Waits until the record survives a crash of the process. This takes up to the flush interval unless a
    /// write is requested ([`super::Writer::flush`]).
    ///
    /// # Errors
    /// [`DurabilityError::Failing`] if the disk refuses writes.
    pub async fn written(&self, ticket: Ticket) -> Result<(), DurabilityError> {
        self.until(|| match self.failing.load(Acquire) {
            _ if self.is_written(ticket) => Some(Ok(())),
            0 => None,
            error => Some(Err(DurabilityError::Failing(error as i32))),
        })
        .await
    }

    /// Waits until the record survives a loss of power. A sync must be requested
    /// ([`super::Writer::make_durable`]).
    ///
    /// # Errors
    /// [`DurabilityError::SyncFailed`] if a sync failed; [`DurabilityError::Failing`] if the disk refuses
    /// writes.
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
            // Registered before the check, so that a change in between wakes this task.
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
        // Release: a thread that sees the number also sees the bytes and their dirty marks.
        self.appended.store(ticket.0, Release);
    }

    pub(super) fn want_durable(&self, ticket: Ticket) {
        self.durable_wanted.fetch_max(ticket.0, AcqRel);
    }

    /// Returns whether a sync is useful: durability is requested, and some written records are not durable
    /// yet.
    pub(super) fn wants_sync(&self) -> bool {
        let durable = self.durable.load(Acquire);
        self.durable_wanted.load(Acquire) > durable && self.written.load(Acquire) > durable
    }

    /// Returns whether there are records to write, or a write to retry.
    pub(super) fn wants_write(&self) -> bool {
        self.appended.load(Acquire) != self.written.load(Acquire) || self.failing.load(Acquire) != 0
    }

    pub(super) fn written_now(&self) -> u64 {
        self.written.load(Acquire)
    }

    /// Takes the right to write this writer's blocks, until [`Progress::leave`]; `false` if another thread
    /// has it.
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

    /// Returns the number of records that are not written yet.
    pub(super) fn waiting(&self) -> u64 {
        self.appended.load(Relaxed).saturating_sub(self.written.load(Relaxed))
    }
}
