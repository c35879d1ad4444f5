//! The client's side of an exchange, as the states see it: they read the request's body and forward the
//! origin's interim answers, independently of the transport.

use crate::{error_page::Fault, states::full_duplex::Onward};

/// Source of a request.
pub(crate) trait Downstream {
    /// Appends the next bytes, at most about [`READ_BYTES`], to `into`; waits for at least one. Cancelling
    /// the wait loses no bytes. Returns false if the body is complete and nothing was appended.
    fn read(&mut self, into: &mut Vec<u8>) -> impl Future<Output = Result<bool, BodyError>>;

    /// Returns the trailer lines as received, once the body is complete.
    fn trailers(&self) -> &[u8];

    /// Waits until the client is gone in a way that ends the exchange ([`Sink::gone`](crate::deliver::sink::Sink::gone)).
    fn gone(&mut self) -> impl Future<Output = ()>;

    /// Takes over the forwarding of a body to the origin, if the answer begins before the body is complete:
    /// the client keeps sending the body while the answer arrives.
    fn goes_on(&mut self, onward: Box<Onward>);

    /// Forwards an origin's interim answer (RFC 9110 §15.2): a status line and field lines. A client that
    /// does not understand interim answers, or has left, does not get it.
    fn interim(&mut self, head: &[u8]) -> impl Future<Output = ()>;
}

/// Source of a request without a body and without a client's socket, made by this accelerator or a peer. The
/// function receives the interim answers; this source cannot notice that the waiting side has left.
pub(crate) struct WithoutBody<F>(pub(crate) F);

impl<F: FnMut(&[u8])> Downstream for WithoutBody<F> {
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

/// Maximum number of body bytes per read: large enough to need few calls, and small enough that the bytes are
/// still in the processor's cache when they are sent.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// Reason why a request's body is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The client has left or was cut off; no answer is sent.
    Gone,
    /// The client broke a rule or a limit, and gets an error.
    Refused(Fault),
}
