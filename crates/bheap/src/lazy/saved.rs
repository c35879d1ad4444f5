//! State of a queue with handles in a queue file: the page queue, the window, and the slots, with one page
//! for each part of the slot table.
//!
//! *Handles after a crash.* A crash loses all changes since the last checkpoint, including slots given out
//! since, but handles to them may still exist. So that none of these handles refers to a later item, a file
//! records which generations *may* have been given out, before they are: an opened queue continues after
//! them.

use crate::blocks::Blocks;
use crate::file::state::{put, put_items, put_pages, take, take_items, take_pages};
use crate::file::{ByteArray, Disk, FileError, Item, Key, Pages, StoredItem};
use crate::indexed::Entry;
use crate::lazy::LazyQueue;
use crate::lazy::slots::{GENERATIONS, PART, SLOTS_MAX, Slots, State};
use crate::lazy::window::{Place, Window};
use crate::page_queue::PageQueue;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Number of generations of a slot between two checkpoints; a slot that has used them up waits for the next
/// checkpoint.
const LIFE: u32 = 1 << 16;

/// A queue with handles in a file.
pub(crate) type FileLazyQueue<K, D> = LazyQueue<K, Pages<Entry<K>, D>, StoredItem<Entry<K>>>;

/// Pages that hold the table of slots.
#[derive(Debug, Default)]
pub(crate) struct SlotPages(Vec<u32>);

/// State of the handles, as it was saved before the state of the queue.
struct SavedHandles<K: Key> {
    /// Number of the queue, which its handles contain.
    number: u32,
    /// Generation from which slots that are used again continue.
    base: u32,
    /// Number of slots in use.
    used: usize,
    /// Pages that hold the table of slots.
    pages: Vec<u32>,
    /// Entries of the window.
    window: Vec<StoredItem<Entry<K>>>,
}

impl<K: Key> SavedHandles<K> {
    fn take(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            number: take(input, u32::MAX as usize)? as u32,
            base: take(input, GENERATIONS as usize - 1)? as u32,
            used: take(input, SLOTS_MAX)?,
            pages: take_pages(input)?,
            window: take_items(input, usize::MAX)?,
        })
    }
}

impl<K: Key, D: Disk> FileLazyQueue<K, D> {
    /// Creates an empty queue with the given number, which its handles contain.
    pub(crate) fn create(store: Pages<Entry<K>, D>, fan_out: usize, number: u32) -> Self {
        let mut lazy = Self::over(PageQueue::with_store(store, fan_out), number);
        lazy.slots = Slots::new(0, LIFE);
        lazy
    }

    pub(crate) const fn queue(&self) -> &PageQueue<StoredItem<Entry<K>>, Pages<Entry<K>, D>> {
        &self.queue
    }

    pub(crate) const fn queue_mut(&mut self) -> &mut PageQueue<StoredItem<Entry<K>>, Pages<Entry<K>, D>> {
        &mut self.queue
    }

    pub(crate) fn into_queue(self) -> PageQueue<StoredItem<Entry<K>>, Pages<Entry<K>, D>> {
        self.queue
    }

    /// Returns the smallest key and its handle.
    pub(crate) fn first(&self) -> Option<(K, crate::Handle)> {
        let (key, slot) = match self.window.first() {
            Some(place) => (place.key, place.slot),
            None => self.queue.peek().map(|entry| entry.item()).map(|entry| (entry.key, entry.slot))?,
        };
        Some((key, self.handle(slot, self.generation(slot))))
    }

    /// Returns whether there is room for another key, its slot, and all that a checkpoint then writes.
    pub(crate) fn has_slot_room(&mut self, pages: &mut SlotPages) -> bool {
        let window_bytes = (self.window.len() + 1) * <Entry<K> as Item>::Bytes::BYTES;
        let store = self.queue.store_mut();
        store.more_state_bytes = window_bytes + (self.slots.parts() + 1) * size_of::<u32>();
        while pages.0.len() <= self.slots.used() / PART {
            if !store.reserve(1) {
                return false;
            }
            let Some(page) = store.allocate() else { return false };
            pages.0.push(page);
        }
        self.queue.has_room()
    }

    /// Writes the changed slots to their pages, and appends the rest of the state to `out`.
    pub(crate) fn save(&mut self, pages: &SlotPages, out: &mut Vec<u8>) {
        for (part, page) in pages.0.iter().enumerate().take(self.slots.parts()) {
            if let Some(words) = self.slots.changed(part) {
                let mut bytes = [0; PART * size_of::<u32>()];
                for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
                    // In the file an entry of the window counts as live and queued; the state lists the
                    // window's entries.
                    let word = match State::of(*word) {
                        State::Window(record) => State::Live(self.window.record(record).generation).word(),
                        _ => *word,
                    };
                    *bytes = word.to_le_bytes();
                }
                self.queue.store_mut().write_page(*page, &bytes);
            }
        }
        put(out, self.number as usize);
        let more = if self.slots.needs_life() { LIFE } else { 0 };
        put(out, (self.slots.ceiling().wrapping_add(more) % GENERATIONS) as usize);
        put(out, self.slots.used());
        put_pages(out, pages.0.iter().copied());
        let window: Vec<StoredItem<Entry<K>>> = self
            .window
            .iter()
            .map(|place| StoredItem::new(Entry { key: place.key, slot: place.slot }))
            .collect();
        put_items(out, &window);
        self.queue.save(out);
    }

    /// Releases the slots that waited for a checkpoint, which is now on the disk.
    pub(crate) fn saved(&mut self) {
        if self.slots.needs_life() {
            self.slots.extend_life(LIFE);
        }
    }

    /// Restores a saved queue.
    pub(crate) fn restore(
        store: Pages<Entry<K>, D>,
        fan_out: usize,
        input: &mut &[u8],
    ) -> Result<(Self, SlotPages), FileError> {
        let Some(SavedHandles { number, base, used, pages, window }) = SavedHandles::take(input) else {
            return Err(store.damaged("the state of the handles is invalid"));
        };
        let mut queue = PageQueue::restore(store, fan_out, input)?;
        if pages.len() < used.div_ceil(PART) || pages.iter().any(|page| !queue.store().exists(*page)) {
            return Err(queue.store().damaged("the handles' slots have no pages"));
        }
        queue.store_mut().claim(pages.clone())?;
        let mut parts: Vec<Box<[u32]>> = Vec::new();
        for page in &pages[..used.div_ceil(PART)] {
            let words = queue.store().page(*page).as_chunks().0.iter();
            parts.push(words.map(|word| u32::from_le_bytes(*word)).collect());
        }
        let mut lazy = Self::over(queue, number);
        lazy.slots = Slots::new(base, LIFE);
        lazy.slots.restore(parts, used);
        lazy.admit(window)?;
        Ok((lazy, SlotPages(pages)))
    }

    /// Fills the window, counts removed entries, and checks that each entry has a slot and each slot an
    /// entry.
    fn admit(&mut self, entries: Vec<StoredItem<Entry<K>>>) -> Result<(), FileError> {
        let mut seen = alloc::vec![false; self.slots.used()];
        let mut is_whole = true;
        let mut see = |slot: u32| match seen.get_mut(slot as usize) {
            Some(seen) => is_whole &= !core::mem::replace(seen, true),
            None => is_whole = false,
        };
        let mut removed = 0;
        self.queue.for_each(|entry| {
            let slot = entry.item().slot;
            see(slot);
            removed += usize::from(matches!(self.slots.state(slot), Some(State::Removed(_))));
        });
        entries.iter().for_each(|entry| see(entry.item().slot));
        for (slot, seen) in seen.iter().enumerate() {
            is_whole &= match self.slots.state(slot as u32) {
                Some(State::Free(_)) => !seen,
                Some(State::Live(_) | State::Removed(_)) => *seen,
                _ => false,
            };
        }
        for entry in entries {
            let Entry { key, slot } = entry.item();
            if let Some(State::Live(generation)) = self.slots.state(slot).filter(|_| is_whole) {
                let record = self.window.insert(Place { key, slot }, generation);
                self.slots.set(slot, State::Window(record));
            } else {
                is_whole = false;
            }
        }
        self.removed = removed;
        // The window's entries are live, and entries behind the window are not smaller.
        let last = self.window.last().map(|last| last.key);
        self.queue.for_each(|entry| is_whole &= last.is_none_or(|last| last <= entry.item().key));
        if is_whole && (self.window.len() >= removed) {
            return Ok(());
        }
        self.window = Window::new();
        Err(self.queue.store().damaged("the handles' slots do not fit the items"))
    }
}
