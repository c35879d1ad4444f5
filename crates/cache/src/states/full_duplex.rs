//! *onward*: sends the rest of a request's body to the origin while the answer comes back (full duplex, RFC
//! 9113 §8.1, RFC 9112 §9.5).
//!
//! ```text
//!   client ── poll_body ──▶ RequestHalf ──▶ origin          polled by the sender of the answer, while that waits
//!   client ◀── Sink ◀── Cursor ◀── pump ◀── origin
//! ```
//! An origin may begin its answer before it has the whole request, as with gRPC's bidirectional streams, and
//! wait for the rest. The rest is forwarded until the answer has ended; bytes that arrive later are dropped.
//!
//! *Bounds:* one piece of the body at a time ([`READ_BYTES`](crate::deliver::downstream::READ_BYTES)),
//! charged to the memory that [clients hold](crate::client::limits::client_budget); and the size limit of the
//! whole body. The rate of the body is not checked any more, because the client may wait for the answer. An
//! exchange on which the origin sends nothing for `pipe_idle_time_max` ends.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use wire::http1::framing::Framing;

use crate::{
    client::limits::client_budget::ClientMemoryGuard,
    core::with_core_of,
    deliver::{
        downstream::BodyError,
        trailers::{going_on, not_ours},
    },
    log::transaction::Trace,
    origin::{Part, RequestHalf},
    request::Request,
};

/// Client's side of a body that is forwarded.
pub(crate) trait BodySource {
    /// Appends the next bytes to `into`; waits for at least one. Returns false when the body is complete.
    fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<bool, BodyError>>;

    /// Returns the trailer lines as received, once the body is complete.
    fn trailers(&self) -> &[u8];
}

/// Forwarding of the rest of a request's body to the origin.
pub(crate) struct Onward {
    half: RequestHalf,
    request: Arc<Request>,
    piece: Vec<u8>,
    held: ClientMemoryGuard,
    /// The origin has received the whole body, or takes no more of it.
    is_over: bool,
}

impl Onward {
    pub(crate) fn new(half: RequestHalf, request: &Arc<Request>) -> Self {
        let request = Arc::clone(request);
        Self { half, request, piece: Vec::new(), held: ClientMemoryGuard::nothing(), is_over: false }
    }

    /// Forwards the body's bytes as they arrive. Ready when there is nothing more to send, and in each later
    /// call.
    ///
    /// # Errors
    /// [`BodyError`] if the client is gone, or its body breaks a rule.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut impl BodySource,
    ) -> Poll<Result<(), BodyError>> {
        while !self.is_over {
            match self.half.poll_sent(cx) {
                Poll::Pending => {
                    // Only bytes that wait for the origin are charged.
                    let is_held = self.held.resize(self.half.unsent_bytes());
                    return if is_held { Poll::Pending } else { Poll::Ready(Err(BodyError::Gone)) };
                }
                Poll::Ready(Ok(is_ended)) => self.is_over = is_ended,
                // The origin has answered and reads no more, or it is gone, which its answer shows.
                Poll::Ready(Err(_)) => self.is_over = true,
            }
            if self.is_over {
                break;
            }
            self.held.resize(0);
            self.piece.clear();
            let more = ready!(source.poll_body(cx, &mut self.piece))?;
            let Self { half, request, piece, .. } = self;
            Trace::add_content(request.trace.as_ref(), piece.len());
            let is_chunked = request.framing == Framing::Chunked;
            if more {
                half.put(Part::Bytes(piece), is_chunked);
                *piece = Vec::new();
            } else {
                half.put(Part::End(&last(request, source.trailers(), is_chunked)), is_chunked);
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the trailers for the origin; none unless the body is chunked.
pub(crate) fn last(request: &Request, trailers: &[u8], is_chunked: bool) -> Vec<u8> {
    if !is_chunked {
        return Vec::new();
    }
    let trailers = going_on(trailers, &request.head().headers);
    with_core_of(request, |core| not_ours(trailers, core.sites.table.certificate_fields()))
}
