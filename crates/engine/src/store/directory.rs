//! The owner's side of the index: linking and unlinking objects, splitting pages, growing the directory.
//!
//! A page that cannot take an object within [`PROBES`] buckets of its home splits into two fresh pages. The
//! new pages are filled before the directory points to them. The old page stays unchanged for readers of
//! earlier epochs and is reused once those epochs are over (I7). One split affects one page. Each split fills
//! some entries of the next directory, so that the switch to it takes only one store of the depth.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{
    hash::Hash,
    index::{
        BUCKETS, Index, PAGE_WORDS, PROBES, SLOTS, Slot, SlotAddress, VISITED_WORDS, VISITS_MAX,
        directory_place, home, number_of, overflow, read_slot, spread, write_fresh,
    },
    turns::{Epoch, Epochs},
};
use crate::sys::atomics::Ordering::{Relaxed, Release};

/// Number of entries of the next directory that are filled at each split. A directory has about three entries
/// per page, so the next one is complete long before the densest page needs it.
const ENTRIES_AHEAD: usize = 16;

/// Error: the index has no slot for this hash, because its pages are used up or too many hashes share their
/// leading bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexFullError;

/// State of a shard's index that only the owner of the shard has.
#[derive(Debug)]
pub struct IndexOwner {
    /// Core to whose visit counter the visits of moved objects are added.
    core: usize,
    pages_begun: usize,
    pages_free: Vec<u32>,
    pages_retired: VecDeque<(u32, Epoch)>,
    /// Number of entries of the current directory that are already copied to the next one.
    next_filled: usize,
    cores: usize,
}

impl IndexOwner {
    /// Creates an index with one empty page. Core `core` owns it, and `cores` cores read it.
    pub fn new(index: &Index, core: usize, cores: usize) -> Self {
        index.directories[1].store(entry(0, 0), Release);
        Self {
            core,
            pages_begun: 1,
            pages_free: Vec::new(),
            pages_retired: VecDeque::new(),
            next_filled: 0,
            cores,
        }
    }

    /// Prefetches the words that finding, changing or removing an object with this hash prefix reads first: its
    /// bucket, and the visits that each core has counted.
    pub fn prefetch(&self, index: &Index, prefix: u32) {
        let (page, home) = (index.page_of(prefix), home(prefix));
        index.prefetch_bucket(page, home);
        for core in 0..self.cores {
            index.prefetch_visited(core, SlotAddress { page, bucket: home as u8, slot: 0 });
        }
    }

    /// Finds the slot of a hash. Never contended, because only the owner writes the index.
    #[inline]
    pub fn find(&self, index: &Index, hash: Hash) -> Option<(Slot, SlotAddress)> {
        let page = index.page_of(hash.prefix());
        for probe in 0..PROBES {
            let bucket = (home(hash.prefix()) + probe) % BUCKETS;
            let words = index.bucket(page, bucket);
            if let Some(number) = number_of(words, hash.word()) {
                let at = SlotAddress { page, bucket: bucket as u8, slot: number as u8 };
                return Some((read_slot(words, number), at));
            }
            if overflow(words[0].load(Relaxed)) == 0 {
                break;
            }
        }
        None
    }

    /// Returns the slots that have this hash prefix and expire at `expires_s`.
    pub fn find_due(&self, index: &Index, prefix: u32, expires_s: u32) -> SmallVec<[(Slot, SlotAddress); 2]> {
        let mut found = SmallVec::new();
        let page = index.page_of(prefix);
        for probe in 0..PROBES {
            let bucket = (home(prefix) + probe) % BUCKETS;
            let words = index.bucket(page, bucket);
            for number in 0..SLOTS {
                let slot = read_slot(words, number);
                if slot.hash != 0 && slot.hash().prefix() == prefix && slot.expires_s() == expires_s {
                    found.push((slot, SlotAddress { page, bucket: bucket as u8, slot: number as u8 }));
                }
            }
            if overflow(words[0].load(Relaxed)) == 0 {
                break;
            }
        }
        found
    }

    /// Links a slot whose hash is not in the index.
    ///
    /// # Errors
    /// Returns [`IndexFullError`] if the index has no slot for the hash; the index is then unchanged.
    pub fn insert(
        &mut self,
        index: &Index,
        turns: &Epochs,
        slot: Slot,
    ) -> Result<SlotAddress, IndexFullError> {
        let prefix = slot.hash().prefix();
        loop {
            let page = index.page_of(prefix);
            for probe in 0..PROBES {
                let bucket = (home(prefix) + probe) % BUCKETS;
                let words = index.bucket(page, bucket);
                let Some(number) = number_of(words, 0) else { continue };
                let at = SlotAddress { page, bucket: bucket as u8, slot: number as u8 };
                self.set_visits(index, at, 0);
                index.write_slot(at, slot);
                for passed in 0..probe {
                    index.add_overflow(page, (home(prefix) + passed) % BUCKETS);
                }
                return Ok(at);
            }
            self.split(index, turns, prefix)?;
        }
    }

    /// Overwrites a slot with another slot of the same hash: for relocation, refresh and replacement.
    pub fn update(&mut self, index: &Index, at: SlotAddress, slot: Slot) {
        debug_assert_eq!(read_slot(index.bucket(at.page, at.bucket.into()), at.slot.into()).hash, slot.hash);
        index.write_slot(at, slot);
    }

    /// Unlinks the slot at an address.
    pub fn remove(&mut self, index: &Index, at: SlotAddress) {
        let bucket = usize::from(at.bucket);
        let slot = read_slot(index.bucket(at.page, bucket), at.slot.into());
        assert!(slot.hash != 0, "empty index slot unlinked");
        index.write_slot(at, Slot::default());
        let mut passed = home(slot.hash().prefix());
        while passed != bucket {
            index.subtract_overflow(at.page, passed);
            passed = (passed + 1) % BUCKETS;
        }
    }

    /// Returns the visits of an object by all cores since it was linked, minus those that
    /// [`Self::set_visits`] removed; at most [`VISITS_MAX`].
    pub fn visits(&self, index: &Index, at: SlotAddress) -> u64 {
        let of_core = |core| {
            let (word, shift) = index.visited_word(core, at);
            word.load(Relaxed) >> shift & VISITS_MAX
        };
        (0..self.cores).map(of_core).sum::<u64>().min(VISITS_MAX)
    }

    /// Reduces the visits of the object in a slot to `kept`.
    pub fn set_visits(&mut self, index: &Index, at: SlotAddress, mut kept: u64) {
        for core in 0..self.cores {
            let (word, shift) = index.visited_word(core, at);
            let visits = word.load(Relaxed) >> shift & VISITS_MAX;
            let stay = visits.min(kept);
            kept -= stay;
            if visits > stay {
                word.fetch_sub((visits - stay) << shift, Relaxed);
            }
        }
    }

    /// Returns the bytes of memory that the index has touched: pages, directories, visits.
    pub fn bytes(&self, index: &Index) -> u64 {
        let depth = index.depth.load(Relaxed);
        let words = self.pages_begun * (PAGE_WORDS + VISITED_WORDS * self.cores)
            + (2_usize << depth)
            + 2 * self.next_filled;
        words as u64 * 8
    }

    fn split(&mut self, index: &Index, turns: &Epochs, prefix: u32) -> Result<(), IndexFullError> {
        let mut depth = index.depth.load(Relaxed) as u32;
        let current = index.directories[(1 << depth) + directory_place(prefix, depth)].load(Relaxed);
        let (page, page_depth) = (current as u32, (current >> 32) as u32);
        let halves = self.take_pages(index, turns)?;
        if page_depth == depth {
            if depth == index.depth_max {
                self.pages_free.extend(halves);
                return Err(IndexFullError);
            }
            self.grow(index, depth);
            depth += 1;
        }
        for (half, fresh) in halves.into_iter().enumerate() {
            let chosen = |slot: &Slot| spread(slot.hash().prefix()) >> (31 - page_depth) & 1 == half as u64;
            let draft = Draft::of(index, page, chosen);
            for bucket in 0..BUCKETS {
                let words = index.bucket(fresh, bucket);
                write_fresh(words, &draft.slots[bucket], u64::from(draft.overflow[bucket]));
                for number in 0..usize::from(draft.filled[bucket]) {
                    let at = SlotAddress { page: fresh, bucket: bucket as u8, slot: number as u8 };
                    for _ in 0..self.visits(index, draft.from[bucket][number]) {
                        index.visit(self.core, at);
                    }
                }
            }
        }
        // The entries that led to the old page form a run; the first half of the run now leads to the first
        // new page.
        let run = 1_usize << (depth - page_depth);
        let first = directory_place(prefix, depth) & !(run - 1);
        for place in first..first + run {
            let half = usize::from(place - first >= run / 2);
            self.point(index, depth, place, entry(halves[half], page_depth + 1));
        }
        self.fill_next(index, depth, ENTRIES_AHEAD);
        self.pages_retired.push_back((page, turns.retire()));
        Ok(())
    }

    fn take_pages(&mut self, index: &Index, turns: &Epochs) -> Result<[u32; 2], IndexFullError> {
        while let Some((page, epoch)) = self.pages_retired.front().copied() {
            if !turns.is_over(epoch) {
                break;
            }
            self.pages_retired.pop_front();
            for core in 0..self.cores {
                for word in 0..VISITED_WORDS {
                    let at = SlotAddress { page, bucket: 0, slot: 0 };
                    index.visited_words_from(core, at)[word].store(0, Relaxed);
                }
            }
            self.pages_free.push(page);
        }
        let fresh = 2_usize.saturating_sub(self.pages_free.len());
        if self.pages_begun + fresh > index.pages_max {
            return Err(IndexFullError);
        }
        let mut take = || {
            self.pages_free.pop().unwrap_or_else(|| {
                self.pages_begun += 1;
                self.pages_begun as u32 - 1
            })
        };
        Ok([take(), take()])
    }

    fn point(&self, index: &Index, depth: u32, place: usize, entry: u64) {
        index.directories[(1 << depth) + place].store(entry, Release);
        if place < self.next_filled {
            index.directories[(2 << depth) + 2 * place].store(entry, Release);
            index.directories[(2 << depth) + 2 * place + 1].store(entry, Release);
        }
    }

    fn fill_next(&mut self, index: &Index, depth: u32, entries: usize) {
        if depth == index.depth_max {
            return;
        }
        let end = (self.next_filled + entries).min(1 << depth);
        for place in self.next_filled..end {
            let entry = index.directories[(1 << depth) + place].load(Relaxed);
            index.directories[(2 << depth) + 2 * place].store(entry, Relaxed);
            index.directories[(2 << depth) + 2 * place + 1].store(entry, Relaxed);
        }
        self.next_filled = end;
    }

    fn grow(&mut self, index: &Index, depth: u32) {
        self.fill_next(index, depth, 1 << depth);
        index.depth.store(u64::from(depth) + 1, Release);
        self.next_filled = 0;
    }

    /// Checks the whole index and counts its objects: every slot is where a lookup finds it, overflow counts
    /// are exact, hashes occur once, each page is in use, free or retired.
    ///
    /// # Panics
    /// Panics if any of this does not hold.
    pub fn invariants(&self, index: &Index) -> usize {
        let depth = index.depth.load(Relaxed) as u32;
        let mut objects = 0;
        let mut pages = 0;
        let mut place = 0;
        while place < 1 << depth {
            let current = index.directories[(1 << depth) + place].load(Relaxed);
            let (page, page_depth) = (current as u32, (current >> 32) as u32);
            let run = 1 << (depth - page_depth);
            assert_eq!(place % run, 0, "run of page {page} is misaligned");
            for same in place..place + run {
                assert_eq!(
                    index.directories[(1 << depth) + same].load(Relaxed),
                    current,
                    "run of page {page}"
                );
            }
            objects += Self::page_invariants(index, page, |prefix| {
                directory_place(prefix, depth) / run == place / run
            });
            pages += 1;
            place += run;
        }
        for filled in 0..self.next_filled {
            let current = index.directories[(1 << depth) + filled].load(Relaxed);
            for next in [2 * filled, 2 * filled + 1] {
                assert_eq!(
                    index.directories[(2 << depth) + next].load(Relaxed),
                    current,
                    "next directory at {next}"
                );
            }
        }
        assert_eq!(
            pages + self.pages_free.len() + self.pages_retired.len(),
            self.pages_begun,
            "a page is lost"
        );
        objects
    }

    /// Returns all slots. Slow; for checking invariants.
    pub fn all(&self, index: &Index) -> Vec<(Slot, SlotAddress)> {
        let depth = index.depth.load(Relaxed) as u32;
        let entries = &index.directories[1 << depth..2 << depth];
        let pages: std::collections::BTreeSet<u32> =
            entries.iter().map(|entry| entry.load(Relaxed) as u32).collect();
        let mut slots = Vec::new();
        for page in pages {
            for bucket in 0..BUCKETS {
                for number in 0..SLOTS {
                    let slot = read_slot(index.bucket(page, bucket), number);
                    if slot.hash != 0 {
                        slots.push((slot, SlotAddress { page, bucket: bucket as u8, slot: number as u8 }));
                    }
                }
            }
        }
        slots
    }

    fn page_invariants(index: &Index, page: u32, belongs: impl Fn(u32) -> bool) -> usize {
        let mut objects = 0;
        let mut passed = [0; BUCKETS];
        let mut hashes = std::collections::HashSet::new();
        for bucket in 0..BUCKETS {
            for number in 0..SLOTS {
                let slot = read_slot(index.bucket(page, bucket), number);
                if slot.hash == 0 {
                    continue;
                }
                objects += 1;
                let prefix = slot.hash().prefix();
                assert!(
                    belongs(prefix),
                    "hash {:x} is in page {page}, which its lookup does not reach",
                    slot.hash
                );
                assert!(hashes.insert(slot.hash), "hash {:x} is linked twice", slot.hash);
                let distance = (bucket + BUCKETS - home(prefix)) % BUCKETS;
                assert!(distance < PROBES, "hash {:x} is {distance} buckets from home", slot.hash);
                (0..distance).for_each(|step| passed[(home(prefix) + step) % BUCKETS] += 1);
            }
        }
        for (bucket, passed) in passed.into_iter().enumerate() {
            let header = index.bucket(page, bucket)[0].load(Relaxed);
            assert_eq!(overflow(header), passed, "overflow count of bucket {bucket} in page {page}");
            assert_eq!(header & 1, 0, "bucket {bucket} of page {page} has an unfinished write");
        }
        objects
    }
}

fn entry(page: u32, depth: u32) -> u64 {
    u64::from(depth) << 32 | u64::from(page)
}

/// Draft of an index page, built in plain memory before readers can see it.
struct Draft {
    slots: [[Slot; SLOTS]; BUCKETS],
    from: [[SlotAddress; SLOTS]; BUCKETS],
    filled: [u8; BUCKETS],
    overflow: [u8; BUCKETS],
}

impl Draft {
    /// Drafts a page from the chosen objects of an existing page, each as close to its home bucket as
    /// possible.
    fn of(index: &Index, page: u32, chosen: impl Fn(&Slot) -> bool) -> Self {
        // First fit may fail (an object that moved nearer may take the only slot that another can use).
        // Keeping every object in its old bucket always succeeds, because a bucket then never holds more than
        // before.
        Self::placed(index, page, &chosen, true)
            .or_else(|| Self::placed(index, page, &chosen, false))
            .unwrap_or_else(|| unreachable!("part of a page fits where the page did"))
    }

    fn placed(index: &Index, page: u32, chosen: &impl Fn(&Slot) -> bool, nearer: bool) -> Option<Self> {
        let nowhere = SlotAddress { page, bucket: 0, slot: 0 };
        let mut draft = Self {
            slots: [[Slot::default(); SLOTS]; BUCKETS],
            from: [[nowhere; SLOTS]; BUCKETS],
            filled: [0; BUCKETS],
            overflow: [0; BUCKETS],
        };
        for bucket in 0..BUCKETS {
            for number in 0..SLOTS {
                let slot = read_slot(index.bucket(page, bucket), number);
                if slot.hash == 0 || !chosen(&slot) {
                    continue;
                }
                let home = home(slot.hash().prefix());
                let old = (bucket + BUCKETS - home) % BUCKETS;
                let distance = (if nearer { 0 } else { old }..PROBES)
                    .find(|distance| usize::from(draft.filled[(home + distance) % BUCKETS]) < SLOTS)?;
                let to = (home + distance) % BUCKETS;
                let place = usize::from(draft.filled[to]);
                draft.slots[to][place] = slot;
                draft.from[to][place] = SlotAddress { page, bucket: bucket as u8, slot: number as u8 };
                draft.filled[to] += 1;
                (0..distance).for_each(|step| draft.overflow[(home + step) % BUCKETS] += 1);
            }
        }
        Some(draft)
    }
}
