//! A bounded ring from one thread to another.
//!
//! [`channel`] returns its two ends. Pushed values are popped exactly once and in order. A full ring refuses
//! a value and returns it (the caller counts and handles it); no operation waits. A receiver that wants to
//! sleep while a ring is empty uses a [`super::bell::Bell`] in addition. Invariant I8 of
//! `docs/decisions/003-store-concurrency.md`, checked by the models in `tests/loom_ring.rs`.
//!
//! The code is in [`crate::sys::ring`], because the slots need `unsafe`.

pub use crate::sys::ring::{Consumer, Producer, channel};
