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
    #[inline]
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
        self.rebook(0, more);
    }

    /// Changes a charge from `before` to `after` bytes. Returns whether there is room for it; the charge is
    /// made in any case. Shrinking is always allowed, and returns surplus to the common part.
    #[inline]
    pub fn rebook(&self, before: usize, after: usize) -> bool {
        let bytes = self.bytes.get() - before + after;
        self.bytes.set(bytes);
        self.share.borrow_mut().allows(bytes)
    }

    /// Returns whether there is room for `more` additional bytes.
    #[inline]
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
        self.rebook(bytes, 0);
    }

    /// Returns the part of the share that belongs to this core alone.
    #[inline]
    pub fn own(&self) -> usize {
        self.share.borrow().own()
    }
}
