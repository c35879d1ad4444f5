//! Memory of one kind that a core holds for its clients, within its [share](crate::share).

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use crate::share::{CommonPart, Share};

/// Bytes of one kind that a core holds for its clients.
#[derive(Debug)]
pub struct ClientMemoryBudget {
    bytes: Cell<usize>,
    share: RefCell<Share>,
}

impl ClientMemoryBudget {
    /// Creates a core's part of `total`, initially empty.
    pub fn new(common: Arc<CommonPart>, total: usize, cores: usize) -> Self {
        Self { bytes: Cell::new(0), share: Share::new(common, total, cores).into() }
    }

    /// Returns the bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Reserves `more` bytes if there is room for them. Returns whether there was.
    pub fn take(&self, more: usize) -> bool {
        let has_room = more == 0 || self.has_room(more);
        if has_room {
            self.bytes.set(self.bytes.get() + more);
        }
        has_room
    }

    /// Adds `more` bytes to those held, with or without room for them.
    pub fn add(&self, more: usize) {
        let bytes = self.bytes.get() + more;
        self.bytes.set(bytes);
        self.share.borrow_mut().allows(bytes);
    }

    /// Returns whether there is room for `more` additional bytes.
    pub fn has_room(&self, more: usize) -> bool {
        self.share.borrow_mut().allows(self.bytes.get() + more)
    }

    /// Returns whether less than an eighth of the room is left.
    pub fn is_short(&self) -> bool {
        let share = self.share.borrow();
        self.bytes.get() > share.limit() / 8 * 7
    }

    /// Releases bytes.
    pub fn give_back(&self, bytes: usize) {
        let left = self.bytes.get() - bytes;
        self.bytes.set(left);
        // Shrinking is always allowed; the call also returns surplus to the common part.
        self.share.borrow_mut().allows(left);
    }
}
