//! The atomics of all code that `tests/loom.rs` models: loom's under the feature `loom`, else the standard
//! ones.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A value on its own pair of cache lines (the adjacent-line prefetcher loads lines in pairs), so that a
/// value that one core often writes never shares a line with a value that another core often reads.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct CacheLinePair<T>(pub(crate) T);
