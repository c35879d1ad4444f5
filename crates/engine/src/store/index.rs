//! The index of a shard as readers see it: pages of buckets, found through a directory, read without locks.
//!
//! ```text
//! hash.prefix ─spread─▶ y ─top bits─▶ directory[depth] ─▶ page of 32 buckets ─▶ home bucket, then the next three
//!
//! bucket (128 bytes, two lines):
//! | seq 32, overflow 8 | hash ×5 |  ..  ‖  place ×5 | life ×5 |
//!        line 0: all that a miss needs      line 1: needed only by a hit
//! ```
//! *Memory:* anonymous. *Writer:* the owner, through [`super::directory::IndexOwner`]. *Readers:* every core
//! within an epoch. *Waiting:* never; a reader that finds the bucket being written at each attempt answers
//! *contended*.
//!
//! `spread` bends the hash space like log2, so that pages at one end hold up to twice as many objects as at
//! the other and split at different times. The fill level of the pages then stays at its mean (0.62) instead
//! of swinging between its bounds all at once. At the worst moment that saves 12 bytes per object.

use std::io;

use super::hash::Hash;
use crate::sys::{
    arena::{Words, prefetch},
    atomics::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
};

/// Number of slots in a bucket.
pub const SLOTS: usize = if cfg!(feature = "loom") { 2 } else { 5 };
/// Number of buckets in a page; a power of two.
pub const BUCKETS: usize = if cfg!(feature = "loom") { 2 } else { 32 };
/// Number of buckets in which an object may be stored, including its home bucket.
pub const PROBES: usize = if cfg!(feature = "loom") { 2 } else { 8 };
/// Number of 64-bit words in a bucket.
pub const BUCKET_WORDS: usize = 1 + 3 * SLOTS;
/// Number of 64-bit words in a page.
pub const PAGE_WORDS: usize = BUCKETS * BUCKET_WORDS;
/// Maximum number of times that a lookup reads a bucket that is being written, before it answers *contended*.
pub const READS_MAX: usize = if cfg!(feature = "loom") { 2 } else { 32 };
/// Number of bits in a slot's visit counter; each core has its own counters.
const VISITS_BITS: usize = 2;
/// Maximum number of visits counted for an object, both per core and in total.
pub const VISITS_MAX: u64 = (1 << VISITS_BITS) - 1;
/// Number of 64-bit words that hold one core's visit counters for one page.
pub(super) const VISITED_WORDS: usize = (BUCKETS * SLOTS * VISITS_BITS).div_ceil(64);

/// Minimum number of words for which huge pages are used: they waste little of a region that is filled from
/// its start.
const HUGE_FROM_WORDS: usize = 1 << 20;

const HASHES: usize = 1;
const PLACES: usize = HASHES + SLOTS;
const LIVES: usize = PLACES + SLOTS;

/// Index entry of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// [`struct@Hash`] as a word; 0: empty.
    pub hash: u64,
    /// Location in units of 16 bytes (40 bits) and record length in the same units (24 bits above).
    pub place: u64,
    /// Expiry in seconds (32 bits), ban epoch (24, not used yet), flags (8) from low to high.
    pub life: u64,
}

impl Slot {
    const LOCATION_BITS: u32 = 40;
    const CHAINED: u64 = 1 << 56;
    const SIFTING: u64 = 1 << 57;
    const UNQUEUED: u64 = 1 << 58;

    /// Creates a slot for a record at `location`, `units` long (both in units of 16 bytes).
    pub fn new(hash: Hash, location: u64, units: u32, expires_s: u32, chained: bool) -> Self {
        assert!(
            location < 1 << Self::LOCATION_BITS && units < 1 << 24,
            "location {location} or {units} units too far"
        );
        Self {
            hash: hash.word(),
            place: location | u64::from(units) << Self::LOCATION_BITS,
            life: u64::from(expires_s) | if chained { Self::CHAINED } else { 0 },
        }
    }

    /// Returns the location of the record in units of 16 bytes.
    #[inline]
    pub fn location(&self) -> u64 {
        self.place & ((1 << Self::LOCATION_BITS) - 1)
    }

    /// Returns the length of the record in units of 16 bytes.
    #[inline]
    pub fn units(&self) -> u32 {
        (self.place >> Self::LOCATION_BITS) as u32
    }

    /// Returns the expiry in seconds on the store's clock.
    #[inline]
    pub fn expires_s(&self) -> u32 {
        self.life as u32
    }

    /// Returns whether the body is stored in separate extents.
    #[inline]
    pub fn is_chained(&self) -> bool {
        self.life & Self::CHAINED != 0
    }

    /// Returns the sifting of the expiry queue (one of two, alternating) in which an entry for this slot was
    /// last added.
    #[inline]
    pub fn sifting(&self) -> bool {
        self.life & Self::SIFTING != 0
    }

    /// Returns this slot, marked with the given sifting.
    #[inline]
    pub fn with_sifting(self, sifting: bool) -> Self {
        Self { life: self.life & !Self::SIFTING | if sifting { Self::SIFTING } else { 0 }, ..self }
    }

    /// Returns whether the object has no entry in the expiry queue although it expires.
    #[inline]
    pub fn is_unqueued(&self) -> bool {
        self.life & Self::UNQUEUED != 0
    }

    /// Returns this slot, marked as one with or without an entry in the expiry queue.
    #[inline]
    pub fn with_unqueued(self, unqueued: bool) -> Self {
        Self { life: self.life & !Self::UNQUEUED | if unqueued { Self::UNQUEUED } else { 0 }, ..self }
    }

    /// Returns this slot with the marks of another that concern its entry in the expiry queue.
    #[inline]
    pub fn marked_like(self, other: &Self) -> Self {
        self.with_unqueued(other.is_unqueued()).with_sifting(other.sifting())
    }

    /// Returns this slot with another record location.
    pub fn with_place(self, location: u64, units: u32) -> Self {
        let place = Self::new(self.hash(), location, units, 0, false).place;
        Self { place, ..self }
    }

    /// Returns this slot with another expiry.
    pub fn with_expires_s(self, expires_s: u32) -> Self {
        Self { life: self.life & !0xffff_ffff | u64::from(expires_s), ..self }
    }

    /// Returns the hash of the object.
    #[inline]
    pub fn hash(&self) -> Hash {
        Hash::from_word(self.hash)
    }
}

/// Address of a slot in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAddress {
    /// Number of the index page.
    pub page: u32,
    /// Index of the bucket in the page.
    pub bucket: u8,
    /// Index of the slot in the bucket.
    pub slot: u8,
}

/// Result of a lookup by hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotLookup {
    /// The slot of the hash, as it was at one moment (I4).
    Slot(Slot, SlotAddress),
    /// The hash is not in the index.
    Absent,
    /// The writer changed the bucket during every read.
    Contended,
}

/// Part of a shard's index that all cores share.
#[derive(Debug)]
pub struct Index {
    pub(super) pages: Words,
    /// The directory of depth `d` is the words from `1 << d` to `2 << d`. Growth fills fresh memory, and an
    /// old directory is never overwritten, so it is safe for a reader to use an old directory as long as its
    /// pages are protected.
    pub(super) directories: Words,
    pub(super) depth: AtomicU64,
    pub(super) visited: Words,
    visited_stride: usize,
    pub(super) pages_max: usize,
    pub(super) depth_max: u32,
}

impl Index {
    /// Reserves address space for an index of `pages_max` pages that is read by `cores` cores.
    ///
    /// # Errors
    /// Returns the kernel's error if it refuses the mapping.
    pub fn reserve(pages_max: usize, cores: usize) -> io::Result<Self> {
        // Three bits more than an even distribution needs: the densest pages are one split ahead (`spread`),
        // and random variation needs the rest. A page that would need more holds a crafted or practically
        // impossible set of hashes.
        let depth_max = (pages_max.next_power_of_two().trailing_zeros() + 3).min(31);
        let visited_stride =
            (pages_max * VISITED_WORDS).next_multiple_of(if cfg!(feature = "loom") { 1 } else { 512 });
        Ok(Self {
            pages: Words::reserve(pages_max * PAGE_WORDS, true)?,
            directories: Words::reserve(2 << depth_max, 2 << depth_max >= HUGE_FROM_WORDS)?,
            depth: AtomicU64::new(0),
            visited: Words::reserve(visited_stride * cores, visited_stride >= HUGE_FROM_WORDS)?,
            visited_stride,
            pages_max,
            depth_max,
        })
    }

    /// Returns the slot of a hash. Must be called within an epoch, or by the owner.
    #[inline]
    pub fn lookup(&self, hash: Hash) -> SlotLookup {
        let page = self.page_of(hash.prefix());
        let home = home(hash.prefix());
        // The second line is prefetched at the same time as the first, because most lookups hit.
        prefetch(&self.bucket(page, home)[BUCKET_WORDS - 1]);
        for probe in 0..PROBES {
            let bucket = (home + probe) % BUCKETS;
            match self.read_bucket(page, bucket, hash) {
                BucketLookup::Slot(slot, number) => {
                    return SlotLookup::Slot(
                        slot,
                        SlotAddress { page, bucket: bucket as u8, slot: number as u8 },
                    );
                }
                BucketLookup::Absent { overflow: 0 } => return SlotLookup::Absent,
                BucketLookup::Absent { .. } => {}
                BucketLookup::Contended => return SlotLookup::Contended,
            }
        }
        SlotLookup::Absent
    }

    /// Prefetches the words that a lookup of a hash with this prefix reads first.
    #[inline]
    pub fn prefetch(&self, prefix: u32) {
        self.prefetch_bucket(self.page_of(prefix), home(prefix));
    }

    #[inline]
    pub(super) fn prefetch_bucket(&self, page: u32, bucket: usize) {
        let words = self.bucket(page, bucket);
        prefetch(&words[0]);
        prefetch(&words[BUCKET_WORDS - 1]);
    }

    /// Prefetches the word that [`Index::visit`] reads.
    #[inline]
    pub fn prefetch_visited(&self, core: usize, at: SlotAddress) {
        prefetch(self.visited_word(core, at).0);
    }

    /// Counts a visit by `core`, up to [`VISITS_MAX`]. Must be called on that core's thread.
    #[inline]
    pub fn visit(&self, core: usize, at: SlotAddress) {
        let (word, shift) = self.visited_word(core, at);
        // Only this core adds to this count, and the owner never subtracts more than the current count.
        if word.load(Relaxed) >> shift & VISITS_MAX < VISITS_MAX {
            word.fetch_add(1 << shift, Relaxed);
        }
    }

    /// Returns a core's word that counts the visits of a slot, and the bit at which the counter begins.
    #[inline]
    pub(super) fn visited_word(&self, core: usize, at: SlotAddress) -> (&AtomicU64, usize) {
        let bit = (usize::from(at.bucket) * SLOTS + usize::from(at.slot)) * VISITS_BITS;
        let word = core * self.visited_stride + at.page as usize * VISITED_WORDS + bit / 64;
        (&self.visited[word], bit % 64)
    }

    pub(super) fn visited_words_from(&self, core: usize, at: SlotAddress) -> &[AtomicU64] {
        let start = core * self.visited_stride + at.page as usize * VISITED_WORDS;
        &self.visited[start..start + VISITED_WORDS]
    }

    #[inline]
    pub(super) fn page_of(&self, prefix: u32) -> u32 {
        let depth = self.depth.load(Acquire) as u32;
        let entry = self.directories[(1_usize << depth) + directory_place(prefix, depth)].load(Acquire);
        entry as u32
    }

    #[inline]
    pub(super) fn bucket(&self, page: u32, bucket: usize) -> &[AtomicU64; BUCKET_WORDS] {
        let start = page as usize * PAGE_WORDS + bucket * BUCKET_WORDS;
        match self.pages[start..].first_chunk() {
            Some(words) => words,
            None => unreachable!("page {page} is beyond the index"),
        }
    }

    #[inline]
    fn read_bucket(&self, page: u32, bucket: usize, hash: Hash) -> BucketLookup {
        let words = self.bucket(page, bucket);
        for _ in 0..READS_MAX {
            if let Some(lookup) = read_once(words, hash) {
                return lookup;
            }
            std::hint::spin_loop();
        }
        BucketLookup::Contended
    }

    /// Writes a slot at an address; for the owner only.
    pub(super) fn write_slot(&self, at: SlotAddress, slot: Slot) {
        self.change_bucket(at.page, at.bucket.into(), |words, overflow| {
            write_slot(words, at.slot.into(), slot);
            overflow
        });
    }

    /// Counts one more object that is stored past a bucket; for the owner only.
    pub(super) fn add_overflow(&self, page: u32, bucket: usize) {
        self.change_bucket(page, bucket, |_, overflow| overflow + 1);
    }

    /// Counts one object less that is stored past a bucket; for the owner only.
    pub(super) fn subtract_overflow(&self, page: u32, bucket: usize) {
        self.change_bucket(page, bucket, |_, overflow| overflow.wrapping_sub(1));
    }

    /// Changes one bucket under its sequence lock; for the owner only. `change` writes to the bucket's words,
    /// and returns the overflow count after the change.
    #[inline]
    fn change_bucket(
        &self,
        page: u32,
        bucket: usize,
        change: impl FnOnce(&[AtomicU64; BUCKET_WORDS], u64) -> u64,
    ) {
        let words = self.bucket(page, bucket);
        let before = words[0].load(Relaxed);
        let sequence = before as u32;
        debug_assert!(sequence & 1 == 0, "two writers of one bucket");
        words[0].store(before & !0xffff_ffff | u64::from(sequence.wrapping_add(1)), Relaxed);
        fence(Release);
        let overflow = change(words, overflow(before));
        assert!(overflow <= 255, "overflow count of a bucket out of range");
        words[0].store(overflow << 32 | u64::from(sequence.wrapping_add(2)), Release);
    }
}

enum BucketLookup {
    Slot(Slot, usize),
    Absent { overflow: u64 },
    Contended,
}

/// Looks a hash up in a bucket; `None` if the bucket is being written.
#[inline]
fn read_once(words: &[AtomicU64; BUCKET_WORDS], hash: Hash) -> Option<BucketLookup> {
    let before = words[0].load(Acquire);
    if before & 1 != 0 {
        return None;
    }
    let number = number_of(words, hash.word());
    let slot = number.map(|number| read_slot(words, number));
    fence(Acquire);
    if words[0].load(Relaxed) != before {
        return None;
    }
    Some(match (number, slot) {
        (Some(number), Some(slot)) => BucketLookup::Slot(Slot { hash: hash.word(), ..slot }, number),
        _ => BucketLookup::Absent { overflow: overflow(before) },
    })
}

/// Returns the home bucket of a prefix. It is chosen by the lowest bits, because pages are chosen by the
/// highest.
#[inline]
pub(super) fn home(prefix: u32) -> usize {
    prefix as usize % BUCKETS
}

/// Maps a prefix to the space that pages divide: x + x(1-x)/3 on [0, 1), with a slope that halves from end to
/// end.
#[inline]
pub(super) fn spread(prefix: u32) -> u64 {
    let x = u64::from(prefix);
    x + ((x * ((1 << 32) - x)) >> 32) / 3
}

/// Returns the index of a prefix's entry in the directory of a given depth.
#[inline]
pub(super) fn directory_place(prefix: u32, depth: u32) -> usize {
    (spread(prefix) >> (32 - depth)) as usize
}

#[inline]
pub(super) fn overflow(header: u64) -> u64 {
    header >> 32 & 0xff
}

/// Returns the position in the bucket of the slot with this hash; hash 0 finds an empty slot.
#[inline]
pub(super) fn number_of(words: &[AtomicU64; BUCKET_WORDS], hash: u64) -> Option<usize> {
    (0..SLOTS).find(|number| words[HASHES + number].load(Relaxed) == hash)
}

#[inline]
pub(super) fn read_slot(words: &[AtomicU64; BUCKET_WORDS], number: usize) -> Slot {
    Slot {
        hash: words[HASHES + number].load(Relaxed),
        place: words[PLACES + number].load(Relaxed),
        life: words[LIVES + number].load(Relaxed),
    }
}

#[inline]
pub(super) fn write_slot(words: &[AtomicU64; BUCKET_WORDS], number: usize, slot: Slot) {
    words[HASHES + number].store(slot.hash, Relaxed);
    words[PLACES + number].store(slot.place, Relaxed);
    words[LIVES + number].store(slot.life, Relaxed);
}

/// Writes a bucket of a page that no reader can see yet.
#[inline]
pub(super) fn write_fresh(words: &[AtomicU64; BUCKET_WORDS], slots: &[Slot; SLOTS], overflow: u64) {
    words[0].store(overflow << 32, Relaxed);
    for (number, slot) in slots.iter().enumerate() {
        write_slot(words, number, *slot);
    }
}
