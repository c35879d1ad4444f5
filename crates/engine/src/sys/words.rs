//! Copies from, to and between shared words.
//!
//! The compiler never merges a loop of relaxed atomic accesses into accesses wider than a word. Long runs are
//! copied by the processor's own copy instruction, where there is one: each word is read or written once,
//! like a relaxed access (x86-64 does not tear an aligned word), and a concurrent reader sees the old word or
//! the new one.

use super::atomics::{AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();
/// Minimum number of words for the copy instruction; fewer are copied one by one, because the instruction
/// itself takes as long to start.
#[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
const RUN_MIN: usize = 64;

/// Overwrites all `words` with `bytes`.
///
/// # Panics
/// Panics if the lengths differ.
#[inline]
pub(super) fn write(words: &[AtomicU64], bytes: &[u8]) {
    assert_eq!(bytes.len(), words.len() * WORD, "words are written whole");
    #[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
    if words.len() >= RUN_MIN {
        // SAFETY: both have this many words. The target words are atomics (interior mutability), and the
        // writes are equivalent to storing them one by one (see above).
        return unsafe { run(bytes.as_ptr(), words.as_ptr().cast_mut().cast(), words.len()) };
    }
    let (chunks, _) = bytes.as_chunks::<WORD>();
    let (words, words_rest) = words.as_chunks::<8>();
    let (chunks, chunks_rest) = chunks.as_chunks::<8>();
    for (words, chunks) in words.iter().zip(chunks) {
        // The loop runs by index, because two zipped iterators are not unrolled.
        for at in 0..8 {
            words[at].store(u64::from_ne_bytes(chunks[at]), Relaxed);
        }
    }
    for (word, chunk) in words_rest.iter().zip(chunks_rest) {
        word.store(u64::from_ne_bytes(*chunk), Relaxed);
    }
}

/// Copies all `words` to memory that starts at `out`; returns the address after them.
///
/// # Safety
/// `out` must be valid for writing that many bytes; it needs no alignment.
#[inline]
pub(super) unsafe fn read(words: &[AtomicU64], mut out: *mut u8) -> *mut u8 {
    #[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
    if words.len() >= RUN_MIN {
        // SAFETY: the caller guarantees the room; the reads are equivalent to loading the words one by one
        // (see above).
        unsafe { run(words.as_ptr().cast(), out, words.len()) };
        // SAFETY: the result is at most one past the written bytes.
        return unsafe { out.add(words.len() * WORD) };
    }
    let (chunks, rest) = words.as_chunks::<8>();
    for words in chunks {
        let mut read = [0; 8];
        for at in 0..8 {
            read[at] = words[at].load(Relaxed);
        }
        // SAFETY: the caller guarantees the room, and `out` has moved past the bytes written before.
        unsafe { out.cast::<[u64; 8]>().write_unaligned(read) };
        // SAFETY: as above, the caller guarantees the room.
        out = unsafe { out.add(8 * WORD) };
    }
    for word in rest {
        // SAFETY: as above, the caller guarantees the room.
        unsafe { out.cast::<u64>().write_unaligned(word.load(Relaxed)) };
        // SAFETY: as above, the caller guarantees the room.
        out = unsafe { out.add(WORD) };
    }
    out
}

/// Copies the words of `from` to `to`. The two must not overlap.
///
/// # Panics
/// Panics if the lengths differ.
#[inline]
pub(super) fn copy(to: &[AtomicU64], from: &[AtomicU64]) {
    assert_eq!(to.len(), from.len(), "words are copied whole");
    #[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
    if to.len() >= RUN_MIN {
        // SAFETY: both have this many words, and are atomics; if they overlap, each copied byte is still one
        // that was there.
        return unsafe { run(from.as_ptr().cast(), to.as_ptr().cast_mut().cast(), to.len()) };
    }
    for (to, from) in to.iter().zip(from) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

/// Copies `words` words from lower to higher addresses.
///
/// # Safety
/// `from` must be valid for reading and `to` for writing that many words.
#[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
#[inline]
unsafe fn run(from: *const u8, to: *mut u8, words: usize) {
    // SAFETY: the caller guarantees both ranges; the direction flag is clear by the calling convention.
    unsafe {
        core::arch::asm!(
            "rep movsq",
            inout("rcx") words => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}
