//! The object store: segments in one anonymous mapping, an index that all cores read without locks, and
//! expiry and eviction by the owner of each shard. How cores share the store:
//! `docs/decisions/003-store-concurrency.md`.
//!
//! ```text
//!              core 0                        core 1
//!   ┌ Shard 0 (writes) ─ Reader ┐  ┌ Shard 1 (writes) ─ Reader ┐
//!   │  index  segments  expiry  │  │  index  segments  expiry  │
//!   └────▲──────────▲───────────┘  └────▲──────────▲───────────┘
//!        └── lookups, copies, sends: every core, within an epoch, or under a pin
//! ```
//! *Memory:* anonymous, huge pages where the kernel has them. *Writer:* a shard's owner. *Waiting:* never.

mod config;
pub mod directory;
mod evict;
mod expire;
mod expiry;
mod fill;
mod filling;
mod ghost;
mod hash;
mod heads;
pub mod index;
mod insert;
mod link;
mod object;
mod open;
pub mod pins;
mod reader;
mod record;
mod said;
pub mod segments;
mod shard;
mod shared;
mod space;
mod sweep;
#[cfg(not(feature = "loom"))]
pub mod tier;
pub mod turns;
mod unqueued;
mod usage;

pub use config::{CORES_MAX, SEGMENT_BYTES_GIVEN, SEGMENTS_PER_CORE_MIN, StoreConfig, StoreError};
pub use filling::{BodyLength, Extent, HEAP_BYTES, InsertRefusal, NewObject, ObjectWriter};
pub use hash::Hash;
pub use heads::NewHead;
pub use object::{Object, PinnedObject};
pub use open::open_anon;
pub use reader::{EpochGuard, Lookup, Reader};
pub use record::META_WORDS;
pub use shard::Shard;
pub use shared::Store;
pub use sweep::{Sweep, SweepStep};
pub use usage::Usage;
