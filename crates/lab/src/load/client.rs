//! What the generator says on a connection, and how it knows an answer: pure state machines over bytes.

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

/// One side of one connection.
pub(super) trait Client: Send {
    /// Appends what is sent before the server has said anything.
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    /// Appends one request to what is sent.
    fn request(&mut self, out: &mut Vec<u8>);

    /// Takes what arrived, all of it; may append to what is sent. Returns how many requests it answers.
    ///
    /// # Errors
    /// An answer that breaks the protocol: the connection is of no use any more.
    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, InvalidReply>;

    /// Whose the next of these answers is: its place among the requests that wait for theirs, the oldest of which has place
    /// 0. Called once for each answer.
    fn next_answered(&mut self) -> usize {
        0
    }

    /// The other side has closed. Returns how many requests that answers.
    ///
    /// # Errors
    /// It closed in the middle of an answer.
    fn closed(&mut self) -> Result<usize, InvalidReply>;

    /// Requests may be sent now: greetings are over.
    fn is_ready(&self) -> bool;

    /// So many requests may wait for their answers at once; the server may say so anew.
    fn depth(&self) -> usize;

    /// Answers that came whole and say that the server refused or failed, and the first of them.
    fn refusals(&self) -> (u64, Option<&str>);
}

/// An answer that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidReply(pub String);
