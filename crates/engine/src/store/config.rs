//! How large a store is and how it is cut.

use std::{io, sync::Arc};

use super::{
    record::{UNIT, extent_room, table_bytes},
    shard::Shard,
    shared::{Local, Store},
};
use crate::{random, size::Size};

/// Fewest segments that a core's share may have: four are open (three lifetime classes and main), the rest must be
/// enough for eviction to have something to choose from.
pub const SEGMENTS_PER_CORE_MIN: u64 = 12;
/// Segments per core that the automatic size aims at: those that are free, being filled or being emptied hold nothing, and
/// of 64 they were a tenth of the share.
const SEGMENTS_PER_CORE_AIM: u64 = 128;
/// Bounds of a segment's bytes when chosen automatically.
const SEGMENT_BYTES_AUTO: (u64, u64) = (128 << 10, 4 << 20);
/// Bounds of a segment's bytes when given.
pub const SEGMENT_BYTES_GIVEN: (u32, u32) =
    if cfg!(feature = "loom") { (256, 64 << 20) } else { (4 << 10, 64 << 20) };
/// Most bytes of one record: eviction copies a record at a time, and a copy of this size takes about 30 µs.
const RECORD_BYTES_MAX: u64 = 256 << 10;
/// What a record may have at least, where that is not more than half of a segment: bodies of most pages and pictures.
const RECORD_BYTES_MIN: u64 = 64 << 10;
/// … and what it has where that is not more than half either.
const RECORD_BYTES_AIM: u64 = 128 << 10;
/// Most cores of a store.
pub const CORES_MAX: usize = 1024;
/// Fewest bytes that a stored object takes (its header and one unit): bounds the number of objects.
const OBJECT_BYTES_MIN: u64 = 128;
/// Objects in a page when it is emptiest: it has just split, and its density is the lowest.
const PAGE_OBJECTS_MIN: u64 = if cfg!(feature = "loom") { 1 } else { 48 };
/// A location has 40 bits of 16-byte units.
const CAPACITY_BYTES_MAX: u64 = (1 << 40) * UNIT as u64;

/// How to open a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes for segments over all cores; metadata comes on top (at most 64 bytes an object).
    pub capacity_bytes: u64,
    /// Bytes of a segment, a power of two; `None` chooses: a 128th of a core's share, within 128 KiB and 4 MiB.
    pub segment_bytes: Option<u32>,
    /// Most bytes of one object's body; `None`: an eighth of a core's share. What the table of extents cannot
    /// describe is refused in any case ([`Store::object_bytes_max`] says the effective bound).
    pub object_bytes_max: Option<u64>,
    /// Cores, each with an equal share.
    pub cores: usize,
    /// What hashes begin with, for tests and instruments that want the same again; `None`: random, as it must be where
    /// strangers choose the keys. A store on a file has the file's in any case.
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

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No core, or more than are supported.
    #[error("a store needs between 1 and {CORES_MAX} cores, not {0}")]
    Cores(usize),
    /// A segment size that cannot be used.
    #[error("segments of {given} bytes cannot be used: a power of two from {min} to {max} is needed")]
    SegmentBytes {
        /// What was given.
        given: u32,
        /// Least.
        min: u32,
        /// Most.
        max: u32,
    },
    /// Too few segments for the cores.
    #[error(
        "{} are too small a store for {cores} cores: each needs {SEGMENTS_PER_CORE_MIN} segments of {}; give it at least \
         {}, or fewer cores",
        Size(*capacity_bytes),
        Size(u64::from(*segment_bytes)),
        Size(*needed_bytes)
    )]
    TooSmall {
        /// What was given.
        capacity_bytes: u64,
        /// For so many cores.
        cores: usize,
        /// With such segments.
        segment_bytes: u32,
        /// What would do.
        needed_bytes: u64,
    },
    /// Beyond what a location can say.
    #[error(
        "{} are too large a store: at most {} can be addressed",
        Size(*capacity_bytes),
        Size(CAPACITY_BYTES_MAX)
    )]
    TooLarge {
        /// What was given.
        capacity_bytes: u64,
    },
    /// The kernel refused memory.
    #[error(
        "the kernel refused to reserve {} of address space for {what}: {source}; look at `ulimit -v` and \
         vm.overcommit_memory, or make the store smaller",
        Size(*bytes)
    )]
    Mapping {
        /// What it was for.
        what: &'static str,
        /// How much.
        bytes: u64,
        /// Its words.
        source: io::Error,
    },
    /// The system has no randomness for the seed of the hash.
    #[error("the system gives no random number for the store's hash: {0}")]
    Seed(io::Error),
}

/// Sizes that follow from the configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) cores: usize,
    pub(super) segment_bytes: usize,
    pub(super) segments_per_core: usize,
    /// Most bytes of one record; longer bodies are cut into extents.
    pub(super) record_bytes_max: usize,
    /// Most body bytes of one extent.
    pub(super) extent_bytes_max: usize,
    pub(super) object_bytes_max: u64,
    /// Pages that a shard's index may use.
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
        // Half of a small segment: what is in extents goes to a file piece by piece, and waits for its turn there; and
        // of an object in extents the names have half a record, where a large head has to fit.
        let record = if segment / 2 >= RECORD_BYTES_MIN {
            (segment / 4).max(RECORD_BYTES_AIM.min(segment / 2))
        } else {
            segment / 4
        };
        let record = record.min(RECORD_BYTES_MAX);
        let extent = extent_room((record / UNIT as u64) as u32) as u64;
        // The table has half a record, the names the other.
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

/// Opens a store in anonymous memory: the part that all share, and one shard for each core's owner.
///
/// Memory is touched as it is first used, in huge pages where the kernel has them.
///
/// # Errors
/// [`StoreError`] with the numbers and what would be right.
pub fn open_anon(config: &StoreConfig) -> Result<(Arc<Store>, Vec<Shard>), StoreError> {
    let seed = config.hash_seed.map_or_else(|| random::number().map_err(StoreError::Seed), Ok)?;
    open_with(config, seed)
}

/// As [`open_anon`], with the seed of a file.
pub(super) fn open_with(
    config: &StoreConfig,
    hash_seed: u64,
) -> Result<(Arc<Store>, Vec<Shard>), StoreError> {
    let geometry = Geometry::of(config)?;
    let store = Arc::new(Store::reserve(geometry, hash_seed)?);
    let shards = (0..geometry.cores)
        .map(|core| Shard::new(Arc::new(Local { store: Arc::clone(&store), core })))
        .collect();
    Ok((store, shards))
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

    #[test]
    fn a_refused_mapping_names_its_size() {
        let config = StoreConfig::default();
        // 2^60 bytes: beyond any address space, and refused before anything is sized by it.
        let geometry =
            Geometry { segments_per_core: 1 << 40, segment_bytes: 1 << 20, ..Geometry::of(&config).unwrap() };
        let Err(error) = Store::reserve(geometry, 0) else { panic!("mapped") };
        let words = error.to_string();
        assert!(words.contains("reserve 1048576TiB of address space for segments"), "{words}");
        assert!(words.contains("ulimit -v"), "{words}");
    }
}
