//! Copies from, to and between shared words.
//!
//! A loop of relaxed atomic accesses is never made wider than a word by the compiler. Long runs are copied by the
//! processor's own instruction for that, where there is one: each word is read or written once, as by a relaxed access
//! of it (x86-64 does not tear an aligned word), and who looks meanwhile sees the old word or the new one.

use super::atomics::{AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();
/// Fewer words are copied one by one: the instruction takes as long to begin.
#[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
const RUN_MIN: usize = 64;

/// Writes `bytes` over all `words`.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub(super) fn write(words: &[AtomicU64], bytes: &[u8]) {
    assert_eq!(bytes.len(), words.len() * WORD, "words are written whole");
    #[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
    if words.len() >= RUN_MIN {
        // SAFETY: both have this many words. Those written to are atomics (interior mutability), as good as stored to
        // one by one (see above).
        return unsafe { run(bytes.as_ptr(), words.as_ptr().cast_mut().cast(), words.len()) };
    }
    let (chunks, _) = bytes.as_chunks::<WORD>();
    let (words, words_rest) = words.as_chunks::<8>();
    let (chunks, chunks_rest) = chunks.as_chunks::<8>();
    for (words, chunks) in words.iter().zip(chunks) {
        // By place: two iterators beside each other are not unrolled.
        for at in 0..8 {
            words[at].store(u64::from_ne_bytes(chunks[at]), Relaxed);
        }
    }
    for (word, chunk) in words_rest.iter().zip(chunks_rest) {
        word.store(u64::from_ne_bytes(*chunk), Relaxed);
    }
}

/// Copies all `words` to memory that starts at `out`; returns the place after them.
///
/// # Safety
/// `out` must be valid for writing as many bytes; it needs no alignment.
#[inline]
pub(super) unsafe fn read(words: &[AtomicU64], mut out: *mut u8) -> *mut u8 {
    #[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
    if words.len() >= RUN_MIN {
        // SAFETY: the caller vouches for the room; the words are as good as loaded one by one (see above).
        unsafe { run(words.as_ptr().cast(), out, words.len()) };
        // SAFETY: one past what was written at most.
        return unsafe { out.add(words.len() * WORD) };
    }
    let (chunks, rest) = words.as_chunks::<8>();
    for words in chunks {
        let mut read = [0; 8];
        for at in 0..8 {
            read[at] = words[at].load(Relaxed);
        }
        // SAFETY: the caller vouches for the room, and `out` has moved past what was written before.
        unsafe { out.cast::<[u64; 8]>().write_unaligned(read) };
        // SAFETY: as above.
        out = unsafe { out.add(8 * WORD) };
    }
    for word in rest {
        // SAFETY: as above.
        unsafe { out.cast::<u64>().write_unaligned(word.load(Relaxed)) };
        // SAFETY: as above.
        out = unsafe { out.add(WORD) };
    }
    out
}

/// Copies `from` over `to`, which lies elsewhere.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub(super) fn copy(to: &[AtomicU64], from: &[AtomicU64]) {
    assert_eq!(to.len(), from.len(), "words are copied whole");
    #[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
    if to.len() >= RUN_MIN {
        // SAFETY: both have this many words, and are atomics; where they overlap, each byte is one that was there.
        return unsafe { run(from.as_ptr().cast(), to.as_ptr().cast_mut().cast(), to.len()) };
    }
    for (to, from) in to.iter().zip(from) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

/// Copies `words` words upwards.
///
/// # Safety
/// `from` must be valid for reading and `to` for writing as many.
#[cfg(all(target_arch = "x86_64", not(feature = "loom"), not(miri)))]
#[inline]
unsafe fn run(from: *const u8, to: *mut u8, words: usize) {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear by the calling convention.
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
