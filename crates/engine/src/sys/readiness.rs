//! Registration of a file descriptor with the runtime's epoll.

use std::{io, os::fd::OwnedFd, sync::Arc};

use tokio::io::{Interest, unix::AsyncFd};

/// Registers `fd` (edge-triggered, for reading) with the runtime of the caller.
///
/// # Errors
/// Returns the error of `epoll_ctl(2)`: `ENOMEM`, or `ENOSPC` over `max_user_watches`.
///
/// # Panics
/// Panics outside a tokio runtime with I/O.
pub fn readable(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the descriptor must stay the same and open for as long as it is registered. The `AsyncFd` holds
    // the `Arc`; `OwnedFd` closes only when its last owner is dropped, and no safe code can take it out of a
    // shared `Arc`. The `AsyncFd` deregisters before it drops the `Arc`.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}
