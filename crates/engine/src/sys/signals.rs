//! Ignoring signals that must not end or stop the process.
//!
//! A handler that does nothing is not enough for all of them: the kernel lets a background process write to
//! its terminal only if SIGTTOU is *ignored*; with a handler that restarts system calls the write is retried
//! forever (POSIX, General Terminal Interface, "Terminal Access Control").

use std::{io, mem, ptr};

/// Ignores a signal from now on, for the whole process.
///
/// # Errors
/// Returns the system's error if there is no such signal, or it cannot be ignored (SIGKILL, SIGSTOP).
pub fn ignore(signal: i32) -> io::Result<()> {
    // SAFETY: a `sigaction` consists of integers, a bit set and an optional function, so all zeros is a valid
    // value.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = libc::SIG_IGN;
    // SAFETY: `action` outlives the call, a null pointer means that the previous action is not wanted, and
    // SIG_IGN runs no code of this program, so nothing needs to be async-signal-safe.
    let outcome = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the range of real-time signals. The C library decides where it begins, because it reserves some.
#[must_use]
pub fn real_time() -> std::ops::RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}
