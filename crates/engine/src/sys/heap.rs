//! What the C library's heap keeps of memory that was freed.

/// Gives whole pages that are free in the heap back to the system, in the arenas of all threads. Each arena is locked
/// while that is done; a thread that allocates in it waits. With another C library than glibc it does nothing.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes a number and no memory of ours, may be called by any thread at any time, and touches
    // nothing that is allocated.
    let _ = unsafe { libc::malloc_trim(0) };
}
