//! The page queue with handles: a removal only marks an entry, a sweep removes marked entries, and a window
//! of live entries precedes the first that may be marked.
//!
//! ```text
//!   handle ─▶ slots[slot]: free │ removed, its entry still queued │ live, queued │ live, in the window
//!
//!   smallest                                                                      largest
//!   [ window: live entries, in order, findable ][ page queue: live and removed entries ]
//! ```
//! A move of an entry does not touch its slot: only leaving the queue does. A slot is reused only after its
//! entry has left, so that it always describes that entry.
//!
//! *Garbage.* Each removal also sweeps one block, so that a pass over all n entries ends after about n /
//! (entries per block) removals: the removed entries that are still queued are at most those of about two
//! passes, a small fraction of all entries.
//!
//! *No operation is long.* If a caller removed the smallest hundred thousand entries, the very smallest of
//! them last, a later search for the smallest would have to skip them all. The window therefore always has at
//! least as many entries as the page queue has removed ones (or the page queue is empty). An operation takes
//! at most one entry from the window, or removes one that comes after the window; then *one* entry is taken
//! from the page queue: if it is live, the window grows by one; if not, there is one removed entry fewer.
//! Either restores the inequality. Each operation thus performs at most one operation on the page queue, and
//! the smallest entry is the first of the window, or, with no removed entries, the first of the page queue.
//! While nothing is removed the window is empty and costs nothing.
//!
//! (The window is a tree whose nodes are allocated; nothing is allocated until something is removed.)

#[cfg(feature = "std")]
mod saved;
mod slots;
mod window;

use crate::blocks::{Arena, Blocks};
use crate::indexed::{Entry, queue_number};
use crate::layout::PageSizeError;
use crate::page_queue::PageQueue;
use crate::queue::{Handle, HandleQueue, Refusal, StaleHandle};
use crate::rows::Full;
use alloc::vec::Vec;
#[cfg(feature = "std")]
pub(crate) use saved::{FileLazyQueue, SlotPages};
use slots::{GENERATIONS, Slots, State};
use window::{Place, Window};

/// Number of entries by which the window may exceed twice the number of removed ones; beyond that, each new
/// entry returns one entry of the window to the page queue.
const WINDOW_SPARE: usize = 64;

/// An entry of the page queue: a key and its slot. Only the key is compared.
pub trait QueueEntry<K>: Ord + Copy {
    /// Creates the entry for a key.
    fn new(key: K, slot: u32) -> Self;
    /// Returns the entry's key.
    fn key(&self) -> K;
    /// Returns the entry's slot.
    fn slot(&self) -> u32;
}

impl<K: Ord + Copy> QueueEntry<K> for Entry<K> {
    #[inline]
    fn new(key: K, slot: u32) -> Self {
        Self { key, slot }
    }
    #[inline]
    fn key(&self) -> K {
        self.key
    }
    #[inline]
    fn slot(&self) -> u32 {
        self.slot
    }
}

/// A priority queue with handles that does not touch a page for each move of an item.
///
/// `B` is the store of its entries, `E` their type ([`Entry`] in memory).
#[derive(Debug)]
pub struct LazyQueue<K, B = Arena<Entry<K>>, E = Entry<K>> {
    queue: PageQueue<E, B>,
    /// The smallest entries. Invariant: none of them is larger than any entry in `queue`, and there are at
    /// least as many as removed entries in `queue`, unless `queue` is empty.
    window: Window<K>,
    slots: Slots,
    number: u32,
    /// Number of removed entries that are still in `queue`.
    removed: usize,
}

impl<K: Ord + Copy> LazyQueue<K> {
    /// Creates an empty queue with blocks of `page_bytes` bytes.
    ///
    /// # Errors
    /// Returns the errors of [`PageQueue::new`].
    pub fn new(page_bytes: usize) -> Result<Self, PageSizeError> {
        Ok(Self::over(PageQueue::new(page_bytes)?, queue_number()))
    }

    /// Creates an empty queue that holds at most `blocks_max` blocks.
    ///
    /// # Errors
    /// Returns the errors of [`PageQueue::new`].
    pub fn with_limit(page_bytes: usize, blocks_max: usize) -> Result<Self, PageSizeError> {
        let queue = PageQueue::with_store(Arena::new(page_bytes)?.limited(blocks_max), 16);
        Ok(Self::over(queue, queue_number()))
    }

    /// Frees the memory of empty blocks; see [`PageQueue::shrink_to_fit`]. Slots stay, because handles refer
    /// to them.
    pub fn shrink_to_fit(&mut self) {
        self.queue.shrink_to_fit();
    }

    /// Returns the bytes in use: entries (including removed ones), the window and the slots.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.queue.bytes() + self.window.bytes() + self.slots.bytes()
    }
}

impl<K: Ord + Copy, E: QueueEntry<K>, B: Blocks<E>> LazyQueue<K, B, E> {
    /// Creates an empty queue whose blocks are in `store`; see [`PageQueue::with_store`].
    pub fn with_store(store: B, fan_out: usize) -> Self {
        Self::over(PageQueue::with_store(store, fan_out), queue_number())
    }

    fn over(queue: PageQueue<E, B>, number: u32) -> Self {
        Self { queue, window: Window::new(), slots: Slots::new(0, GENERATIONS), number, removed: 0 }
    }

    /// Returns the number of removed entries that are still queued.
    #[must_use]
    pub const fn garbage(&self) -> usize {
        self.removed
    }

    /// Returns the number of late steps; see [`PageQueue::late_steps`].
    #[must_use]
    pub const fn late_steps(&self) -> u64 {
        self.queue.late_steps()
    }

    /// Checks every invariant, in O(n); for tests.
    ///
    /// # Panics
    /// Panics with the invariant's name if one is broken.
    pub fn assert_invariants(&self) {
        self.queue.assert_invariants();
        let mut removed = 0;
        let last = self.window.last();
        self.queue.for_each(|entry| {
            assert!(last.is_none_or(|last| last.key <= entry.key()), "the window lies before the queue");
            match self.slots.state(entry.slot()) {
                Some(State::Removed(_)) => removed += 1,
                state => assert!(matches!(state, Some(State::Live(_))), "what is queued has a slot"),
            }
        });
        assert_eq!(removed, self.removed, "what is removed is counted");
        assert!(self.window.len() >= removed, "the window is as long as what is removed");
        for place in self.window.iter() {
            let state = self.slots.state(place.slot);
            assert!(matches!(state, Some(State::Window(_))), "what is in the window is live");
        }
    }

    const fn handle(&self, slot: u32, generation: u32) -> Handle {
        Handle { slot, generation, queue: self.number }
    }

    /// Returns the generation of a live entry's slot.
    fn generation(&self, slot: u32) -> u32 {
        match self.slots.state(slot) {
            Some(State::Live(generation)) => generation,
            Some(State::Window(record)) => self.window.record(record).generation,
            _ => unreachable!("only a live entry's generation is asked for"),
        }
    }

    /// Returns the state of the live entry to which the handle refers.
    fn find(&self, handle: Handle) -> Result<State, StaleHandle> {
        let state =
            self.slots.state(handle.slot).filter(|_| handle.queue == self.number).ok_or(StaleHandle)?;
        let generation = match state {
            State::Live(generation) => generation,
            State::Window(record) => self.window.record(record).generation,
            State::Free(_) | State::Removed(_) => return Err(StaleHandle),
        };
        if generation == handle.generation { Ok(state) } else { Err(StaleHandle) }
    }

    /// Makes sure that the window stays long enough when an entry leaves the window, or an entry in the page
    /// queue is removed. Returns whether an operation on the page queue was necessary.
    fn extend_window(&mut self) -> bool {
        if self.window.len() > self.removed {
            return false;
        }
        let Some(entry) = self.queue.pop() else { return true };
        let (key, slot) = (entry.key(), entry.slot());
        if let Some(State::Live(generation)) = self.slots.state(slot) {
            let mut held = EntryGuard { queue: &mut self.queue, entry: Some(entry) };
            let record = self.window.insert(Place { key, slot }, generation);
            held.entry = None;
            self.slots.set(slot, State::Window(record));
        } else {
            self.slots.keep(slot);
            self.removed -= 1;
        }
        true
    }

    /// Returns the window's largest entry to the page queue if the window is too long and the page queue has
    /// room.
    fn trim_window(&mut self) {
        if self.window.len() <= 2 * self.removed + WINDOW_SPARE || !self.queue.has_room() {
            return;
        }
        let Some(&Place { key, slot }) = self.window.last() else { return };
        let State::Window(record) = self.state(slot) else { return };
        let len_before = self.queue.len();
        let trim = Trim { lazy: self, slot, record, len_before };
        // There is room, so the push is not refused.
        let _ = trim.lazy.queue.try_push(E::new(key, slot));
    }

    /// Queues a key that has a slot but no entry yet. There must be room.
    fn enter(&mut self, key: K, slot: u32, generation: u32) {
        if self.window.last().is_some_and(|last| key < last.key) {
            let record = self.window.insert(Place { key, slot }, generation);
            self.slots.accept(slot, State::Window(record));
        } else {
            let len_before = self.queue.len();
            let arrival = Arrival { lazy: self, slot, generation, len_before };
            let _ = arrival.lazy.queue.try_push(E::new(key, slot));
        }
    }

    pub(crate) fn insert(&mut self, key: K) -> Result<Handle, Full<K>> {
        if !self.queue.has_room() {
            return Err(Full(key));
        }
        let Some((slot, generation)) = self.slots.offer() else { return Err(Full(key)) };
        self.enter(key, slot, generation);
        if matches!(self.state(slot), State::Window(_)) {
            self.trim_window();
        }
        Ok(self.handle(slot, generation))
    }

    pub(crate) fn load(&mut self, keys: Vec<K>, mut handed: impl FnMut(Handle)) -> Result<(), Full<Vec<K>>> {
        let last = self.window.last().map(|last| last.key);
        let is_near = |key: &K| last.is_some_and(|last| *key < last);
        // The comparisons come first: after them only the page queue can panic.
        let near: Vec<bool> = keys.iter().map(is_near).collect();
        let mut handles = Vec::with_capacity(keys.len());
        let mut entries = Vec::with_capacity(keys.len());
        for (&key, is_near) in keys.iter().zip(&near) {
            let Some((slot, generation)) = self.slots.offer() else { break };
            self.slots.accept(slot, State::Live(generation));
            handles.push(self.handle(slot, generation));
            if !is_near {
                entries.push(E::new(key, slot));
            }
        }
        if handles.len() < keys.len() || self.queue.try_extend(&entries).is_err() {
            handles.iter().rev().for_each(|handle| self.slots.release(handle.slot, handle.generation));
            return Err(Full(keys));
        }
        for ((handle, &key), _) in handles.iter().zip(&keys).zip(&near).filter(|(_, is_near)| **is_near) {
            let record = self.window.insert(Place { key, slot: handle.slot }, handle.generation);
            self.slots.set(handle.slot, State::Window(record));
        }
        handles.into_iter().for_each(&mut handed);
        Ok(())
    }

    pub(crate) fn for_each(&self, mut look: impl FnMut(&K, Handle)) {
        for place in self.window.iter() {
            look(&place.key, self.handle(place.slot, self.generation(place.slot)));
        }
        self.queue.for_each(|entry| {
            if let Some(State::Live(generation)) = self.slots.state(entry.slot()) {
                look(&entry.key(), self.handle(entry.slot(), generation));
            }
        });
    }

    pub(crate) fn contains(&self, handle: Handle) -> bool {
        self.find(handle).is_ok()
    }

    pub(crate) fn pop(&mut self) -> Option<(K, Handle)> {
        if self.window.len() == 0 {
            let entry = self.queue.pop()?;
            let handle = self.handle(entry.slot(), self.generation(entry.slot()));
            self.slots.release(entry.slot(), handle.generation);
            return Some((entry.key(), handle));
        }
        // The window is extended first: if a comparison in it panics, nothing has been taken.
        self.extend_window();
        let &Place { key, slot } = self.window.first()?;
        let State::Window(record) = self.state(slot) else { return None };
        let handle = self.handle(slot, self.window.record(record).generation);
        self.window.pop_first(record);
        self.slots.release(slot, handle.generation);
        Some((key, handle))
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Result<(), StaleHandle> {
        self.find(handle)?;
        // All comparisons come first: if one panics, nothing has been removed.
        if !self.extend_window() {
            self.queue.prepare_sweep();
        }
        // The entry may have been moved to the window just now.
        match self.find(handle)? {
            State::Window(record) => {
                self.window.remove(handle.slot, record);
                self.slots.release(handle.slot, handle.generation);
            }
            _ => {
                self.slots.set(handle.slot, State::Removed(handle.generation));
                self.removed += 1;
            }
        }
        let Self { queue, slots, removed, .. } = self;
        queue.sweep(|entry| {
            let kept = slots.keep(entry.slot());
            *removed -= usize::from(!kept);
            kept
        });
        Ok(())
    }

    pub(crate) fn update(&mut self, handle: Handle, key: K) -> Result<Handle, Refusal> {
        self.find(handle)?;
        self.extend_window();
        // Room is checked after extending the window, which may take blocks.
        if !self.queue.has_room() {
            return Err(Refusal::Full);
        }
        let Some((slot, generation)) = self.slots.offer() else { return Err(Refusal::Full) };
        let mut old = None;
        if let State::Window(record) = self.find(handle)? {
            old = Some(self.window.record(record).key);
            self.window.remove(handle.slot, record);
        }
        let update = Update { lazy: self, handle, old, slot };
        update.lazy.enter(key, slot, generation);
        drop(update);
        Ok(self.handle(slot, generation))
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len() - self.removed + self.window.len()
    }

    fn state(&self, slot: u32) -> State {
        match self.slots.state(slot) {
            Some(state) => state,
            None => unreachable!("what is queued has a slot"),
        }
    }
}

impl<K: Ord + Copy, B: Blocks<Entry<K>>> HandleQueue<K> for LazyQueue<K, B> {
    fn insert(&mut self, key: K) -> Result<Handle, Full<K>> {
        Self::insert(self, key)
    }
    fn load(&mut self, keys: Vec<K>, handed: impl FnMut(Handle)) -> Result<(), Full<Vec<K>>> {
        Self::load(self, keys, handed)
    }
    fn for_each(&self, look: impl FnMut(&K, Handle)) {
        Self::for_each(self, look);
    }
    fn contains(&self, handle: Handle) -> bool {
        Self::contains(self, handle)
    }
    fn peek(&self) -> Option<(&K, Handle)> {
        if let Some(place) = self.window.first() {
            return Some((&place.key, self.handle(place.slot, self.generation(place.slot))));
        }
        let entry = self.queue.peek()?;
        Some((&entry.key, self.handle(entry.slot, self.generation(entry.slot))))
    }
    fn pop(&mut self) -> Option<(K, Handle)> {
        Self::pop(self)
    }
    fn remove(&mut self, handle: Handle) -> Result<(), StaleHandle> {
        Self::remove(self, handle)
    }
    fn update(&mut self, handle: Handle, key: K) -> Result<Handle, Refusal> {
        Self::update(self, handle, key)
    }
    fn len(&self) -> usize {
        Self::len(self)
    }
}

/// Guard of an entry moved from the page queue to the window: the guard puts the entry back if a comparison
/// panics.
struct EntryGuard<'a, B: Blocks<E>, E: Ord + Copy> {
    queue: &'a mut PageQueue<E, B>,
    entry: Option<E>,
}

impl<B: Blocks<E>, E: Ord + Copy> Drop for EntryGuard<'_, B, E> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.queue.put_back(entry);
        }
    }
}

/// Guard of an entry pushed to the page queue: if the entry was stored, even if a comparison panicked, its
/// slot is marked live.
struct Arrival<'a, K: Ord + Copy, B: Blocks<E>, E: QueueEntry<K>> {
    lazy: &'a mut LazyQueue<K, B, E>,
    slot: u32,
    generation: u32,
    len_before: usize,
}

impl<K: Ord + Copy, B: Blocks<E>, E: QueueEntry<K>> Drop for Arrival<'_, K, B, E> {
    fn drop(&mut self) {
        if self.lazy.queue.len() > self.len_before {
            self.lazy.slots.accept(self.slot, State::Live(self.generation));
        }
    }
}

/// Guard of the window's largest entry while it is returned to the page queue: the entry leaves the window
/// once it is stored there.
struct Trim<'a, K: Ord + Copy, B: Blocks<E>, E: QueueEntry<K>> {
    lazy: &'a mut LazyQueue<K, B, E>,
    slot: u32,
    record: u32,
    len_before: usize,
}

impl<K: Ord + Copy, B: Blocks<E>, E: QueueEntry<K>> Drop for Trim<'_, K, B, E> {
    fn drop(&mut self) {
        if self.lazy.queue.len() > self.len_before {
            let generation = self.lazy.window.record(self.record).generation;
            self.lazy.window.pop_last(self.record);
            self.lazy.slots.set(self.slot, State::Live(generation));
        }
    }
}

/// Guard of an item between its old entry and its new one: the item keeps exactly one of them.
struct Update<'a, K: Ord + Copy, B: Blocks<E>, E: QueueEntry<K>> {
    lazy: &'a mut LazyQueue<K, B, E>,
    handle: Handle,
    /// The key, if the old entry has been taken from the window; `None` if it is in the page queue.
    old: Option<K>,
    /// Slot of the new entry.
    slot: u32,
}

impl<K: Ord + Copy, B: Blocks<E>, E: QueueEntry<K>> Drop for Update<'_, K, B, E> {
    fn drop(&mut self) {
        let Handle { slot, generation, .. } = self.handle;
        let is_new = matches!(self.lazy.slots.state(self.slot), Some(State::Live(_) | State::Window(_)));
        match (is_new, self.old) {
            (true, Some(_)) => self.lazy.slots.release(slot, generation),
            (true, None) => {
                self.lazy.slots.set(slot, State::Removed(generation));
                self.lazy.removed += 1;
            }
            (false, Some(key)) => {
                self.lazy.queue.put_back(E::new(key, slot));
                self.lazy.slots.set(slot, State::Live(generation));
            }
            (false, None) => {}
        }
    }
}
