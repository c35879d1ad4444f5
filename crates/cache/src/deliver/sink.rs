//! Target of an answer's content: an HTTP/1 connection, or an HTTP/2 stream. A sink accepts parts of plain
//! and of shared memory as long as it has room, and reports when the client has stopped reading.

use std::time::Duration;

use engine::sys::span::Part;

/// Reason why a response could not be sent completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SinkError {
    /// The client closed or reset the connection, or the stream.
    Closed,
    /// The client read nothing within the time limit.
    Stalled,
    /// The client reads more slowly than the minimum rate.
    Slow,
    /// The client read too slowly while the store needed the memory that the client pinned.
    Wanted,
    /// The client held most of the memory for parts of objects in the file, and other clients needed some.
    GaveWay,
}

/// Result of a bounded attempt to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// Number of bytes sent, at least one.
    Bytes(usize),
    /// No byte was sent: the client did not read for the given time.
    Nothing,
}

/// Waits at most for `patience` until `sending` has sent at least one byte.
///
/// # Errors
/// Returns the error of `sending`.
pub(crate) async fn send_within(
    patience: Option<Duration>,
    sending: impl Future<Output = Result<usize, SinkError>>,
) -> Result<SendOutcome, SinkError> {
    match patience {
        None => sending.await.map(SendOutcome::Bytes),
        Some(patience) => match tokio::time::timeout(patience, sending).await {
            Ok(sent) => sent.map(SendOutcome::Bytes),
            Err(_) => Ok(SendOutcome::Nothing),
        },
    }
}

/// Sink that accepts content without waiting.
pub(crate) trait TrySend {
    /// Returns whether pages of the store may be lent to the sink instead of being copied.
    fn lends(&self) -> bool;

    /// Tries once to send, without waiting. Returns the number of accepted bytes (0: there is no room); the
    /// caller need not keep accepted bytes.
    fn try_send(&mut self, parts: &[Part<'_>]) -> Result<usize, SinkError>;
}

/// Sink of an answer's content.
pub(crate) trait Sink: TrySend {
    /// Sends some of `parts`, at least one byte; waits for room at most for `patience`.
    fn send_some(
        &mut self,
        parts: &[Part<'_>],
        patience: Option<Duration>,
    ) -> impl Future<Output = Result<SendOutcome, SinkError>>;

    /// Sends trailer lines after the content, for protocols in which they are not part of the content.
    fn send_trailers(&mut self, lines: &[u8]) -> impl Future<Output = Result<(), SinkError>>;

    /// Writes all accepted bytes to the kernel.
    fn flush(&mut self) -> impl Future<Output = Result<(), SinkError>>;

    /// Waits until the client is gone in a way that ends the exchange: at its FIN for an event stream, a long
    /// poll or an upgrade, at a reset for any other exchange. Bytes that the client sends meanwhile are kept.
    fn gone(&mut self) -> impl Future<Output = SinkError>;

    /// Makes the client's FIN end the exchange: from now on [`gone`](Self::gone) returns at the FIN.
    fn ends_at_fin(&mut self);

    /// Returns the number of bytes accepted so far.
    fn sent_bytes(&self) -> u64;

    /// Cuts the answer so that the client can see that it is incomplete.
    fn cut(&mut self);

    /// Sends all of `bytes`.
    fn send_all(&mut self, mut bytes: &[u8]) -> impl Future<Output = Result<(), SinkError>> {
        async move {
            while !bytes.is_empty() {
                if let SendOutcome::Bytes(sent) = self.send_some(&[Part::Plain(bytes)], None).await? {
                    bytes = &bytes[sent..];
                }
            }
            Ok(())
        }
    }
}
