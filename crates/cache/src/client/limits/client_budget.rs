//! Budget for the memory that cores hold for clients outside of the store: answers that clients do not read,
//! and requests that they send ahead.
//!
//! Each connection's part is bounded by its buffers, but ten thousand connections still add up to gigabytes.
//! A core may hold its [share](engine::share) of `client_bytes_max`. Once the share is used up, a connection
//! that would hold more is closed and counted; a connection that holds nothing continues.

use crate::{core::with_core, counters::Counter};

/// Bytes that are counted while this guard is held.
pub(crate) struct ClientMemoryGuard(usize);

impl ClientMemoryGuard {
    /// Creates a guard that counts nothing yet.
    pub(crate) const fn nothing() -> Self {
        Self(0)
    }

    /// Changes the count to `bytes`. Returns false, and keeps the old count, if there is no room for them.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        if bytes <= self.0 {
            if bytes < self.0 {
                with_core(|core| core.budgets.held_bytes.give_back(self.0 - bytes));
            }
            self.0 = bytes;
            return true;
        }
        let Some(more) = Self::reserve(bytes - self.0) else { return false };
        self.0 += std::mem::take(&mut { more }.0);
        true
    }

    /// Counts `bytes` bytes; returns `None` if there is no room for them.
    pub(crate) fn reserve(bytes: usize) -> Option<Self> {
        with_core(|core| {
            if !core.budgets.held_bytes.take(bytes) {
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
            with_core(|core| core.budgets.held_bytes.give_back(self.0));
        }
    }
}
