//! Counters and gauges of the store: written by a shard's owner, summed by the thread that reads them.

use super::{segments::SegmentState, shared::Store};
use crate::sys::atomics::{AtomicU64, Ordering::Relaxed};

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one shard. Written by its owner (except for `abandoned`), read by any thread.
        #[derive(Debug, Default)]
        pub(super) struct Tally {
            $(pub(super) $name: Count,)*
        }

        /// Amounts and counters of a store, over all shards. Gauges are current values; counters run since
        /// the store was opened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Usage {
            $($(#[$doc])* pub $name: u64,)*
            /// Segments that are empty.
            pub segments_free: u64,
            /// Segments being filled.
            pub segments_open: u64,
            /// Segments that are full.
            pub segments_sealed: u64,
            /// Segments without live records that wait until no epoch or pin holds them.
            pub segments_draining: u64,
            /// Bytes of segments that wait until no epoch or pin holds them.
            pub draining_bytes: u64,
            /// Bytes of pinned segments, whether draining or not.
            pub pinned_bytes: u64,
            /// Total size of all segments in bytes.
            pub capacity_bytes: u64,
            /// Lookups that found the bucket being written at each attempt and were answered *contended*.
            pub lookups_contended: u64,
        }

        impl Usage {
            fn add(&mut self, tally: &Tally) {
                $(self.$name += tally.$name.value();)*
            }
        }
    };
}

tally! {
    /// Objects linked in the index.
    objects,
    /// Bytes of the records of linked objects, including headers and padding.
    live_bytes,
    /// Bytes of all records in segments that are not free: live, dead and being filled.
    stored_bytes,
    /// Bytes of index memory in use: pages, directory, visit counters.
    index_bytes,
    /// Entries in the expiry queue, including those of objects that are gone.
    expiry_entries,
    /// Size of the ghost list in bytes.
    ghost_bytes,
    /// Target size of the probation logs in bytes, adjusted when objects return soon after eviction.
    probation_bytes,
    /// Objects linked under a hash that was not in the index.
    inserts,
    /// Objects linked in place of another with the same key (or hash).
    replacements,
    /// Objects unlinked because they expired.
    expiries,
    /// Objects unlinked on request.
    unlinks,
    /// Objects evicted to make room.
    evictions,
    /// Evicted objects that had been visited but found no room in the main log.
    evictions_of_visited,
    /// Objects stored again soon after their eviction, which went to the main log.
    ghost_hits,
    /// Objects (or extents of them) copied to the head of the main log because they had been visited.
    promotions,
    /// Bytes copied to the head of the main log for visited objects.
    promoted_bytes,
    /// Objects refused because no segment could be freed.
    refused_no_room,
    /// Objects refused because they are larger than allowed.
    refused_too_large,
    /// Objects refused because the body ended early.
    refused_short,
    /// Objects refused because the index had no slot (also counted in `refused_no_room`).
    refused_crowded,
    /// Objects that were abandoned before they were complete.
    abandoned,
    /// Segments that were freed.
    reclaims,
    /// Freed segments that got new memory, because sockets may still send from the old pages.
    renewals,
    /// Objects in the file, some of which may be lost with its oldest segments.
    file_objects,
    /// Size in bytes of the directories of objects in the file.
    file_directory_bytes,
    /// Objects not copied to the file when they were stored, because they had not been requested before.
    file_not_admitted,
    /// Large objects that are being copied to the file.
    file_copying,
    /// Objects that were copied to the file.
    file_kept,
    /// Objects that were copied to the file again when they were evicted, because the segment of their first
    /// copy had been given up.
    file_written_back,
    /// Objects not copied to the file because too much data was waiting to be written, or no segment was
    /// free.
    file_refused,
    /// Objects in the file that were dropped because parts of them were missing.
    file_incomplete,
    /// Objects in the file that were dropped for new ones, because the directory's memory was full.
    file_crowded_out,
    /// Parts of large objects written to the file.
    file_parts,
    /// Heads written to the file without their body, because the body was already there.
    file_heads,
    /// Objects not copied to the file because they are too large for a file of this size.
    file_too_large,
    /// Objects read back from the file.
    file_hits,
    /// Bytes read back from the file.
    file_hit_bytes,
    /// Objects in the file that could not be read, or were damaged.
    file_damaged,
    /// Cores that do not yet know what the file holds, because it is still being read at startup.
    file_warming,
    /// Cores that work without the file, because it could not be read at startup.
    file_lost,
}

impl Usage {
    pub(super) fn of(store: &Store) -> Self {
        let mut usage = Self::default();
        for shard in &store.shards {
            usage.add(&shard.tally);
        }
        let segment_bytes = store.geometry.segment_bytes as u64;
        for segment in 0..store.geometry.segments() {
            match store.segments.state(segment) {
                SegmentState::Free => usage.segments_free += 1,
                SegmentState::Open => usage.segments_open += 1,
                SegmentState::Sealed => usage.segments_sealed += 1,
                SegmentState::Draining => usage.segments_draining += 1,
            }
            if !store.segments.pins.is_free(segment) {
                usage.pinned_bytes += segment_bytes;
            }
        }
        usage.draining_bytes = usage.segments_draining * segment_bytes;
        usage.capacity_bytes = store.geometry.segments() as u64 * segment_bytes;
        usage.lookups_contended = store.contended.iter().map(|count| count.0.load(Relaxed)).sum();
        usage
    }
}

impl Tally {
    /// Returns the average size of a linked object in bytes.
    pub(super) fn object_bytes(&self) -> u64 {
        self.live_bytes.value() / self.objects.value().max(1)
    }
}

/// A counter with one writer (except for [`Count::add_shared`]).
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }

    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    #[inline]
    pub(super) fn subtract(&self, less: u64) {
        let before = self.0.load(Relaxed);
        debug_assert!(before >= less, "a gauge went below zero");
        self.0.store(before.wrapping_sub(less), Relaxed);
    }

    #[inline]
    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Adds from a core that does not own the counter.
    pub(super) fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }
}
