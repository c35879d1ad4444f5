//! What every queue here can do, as traits: for code that is to work with any of them, and for tests.

use crate::blocks::Blocks;
use crate::heap::Heap;
use crate::layout::Layout;
use crate::page_queue::PageQueue;
use crate::rows::{Full, Rows};

/// A priority queue: what is smallest leaves first.
pub trait PriorityQueue {
    /// What is queued.
    type Item: Ord;
    /// Adds an item, or gives it back if there is no room.
    ///
    /// # Errors
    /// [`Full`], with the item, if the storage cannot grow.
    fn try_push(&mut self, item: Self::Item) -> Result<(), Full<Self::Item>>;
    /// The smallest item.
    fn peek(&self) -> Option<&Self::Item>;
    /// Takes the smallest item.
    fn pop(&mut self) -> Option<Self::Item>;
    /// How many items there are.
    fn len(&self) -> usize;
    /// Calls `look` with each item, in no particular order.
    fn for_each(&self, look: impl FnMut(&Self::Item));

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Adds an item.
    ///
    /// # Panics
    /// If there is no room for it.
    fn push(&mut self, item: Self::Item) {
        assert!(self.try_push(item).is_ok(), "no room in the queue");
    }
    /// Takes the smallest item, then adds another; returns what was smallest before.
    ///
    /// # Panics
    /// As [`PriorityQueue::push`].
    fn pop_push(&mut self, item: Self::Item) -> Option<Self::Item>;
}

impl<T: Ord, L: Layout, R: Rows<T>> PriorityQueue for Heap<T, L, R> {
    type Item = T;
    fn try_push(&mut self, item: T) -> Result<(), Full<T>> {
        Self::try_push(self, item)
    }
    fn peek(&self) -> Option<&T> {
        Self::peek(self)
    }
    fn pop(&mut self) -> Option<T> {
        Self::pop(self)
    }
    fn len(&self) -> usize {
        Self::len(self)
    }
    fn for_each(&self, mut look: impl FnMut(&T)) {
        for at in 0..self.rows().len() {
            look(self.rows().item(at));
        }
    }
    fn pop_push(&mut self, item: T) -> Option<T> {
        Self::pop_push(self, item)
    }
}

impl<T: Ord + Copy, B: Blocks<T>> PriorityQueue for PageQueue<T, B> {
    type Item = T;
    fn try_push(&mut self, item: T) -> Result<(), Full<T>> {
        Self::try_push(self, item)
    }
    fn peek(&self) -> Option<&T> {
        Self::peek(self)
    }
    fn pop(&mut self) -> Option<T> {
        Self::pop(self)
    }
    fn len(&self) -> usize {
        Self::len(self)
    }
    fn for_each(&self, look: impl FnMut(&T)) {
        Self::for_each(self, look);
    }
    fn pop_push(&mut self, item: T) -> Option<T> {
        Self::pop_push(self, item)
    }
}

/// Which item is meant: given out when a key is queued, void once it has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) queue: u32,
}

impl Handle {
    /// A small number that no other item of the queue has at the same time: an index for what belongs to the item.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot as usize
    }
}

/// The handle is of an item that has left, or of another queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale;

impl core::fmt::Display for Stale {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the handle is of an item that has left the queue, or of another queue")
    }
}

impl core::error::Error for Stale {}

/// A queue of keys that can be changed and taken out while they wait.
pub trait HandleQueue<K> {
    /// Queues a key.
    ///
    /// # Errors
    /// [`Full`], with the key, if there is no room.
    fn insert(&mut self, key: K) -> Result<Handle, Full<K>>;
    /// The smallest key.
    fn peek(&self) -> Option<(&K, Handle)>;
    /// Takes the smallest key; its handle is void from now on.
    fn pop(&mut self) -> Option<(K, Handle)>;
    /// Takes a key out.
    ///
    /// # Errors
    /// [`Stale`] if it has left already or was never here.
    fn remove(&mut self, handle: Handle) -> Result<(), Stale>;
    /// Gives an item another key. The old handle is void; the new one is returned.
    ///
    /// # Errors
    /// [`Stale`] if it has left already or was never here.
    fn update(&mut self, handle: Handle, key: K) -> Result<Handle, Stale>;
    /// How many keys there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
