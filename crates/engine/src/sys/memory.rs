//! Memory that the allocator keeps.
//!
//! What is freed stays the process's: glibc gives back by itself only what lies at the end of an arena, where as a rule
//! something small still is (malloc_trim(3)).

/// Gives free pages back to the kernel, wherever they lie. It holds each arena's lock while it looks at it, some
/// milliseconds for gigabytes: not for a loop's thread, and not often.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: it takes no pointer, and locks the arenas itself.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Another C library gives back what it gives back.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}
