//! Sink of a stream's content, through which the stream's task sends its answer.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use engine::{cores::clock, sys::span::Part};
use wire::http2::error::ErrorCode;

use super::{
    multiplex::{Number, reset, with},
    upload::Upload,
};
use crate::{
    deliver::sink::{SendOutcome, Sink, SinkError, TrySend, send_within},
    states::{full_duplex::Onward, pipe::Duplex},
};

/// Rest of a request, which is forwarded to the origin after the request's answer has begun.
pub(super) struct OngoingUpload {
    upload: Upload,
    onward: Box<Onward>,
}

impl OngoingUpload {
    /// Takes the rest of a request, if there is one. Boxed, because this is rare.
    pub(super) fn of(mut upload: Upload) -> Option<Box<Self>> {
        let onward = upload.onward.take()?;
        Some(Box::new(Self { upload, onward }))
    }
}

/// Sink of a stream's content, used by its task.
pub(super) struct StreamBody {
    pub(super) number: Number,
    pub(super) stream: u32,
    /// Remaining bytes of content, if their number is known and nothing follows them.
    pub(super) left: Option<u64>,
    /// Bytes of head and content that have been sent.
    pub(super) sent_bytes: u64,
    /// The rest of the request, which is forwarded to the origin whenever the answer has to wait.
    pub(super) through: Option<Box<OngoingUpload>>,
}

impl StreamBody {
    /// Forwards the request's bytes as they arrive; ready when nothing is left to forward.
    fn poll_onward(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SinkError>> {
        match self.through.as_deref_mut() {
            Some(OngoingUpload { upload, onward }) => onward.poll(cx, upload).map_err(|_| SinkError::Closed),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Registers the task's waker, to be woken when there may be room.
    fn wait_for_room(&self, cx: &Context<'_>) -> Poll<Result<usize, SinkError>> {
        let waiting = with(self.number, |_, multiplex| {
            multiplex.stream(self.stream)?.sending = Some(cx.waker().clone());
            Some(())
        });
        if waiting.flatten().is_none() { Poll::Ready(Err(SinkError::Closed)) } else { Poll::Pending }
    }
}

impl TrySend for StreamBody {
    fn lends(&self) -> bool {
        false
    }

    fn try_send(&mut self, parts: &[Part<'_>]) -> Result<usize, SinkError> {
        let bytes: usize = parts.iter().map(Part::len).sum();
        let is_last = self.left == Some(bytes as u64);
        let sent = with(self.number, |_, multiplex| {
            let sent = multiplex.send_content(self.stream, parts, is_last, clock::monotonic_ms());
            multiplex.pass_on();
            sent
        });
        let sent = sent.unwrap_or(Err(SinkError::Closed))?;
        self.left = self.left.map(|left| left.saturating_sub(sent as u64));
        self.sent_bytes += sent as u64;
        Ok(sent)
    }
}

impl Sink for StreamBody {
    async fn send_some(
        &mut self,
        parts: &[Part<'_>],
        patience: Option<Duration>,
    ) -> Result<SendOutcome, SinkError> {
        let sent = self.try_send(parts)?;
        if sent > 0 || parts.iter().all(Part::is_empty) {
            return Ok(SendOutcome::Bytes(sent));
        }
        let room = poll_fn(|cx| {
            if let Poll::Ready(Err(gone)) = self.poll_onward(cx) {
                return Poll::Ready(Err(gone));
            }
            match self.try_send(parts) {
                Ok(0) => self.wait_for_room(cx),
                done => Poll::Ready(done),
            }
        });
        send_within(patience, room).await
    }

    async fn send_trailers(&mut self, lines: &[u8]) -> Result<(), SinkError> {
        let sent = with(self.number, |core, multiplex| {
            let blocks = &mut core.buffers.http2.borrow_mut().blocks;
            let block = blocks.of_lines(lines);
            multiplex.wire.send_headers(self.stream, block, true, &mut multiplex.out)
        });
        if sent == Some(true) { Ok(()) } else { Err(SinkError::Closed) }
    }

    /// The connection's task writes what a stream has sent, so there is nothing to flush here.
    async fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn gone(&mut self) -> SinkError {
        match poll_fn(|cx| self.poll_onward(cx)).await {
            // The task itself is aborted when the client abandons the stream or the connection ends.
            Ok(()) => std::future::pending().await,
            Err(gone) => gone,
        }
    }

    fn ends_at_fin(&mut self) {}

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    fn cut(&mut self) {
        with(self.number, |_, multiplex| reset(multiplex, self.stream, ErrorCode::CANCEL));
    }
}

impl Duplex for StreamBody {
    fn poll_take(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, SinkError>> {
        let taken = with(self.number, |_, multiplex| {
            let stream = multiplex.stream(self.stream)?;
            let bytes = stream.content.len();
            if bytes == 0 && !stream.is_whole {
                stream.receiving = Some(cx.waker().clone());
                return Some(None);
            }
            into.append(&mut stream.content);
            multiplex.content_bytes -= bytes;
            multiplex.wire.release(self.stream, bytes, &mut multiplex.out);
            multiplex.wake();
            Some(Some(bytes))
        });
        match taken.flatten() {
            None => Poll::Ready(Err(SinkError::Closed)),
            Some(None) => Poll::Pending,
            Some(Some(bytes)) => Poll::Ready(Ok(bytes)),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, SinkError>> {
        match self.try_send(&[Part::Plain(bytes)]) {
            Ok(0) => self.wait_for_room(cx),
            sent => Poll::Ready(sent),
        }
    }

    /// The connection's task writes what a stream has sent, so there is nothing to flush here.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SinkError>> {
        Poll::Ready(Ok(()))
    }
}
