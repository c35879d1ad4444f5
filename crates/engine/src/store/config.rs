//! Configuration of a store, and the sizes that follow from it.

use std::io;

use super::record::{UNIT, extent_room, table_bytes};
use crate::size::Size;

/// Minimum number of segments of a core's share: four are open (three lifetime classes and the main log), and
/// eviction needs several to choose from.
pub const SEGMENTS_PER_CORE_MIN: u64 = 12;
/// Target number of segments per core when the segment size is chosen automatically. Free segments and
/// segments that are being filled or emptied hold no objects; with 64 segments they were a tenth of the
/// share.
const SEGMENTS_PER_CORE_AIM: u64 = 128;
/// Bounds of the automatically chosen segment size in bytes.
const SEGMENT_BYTES_AUTO: (u64, u64) = (128 << 10, 4 << 20);
/// Bounds of a configured segment size in bytes.
pub const SEGMENT_BYTES_GIVEN: (u32, u32) =
    if cfg!(feature = "loom") { (256, 64 << 20) } else { (4 << 10, 64 << 20) };
/// Maximum bytes of one record: eviction copies one record at a time, and a copy of this size takes about 30
/// µs.
const RECORD_BYTES_MAX: u64 = 256 << 10;
/// Lower bound of the maximum record size, unless that is more than half a segment: the bodies of most pages
/// and pictures fit.
const RECORD_BYTES_MIN: u64 = 64 << 10;
/// Target for the maximum record size, unless that is more than half a segment.
const RECORD_BYTES_AIM: u64 = 128 << 10;
/// Maximum number of cores of a store.
pub const CORES_MAX: usize = 1024;
/// Minimum bytes of a stored object (its header and one unit), from which the maximum number of objects
/// follows.
const OBJECT_BYTES_MIN: u64 = 128;
/// Number of objects in an index page at its lowest density, right after a split.
const PAGE_OBJECTS_MIN: u64 = if cfg!(feature = "loom") { 1 } else { 48 };
/// Maximum capacity: a location has 40 bits, in units of 16 bytes.
const CAPACITY_BYTES_MAX: u64 = (1 << 40) * UNIT as u64;

/// Options for opening a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Total size in bytes of the segments of all cores; metadata needs additional memory (at most 64 bytes
    /// per object).
    pub capacity_bytes: u64,
    /// Size of a segment in bytes, a power of two. `None`: a 128th of a core's share, within 128 KiB and 4
    /// MiB.
    pub segment_bytes: Option<u32>,
    /// Maximum body bytes of one object; `None`: an eighth of a core's share. A body that needs more extents
    /// than the table of extents can hold is refused in any case
    /// ([`Store::object_bytes_max`](super::Store::object_bytes_max) returns the effective bound).
    pub object_bytes_max: Option<u64>,
    /// Number of cores; each has an equal share of the store.
    pub cores: usize,
    /// Seed of the hashes, for tests and benchmarks that need reproducible hashes. `None`: a random seed,
    /// which is required where untrusted clients choose the keys. A file-backed store always uses the seed in
    /// its file.
    pub hash_seed: Option<u64>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            capacity_bytes: 256 << 20,
            segment_bytes: None,
            object_bytes_max: None,
            cores: 1,
            hash_seed: None,
        }
    }
}

/// Reasons why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The number of cores is zero or larger than supported.
    #[error("a store needs between 1 and {CORES_MAX} cores, not {0}")]
    Cores(usize),
    /// The segment size is not a power of two within the bounds.
    #[error("invalid segment size of {given} bytes: a power of two from {min} to {max} is needed")]
    SegmentBytes {
        /// Configured segment size.
        given: u32,
        /// Minimum segment size.
        min: u32,
        /// Maximum segment size.
        max: u32,
    },
    /// The capacity is too small for the minimum number of segments per core.
    #[error(
        "a store of {} is too small for {cores} cores: each needs {SEGMENTS_PER_CORE_MIN} segments of {}; give it at \
         least {}, or fewer cores",
        Size(*capacity_bytes),
        Size(u64::from(*segment_bytes)),
        Size(*needed_bytes)
    )]
    TooSmall {
        /// Configured capacity.
        capacity_bytes: u64,
        /// Number of cores.
        cores: usize,
        /// Segment size.
        segment_bytes: u32,
        /// Minimum capacity for this number of cores and this segment size.
        needed_bytes: u64,
    },
    /// The capacity is larger than a location can address.
    #[error(
        "a store of {} is too large: at most {} can be addressed",
        Size(*capacity_bytes),
        Size(CAPACITY_BYTES_MAX)
    )]
    TooLarge {
        /// Configured capacity.
        capacity_bytes: u64,
    },
    /// The kernel refused to map memory.
    #[error(
        "cannot reserve {} of address space for {what}: {source}; check `ulimit -v` and vm.overcommit_memory, or make \
         the store smaller",
        Size(*bytes)
    )]
    Mapping {
        /// Purpose of the mapping.
        what: &'static str,
        /// Size of the mapping in bytes.
        bytes: u64,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The system provided no random number for the hash seed.
    #[error("cannot get random bytes for the store's hash: {0}")]
    Seed(io::Error),
}

/// Sizes of a store that follow from its configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) cores: usize,
    pub(super) segment_bytes: usize,
    pub(super) segments_per_core: usize,
    /// Maximum bytes of one record; longer bodies are split into extents.
    pub(super) record_bytes_max: usize,
    /// Maximum body bytes of one extent.
    pub(super) extent_bytes_max: usize,
    pub(super) object_bytes_max: u64,
    /// Maximum number of pages of a shard's index.
    pub(super) pages_max: usize,
}

impl Geometry {
    pub(super) fn of(config: &StoreConfig) -> Result<Self, StoreError> {
        let StoreConfig { capacity_bytes, segment_bytes, object_bytes_max, cores, .. } = *config;
        if cores == 0 || cores > CORES_MAX {
            return Err(StoreError::Cores(cores));
        }
        if capacity_bytes > CAPACITY_BYTES_MAX {
            return Err(StoreError::TooLarge { capacity_bytes });
        }
        let share = capacity_bytes / cores as u64;
        let segment = match segment_bytes {
            Some(given) => {
                let (min, max) = SEGMENT_BYTES_GIVEN;
                if !given.is_power_of_two() || !(min..=max).contains(&given) {
                    return Err(StoreError::SegmentBytes { given, min, max });
                }
                u64::from(given)
            }
            None => {
                let (min, max) = SEGMENT_BYTES_AUTO;
                let aim = (share / SEGMENTS_PER_CORE_AIM).max(1);
                (1 << aim.ilog2()).clamp(min, max)
            }
        };
        let segments = share / segment;
        if segments < SEGMENTS_PER_CORE_MIN {
            return Err(StoreError::TooSmall {
                capacity_bytes,
                cores,
                segment_bytes: segment as u32,
                needed_bytes: SEGMENTS_PER_CORE_MIN * segment * cores as u64,
            });
        }
        let share = segments * segment;
        // In a small segment, a record may take half of the segment. Objects in extents cost more: they are
        // written to the file in several steps, each of which queues, and their key, head and extra have only
        // half a record, where a large head must fit.
        let record = if segment / 2 >= RECORD_BYTES_MIN {
            (segment / 4).max(RECORD_BYTES_AIM.min(segment / 2))
        } else {
            segment / 4
        };
        let record = record.min(RECORD_BYTES_MAX);
        let extent = extent_room((record / UNIT as u64) as u32) as u64;
        // The table of extents takes up to half a record; key, head and extra have the other half.
        let describable = record / 2 / table_bytes(1) as u64 * extent;
        let objects = share / OBJECT_BYTES_MIN;
        Ok(Self {
            cores,
            segment_bytes: segment as usize,
            segments_per_core: segments as usize,
            record_bytes_max: record as usize,
            extent_bytes_max: extent as usize,
            object_bytes_max: object_bytes_max.unwrap_or(share / 8).min(describable),
            pages_max: (objects / PAGE_OBJECTS_MIN + 64 / if cfg!(feature = "loom") { 16 } else { 1 })
                as usize,
        })
    }

    pub(super) fn segments(&self) -> usize {
        self.segments_per_core * self.cores
    }

    #[inline]
    pub(super) fn segment_of(&self, location: u64) -> usize {
        (location as usize * UNIT) >> self.segment_bytes.trailing_zeros()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_chosen_within_their_bounds() {
        for (capacity_mib, cores, segment_kib) in
            [(16, 1, 128), (256, 1, 2048), (64, 2, 256), (100_000, 4, 4096)]
        {
            let config = StoreConfig { capacity_bytes: capacity_mib << 20, cores, ..StoreConfig::default() };
            let geometry = Geometry::of(&config).unwrap();
            assert_eq!(geometry.segment_bytes, segment_kib << 10, "{capacity_mib} MiB on {cores}");
            assert!(geometry.segments() * geometry.segment_bytes <= (capacity_mib as usize) << 20);
            assert!(geometry.object_bytes_max >= geometry.extent_bytes_max as u64);
        }
    }

    #[test]
    fn what_cannot_be_is_said_with_numbers() {
        let of = |capacity_bytes, segment_bytes, cores| {
            Geometry::of(&StoreConfig { capacity_bytes, segment_bytes, cores, ..StoreConfig::default() })
                .unwrap_err()
                .to_string()
        };
        assert!(of(1 << 30, None, 0).contains("between 1 and 1024 cores, not 0"));
        assert!(of(1 << 30, Some(5000), 1).contains("power of two"));
        assert!(of(1 << 30, Some(1024), 1).contains("from 4096"));
        let small = of(2 << 20, None, 2);
        assert!(small.contains("2MiB") && small.contains("at least 3MiB"), "{small}");
        assert!(of(1 << 50, None, 1).contains("too large"));
        let needed = StoreConfig { capacity_bytes: 3_145_728, cores: 2, ..StoreConfig::default() };
        assert!(Geometry::of(&needed).is_ok(), "what the message asks for does");
    }
}
