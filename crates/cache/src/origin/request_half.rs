//! The half of an exchange that a request's body goes to the origin by, once the answer has begun on the other half.

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
    /// So many bytes of it.
    Bytes(&'a [u8]),
    /// There is no more. Trailers as whole lines; none where the length was told.
    End(&'a [u8]),
}

/// What carries it.
pub(super) enum Way {
    Http1(WriteHalf<Line>),
    Http2(SendStream<Bytes>),
}

/// The rest of a request's body on its way to the origin.
pub(crate) struct RequestHalf {
    way: Way,
    /// Bytes of the part that is sent, framed; those before `at` are sent.
    out: Vec<u8>,
    at: usize,
    /// Nothing follows `out`; over HTTP/2 trailers may.
    end: Option<Vec<u8>>,
}

impl RequestHalf {
    /// `out` was taken from the client and not sent yet; `is_ended`: it is the last of the body.
    pub(super) fn new(way: Way, out: Vec<u8>, is_ended: bool) -> Self {
        Self { way, out, at: 0, end: is_ended.then(Vec::new) }
    }

    /// Takes the next part, when all before it is sent.
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

    /// Waits until all that was put is sent; whether it was the last.
    ///
    /// # Errors
    /// The origin does not take it.
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
                let handed = super::http2::poll_hand(content, &mut rest, cx);
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

/// A part of a body as HTTP/1 has it.
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
