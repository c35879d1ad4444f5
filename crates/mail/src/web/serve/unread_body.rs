//! What is left of a request's body when the request is answered.
//!
//! A handler that refuses does not read the body. If the rest has not come by then, hyper closes the connection behind
//! the answer without a word: a client that takes the connection for its next request, as its pool tells it to, loses
//! that request. So the rest is read and thrown away before the answer leaves, which also keeps a client that still
//! writes from being reset before it reads. What is too long, or too slow, is left, and `Connection: close` says what
//! comes of it.

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

use crate::web::BODY_BYTES_MAX;

/// Bytes that are thrown away; as many as most handlers would have read.
const REST_BYTES_MAX: usize = BODY_BYTES_MAX;
/// Time for them.
const REST_TIME_MAX: Duration = Duration::from_secs(2);

/// The body of a request, lent to a handler: what is left of it comes back when the handler lets go of it.
struct LentBody {
    body: Option<BodyDataStream>,
    back: Option<oneshot::Sender<BodyDataStream>>,
}

/// What may be left of a request's body.
pub(crate) struct UnreadBody {
    /// Gone if nothing is left.
    body: oneshot::Receiver<BodyDataStream>,
    /// The client sends no body before it is told to (RFC 9110, 10.1.1).
    waits: bool,
}

/// Takes hold of the body. `None`: it has none.
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
            // Nobody waits for it if the client has gone.
            let _ = back.send(body);
        }
    }
}

impl UnreadBody {
    /// Reads what is left, and throws it away. Whether the connection can take another request.
    pub(crate) async fn read(mut self) -> bool {
        let mut body = match self.body.try_recv() {
            Ok(_) if self.waits => return false,
            Ok(body) => body,
            Err(oneshot::error::TryRecvError::Closed) => return true,
            // Somebody reads it still.
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
