//! Settings of the C library's heap: how much freed memory it keeps. With a C library other than glibc, none
//! of the functions has an effect.

/// Minimum bytes of an allocation that gets its own mapping, which is unmapped when it is freed.
///
/// This is glibc's initial value. By default glibc raises it to the size of each such allocation that is
/// freed, up to 32 MiB; after one body of 30 MiB, later bodies are allocated in the heap among small
/// allocations, are copied as they grow, and leave permanent holes. Peak memory with the bodies and lists of
/// the siege test (budget 128 MiB): 254 MiB with glibc's default, 143 MiB with this setting.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 128 << 10;
/// Free bytes that glibc keeps at the end of a heap, so that repeated allocations cost no system call. (By
/// default, glibc keeps twice the threshold for separate mappings.)
#[cfg(target_env = "gnu")]
const KEPT_AT_END_BYTES: libc::c_int = 4 << 20;

/// Keeps large allocations out of the heap. Must be called at the start of a program.
pub fn keep_large_apart() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN), (libc::M_TRIM_THRESHOLD, KEPT_AT_END_BYTES)]
    {
        // SAFETY: mallopt(3) takes two numbers and no pointer, and may be called at any time; if it refuses a
        // value, the default stays, which works.
        let _ = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Returns free whole pages of the heap to the system, in the arenas of all threads. Each arena is locked
/// during this; a thread that allocates in it waits.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes a number and no pointer, may be called by any thread at any time, and does
    // not touch allocated memory.
    let _ = unsafe { libc::malloc_trim(0) };
}
