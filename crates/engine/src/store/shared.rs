//! The part of a store that all cores share.

use std::{fmt, io, sync::Arc};

use super::{
    config::{Geometry, StoreError},
    hash::Hash,
    index::{BUCKET_WORDS, Index, PAGE_WORDS},
    record::{Record, UNIT},
    segments::{SegmentState, Segments},
    turns::Epochs,
    usage::{Tally, Usage},
};
use crate::sys::{
    arena::{CACHE_LINE_BYTES, Words, prefetch},
    atomics::{
        AtomicU32, AtomicU64, CacheLinePair,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// A store: segments, indexes and the epochs of the cores. Read through a [`Reader`](super::Reader), written
/// through a [`Shard`](super::Shard).
pub struct Store {
    pub(super) geometry: Geometry,
    /// Seed of every hash. It must stay secret: see [`Hash::seeded`].
    hash_seed: u64,
    /// All segments of all shards. Locations count units of 16 bytes from the start of the arena.
    pub(super) arena: Words,
    pub(super) segments: Segments,
    pub(super) turns: Epochs,
    pub(super) shards: Box<[ShardShared]>,
    /// Number of contended lookups, for each reading core.
    pub(super) contended: Box<[CacheLinePair<AtomicU64>]>,
    /// True if segments can be given new memory, so that sockets may still send from the old pages.
    lends: bool,
}

/// The part of a shard that readers on other cores see.
#[derive(Debug)]
pub(super) struct ShardShared {
    pub(super) index: Index,
    pub(super) tally: Tally,
    /// Not zero while the shard is short of room and needs its draining segments to be released.
    pub(super) starved: AtomicU32,
}

impl Store {
    pub(super) fn reserve(geometry: Geometry, hash_seed: u64) -> Result<Self, StoreError> {
        let refused = |what, words: usize| {
            move |source: io::Error| StoreError::Mapping { what, bytes: words as u64 * 8, source }
        };
        let arena_words = geometry.segments() * geometry.segment_bytes / size_of::<u64>();
        let shards = (0..geometry.cores)
            .map(|_| {
                Ok(ShardShared {
                    index: Index::reserve(geometry.pages_max, geometry.cores)
                        .map_err(refused("an index", geometry.pages_max * PAGE_WORDS))?,
                    tally: Tally::default(),
                    starved: AtomicU32::new(0),
                })
            })
            .collect::<Result<_, StoreError>>()?;
        const { assert!(cfg!(feature = "loom") || BUCKET_WORDS == 16, "a bucket is two cache lines") };
        let arena = Words::reserve(arena_words, true).map_err(refused("segments", arena_words))?;
        let segment_words = geometry.segment_bytes / size_of::<u64>();
        Ok(Self {
            // The attempt is made on memory that is still untouched; it fails if a segment is not a whole
            // number of pages.
            lends: cfg!(not(feature = "loom")) && arena.renew(segment_words..2 * segment_words).is_ok(),
            arena,
            segments: Segments::new(geometry.cores, geometry.segments()),
            turns: Epochs::new(geometry.cores),
            shards,
            contended: (0..geometry.cores).map(|_| CacheLinePair::default()).collect(),
            geometry,
            hash_seed,
        })
    }

    /// Returns the hash of a key in this store.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> Hash {
        Hash::seeded(key, self.hash_seed)
    }

    /// Returns the core that owns a hash: only its shard may link, replace and unlink the object.
    #[inline]
    pub fn owner(&self, hash: Hash) -> usize {
        hash.owner(self.geometry.cores)
    }

    /// Returns the number of cores, which is also the number of shards.
    pub fn cores(&self) -> usize {
        self.geometry.cores
    }

    /// Returns the maximum body bytes of a stored object.
    pub fn object_bytes_max(&self) -> u64 {
        self.geometry.object_bytes_max
    }

    /// Returns the size of a segment in bytes.
    pub fn segment_bytes(&self) -> usize {
        self.geometry.segment_bytes
    }

    /// Returns whether [`PinnedObject::lend`](super::PinnedObject::lend) may be used with this store.
    pub fn lends(&self) -> bool {
        self.lends
    }

    /// Replaces the memory of a freed segment with new pages.
    pub(super) fn renew(&self, segment: usize) {
        let words = self.geometry.segment_bytes / size_of::<u64>();
        let renewed = self.arena.renew(segment * words..(segment + 1) * words);
        assert!(renewed.is_ok(), "cannot renew a freed segment: {renewed:?}");
    }

    /// Returns current amounts and counters, summed over the shards. Reads counters only; may be called on
    /// any thread.
    pub fn usage(&self) -> Usage {
        Usage::of(self)
    }

    #[inline]
    pub(super) fn record(&self, location: u64) -> Record<'_> {
        Record::at(&self.arena, location)
    }

    /// Prefetches bytes of the arena.
    pub(super) fn prefetch_bytes(&self, bytes: std::ops::Range<usize>) {
        for line in bytes.step_by(CACHE_LINE_BYTES) {
            prefetch(&self.arena[line / size_of::<u64>()]);
        }
    }

    pub(super) fn segment_start(&self, segment: usize) -> u64 {
        (segment * (self.geometry.segment_bytes / UNIT)) as u64
    }

    pub(super) fn is_starved(&self, segment: usize) -> bool {
        let shard = segment / self.geometry.segments_per_core;
        self.shards[shard].starved.load(Acquire) != 0
    }

    /// Returns whether a segment is draining while its shard has run out of room: a core that pins it should
    /// release it.
    pub(super) fn is_wanted(&self, segment: usize) -> bool {
        self.is_starved(segment) && self.segments.state(segment) == SegmentState::Draining
    }

    pub(super) fn set_starved(&self, shard: usize, starved: bool) {
        let flag = &self.shards[shard].starved;
        if (flag.load(Relaxed) != 0) != starved {
            flag.store(starved.into(), Release);
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

/// A core's own handle on the store. Objects that outlive an epoch hold this `Arc` and not the store's. The
/// reference count is then on a cache line that other cores access only when they drop an object of this
/// core.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) store: Arc<Store>,
    pub(super) core: usize,
}

/// A pin on a segment, which keeps the segment beyond an epoch.
#[derive(Debug)]
pub(super) struct Pin {
    pub(super) local: Arc<Local>,
    pub(super) segment: usize,
}

impl Pin {
    /// Takes a pin; must be called within an epoch of that core, or by the owner.
    pub(super) fn take(local: &Arc<Local>, segment: usize) -> Self {
        local.store.segments.pins.take(local.core, segment);
        Self { local: Arc::clone(local), segment }
    }

    /// Returns whether the shard has run out of room and waits for the pinned segment, among others.
    pub(super) fn is_wanted(&self) -> bool {
        self.local.store.is_wanted(self.segment)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.local.store.segments.pins.release(self.local.core, self.segment);
    }
}
