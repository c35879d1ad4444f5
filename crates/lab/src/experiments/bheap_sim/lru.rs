//! A perfectly managed memory: the least recently used page is evicted first, dirty pages are written on
//! eviction.
//!
//! One pass over the addresses gives the transfers for *every* memory size at once (Mattson's stack
//! distances, with Thompson's and Smith's treatment of writes). A page touched at stack distance `d`, that
//! is, with `d − 1` other pages touched since its last touch, is read again in every memory smaller than `d`.
//! The page was written back in those memories in which it was still dirty: those in which no earlier
//! distance since its last write had evicted it. [`ListLru`] is a slow reference implementation for one size,
//! with which tests compare the result.

use bheap::trace::Trace;
use std::cell::{Cell, RefCell};

/// Transfers of a run in a memory of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfers {
    /// Pages read again after an eviction.
    pub reads: u64,
    /// Dirty pages written on eviction.
    pub writes: u64,
    /// Pages touched for the first time; by convention a transfer or not.
    pub first_touches: u64,
}

impl Transfers {
    /// Returns reads and writes, with first touches free: the convention that reproduces the article.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.reads + self.writes
    }
    /// Returns reads and writes, with a read charged for each first touch of a page.
    #[must_use]
    pub const fn charged(&self) -> u64 {
        self.reads + self.writes + self.first_touches
    }
}

/// Transfers of a sequence of touches in memories of every size.
#[derive(Debug)]
pub struct LruTransfers {
    page_shift: u32,
    last_page: Cell<usize>,
    last_written: Cell<bool>,
    stack: RefCell<Stack>,
}

/// Number of pages in the top of the stack: a list that is searched from its newest end.
const TOP: usize = 16;
/// Value that replaces the moment at which a page left the top, if the page was never touched.
const NEVER: u32 = 0;
/// Value that replaces the moment at which a page left the top, if the page is still there.
const ON_TOP: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Stack {
    /// For each page: the moment at which it left the top ([`NEVER`], [`ON_TOP`]), and the largest distance
    /// at which it was touched since its last write ([`CLEAN`]: clean in every memory).
    pages: Vec<(u32, u32)>,
    /// Pages touched last, newest first. Invariant: exactly the pages whose moment is [`ON_TOP`]; the list is
    /// full once that many pages have been touched.
    top: Vec<u32>,
    /// Fenwick tree over moments: 1 at each moment at which a page left the top. Later moments are newer
    /// pages.
    tree: Vec<u32>,
    /// Number of pages in the tree.
    below: u32,
    now: u32,
    touched: u32,
    /// `reads[d]`: touches at distance `d`, which are reads in every memory smaller than `d`.
    reads: Vec<u64>,
    /// Write counts by memory size `m`, stored as differences between neighbouring sizes.
    writes: Vec<i64>,
}

const CLEAN: u32 = u32::MAX;

impl LruTransfers {
    /// Creates an empty memory with pages of `page_bytes` bytes, a power of two.
    #[must_use]
    pub fn new(page_bytes: usize) -> Self {
        assert!(page_bytes.is_power_of_two(), "a page's size is a power of two");
        Self {
            page_shift: page_bytes.trailing_zeros(),
            last_page: Cell::new(usize::MAX),
            last_written: Cell::new(false),
            stack: RefCell::new(Stack::default()),
        }
    }

    fn touch(&self, address: usize, bytes: usize, write: bool) {
        let (first, last) = (address >> self.page_shift, (address + bytes - 1) >> self.page_shift);
        for page in first..=last {
            if self.last_page.get() == page && (self.last_written.get() || !write) {
                continue;
            }
            self.last_written.set(write || (self.last_page.get() == page && self.last_written.get()));
            self.last_page.set(page);
            self.stack.borrow_mut().touch(page, write);
        }
    }

    /// Returns the number of touched pages: in a memory of this size nothing is ever transferred.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.stack.borrow().touched as usize
    }

    /// Returns the transfers in a memory of `resident` pages (at least 1). Pages still dirty at the end are
    /// not counted.
    #[must_use]
    pub fn transfers(&self, resident: usize) -> Transfers {
        let stack = self.stack.borrow();
        let mut writes: i64 = stack.writes.iter().take(resident + 1).sum();
        let dirty = stack.pages.iter().enumerate().filter(|(_, page)| page.0 != NEVER && page.1 != CLEAN);
        for (page, &(_, dirty)) in dirty {
            let distance = stack.distance(page);
            writes += i64::from(dirty as usize <= resident && resident < distance as usize);
        }
        Transfers {
            reads: stack.reads.iter().skip(resident + 1).sum(),
            writes: u64::try_from(writes).unwrap_or(0),
            first_touches: u64::from(stack.touched),
        }
    }
}

impl Trace for LruTransfers {
    fn read(&self, address: usize, bytes: usize) {
        self.touch(address, bytes, false);
    }
    fn write(&self, address: usize, bytes: usize) {
        self.touch(address, bytes, true);
    }
}

impl Stack {
    /// Returns the stack distance of a page that was touched before: itself and the pages touched since.
    fn distance(&self, page: usize) -> u32 {
        let moment = self.pages[page].0;
        if moment == ON_TOP {
            let place = self.top.iter().position(|&top| top as usize == page);
            return place.map_or(0, |place| place as u32 + 1);
        }
        let mut older = 0;
        let mut node = moment as usize - 1;
        while node > 0 {
            older += self.tree[node];
            node &= node - 1;
        }
        self.top.len() as u32 + self.below - older
    }

    fn mark(&mut self, moment: u32, present: bool) {
        let mut node = moment as usize;
        while node < self.tree.len() {
            self.tree[node] = if present { self.tree[node] + 1 } else { self.tree[node] - 1 };
            node += node & node.wrapping_neg();
        }
    }

    /// Renumbers the moments 1, 2, … in order, so that the tree never grows beyond a few times the number of
    /// pages.
    fn compact(&mut self) {
        let is_below = |page: &(u32, u32)| page.0 != NEVER && page.0 != ON_TOP;
        let below = self.pages.iter().enumerate().filter(|(_, page)| is_below(page));
        let mut order: Vec<(u32, usize)> = below.map(|(n, page)| (page.0, n)).collect();
        order.sort_unstable();
        let size = (order.len() * 4).max(1024);
        self.tree = vec![0; size + 1];
        self.now = 0;
        for (_, page) in order {
            self.now += 1;
            self.pages[page].0 = self.now;
            let moment = self.now;
            self.mark(moment, true);
        }
    }

    fn touch(&mut self, page: usize, write: bool) {
        if page >= self.pages.len() {
            self.pages.resize(page + 1, (NEVER, CLEAN));
        }
        let (moment, dirty) = self.pages[page];
        let mut dirty_now = dirty;
        if moment == NEVER {
            self.touched += 1;
        } else {
            let distance = self.distance(page);
            self.count(distance, dirty);
            if dirty != CLEAN {
                dirty_now = dirty.max(distance);
            }
            if moment == ON_TOP {
                self.top.copy_within(..distance as usize - 1, 1);
                self.top[0] = page as u32;
            } else {
                self.mark(moment, false);
                self.below -= 1;
            }
        }
        self.pages[page] = (ON_TOP, if write { 0 } else { dirty_now });
        if moment != ON_TOP {
            self.put_on_top(page);
        }
    }

    /// Counts a touch at this distance; `dirty` is the page's entry in `pages`.
    fn count(&mut self, distance: u32, dirty: u32) {
        let d = distance as usize;
        if self.reads.len() <= d {
            self.reads.resize(d + 1, 0);
            self.writes.resize(d + 1, 0);
        }
        self.reads[d] += 1;
        if dirty < distance {
            self.writes[dirty as usize] += 1;
            self.writes[d] -= 1;
        }
    }

    /// Puts a page on top. The oldest page of a full top moves to the tree, as its newest page.
    fn put_on_top(&mut self, page: usize) {
        if self.top.len() == TOP {
            if self.now as usize + 1 >= self.tree.len() {
                self.compact();
            }
            self.now += 1;
            let (oldest, now) = (self.top[TOP - 1], self.now);
            self.mark(now, true);
            self.below += 1;
            self.pages[oldest as usize].0 = now;
            self.top.pop();
        }
        self.top.insert(0, page as u32);
    }
}

/// A memory of one size, as a list: the slow reference implementation for tests of [`LruTransfers`].
#[derive(Debug)]
pub struct ListLru {
    page_shift: u32,
    resident: usize,
    state: RefCell<ListState>,
}

#[derive(Debug, Default)]
struct ListState {
    /// Pages, the most recently used last, each with whether it is dirty.
    pages: Vec<(usize, bool)>,
    known: std::collections::HashSet<usize>,
    transfers: Transfers,
}

impl ListLru {
    /// Creates an empty memory of `resident` pages.
    #[must_use]
    pub fn new(page_bytes: usize, resident: usize) -> Self {
        Self { page_shift: page_bytes.trailing_zeros(), resident, state: RefCell::new(ListState::default()) }
    }

    /// Returns the transfers so far.
    #[must_use]
    pub fn transfers(&self) -> Transfers {
        self.state.borrow().transfers
    }

    fn touch(&self, address: usize, bytes: usize, write: bool) {
        let state = &mut *self.state.borrow_mut();
        for page in address >> self.page_shift..=(address + bytes - 1) >> self.page_shift {
            let dirty = if let Some(at) = state.pages.iter().position(|entry| entry.0 == page) {
                state.pages.remove(at).1
            } else {
                if state.known.insert(page) {
                    state.transfers.first_touches += 1;
                } else {
                    state.transfers.reads += 1;
                }
                if state.pages.len() == self.resident {
                    state.transfers.writes += u64::from(state.pages.remove(0).1);
                }
                false
            };
            state.pages.push((page, dirty || write));
        }
    }
}

impl Trace for ListLru {
    fn read(&self, address: usize, bytes: usize) {
        self.touch(address, bytes, false);
    }
    fn write(&self, address: usize, bytes: usize) {
        self.touch(address, bytes, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_at_once_is_each_size_alone() {
        let all = LruTransfers::new(64);
        let alone: Vec<ListLru> = (1..=40).map(|resident| ListLru::new(64, resident)).collect();
        let mut seed = 88_172_645_463_325_252_u64;
        for step in 0..40_000_u64 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // The sequence has a few hot pages, some warm ones, and some that appear late; runs on one page;
            // and items across two.
            let page = (seed >> 33) % [3, 12, 37][(seed % 3) as usize] + step / 20_000 * 5;
            let address = usize::try_from(page * 64 + seed % 64).unwrap();
            let write = seed.is_multiple_of(5);
            let touch =
                |trace: &dyn Trace| if write { trace.write(address, 8) } else { trace.read(address, 8) };
            touch(&all);
            alone.iter().for_each(|lru| touch(lru));
        }
        for (resident, lru) in alone.iter().enumerate() {
            assert_eq!(all.transfers(resident + 1), lru.transfers(), "{} pages", resident + 1);
        }
        assert!(all.transfers(3).reads > all.transfers(9).reads);
        assert!(all.transfers(9).writes > 0);
    }
}
