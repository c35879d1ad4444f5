//! Levels of the page queue: items that are not needed soon, divided more finely the sooner they are needed.
//!
//! ```text
//!   smallest                                                                    largest
//!   ┌ near ┐┌──── level (bottom) ────┐┌─────────── level ────────────┐┌──── level (top) ─────…
//!            child│child│child  + log   child│child│child  + log         log
//! ```
//! A level covers a range of keys. New items in the range are appended to its *log*. Its *children* divide
//! the range. When few items are left before a level, its log is distributed among its children and the first
//! child becomes a level of its own; a level without children divides its log by sampled keys.

use crate::blocks::{Area, Blocks};
use crate::page_queue::list::List;
use crate::page_queue::{BURST, CHUNK, FAN_OUT_MAX, FRONT_MAX, PageQueue};
use alloc::vec::Vec;

/// A part of a level's range.
#[derive(Debug, Clone)]
pub(crate) struct Child<T> {
    /// Lower bound of the items in the list.
    pub(crate) lo: T,
    pub(crate) list: List<T>,
}

/// A range of keys: from its bound (kept in `PageQueue::bounds`) to the bound of the next level.
#[derive(Debug, Clone)]
pub(crate) struct Level<T> {
    /// Items of the range that are in no child yet.
    pub(crate) log: List<T>,
    /// Items that are being distributed among the children.
    pub(crate) source: List<T>,
    /// Parts of the range, largest first, so that the last part is opened next.
    pub(crate) children: Vec<Child<T>>,
    /// Key around which `source` is divided three ways, if most of its items equal that key.
    pub(crate) around: Option<T>,
    /// True once the steps that end with the first child becoming a level of its own have begun.
    pub(crate) opening: bool,
}

impl<T: Copy> Level<T> {
    pub(crate) const fn new(log: List<T>) -> Self {
        Self { log, source: List::new(), children: Vec::new(), around: None, opening: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.log.len() + self.source.len() + self.children.iter().map(|child| child.list.len()).sum::<usize>()
    }

    /// Returns whether the first list to leave the level consists of equal items.
    pub(crate) fn begins_uniform(&self) -> bool {
        self.children.last().map_or(self.log.uniform, |child| child.list.uniform)
    }

    /// Returns the size of the list headers and samples in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let samples = self.children.iter().map(|child| child.list.sample_bytes()).sum::<usize>();
        let headers = size_of::<Self>() + self.children.capacity() * size_of::<Child<T>>();
        headers + samples + self.log.sample_bytes() + self.source.sample_bytes()
    }

    /// Returns how many more items may leave before steps on this level must begin, if `before` items precede
    /// it; `None` if they must begin now. A level whose items can be loaded at once never needs steps.
    fn spare(&self, before: usize, margin: usize) -> Option<usize> {
        if self.is_leaf() {
            return Some(usize::MAX);
        }
        let steps = |list: &List<T>| list.len().div_ceil(BURST).max(list.blocks());
        let waiting = steps(&self.log) + steps(&self.source) + 1;
        let (mut before, mut spare) = (before, usize::MAX);
        let mut check = |first: usize, before: usize| {
            let due = (waiting + first) * HASTE + margin;
            spare = spare.min(before.checked_sub(due)?);
            Some(())
        };
        check(0, before)?;
        // Each child is checked, not only the first: a child that is much larger than all before it must be
        // divided while those are still there.
        for child in self.children.iter().rev() {
            let leaf = child.list.uniform || child.list.len() <= LEAF_MAX;
            check(if leaf { 1 } else { steps(&child.list) * 5 / 4 + 1 }, before)?;
            before += child.list.len();
        }
        Some(spare)
    }

    /// Returns whether the items can be moved to the front as they are.
    fn is_leaf(&self) -> bool {
        self.children.is_empty() && self.source.is_empty() && (self.log.len() <= LEAF_MAX || self.log.uniform)
    }
}

/// Maximum number of items in a level that is not divided further; such a level may grow to [`FRONT_MAX`]
/// until it is loaded.
const LEAF_MAX: usize = FRONT_MAX * 7 / 8;

/// Steps on a level begin when the number of items before it falls below this multiple of the number of steps
/// that the level needs.
const HASTE: usize = 3;

/// Number of items by which steps begin earlier than `HASTE` alone requires.
pub(crate) const MARGIN: usize = 64;

/// Number of comparisons after which a step stops. With the choice of children before it (64 samples, sorted)
/// a step stays under 4,096.
const COMPARED_SOFT: usize = 6 * BURST;

/// Number of levels above which neighbouring levels are joined.
const LEVELS_SOFT: usize = 8;

/// Maximum number of levels: a level's number is stored in a byte.
#[cfg(feature = "std")]
pub(crate) const LEVELS_MAX: usize = 200;

/// Number of children from which a level's children are no longer moved back into its log: joining each list
/// may move up to a block of items.
const REJOIN_MAX: usize = 6;

/// Number of children above which neighbouring children are joined.
pub(crate) const CHILDREN_MAX: usize = 2 * FAN_OUT_MAX + 6;

impl<T: Ord + Copy, B: Blocks<T>> PageQueue<T, B> {
    /// Performs one step for the most urgent level, if any is due.
    pub(crate) fn tend(&mut self) {
        if self.rest > 0 {
            self.rest -= 1;
            self.spare -= 1;
            return;
        }
        self.spare = 0;
        let mut before = self.near.front.len();
        let mut spare = usize::MAX;
        for at in (0..self.levels.len()).rev() {
            let level = &self.levels[at];
            let level_spare = level.spare(before, self.margin);
            if level.opening && !level.is_leaf() || level_spare.is_none() {
                self.step(at);
                return;
            }
            // If there is memory for it, a log is distributed while it is still in memory, instead of being
            // read back.
            let is_moving = !level.source.is_empty();
            let is_long = level.log.blocks() >= self.log_blocks_max && !level.log.uniform;
            if is_moving || (is_long && at < self.direct) {
                self.pass_on(at);
                return;
            }
            spare = spare.min(level_spare.unwrap_or(0));
            before += level.len();
        }
        // An operation takes at most one item from before a level and adds at most one to it.
        self.spare = spare;
        self.rest = (spare / 4).min(128);
        let share = self.len / 8;
        self.direct = self.levels.iter().take_while(|level| level.len() >= share).count().max(1);
    }

    /// Moves a burst of items from a level's log to its children, when no child is about to be opened.
    fn pass_on(&mut self, at: usize) {
        if self.levels[at].source.is_empty() {
            if self.is_worth_rejoining(at) {
                self.rejoin(at);
            }
            let level = &mut self.levels[at];
            if level.children.is_empty() {
                self.divide(at);
            } else {
                level.source = core::mem::replace(&mut level.log, List::new());
            }
        }
        self.distribute(at);
        if self.levels[at].source.is_empty() {
            self.levels[at].around = None;
        }
    }

    /// Moves a burst of items of level `at` to their parts, or opens its first child.
    pub(crate) fn step(&mut self, at: usize) {
        self.levels[at].opening = true;
        if self.levels[at].source.is_empty() {
            if self.levels[at].log.len() > BURST && self.is_worth_rejoining(at) {
                self.rejoin(at);
            }
            let level = &mut self.levels[at];
            if level.children.is_empty() {
                self.divide(at);
            } else if level.log.len() > BURST {
                level.source = core::mem::replace(&mut level.log, List::new());
            }
        }
        let mut compared = 0;
        if !self.levels[at].source.is_empty() {
            let parts = self.levels[at].children.len();
            compared = self.distribute(at) * (parts.ilog2() as usize + 1);
            if !self.levels[at].source.is_empty() {
                return;
            }
            self.levels[at].around = None;
        }
        // Opening compares each item of the log twice. If that and the burst before it are too much for one
        // operation, opening waits for the next operation.
        let log = self.levels[at].log.len();
        if log <= BURST && compared + 2 * log <= COMPARED_SOFT && self.sift_log(at) {
            self.open(at);
        }
    }

    /// Returns whether moving the children back into the log and dividing both again is worthwhile: the
    /// larger number of parts saves passes over the log, but costs passes over the children's items.
    fn is_worth_rejoining(&self, at: usize) -> bool {
        let level = &self.levels[at];
        let parts = level.children.len();
        // A child of equal items needs no more steps where it is; in the log it would have to be divided
        // again, in more steps than were allowed for.
        if level.children.iter().any(|child| child.list.uniform) {
            return false;
        }
        let divided: usize = level.children.iter().map(|child| child.list.len()).sum();
        // With k of f parts left, a pass over the log achieves as much as log_f(k) passes: f − k is roughly
        // proportional to the loss.
        parts < self.fan_out.min(REJOIN_MAX) && level.log.len() * (self.fan_out - parts) > divided * parts
    }

    /// Moves a level's children back into its log.
    fn rejoin(&mut self, at: usize) {
        let level = &mut self.levels[at];
        for child in level.children.drain(..) {
            let mut list = child.list;
            list.join(&mut self.store, core::mem::replace(&mut level.log, List::new()));
            level.log = list;
        }
        level.log.uniform = false;
    }

    /// Chooses children for a level that has none, from its log's sample; the log becomes the source.
    fn divide(&mut self, at: usize) {
        let lo = self.bounds[at];
        let fan_out = self.fan_out;
        let level = &mut self.levels[at];
        let mut sample: Vec<T> = level.log.sample().to_vec();
        sample.sort_unstable();
        // The number of parts gives leaves of a good size, limited by the number of lists that may be written
        // at the same time.
        let parts = (level.log.len() / (LEAF_MAX * 7 / 8)).clamp(2, fan_out);
        let mut bounds: Vec<T> = (1..parts).map(|n| sample[n * sample.len() / parts]).collect();
        bounds.dedup_by(|a, b| a.cmp(&b).is_eq());
        let mut children = Vec::with_capacity(bounds.len() + 2);
        let mut around = None;
        if let [.., only] = bounds[..]
            && sample[0].cmp(&sample[sample.len() - 1]).is_eq()
        {
            // Most items equal one key: three parts for smaller, equal and larger items.
            around = Some(only);
            children.push(Child { lo: only, list: List::new() });
            children.push(Child { lo: only, list: List::new() });
        } else {
            bounds.retain(|bound| *bound > sample[0]);
            if bounds.is_empty() {
                // One key fills more than the lowest part, so it is separated from the next larger key.
                bounds.extend(sample.iter().find(|item| **item > sample[0]).copied());
            }
            children.extend(bounds.iter().rev().map(|&lo| Child { lo, list: List::new() }));
        }
        children.push(Child { lo, list: List::new() });
        level.children = children;
        level.around = around;
        level.source = core::mem::replace(&mut level.log, List::new());
    }

    /// Moves one burst from a level's source to its children; returns the number of items.
    fn distribute(&mut self, at: usize) -> usize {
        let mut left = BURST;
        // A burst ends at the block's end: each further page that an operation touches displaces another.
        let blocks = self.levels[at].source.blocks();
        while left > 0 && !self.levels[at].source.is_empty() && self.levels[at].source.blocks() == blocks {
            let moved = self.distribute_chunk(at, left.min(CHUNK));
            if moved == 0 {
                break;
            }
            left -= moved;
        }
        BURST - left
    }

    /// Moves up to `most` items, and returns their number. All are compared before any is moved.
    fn distribute_chunk(&mut self, at: usize, most: usize) -> usize {
        let fan_out = self.fan_out;
        let level = &mut self.levels[at];
        let store = &mut self.store;
        let items = level.source.newest(store, most);
        let count = items.len();
        let mut places = [0_u8; CHUNK];
        let mut ends = [0_u16; CHILDREN_MAX + 1];
        for (item, place) in items.iter().zip(&mut places) {
            let child = match &level.around {
                Some(middle) => match item.cmp(middle) {
                    core::cmp::Ordering::Greater => 0,
                    core::cmp::Ordering::Equal => 1,
                    core::cmp::Ordering::Less => 2,
                },
                None => {
                    level.children.partition_point(|child| child.lo > *item).min(level.children.len() - 1)
                }
            };
            *place = child as u8;
            ends[child] += 1;
        }
        let block_items = store.block_items();
        let needed: usize = level
            .children
            .iter()
            .zip(ends)
            .map(|(child, count)| child.list.blocks_to_add(usize::from(count), block_items))
            .sum();
        if !store.reserve(needed) {
            return 0;
        }
        let mut end = 0;
        for slot in &mut ends {
            end += *slot;
            *slot = end;
        }
        let items = level.source.newest(store, most);
        self.scratch.clear();
        self.scratch.extend_from_slice(items);
        let mut next = ends;
        for (item, place) in items.iter().zip(places).rev() {
            next[place as usize] -= 1;
            self.scratch[usize::from(next[place as usize])] = *item;
        }
        store.touch(Area::Scratch, 0, count, true);
        level.source.forget(store, count);
        for (n, child) in level.children.iter_mut().enumerate() {
            let part = &self.scratch[usize::from(next[n])..usize::from(ends[n])];
            if !part.is_empty() {
                let was_uniform = child.list.uniform || child.list.is_empty();
                child.list.append(store, part);
                child.list.uniform = level.around.is_some() && n == 1 && was_uniform;
            }
        }
        store.touch(Area::Lists, at * (fan_out + 2), level.children.len() + 2, true);
        count
    }

    /// Moves the items that belong to the first child out of a short log; returns false if there was no room.
    fn sift_log(&mut self, at: usize) -> bool {
        let level = &mut self.levels[at];
        let store = &mut self.store;
        let Some([.., second, first]) = level.children.get_mut(..) else {
            // A single child: the whole log is about to be joined with it.
            return true;
        };
        // Items are compared first and moved afterwards: a comparison that panics leaves the log unchanged.
        self.scratch.clear();
        let second_lo = second.lo;
        level
            .log
            .for_each(store, |items| self.scratch.extend(items.iter().filter(|item| **item < second_lo)));
        let mine = self.scratch.len();
        if mine == 0 {
            return true;
        }
        level
            .log
            .for_each(store, |items| self.scratch.extend(items.iter().filter(|item| **item >= second_lo)));
        if !store.reserve(first.list.blocks_to_add(mine, store.block_items())) {
            return false;
        }
        let (to_first, to_stay) = self.scratch.split_at(mine);
        level.log.clear(store);
        first.list.append(store, to_first);
        level.log.append(store, to_stay);
        true
    }

    /// Turns the first child into a separate level.
    fn open(&mut self, at: usize) {
        let level = &mut self.levels[at];
        level.opening = false;
        let Some(first) = level.children.pop() else { return };
        match level.children.last() {
            None => {
                // The last child and the log cover the same range.
                let mut list = first.list;
                let log = core::mem::replace(&mut level.log, List::new());
                if log.is_empty() {
                    level.log = list;
                } else {
                    list.join(&mut self.store, log);
                    level.log = list;
                }
                if level.log.is_empty() {
                    self.levels.remove(at);
                    self.bounds.remove(at);
                }
            }
            Some(second) => {
                let lo = core::mem::replace(&mut self.bounds[at], second.lo);
                if !first.list.is_empty() {
                    self.levels.insert(at + 1, Level::new(first.list));
                    self.bounds.insert(at + 1, lo);
                }
            }
        }
        self.store.touch(Area::Lists, at * (self.fan_out + 2), 2, true);
        self.join_levels();
    }

    /// Joins a level with the next if there are many levels and both are about equally large.
    fn join_levels(&mut self) {
        if self.levels.len() <= LEVELS_SOFT {
            return;
        }
        let mut before = self.near.front.len();
        for at in (1..self.levels.len()).rev() {
            let (upper, lower) = (&self.levels[at - 1], &self.levels[at]);
            let idle = upper.source.is_empty()
                && lower.source.is_empty()
                && !lower.log.uniform
                && !upper.log.uniform;
            // Levels are not joined if the result would have to be opened soon: it would be divided again at
            // once.
            let logs = upper.log.blocks() + if lower.children.is_empty() { 0 } else { lower.log.blocks() };
            let first = lower.children.last().map_or(lower.log.blocks(), |child| child.list.blocks());
            let soon = (logs + first + 2) * 2 * HASTE + 4 * MARGIN;
            let crowded = upper.children.len() + lower.children.len() > CHILDREN_MAX - 2;
            let worth = soon <= before && lower.len() * 2 >= upper.len();
            let before_upper = before + lower.len();
            if idle && crowded {
                self.join_children(at - 1);
                return;
            } else if idle && worth {
                self.join(at);
                return;
            }
            before = before_upper;
        }
    }

    /// Joins level `at` to the level above it.
    fn join(&mut self, at: usize) {
        let mut lower = self.levels.remove(at);
        let lo = self.bounds.remove(at);
        let upper_lo = core::mem::replace(&mut self.bounds[at - 1], lo);
        let upper = &mut self.levels[at - 1];
        if upper.children.is_empty() {
            let log = core::mem::replace(&mut upper.log, List::new());
            upper.children.push(Child { lo: upper_lo, list: log });
        }
        if lower.children.is_empty() {
            let log = core::mem::replace(&mut lower.log, List::new());
            lower.children.push(Child { lo, list: log });
        }
        upper.children.append(&mut lower.children);
        upper.log.join(&mut self.store, lower.log);
        upper.opening = false;
        self.join_children(at - 1);
    }

    /// Joins the two neighbouring children whose total size is smallest, if there are many children. At most
    /// one pair is joined per call, because joining may move a block's items.
    fn join_children(&mut self, at: usize) {
        let children = &mut self.levels[at].children;
        if children.len() <= 2 * self.fan_out + 4 {
            return;
        }
        let pair = |n: &usize| children[*n].list.len() + children[*n + 1].list.len();
        let Some(n) = (0..children.len() - 1).min_by_key(pair) else { return };
        let smaller = children.remove(n + 1);
        children[n].lo = smaller.lo;
        children[n].list.join(&mut self.store, smaller.list);
    }

    /// Fills the front, which must be empty, from the lowest level.
    pub(crate) fn refill(&mut self) {
        while let Some(level) = self.levels.last() {
            let at = self.levels.len() - 1;
            let small = level.log.len() <= FRONT_MAX || level.log.uniform;
            if !(level.children.is_empty() && level.source.is_empty() && small) {
                self.late += 1;
                self.step(at);
                continue;
            }
            let level = &mut self.levels[at];
            self.near.front.clear();
            self.near.front.reserve_exact(FRONT_MAX);
            let mut left = FRONT_MAX;
            let uniform = level.log.uniform;
            // Comparisons follow only after all items have arrived; a panic leaves every item in the front.
            while left > 0 && !level.log.is_empty() {
                let items = level.log.newest(&self.store, left);
                let count = items.len();
                self.near.front.extend_from_slice(items);
                level.log.forget(&mut self.store, count);
                left -= count;
            }
            level.log.uniform = uniform;
            if level.log.is_empty() {
                self.levels.pop();
                self.bounds.pop();
            }
            self.near.load(&self.store);
            if !self.near.front.is_empty() {
                return;
            }
        }
    }
}
