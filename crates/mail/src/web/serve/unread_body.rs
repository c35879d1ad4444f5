//! The unread rest of a request's body, once the response is known.
//!
//! A handler that refuses a request does not read its body. If the rest has not arrived by then, hyper closes
//! the connection after the response without notice, and a client that reuses the connection loses its next
//! request. The rest is therefore read and discarded before the response is sent. This also prevents a reset
//! of the connection while the client is still writing and has not read the response. If the rest is too long
//! or arrives too slowly, it is left unread, and `Connection: close` informs the client.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream, Bytes, HttpBody},
    extract::Request,
    http::header,
};
use futures_util::{Stream, StreamExt};
use tokio::sync::oneshot;

use crate::web::serve::config::BODY_BYTES_MAX;

/// Maximum number of remaining bytes of a body that are discarded: as many as most handlers would have read.
const REST_BYTES_MAX: usize = BODY_BYTES_MAX;
/// Maximum time for discarding the rest of a body.
const REST_TIME_MAX: Duration = Duration::from_secs(2);

/// Body of a request, lent to a handler: when the handler drops it, the unread rest is returned.
struct LentBody {
    body: Option<BodyDataStream>,
    back: Option<oneshot::Sender<BodyDataStream>>,
}

/// Possible rest of a request's body.
pub(crate) struct UnreadBody {
    /// Receives the rest; closed if nothing is left.
    body: oneshot::Receiver<BodyDataStream>,
    /// True if the client waits for `100 Continue` before it sends the body (RFC 9110, 10.1.1).
    waits: bool,
}

/// Lends the body to the handler; the second value is `None` if there is no body.
pub(crate) fn lend(request: Request) -> (Request, Option<UnreadBody>) {
    if request.body().is_end_stream() {
        return (request, None);
    }
    let (back, rest) = oneshot::channel();
    let (parts, body) = request.into_parts();
    let waits = parts.headers.contains_key(header::EXPECT);
    let lent = LentBody { body: Some(body.into_data_stream()), back: Some(back) };
    (Request::from_parts(parts, Body::from_stream(lent)), Some(UnreadBody { body: rest, waits }))
}

impl Stream for LentBody {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let piece = ready!(body.poll_next_unpin(cx));
        if piece.is_none() {
            self.body = None;
        }
        Poll::Ready(piece)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take()) {
            // The send fails if the client has disconnected.
            let _ = back.send(body);
        }
    }
}

impl UnreadBody {
    /// Reads and discards the rest of the body. Returns whether the connection can take another request.
    pub(crate) async fn read(mut self) -> bool {
        let mut body = match self.body.try_recv() {
            Ok(_) if self.waits => return false,
            Ok(body) => body,
            Err(oneshot::error::TryRecvError::Closed) => return true,
            // The handler is still reading the body.
            Err(oneshot::error::TryRecvError::Empty) => return false,
        };
        let to_its_end = async {
            let mut room = REST_BYTES_MAX;
            while let Some(piece) = body.next().await {
                match piece.ok().and_then(|piece| room.checked_sub(piece.len())) {
                    Some(left) => room = left,
                    None => return false,
                }
            }
            true
        };
        tokio::time::timeout(REST_TIME_MAX, to_its_end).await.unwrap_or(false)
    }
}
