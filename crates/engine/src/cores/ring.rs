//! A bounded ring from one thread to one other.
//!
//! [`channel`] gives its two ends. What is pushed is popped once and in order; a full ring refuses and gives the
//! value back (the caller counts it and answers for it); nothing waits. Whoever wants to sleep when a ring is empty
//! uses a [`super::bell::Bell`] beside it. Invariant I8 of `docs/decisions/003-store-concurrency.md`, checked by the
//! models in `tests/loom_ring.rs`.
//!
//! The code is in [`crate::sys::ring`], because the slots need `unsafe`.

pub use crate::sys::ring::{Consumer, Producer, channel};
