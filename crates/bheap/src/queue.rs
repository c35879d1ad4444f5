//! What every queue here can do, as traits: for code that is to work with any of them, and for tests.
//!
//! | | [`Heap`] | [`PageQueue`] | [`Indexed`](crate::Indexed) | [`Lazy`](crate::Lazy) |
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

    /// Adds many items at once, in O(n) of all that are then queued: they are not put in order one by one.
    ///
    /// # Errors
    /// [`Full`], with all of them, if there is no room for all; then none has been added.
    fn load(&mut self, items: Vec<Self::Item>) -> Result<(), Full<Vec<Self::Item>>>;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Takes every item, smallest first. Dropping the iterator early leaves the rest in the queue.
    fn drain(&mut self) -> impl Iterator<Item = Self::Item> + '_ {
        core::iter::from_fn(|| self.pop())
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

    /// The handle as bytes, to be kept where the queue's file is kept: handles of a queue in memory are void when
    /// it is gone.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.slot.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..].copy_from_slice(&self.queue.to_le_bytes());
        bytes
    }

    /// The handle that was kept. Any bytes are a handle; one that was never given out is stale.
    #[must_use]
    pub const fn from_bytes([a, b, c, d, e, f, g, h, i, j, k, l]: [u8; 12]) -> Self {
        Self {
            slot: u32::from_le_bytes([a, b, c, d]),
            generation: u32::from_le_bytes([e, f, g, h]),
            queue: u32::from_le_bytes([i, j, k, l]),
        }
    }
}

/// The handle is of an item that has left, or of another queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleHandle;

impl core::fmt::Display for StaleHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the handle is of an item that has left the queue, or of another queue")
    }
}

impl core::error::Error for StaleHandle {}

/// Why an item keeps its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The handle is of an item that has left, or of another queue.
    Stale,
    /// There is no room for the new key beside the old one.
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

/// A queue of keys that can be changed and taken out while they wait.
///
/// There is no `pop_push` here: what it saves in a heap, the walk of the last item, a queue with handles spends
/// on the new item's slot. [`HandleQueue::update`] of the smallest key is the operation for a timer that is
/// started again.
pub trait HandleQueue<K> {
    /// Queues a key.
    ///
    /// # Errors
    /// [`Full`], with the key, if there is no room.
    fn insert(&mut self, key: K) -> Result<Handle, Full<K>>;
    /// Whether the handle is of an item that is queued.
    fn contains(&self, handle: Handle) -> bool;
    /// The smallest key.
    fn peek(&self) -> Option<(&K, Handle)>;
    /// Takes the smallest key; its handle is void from now on.
    fn pop(&mut self) -> Option<(K, Handle)>;
    /// Takes a key out.
    ///
    /// # Errors
    /// [`StaleHandle`] if it has left already or was never here.
    fn remove(&mut self, handle: Handle) -> Result<(), StaleHandle>;
    /// Gives an item another key. The old handle is void; the new one is returned (it may be the same).
    ///
    /// # Errors
    /// [`Refusal::Stale`] if it has left already or was never here; [`Refusal::Full`] if the new key needs room
    /// that is not there. The item then keeps its key, and its handle.
    fn update(&mut self, handle: Handle, key: K) -> Result<Handle, Refusal>;
    /// Queues many keys at once, in O(n) of all that are then queued; `handed` is given their handles, in the
    /// order of `keys`.
    ///
    /// # Errors
    /// [`Full`], with all of them, if there is no room for all; then none has been queued, and no handle given.
    fn load(&mut self, keys: Vec<K>, handed: impl FnMut(Handle)) -> Result<(), Full<Vec<K>>>;
    /// Calls `look` with each key and its handle, in no particular order.
    fn for_each(&self, look: impl FnMut(&K, Handle));
    /// How many keys there are.
    fn len(&self) -> usize;
    /// Takes every key, smallest first. Dropping the iterator early leaves the rest in the queue.
    fn drain(&mut self) -> impl Iterator<Item = (K, Handle)> + '_ {
        core::iter::from_fn(|| self.pop())
    }
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
