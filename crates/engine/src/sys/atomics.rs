//! The atomics of everything that `tests/loom.rs` models: loom's under the feature `loom`, else the standard ones.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Stores `value`, and lets no later read come before that on this core: `store(Release); fence(SeqCst)`.
///
/// On x86-64 the exchange is that whole fence, at a fraction of what MFENCE takes, which also waits for every earlier
/// read. The language's model would want a fence beside it, so the compiler is told by its own.
#[inline]
pub(crate) fn store_and_fence(word: &AtomicU64, value: u64) {
    #[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
    {
        word.swap(value, Ordering::SeqCst);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
    #[cfg(not(all(target_arch = "x86_64", not(feature = "loom"))))]
    {
        word.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

/// One value on a cache line pair of its own (the adjacent-line prefetcher drags the neighbour along), so that
/// what one core writes often is never on a line that another core reads often.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Padded<T>(pub(crate) T);
