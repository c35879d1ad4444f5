//! What clients make one core hold outside of the store, in sum: answers that they do not read, requests that they send
//! ahead.
//!
//! Each connection's share is bounded by the buffers; ten thousand of them are gigabytes all the same. Beyond
//! `client_bytes_max` a connection that would hold more is closed, and counted; one that holds nothing goes on.

use crate::{core::with_core, counters::Counter};

/// Bytes that are counted while this is held.
pub(crate) struct Held(usize);

impl Held {
    /// Counts so many bytes; `None` if there is no room for them.
    pub(crate) fn reserve(bytes: usize) -> Option<Self> {
        with_core(|core| {
            let held = core.held_bytes.get() + bytes;
            if bytes > 0 && held > core.config.limits.client_bytes_max {
                core.count(Counter::ClientsOverBytes);
                return None;
            }
            core.held_bytes.set(held);
            Some(Self(bytes))
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0 > 0 {
            with_core(|core| core.held_bytes.set(core.held_bytes.get() - self.0));
        }
    }
}
