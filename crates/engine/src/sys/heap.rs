//! The C library's heap: what it keeps of memory that was freed, and what it never keeps. With another C library than
//! glibc nothing here does anything.

/// A block of so many bytes or more is the system's own: mapped when it is asked for, unmapped when it is freed.
///
/// It is glibc's own first value. Left alone, glibc raises it to the size of each such block that is freed, up to 32 MiB;
/// after one body of 30 MiB the next ones lie among small things, grow by being copied, and leave holes that stay.
/// Measured under the siege's bodies and lists (budget 128 MiB): 254 MiB at most before, 143 after.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 128 << 10;
/// So much that is free at the end of a heap stays there: what comes and goes costs no system call. (glibc's own value
/// follows the other one, and is twice that.)
#[cfg(target_env = "gnu")]
const KEPT_AT_END_BYTES: libc::c_int = 4 << 20;

/// Keeps large blocks out of the heap. For the begin of a program.
pub fn keep_large_apart() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN), (libc::M_TRIM_THRESHOLD, KEPT_AT_END_BYTES)]
    {
        // SAFETY: mallopt(3) takes two numbers and no memory of ours, and may be called at any time; a value that it
        // refuses leaves things as they were, which works.
        let _ = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives whole pages that are free in the heap back to the system, in the arenas of all threads. Each arena is locked
/// while that is done; a thread that allocates in it waits.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes a number and no memory of ours, may be called by any thread at any time, and touches
    // nothing that is allocated.
    let _ = unsafe { libc::malloc_trim(0) };
}
