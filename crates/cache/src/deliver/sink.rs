//! Where an answer's content goes: a connection of HTTP/1, or a stream of HTTP/2. It takes parts of plain and of shared
//! memory, as much as there is room for, and says when the client has stopped reading.

use std::time::Duration;

use engine::sys::span::Part;

/// Why a response could not be sent to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SinkError {
    /// The client closed or reset the connection, or the stream.
    Closed,
    /// The client did not read for as long as the limit allows.
    Stalled,
    /// The client reads more slowly than it must.
    Slow,
    /// The client read too slowly while the store needed the memory that it held.
    Wanted,
    /// The client had most of the memory for parts of objects on the file, and other clients needed some.
    GaveWay,
}

/// What a bounded attempt to send came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing: the client did not read for the given time.
    Nothing,
}

/// Waits for `sending`, which sends at least a byte, for as long as `patience` allows.
///
/// # Errors
/// Those of `sending`.
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

/// Takes content without waiting.
pub(crate) trait TrySend {
    /// Whether pages of the store may be lent to it instead of being copied.
    fn lends(&self) -> bool;

    /// Tries once; how many bytes it took (0: there is no room). What it took is not needed any more.
    fn try_send(&mut self, parts: &[Part<'_>]) -> Result<usize, SinkError>;
}

/// Takes an answer's content.
pub(crate) trait Sink: TrySend + Send {
    /// Takes some of `parts`, at least one byte; waits for room at most for `patience`.
    fn send_some(
        &mut self,
        parts: &[Part<'_>],
        patience: Option<Duration>,
    ) -> impl Future<Output = Result<SendOutcome, SinkError>> + Send;

    /// Takes trailer lines behind the content, where that is not done by the content itself.
    fn send_trailers(&mut self, lines: &[u8]) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// What it took is on its way, the client willing.
    fn flush(&mut self) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Waits until the client is gone in a way that ends the exchange: an event stream, a wait and an upgrade end at
    /// the client's FIN, any other exchange at a reset. Bytes that the client sends meanwhile are kept.
    fn gone(&mut self) -> impl Future<Output = SinkError> + Send;

    /// Makes the client's FIN end the exchange: from now on [`gone`](Self::gone) returns at the FIN.
    fn ends_at_fin(&mut self);

    /// Bytes that it took since it began.
    fn sent_bytes(&self) -> u64;

    /// What was taken is not all that there is, and the client is to see that.
    fn cut(&mut self);

    /// Takes all of `bytes`.
    fn send_all(&mut self, mut bytes: &[u8]) -> impl Future<Output = Result<(), SinkError>> + Send {
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
