//! The queue beyond.

mod invariants;
mod levels;
mod list;
mod near;

use crate::blocks::{Area, Arena, Blocks};
use crate::layout::PageSizeError;
use crate::rows::Full;
use alloc::vec::Vec;
use levels::Level;
use list::List;
use near::Near;

/// The small heap holds so many items.
pub(crate) const HEAP_MAX: usize = 512;

/// So many items are loaded to the front at once.
pub(crate) const FRONT_MAX: usize = 1024;

/// Items moved in one step.
pub(crate) const BURST: usize = 512;

/// Items put in order of their destinations at a time: a step does this a few times, in memory that stays in
/// the innermost cache and does not take a page of its own.
pub(crate) const CHUNK: usize = 128;

/// A level is divided into at most so many parts.
pub const FAN_OUT_MAX: usize = 64;

/// A priority queue by lazy distribution.
#[derive(Debug)]
pub struct PageQueue<T, B = Arena<T>> {
    store: B,
    near: Near<T>,
    /// Largest keys first; the last is the lowest. Invariant: as many as `bounds`.
    levels: Vec<Level<T>>,
    /// The lower bound of each level, falling: nothing in a level is smaller, everything below it is smaller or
    /// equal, and nothing in `near` is larger than the last of them.
    bounds: Vec<T>,
    scratch: Vec<T>,
    len: usize,
    /// Operations until the levels are looked at again.
    rest: usize,
    fan_out: usize,
    /// Steps that an operation had to make because they were not made in time.
    late: u64,
}

impl<T: Ord + Copy> PageQueue<T> {
    /// An empty queue with blocks of `page_bytes` bytes.
    ///
    /// # Errors
    /// If `page_bytes` is no power of two or fewer than four items fit.
    pub fn new(page_bytes: usize) -> Result<Self, PageSizeError> {
        Ok(Self::with_store(Arena::new(page_bytes)?, 6))
    }
}

impl<T: Ord + Copy, B: Blocks<T>> PageQueue<T, B> {
    /// An empty queue over `store`.
    pub fn with_store(store: B, fan_out: usize) -> Self {
        Self {
            store,
            near: Near::new(),
            levels: Vec::new(),
            bounds: Vec::new(),
            scratch: Vec::new(),
            len: 0,
            rest: 0,
            fan_out: fan_out.clamp(2, FAN_OUT_MAX),
            late: 0,
        }
    }

    /// How many items there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Steps that were late.
    #[must_use]
    pub const fn late_steps(&self) -> u64 {
        self.late
    }

    /// The number of levels now.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// The smallest item.
    #[must_use]
    pub fn peek(&self) -> Option<&T> {
        self.near.peek(&self.store)
    }

    /// Adds an item.
    pub fn push(&mut self, item: T) {
        assert!(self.try_push(item).is_ok(), "no room in the queue");
    }

    /// Adds an item, or gives it back if there is no room.
    pub fn try_push(&mut self, item: T) -> Result<(), Full<T>> {
        // Before the item finds its place: a spill lowers the bound of what is near.
        if self.near.is_full() && !self.spill() {
            return Err(Full(item));
        }
        for (at, bound) in self.bounds.iter().enumerate() {
            if item >= *bound {
                let log = &mut self.levels[at].log;
                if log.blocks_to_add(1, self.store.block_items()) > 0 && !self.store.reserve(1) {
                    return Err(Full(item));
                }
                self.store.touch(Area::Lists, at * (self.fan_out + 2), 1, true);
                log.append(&mut self.store, &[item]);
                self.len += 1;
                self.tend();
                return Ok(());
            }
        }
        self.len += 1;
        self.near.push(&self.store, item);
        self.tend();
        Ok(())
    }

    /// Takes the smallest item.
    pub fn pop(&mut self) -> Option<T> {
        let work = self.near.len() == 1 && !self.levels.is_empty();
        if work {
            if let Some(last) = self.near.front.pop() {
                self.near.heap.push(last);
            }
            self.refill();
        }
        let item = self.near.pop(&self.store)?;
        self.len -= 1;
        if !work {
            self.tend();
        }
        Some(item)
    }

    /// Moves the larger half of the small heap to the lowest level; false if there is no room.
    fn spill(&mut self) -> bool {
        if !self.store.reserve((HEAP_MAX + FRONT_MAX) / self.store.block_items() + 2) {
            return false;
        }
        let mut out = core::mem::take(&mut self.scratch);
        out.clear();
        let bound = self.near.spill(&self.store, &mut out);
        if let Some(bound) = bound {
            match self.levels.last_mut() {
                Some(level) if !level.log.uniform => {
                    level.log.append(&mut self.store, &out);
                    if let Some(child) = level.children.last_mut() {
                        child.lo = bound;
                    }
                    if let Some(lo) = self.bounds.last_mut() {
                        *lo = bound;
                    }
                }
                _ => {
                    let mut log = List::new();
                    log.append(&mut self.store, &out);
                    self.levels.push(Level::new(log));
                    self.bounds.push(bound);
                }
            }
        }
        self.scratch = out;
        self.rest = 0;
        true
    }
}
