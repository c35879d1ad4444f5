//! Traits with the operations of every queue here: for generic code, and for tests.
//!
//! | | [`Heap`] | [`PageQueue`] | [`Indexed`](crate::IndexedHeap) | [`Lazy`](crate::LazyQueue) |
//! |---|---|---|---|---|
//! | trait | [`PriorityQueue`] | [`PriorityQueue`] | [`HandleQueue`] | [`HandleQueue`] |
//! | items | any `Ord` | `Ord + Copy` | any `Ord` | `Ord + Copy` |
//! | push, peek, pop | O(log n) | amortised O(log n), at most 4,096 comparisons | O(log n) | as the page queue |
//! | remove, update | no handles: their table would double the pages | the same | O(log n) | a mark, and one block swept |
//! | load | O(n) | O(n) | O(n) | O(n) |
//!
//! The queues in files have the same operations, with errors of their own: a disk may fail.

use crate::blocks::Blocks;
use crate::heap::Heap;
use crate::layout::Layout;
use crate::page_queue::PageQueue;
use crate::rows::{Full, Rows};
use alloc::vec::Vec;

/// A priority queue: the smallest item leaves first.
pub trait PriorityQueue {
    /// Type of the queued items.
    type Item: Ord;
    /// Adds an item, or returns it if there is no room.
    ///
    /// # Errors
    /// [`Full`] with the item if the storage cannot grow.
    fn try_push(&mut self, item: Self::Item) -> Result<(), Full<Self::Item>>;
    /// Returns the smallest item.
    fn peek(&self) -> Option<&Self::Item>;
    /// Removes and returns the smallest item.
    fn pop(&mut self) -> Option<Self::Item>;
    /// Returns the number of items.
    fn len(&self) -> usize;
    /// Calls `look` with each item, in no particular order.
    fn for_each(&self, look: impl FnMut(&Self::Item));

    /// Adds many items at once, in O(n), where n is the number of items queued afterwards: they are not
    /// inserted one by one.
    ///
    /// # Errors
    /// [`Full`] with all of the items if there is no room for all; none has been added.
    fn load(&mut self, items: Vec<Self::Item>) -> Result<(), Full<Vec<Self::Item>>>;

    /// Returns whether the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Removes every item, smallest first. Dropping the iterator early leaves the rest in the queue.
    fn drain(&mut self) -> impl Iterator<Item = Self::Item> + '_ {
        core::iter::from_fn(|| self.pop())
    }
    /// Adds an item.
    ///
    /// # Panics
    /// Panics if there is no room for it.
    fn push(&mut self, item: Self::Item) {
        assert!(self.try_push(item).is_ok(), "no room in the queue");
    }
    /// Removes the smallest item, then adds another; returns the item that was smallest before.
    ///
    /// # Panics
    /// Panics like [`PriorityQueue::push`].
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
    fn load(&mut self, items: Vec<T>) -> Result<(), Full<Vec<T>>> {
        Self::load(self, items)
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
    fn load(&mut self, items: Vec<T>) -> Result<(), Full<Vec<T>>> {
        if Self::try_extend(self, &items).is_ok() { Ok(()) } else { Err(Full(items)) }
    }
}

/// Identifier of an item: given out when a key is queued, stale once the item has left the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) queue: u32,
}

impl Handle {
    /// Returns a small number that no other item of the queue has at the same time: an index for the item's
    /// data.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot as usize
    }

    /// Encodes the handle as bytes, to be kept together with the queue's file: handles of a queue in memory
    /// are invalid when it is gone.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.slot.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..].copy_from_slice(&self.queue.to_le_bytes());
        bytes
    }

    /// Decodes a handle. Any bytes are a handle; one that was never given out is stale.
    #[must_use]
    pub const fn from_bytes([a, b, c, d, e, f, g, h, i, j, k, l]: [u8; 12]) -> Self {
        Self {
            slot: u32::from_le_bytes([a, b, c, d]),
            generation: u32::from_le_bytes([e, f, g, h]),
            queue: u32::from_le_bytes([i, j, k, l]),
        }
    }
}

/// Error for a handle whose item has left the queue, or that belongs to another queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleHandle;

impl core::fmt::Display for StaleHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the handle is of an item that has left the queue, or of another queue")
    }
}

impl core::error::Error for StaleHandle {}

/// Reason why a key could not be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The handle's item has left the queue, or the handle belongs to another queue.
    Stale,
    /// There is no room for the new key in addition to the old one.
    Full,
}

impl From<StaleHandle> for Refusal {
    fn from(_: StaleHandle) -> Self {
        Self::Stale
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Stale => StaleHandle.fmt(f),
            Self::Full => f.write_str("the queue has no room for the new key beside the old one"),
        }
    }
}

impl core::error::Error for Refusal {}

/// A queue of keys that can be changed and removed while they wait.
///
/// There is no `pop_push`: in a heap it saves the walk of the last item, but a queue with handles would lose
/// that gain to the new item's slot. For a timer that is restarted, use [`HandleQueue::update`] of the
/// smallest key.
pub trait HandleQueue<K> {
    /// Adds a key.
    ///
    /// # Errors
    /// [`Full`] with the key if there is no room.
    fn insert(&mut self, key: K) -> Result<Handle, Full<K>>;
    /// Returns whether the handle refers to a queued item.
    fn contains(&self, handle: Handle) -> bool;
    /// Returns the smallest key and its handle.
    fn peek(&self) -> Option<(&K, Handle)>;
    /// Removes and returns the smallest key; its handle is stale from now on.
    fn pop(&mut self) -> Option<(K, Handle)>;
    /// Removes a key.
    ///
    /// # Errors
    /// [`StaleHandle`] if the key has left already or was never in this queue.
    fn remove(&mut self, handle: Handle) -> Result<(), StaleHandle>;
    /// Changes an item's key. The old handle becomes stale; the new one is returned (it may be the same).
    ///
    /// # Errors
    /// [`Refusal::Stale`] if the item has left already or was never in this queue; [`Refusal::Full`] if there
    /// is no room for the new key. The item then keeps its key and its handle.
    fn update(&mut self, handle: Handle, key: K) -> Result<Handle, Refusal>;
    /// Adds many keys at once, in O(n), where n is the number of keys queued afterwards; `handed` is called
    /// with their handles, in the order of `keys`.
    ///
    /// # Errors
    /// [`Full`] with all of the keys if there is no room for all; no key has been queued, and no handle given
    /// out.
    fn load(&mut self, keys: Vec<K>, handed: impl FnMut(Handle)) -> Result<(), Full<Vec<K>>>;
    /// Calls `look` with each key and its handle, in no particular order.
    fn for_each(&self, look: impl FnMut(&K, Handle));
    /// Returns the number of keys.
    fn len(&self) -> usize;
    /// Removes every key, smallest first. Dropping the iterator early leaves the rest in the queue.
    fn drain(&mut self) -> impl Iterator<Item = (K, Handle)> + '_ {
        core::iter::from_fn(|| self.pop())
    }
    /// Returns whether the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
