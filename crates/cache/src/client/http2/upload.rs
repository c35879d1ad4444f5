//! Content of a request on an HTTP/2 stream. Content that the task has not read yet waits in the connection's
//! memory, at most one flow-control window; reading it opens the window again.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use super::multiplex::{Number, Stream, with};
use crate::{
    client::limits::body_rate::BodyRate,
    core::with_core,
    counters::Counter,
    deliver::downstream::{BodyError, Downstream, READ_BYTES},
    request::Request,
    states::full_duplex::{BodySource, Onward},
};

/// Bytes of the longest accepted frame (RFC 9113 §4.2).
pub(super) const FRAME_BYTES_MAX: usize = 16 << 10;

/// The content of a request that is being answered.
pub(super) struct Upload {
    number: Number,
    stream: u32,
    pace: BodyRate,
    wants_continue: bool,
    trailers: Vec<u8>,
    /// Forwards the remaining content to the origin after the answer has begun.
    pub(super) onward: Option<Box<Onward>>,
}

impl Upload {
    pub(super) fn new(number: Number, stream: u32, request: &Request) -> Self {
        Self {
            number,
            stream,
            pace: BodyRate::new(request),
            wants_continue: request.expects_continue(),
            trailers: Vec::new(),
            onward: None,
        }
    }

    fn gone() -> BodyError {
        with_core(|core| core.count(Counter::ClientsGone));
        BodyError::Gone
    }

    /// Takes the content that has arrived; returns `None` if it must be waited for.
    fn take(&mut self, into: &mut Vec<u8>) -> Option<Result<bool, BodyError>> {
        let taken = with(self.number, |_, multiplex| {
            let stream = multiplex.stream(self.stream)?;
            let bytes = stream.content.len().min(READ_BYTES);
            if bytes == 0 {
                if stream.is_whole {
                    self.trailers.append(&mut stream.trailers);
                }
                return Some((0, stream.is_whole));
            }
            if bytes == stream.content.len() && into.is_empty() {
                std::mem::swap(into, &mut stream.content);
            } else {
                into.extend(stream.content.drain(..bytes));
            }
            multiplex.content_bytes -= bytes;
            multiplex.wire.release(self.stream, bytes, &mut multiplex.out);
            multiplex.wake();
            Some((bytes, false))
        });
        match taken.flatten() {
            None => Some(Err(Self::gone())),
            Some((0, true)) => Some(Ok(false)),
            Some((0, false)) => None,
            Some((bytes, _)) => Some(self.pace.count(bytes).map(|()| true)),
        }
    }
}

impl BodySource for Upload {
    fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<bool, BodyError>> {
        match self.take(into) {
            Some(taken) => Poll::Ready(taken),
            None => {
                with(self.number, |_, multiplex| {
                    if let Some(stream) = multiplex.stream(self.stream) {
                        stream.receiving = Some(cx.waker().clone());
                    }
                });
                Poll::Pending
            }
        }
    }

    fn trailers(&self) -> &[u8] {
        &self.trailers
    }
}

impl Downstream for Upload {
    async fn read(&mut self, into: &mut Vec<u8>) -> Result<bool, BodyError> {
        if let Some(taken) = self.take(into) {
            return taken;
        }
        if std::mem::take(&mut self.wants_continue) {
            // RFC 9110 §10.1.1: the client waits for this before it sends the body.
            self.interim(b"HTTP/1.1 100 Continue\r\n").await;
        }
        self.pace.check()?;
        let pause_max = self.pace.frame_pause_max(FRAME_BYTES_MAX);
        let (number, id) = (self.number, self.stream);
        let more = poll_fn(|cx| {
            let waiting = with(number, |_, multiplex| {
                let Stream { content, is_whole, receiving, .. } = multiplex.stream(id)?;
                if !content.is_empty() || *is_whole {
                    return None;
                }
                *receiving = Some(cx.waker().clone());
                Some(())
            });
            if waiting.flatten().is_some() { Poll::Pending } else { Poll::Ready(()) }
        });
        if tokio::time::timeout(pause_max, more).await.is_err() {
            with_core(|core| core.count(Counter::ClientsStalled));
            return Err(BodyError::Gone);
        }
        self.take(into).unwrap_or_else(|| Err(Self::gone()))
    }

    fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Never returns: the task itself is aborted when the client abandons the stream or the connection ends.
    async fn gone(&mut self) {
        std::future::pending().await
    }

    fn goes_on(&mut self, onward: Box<Onward>) {
        self.onward = Some(onward);
    }

    async fn interim(&mut self, head: &[u8]) {
        with_core(|core| core.count(Counter::InterimsPassed));
        // The departure of a client is noticed when the answer is sent.
        with(self.number, |core, multiplex| {
            let blocks = &mut core.buffers.http2.borrow_mut().blocks;
            let block = blocks.of_head(head);
            multiplex.wire.send_headers(self.stream, block, false, &mut multiplex.out);
            multiplex.wake();
        });
    }
}
