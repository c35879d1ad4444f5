//! A request's body, as the states see it: they take what comes, and know nothing of how it is carried.

use crate::error_page::Fault;

/// Where a request's body comes from.
pub(crate) trait RequestBody: Send {
    /// Appends the bytes that come next, at most about [`READ_BYTES`], to `into`; waits for at least one. Nothing is
    /// lost where the wait is given up. False: the body is complete, and nothing was appended.
    fn read(&mut self, into: &mut Vec<u8>) -> impl Future<Output = Result<bool, Broken>> + Send;

    /// Trailer lines as they came, once the body is complete.
    fn trailers(&self) -> &[u8];
}

/// Bytes of a body that are read at once: few calls, and what was read is still in the processor's cache when it is sent.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// Why a request's body did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The client is gone, or was given up; nobody is left to be answered.
    Gone,
    /// The client broke a rule or a limit, and is told.
    Refused(Fault),
}
