//! The wake-up protocol of a receiver that finds its rings empty and goes to sleep: decides whether a sender
//! must wake it.
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
//! One of the two fences comes first. If it is the receiver's, the sender sees `asleep`; if it is the
//! sender's, the receiver's second look sees the message. So a wake-up is never lost, and a busy receiver
//! costs its senders no system call. Modelled in `tests/loom_ring.rs`.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Bell of one receiver. Any number of senders may ring it; only the receiver sets it.
#[derive(Debug)]
#[repr(align(128))]
pub struct Bell {
    /// True while the receiver sleeps or is about to, and no sender has started to wake it.
    asleep: AtomicBool,
}

impl Bell {
    /// Creates a bell whose receiver is awake.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "loom's atomics have none, and nobody needs it")]
    pub fn new() -> Self {
        Self { asleep: AtomicBool::new(false) }
    }

    /// Announces that the receiver is about to sleep. It must check all its rings once more after this, and
    /// may sleep only if they are empty.
    pub fn about_to_sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the receiver does not sleep after all, or woke for another reason.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Returns whether this sender must wake the receiver; called after a push. True for one sender per
    /// sleep.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        // The plain load comes first, so that an awake receiver costs no write to its cache line.
        // Compare-and-exchange rather than swap, because a sender that loses the race must not write to the
        // flag.
        self.asleep.load(Ordering::Relaxed)
            && self.asleep.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
