//! Whether a sleeper must be woken: the protocol between "empty" and "sleep".
//!
//! ```text
//!   receiver                                    sender
//!   ────────                                    ──────
//!   look at the rings: empty                    push (Release)
//!   asleep = true                               fence(SeqCst)
//!   fence(SeqCst)                               asleep? and I am the one who clears it → wake (eventfd)
//!   look at the rings again; empty → sleep
//! ```
//!
//! Of the two fences one comes first. If it is the receiver's, the sender sees `asleep`; if it is the sender's, the
//! receiver's second look sees the message. So a wake-up is never lost, and a receiver that is busy costs its senders
//! no system call. Modelled in `tests/loom_ring.rs`.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// One sleeper's bell. Any number of senders may ring it; one receiver sets it.
#[derive(Debug)]
#[repr(align(128))]
pub struct Bell {
    /// The receiver sleeps or is about to, and nobody has taken on the waking yet.
    asleep: AtomicBool,
}

impl Bell {
    /// A bell whose receiver is awake.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "loom's atomics have none, and nobody needs it")]
    pub fn new() -> Self {
        Self { asleep: AtomicBool::new(false) }
    }

    /// Receiver: "I am about to sleep". It must look at all its rings once more after this, and may sleep only if
    /// they are empty.
    pub fn about_to_sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Receiver: "I do not sleep after all", or "I woke for another reason".
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Sender, after it has pushed: whether it is this sender that must wake the receiver. True for one sender per
    /// sleep.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        // The plain load first: a receiver that is awake costs no write to its line. Compare and exchange rather than
        // swap: a sender that comes too late must leave no store behind.
        self.asleep.load(Ordering::Relaxed)
            && self.asleep.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
