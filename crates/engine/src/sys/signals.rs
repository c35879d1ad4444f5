//! Signals that are not to end or stop the process.
//!
//! A handler that does nothing is not enough for all of them: the kernel lets a background process write to its
//! terminal only when SIGTTOU is *ignored*; with a handler that restarts system calls the write is tried for ever
//! (POSIX, General Terminal Interface, "Terminal Access Control").

use std::{io, mem, ptr};

/// Ignores a signal, for the whole process and from now on.
///
/// # Errors
/// The system knows no such signal, or does not let it be ignored (SIGKILL, SIGSTOP).
pub fn ignore(signal: i32) -> io::Result<()> {
    // SAFETY: a `sigaction` is integers, a set of bits and an optional function; all of it zero is a valid one.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = libc::SIG_IGN;
    // SAFETY: `action` lives until the call returns, a null pointer asks for no former action, and SIG_IGN calls no
    // code of ours, so that nothing has to be safe to run in a handler.
    let outcome = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The signals without a name. Where they begin is the C library's to say: it keeps some for itself.
#[must_use]
pub fn real_time() -> std::ops::RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}
