//! A buffer for answers: its client is charged for the memory before anything is printed into it.

use std::{io, mem};

use super::budget::BudgetGuard;

/// Room that is asked for at least.
const ROOM_BYTES_MIN: usize = 16 * 1024;

/// A buffer that grows within what its client may hold.
pub(crate) struct ChargedBuffer {
    out: Vec<u8>,
    held: BudgetGuard,
    /// A write was refused for want of room.
    is_refused: bool,
}

impl ChargedBuffer {
    /// Creates an empty buffer. `held`, which holds nothing yet, is charged for it.
    pub(crate) fn new(held: BudgetGuard) -> Self {
        Self { out: Vec::new(), held, is_refused: false }
    }

    /// Returns whether a write found no room, so that the answer is not whole.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The answer, and the charge for it.
    pub(crate) fn finish(self) -> (Vec<u8>, BudgetGuard) {
        (self.out, self.held)
    }

    /// Forgets what is printed, and gives its room back.
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
