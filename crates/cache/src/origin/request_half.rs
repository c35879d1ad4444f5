//! The half of an exchange that sends the rest of a request's body to the origin, once the answer has begun on the
//! other half.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::SendStream;
use tokio::io::{AsyncWrite as _, WriteHalf};
use wire::http1::framing::ChunkedEncoder;

use super::{OriginError, http2::trailers, line::Line};

/// A part of a request's body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    /// The next bytes of the body.
    Bytes(&'a [u8]),
    /// The end of the body, with trailers as whole lines; empty if the length was declared.
    End(&'a [u8]),
}

/// The sending side of the connection (HTTP/1) or of the stream (HTTP/2) that carries the body.
pub(super) enum Way {
    Http1(WriteHalf<Line>),
    Http2(SendStream<Bytes>),
}

/// The rest of a request's body on its way to the origin.
pub(crate) struct RequestHalf {
    way: Way,
    /// Bytes of the part that is being sent, framed; the bytes before `at` are sent.
    out: Vec<u8>,
    at: usize,
    /// `Some` once the last part of the body is in `out`. Over HTTP/2 the trailers in it are sent after
    /// `out`.
    end: Option<Vec<u8>>,
}

impl RequestHalf {
    /// Creates the half. `out` was taken from the client and is not sent yet; `is_ended` means that it is the
    /// end of the body.
    pub(super) fn new(way: Way, out: Vec<u8>, is_ended: bool) -> Self {
        Self { way, out, at: 0, end: is_ended.then(Vec::new) }
    }

    /// Takes the next part, once all parts before it are sent.
    pub(crate) fn put(&mut self, part: Part<'_>, is_chunked: bool) {
        self.out.clear();
        self.at = 0;
        if let Part::End(lines) = part {
            self.end = Some(lines.to_vec());
        }
        match (&self.way, part) {
            (Way::Http1(_), part) => append_framed(&mut self.out, part, is_chunked),
            (Way::Http2(_), Part::Bytes(bytes)) => self.out.extend_from_slice(bytes),
            (Way::Http2(_), Part::End(_)) => {}
        }
    }

    /// Bytes that wait for the origin.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.out.len() - self.at
    }

    /// Waits until all parts passed to [`put`](Self::put) have been sent. Returns whether the body has ended
    /// with them.
    ///
    /// # Errors
    /// [`OriginError`] if the origin does not take the bytes.
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, OriginError>> {
        let Self { way, out, at, end } = self;
        match way {
            Way::Http1(writer) => {
                while *at < out.len() {
                    let sent = ready!(Pin::new(&mut *writer).poll_write(cx, &out[*at..]));
                    match sent {
                        Ok(0) => return Poll::Ready(Err(OriginError::Closed)),
                        Ok(bytes) => *at += bytes,
                        Err(error) => return Poll::Ready(Err(OriginError::of_exchange(&error))),
                    }
                }
                let flushed = ready!(Pin::new(writer).poll_flush(cx));
                flushed.map_err(|error| OriginError::of_exchange(&error))?;
            }
            Way::Http2(content) => {
                let mut rest = &out[*at..];
                let handed = poll_hand(content, &mut rest, cx);
                *at = out.len() - rest.len();
                if ready!(handed).is_none() {
                    return Poll::Ready(Err(OriginError::Closed));
                }
                if let Some(lines) = end {
                    let ended = match &lines[..] {
                        [] => content.send_data(Bytes::new(), true),
                        lines => content.send_trailers(trailers(lines)),
                    };
                    return Poll::Ready(ended.map(|()| true).map_err(|_| OriginError::Closed));
                }
            }
        }
        Poll::Ready(Ok(end.is_some()))
    }
}

/// Passes as much content to `h2` as the windows allow; `None` if the origin takes no more.
pub(super) fn poll_hand(
    content: &mut SendStream<Bytes>,
    bytes: &mut &[u8],
    cx: &mut Context<'_>,
) -> Poll<Option<()>> {
    while !bytes.is_empty() {
        content.reserve_capacity(bytes.len());
        // `poll_capacity` reports only new capacity, not what is already there.
        let mut room = content.capacity();
        while room == 0 {
            let Some(Ok(more)) = ready!(content.poll_capacity(cx)) else {
                return Poll::Ready(None);
            };
            room = more;
        }
        let (now, rest) = bytes.split_at(room.min(bytes.len()));
        if content.send_data(Bytes::copy_from_slice(now), false).is_err() {
            return Poll::Ready(None);
        }
        *bytes = rest;
    }
    Poll::Ready(Some(()))
}

/// Appends a part of a body in the framing of HTTP/1.
pub(super) fn append_framed(out: &mut Vec<u8>, part: Part<'_>, is_chunked: bool) {
    match part {
        Part::Bytes(bytes) if !is_chunked => out.extend_from_slice(bytes),
        Part::Bytes(bytes) => {
            out.extend_from_slice(ChunkedEncoder::chunk_header(bytes.len() as u64).as_bytes());
            out.extend_from_slice(bytes);
            out.extend_from_slice(ChunkedEncoder::CHUNK_END);
        }
        Part::End(_) if !is_chunked => {}
        Part::End(trailers) => {
            for part in ChunkedEncoder::last_chunk(trailers) {
                out.extend_from_slice(part);
            }
        }
    }
}
