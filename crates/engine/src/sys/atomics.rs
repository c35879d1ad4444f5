//! The atomics of everything that `tests/loom.rs` models: loom's under the feature `loom`, else the standard ones.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// One value on a cache line pair of its own (the adjacent-line prefetcher drags the neighbour along), so that
/// what one core writes often is never on a line that another core reads often.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct CacheLinePair<T>(pub(crate) T);
