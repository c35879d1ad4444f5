//! What clients make the cores hold outside of the store, in sum: answers that they do not read, requests that they send
//! ahead.
//!
//! Each connection's part is bounded by the buffers; ten thousand of them are gigabytes all the same. What a core may hold is
//! its [share](engine::share) of `client_bytes_max`. Beyond it a connection that would hold more is closed, and counted; one
//! that holds nothing goes on.

use crate::{core::with_core, counters::Counter};

/// Bytes that are counted while this is held.
pub(crate) struct ClientMemoryGuard(usize);

impl ClientMemoryGuard {
    /// Counts nothing yet.
    pub(crate) const fn nothing() -> Self {
        Self(0)
    }

    /// Counts so many bytes from now on; false, and as many as before, if there is no room for them.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        if bytes <= self.0 {
            if bytes < self.0 {
                with_core(|core| core.held.give_back(self.0 - bytes));
            }
            self.0 = bytes;
            return true;
        }
        let Some(more) = Self::reserve(bytes - self.0) else { return false };
        self.0 += std::mem::take(&mut { more }.0);
        true
    }

    /// Counts so many bytes; `None` if there is no room for them.
    pub(crate) fn reserve(bytes: usize) -> Option<Self> {
        with_core(|core| {
            if !core.held.take(bytes) {
                core.count(Counter::ClientsOverBytes);
                return None;
            }
            Some(Self(bytes))
        })
    }
}

impl Drop for ClientMemoryGuard {
    fn drop(&mut self) {
        if self.0 > 0 {
            with_core(|core| core.held.give_back(self.0));
        }
    }
}
