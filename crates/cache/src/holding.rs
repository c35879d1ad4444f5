//! A core's part of what clients may make all cores hold ([`held`](crate::held) says what that is).

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use engine::share::{Common, Share};

/// What the clients of one core make it hold.
pub(crate) struct Holding {
    bytes: Cell<usize>,
    share: RefCell<Share>,
    cores: usize,
}

impl Holding {
    /// Nothing yet, of so much that all cores may hold.
    pub(crate) fn new(common: Arc<Common>, total: usize, cores: usize) -> Self {
        Self { bytes: Cell::new(0), share: Share::new(common, total, cores).into(), cores }
    }

    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    /// How many bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Whether there is room for so many more.
    pub(crate) fn take(&self, more: usize) -> bool {
        let bytes = self.bytes.get() + more;
        let has_room = more == 0 || self.share.borrow_mut().allows(bytes);
        if has_room {
            self.bytes.set(bytes);
        }
        has_room
    }

    /// So many are held no more.
    pub(crate) fn give_back(&self, bytes: usize) {
        let left = self.bytes.get() - bytes;
        self.bytes.set(left);
        // Less is always allowed; what was taken of the other cores goes back.
        self.share.borrow_mut().allows(left);
    }
}
