//! Client protocols of the generator: pure state machines over bytes that write requests and recognise
//! answers.

mod echo;
mod http;
mod http2;
mod nats;
mod smtp;

pub(super) use echo::Echo;
pub(super) use http::Http;
pub(super) use http2::Http2;
pub(super) use nats::Nats;
pub(super) use smtp::Smtp;

/// Client's side of a connection.
pub(super) trait Client: Send {
    /// Appends bytes that are sent before the server has sent anything.
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    /// Appends a request to the output.
    fn request(&mut self, out: &mut Vec<u8>);

    /// Consumes all received bytes; may append to the output. Returns the number of requests that they
    /// answer.
    ///
    /// # Errors
    /// [`InvalidReply`] if an answer breaks the protocol: the connection is then unusable.
    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, InvalidReply>;

    /// Returns the position of the request that the next answer belongs to, among the waiting requests; the
    /// oldest has position 0. Called once for each answer.
    fn next_answered(&mut self) -> usize {
        0
    }

    /// Handles the end of the connection. Returns the number of requests that it answers.
    ///
    /// # Errors
    /// [`InvalidReply`] if the server closed in the middle of an answer.
    fn closed(&mut self) -> Result<usize, InvalidReply>;

    /// Returns whether requests may be sent: the protocol's greeting is complete.
    fn is_ready(&self) -> bool;

    /// Returns how many requests may wait for their answers at once; the server may change it.
    fn depth(&self) -> usize;

    /// Returns the number of complete answers that report a refusal or failure, and the first of them.
    fn refusals(&self) -> (u64, Option<&str>);
}

/// An answer that breaks the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidReply(pub String);
