//! The bell by which loops and helpers wake a helper thread of the log. Loops are woken by another bell, of
//! `cores`.

use std::{
    sync::{
        OnceLock,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
            fence,
        },
    },
    thread::{self, Thread},
    time::Duration,
};

/// Bell that wakes a helper. Ringing costs a system call only if the helper sleeps.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: AtomicBool,
    /// True while the helper sleeps without a timer, or is about to.
    is_resting: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Bell {
    /// Makes the calling thread the one that the bell wakes.
    pub(super) fn wake_this_thread(&self) {
        let _ = self.sleeper.set(thread::current());
    }

    /// Wakes the helper, because it has a task that must be done now.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, AcqRel) {
            self.unpark();
        }
    }

    /// Wakes a resting helper to begin its interval, because the helper has a task to do within the interval.
    /// The caller must already have published the task.
    ///
    /// Two fences order this call and [`Bell::rest`]. If the fence here comes first, the helper sees the task;
    /// otherwise this function sees that the helper rests.
    #[inline]
    pub(super) fn begin_interval(&self) {
        fence(SeqCst);
        if self.is_resting.load(Relaxed) && self.is_resting.swap(false, AcqRel) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }

    /// Waits for the bell, at most for `interval`; returns whether it rang.
    pub(super) fn wait(&self, interval: Duration) -> bool {
        self.rung.swap(false, AcqRel) || {
            thread::park_timeout(interval);
            self.rung.swap(false, AcqRel)
        }
    }

    /// Waits until the bell rings or an interval begins, unless `is_left` returns true because work is
    /// pending.
    pub(super) fn rest(&self, is_left: impl Fn() -> bool) {
        self.is_resting.store(true, Relaxed);
        fence(SeqCst);
        if !is_left() {
            while self.is_resting.load(Acquire) && !self.rung.load(Acquire) {
                thread::park();
            }
        }
        self.is_resting.store(false, Relaxed);
    }
}
