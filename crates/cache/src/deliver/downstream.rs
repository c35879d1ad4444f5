//! The client's side of an exchange, as the states see it: they take what comes of a request's body, tell what an origin
//! says before its answer, and know nothing of how either is carried.

use crate::{error_page::Fault, states::full_duplex::Onward};

/// Where a request comes from.
pub(crate) trait Downstream: Send {
    /// Appends the bytes that come next, at most about [`READ_BYTES`], to `into`; waits for at least one. Nothing is
    /// lost where the wait is given up. False: the body is complete, and nothing was appended.
    fn read(&mut self, into: &mut Vec<u8>) -> impl Future<Output = Result<bool, BodyError>> + Send;

    /// Trailer lines as they came, once the body is complete.
    fn trailers(&self) -> &[u8];

    /// Waits until the client is gone in a way that ends the exchange ([`Sink::gone`](crate::deliver::sink::Sink::gone)).
    fn gone(&mut self) -> impl Future<Output = ()> + Send;

    /// Takes the way to the origin for a body that is not over although its answer has begun: the client goes on
    /// sending it while the answer comes.
    fn goes_on(&mut self, onward: Box<Onward>);

    /// Tells what an origin says before its answer (RFC 9110 §15.2): a status line and field lines. A client that does
    /// not understand them, or is gone, is not told.
    fn interim(&mut self, head: &[u8]) -> impl Future<Output = ()> + Send;
}

/// Where a request without a body comes from that no client of a socket waits for: our own, or a peer's. Interim answers go
/// to the function; the departure of whoever waits is not noticed here.
pub(crate) struct WithoutBody<F>(pub(crate) F);

impl<F: FnMut(&[u8]) + Send> Downstream for WithoutBody<F> {
    async fn read(&mut self, _: &mut Vec<u8>) -> Result<bool, BodyError> {
        Ok(false)
    }

    fn trailers(&self) -> &[u8] {
        &[]
    }

    async fn gone(&mut self) {
        std::future::pending().await
    }

    fn goes_on(&mut self, _: Box<Onward>) {}

    async fn interim(&mut self, head: &[u8]) {
        (self.0)(head);
    }
}

/// Bytes of a body that are read at once: few calls, and what was read is still in the processor's cache when it is sent.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// Why a request's body did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The client is gone, or was given up; nobody is left to be answered.
    Gone,
    /// The client broke a rule or a limit, and is told.
    Refused(Fault),
}
