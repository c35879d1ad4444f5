//! Buffer for responses; memory is charged to the client before anything is written.

use std::{io, mem};

use super::budget::BudgetGuard;

/// Smallest allocation of the buffer.
const ROOM_BYTES_MIN: usize = 16 * 1024;

/// A buffer that grows within its client's budget.
pub(crate) struct ChargedBuffer {
    out: Vec<u8>,
    held: BudgetGuard,
    /// True once a write was refused for lack of room.
    is_refused: bool,
}

impl ChargedBuffer {
    /// Creates an empty buffer that is charged to `held`, which must be empty.
    pub(crate) fn new(held: BudgetGuard) -> Self {
        Self { out: Vec::new(), held, is_refused: false }
    }

    /// Returns whether a write found no room, so that the response is incomplete.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns the written bytes and the charge for them.
    pub(crate) fn finish(self) -> (Vec<u8>, BudgetGuard) {
        (self.out, self.held)
    }

    /// Discards the written bytes and releases their memory.
    pub(crate) fn clear(&mut self) {
        drop(mem::take(&mut self.out));
        self.held.release();
        self.is_refused = false;
    }
}

impl io::Write for ChargedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (len, room) = (self.out.len() + bytes.len(), self.out.capacity());
        if len > room {
            let doubled = len.max(2 * room).max(ROOM_BYTES_MIN);
            let is_held = |held: &mut BudgetGuard, to: usize| held.grow((to - room) as u64).is_ok();
            let to = match () {
                () if is_held(&mut self.held, doubled) => doubled,
                () if is_held(&mut self.held, len) => len,
                () => {
                    self.is_refused = true;
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
            };
            self.out.reserve_exact(to - self.out.len());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
