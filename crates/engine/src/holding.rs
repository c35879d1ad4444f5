//! What one core holds of one kind for its clients, within its [share](crate::share).

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use crate::share::{Common, Share};

/// What the clients of one core make it hold.
#[derive(Debug)]
pub struct Holding {
    bytes: Cell<usize>,
    share: RefCell<Share>,
}

impl Holding {
    /// Nothing yet, of so much that all cores may hold.
    pub fn new(common: Arc<Common>, total: usize, cores: usize) -> Self {
        Self { bytes: Cell::new(0), share: Share::new(common, total, cores).into() }
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Whether there is room for so many more.
    pub fn take(&self, more: usize) -> bool {
        let bytes = self.bytes.get() + more;
        let has_room = more == 0 || self.share.borrow_mut().allows(bytes);
        if has_room {
            self.bytes.set(bytes);
        }
        has_room
    }

    /// So many more are held, whether there is room for them or not.
    pub fn add(&self, more: usize) {
        let bytes = self.bytes.get() + more;
        self.bytes.set(bytes);
        self.share.borrow_mut().allows(bytes);
    }

    /// Whether all that is held may be held, and so many more.
    pub fn has_room(&self, more: usize) -> bool {
        self.share.borrow_mut().allows(self.bytes.get() + more)
    }

    /// Whether there may soon be no room.
    pub fn is_short(&self) -> bool {
        let share = self.share.borrow();
        self.bytes.get() > share.limit() / 8 * 7
    }

    /// So many are held no more.
    pub fn give_back(&self, bytes: usize) {
        let left = self.bytes.get() - bytes;
        self.bytes.set(left);
        // Less is always allowed; what was taken of the other cores goes back.
        self.share.borrow_mut().allows(left);
    }
}
