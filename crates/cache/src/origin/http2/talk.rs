//! An exchange as an HTTP/2 stream.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf as _, Bytes};
use engine::sys::span::Span;
use h2::{RecvStream, SendStream, client::ResponseFuture};
use http::Response;
use tokio::time::{Instant, timeout, timeout_at};
use wire::{
    http1::framing::{Framing, RequestKind, TRAILER_BYTES_MAX, announces_in_vain},
    http2::error::ErrorCode,
};

use super::{
    super::{OriginError, upstream::StreamLeave},
    connection::Place,
    of_stream, render,
};
use crate::{
    config::Limits,
    error_page::Rule,
    origin::{
        answer_head::{HeadProgress, final_head},
        reply::{AnswerEvent, BodyRead, OriginReply, Patience, SendResult},
        request_half::{Part, RequestHalf, Way, poll_hand},
    },
};

/// A request on a stream.
pub(in crate::origin) struct Talk {
    place: Place,
    sent: Option<OpenStream>,
}

/// An opened stream.
struct OpenStream {
    /// Sending side for the request's content. Kept until the answer is read, because `h2` resets a stream
    /// whose sending side is dropped before its end.
    content: SendStream<Bytes>,
    answer: ResponseFuture,
    /// The answer, if it came while content was still being sent.
    early: Option<Result<Response<RecvStream>, OriginError>>,
    /// Bytes of the content that the origin had not taken when it answered.
    unsent: Vec<u8>,
    /// No content is left to send, or the origin takes no more.
    has_ended: bool,
}

impl OpenStream {
    /// Waits for the final answer, skipping interim responses, and keeps it for [`Talk::next_event`].
    fn poll_early(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.early.is_some() {
            return Poll::Ready(());
        }
        while let Poll::Ready(Some(Ok(_))) = self.answer.poll_informational(cx) {}
        let answer = ready!(std::pin::Pin::new(&mut self.answer).poll(cx));
        self.early = Some(answer.map_err(|error| of_stream(&error)));
        Poll::Ready(())
    }
}

impl Talk {
    pub(in crate::origin) fn over(place: Place) -> Self {
        Self { place, sent: None }
    }

    /// Returns the permit to buffer a window of bytes.
    pub(in crate::origin) fn leave(&mut self) -> &mut StreamLeave {
        &mut self.place.leave
    }

    /// Sends the request's head.
    pub(in crate::origin) fn send(&mut self, head: &[u8]) -> Result<(), OriginError> {
        let request = render::request(head, self.place.is_secured());
        let (request, has_content) = request.ok_or(OriginError::Http1Required)?;
        // If the connection has ended in the meantime, nothing was sent.
        let opened = self.place.requests.send_request(request, !has_content);
        let (answer, content) = opened.map_err(|_| OriginError::Unprocessed)?;
        self.sent =
            Some(OpenStream { content, answer, early: None, unsent: Vec::new(), has_ended: !has_content });
        Ok(())
    }

    /// Sends a part of the request's content, unless the origin answers before it has taken the part.
    pub(in crate::origin) async fn send_body(
        &mut self,
        part: Part<'_>,
        limits: &Limits,
    ) -> Result<SendResult, OriginError> {
        let at_most = limits.origin_between_bytes_time_max;
        let Some(sent) = &mut self.sent else { return Ok(SendResult::Answered) };
        let mut bytes = match part {
            Part::Bytes(bytes) => bytes,
            Part::End([]) => {
                sent.has_ended = true;
                let ended = sent.content.send_data(Bytes::new(), true);
                return Ok(if ended.is_ok() { SendResult::Over } else { SendResult::Answered });
            }
            Part::End(lines) => {
                sent.has_ended = true;
                let ended = sent.content.send_trailers(render::trailers(lines));
                return Ok(if ended.is_ok() { SendResult::Over } else { SendResult::Answered });
            }
        };
        let handing = poll_fn(|cx| {
            if sent.poll_early(cx).is_ready() {
                return Poll::Ready(SendResult::Answered);
            }
            // The origin accepts no more content: it has answered, or it has reset the stream, which the
            // answer then reports.
            match ready!(poll_hand(&mut sent.content, &mut bytes, cx)) {
                Some(()) => Poll::Ready(SendResult::Over),
                None => {
                    sent.has_ended = true;
                    Poll::Ready(SendResult::Answered)
                }
            }
        });
        match Box::pin(timeout(at_most, handing)).await {
            Ok(handed) => {
                sent.unsent.extend_from_slice(bytes);
                Ok(handed)
            }
            Err(_) => Err(OriginError::FirstByteTimeout(at_most)),
        }
    }

    /// Waits until the origin answers before it has the whole request.
    pub(in crate::origin) async fn answered_early(&mut self) -> Result<(), OriginError> {
        if let Some(sent) = &mut self.sent {
            poll_fn(|cx| sent.poll_early(cx)).await;
        }
        Ok(())
    }

    /// Waits for the head of the final answer, or of an interim response to forward. The future may be dropped
    /// without loss.
    pub(in crate::origin) async fn next_event(
        &mut self,
        answered: RequestKind,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<AnswerEvent, OriginError> {
        loop {
            let Some(sent) = &mut self.sent else { return Err(OriginError::Unprocessed) };
            let coming = poll_fn(|cx| {
                if sent.early.is_none()
                    && let Poll::Ready(Some(Ok(interim))) = sent.answer.poll_informational(cx)
                {
                    return Poll::Ready(Some(interim));
                }
                sent.poll_early(cx).map(|()| None)
            });
            let Ok(interim) = timeout_at(deadline, coming).await else {
                return Err(OriginError::FirstByteTimeout(limits.origin_first_byte_time_max));
            };
            let Some(interim) = interim else { return Ok(AnswerEvent::Head) };
            check(interim.headers())?;
            let mut head = Vec::with_capacity(512);
            render::answer(interim.status(), interim.headers(), answered, true, &mut head);
            match final_head(&head, answered, limits)? {
                HeadProgress::Interim { told_on: Some(told_on), .. } => {
                    return Ok(AnswerEvent::Interim(told_on));
                }
                HeadProgress::Interim { told_on: None, .. } => {}
                // 101 has no meaning in HTTP/2 (RFC 9113 §8.6).
                _ => return Err(OriginError::Switched),
            }
        }
    }

    /// Returns the answer whose head has arrived ([`AnswerEvent::Head`]).
    pub(in crate::origin) fn answer(
        mut self: Box<Self>,
        answered: RequestKind,
        limits: &Limits,
    ) -> Result<OriginReply<Box<Body>>, OriginError> {
        let mut head = Vec::with_capacity(512);
        let Some(sent) = self.sent.take() else { return Err(OriginError::Unprocessed) };
        let OpenStream { content, early, unsent, has_ended, .. } = sent;
        let response = early.unwrap_or(Err(OriginError::Closed))?;
        check(response.headers())?;
        let (status, is_whole) = (response.status(), response.body().is_end_stream());
        render::answer(status, response.headers(), answered, is_whole, &mut head);
        let HeadProgress::Final { head, framing, .. } = final_head(&head, answered, limits)? else {
            return Err(OriginError::Switched);
        };
        let left = match framing {
            Framing::Length(bytes) => Some(bytes),
            Framing::None => Some(0),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let (kept, half) = if has_ended {
            (Some(content), None)
        } else {
            (None, Some(RequestHalf::new(Way::Http2(content), unsent, false)))
        };
        let body = Body {
            stream: response.into_body(),
            piece: Bytes::new(),
            left,
            // An answer to HEAD has no content, whatever the fields say; if some arrives, it is not read.
            ended: is_whole || framing == Framing::None,
            fault: None,
            trailers: Vec::new(),
            _content: kept,
            _place: self.place,
        };
        if !is_whole && announces_in_vain(&head.head()) {
            // A 204 that announces content must not have any (RFC 9113 §8.1.1).
            return Err(OriginError::Invalid(Rule::Http2(ErrorCode::PROTOCOL_ERROR)));
        }
        if is_whole && left.is_some_and(|left| left > 0) {
            return Err(OriginError::BodyShort);
        }
        Ok(OriginReply::Final { head, framing, body: Box::new(body), half })
    }
}

/// Rejects hop-by-hop fields. `h2` already does; if it did not, HTTP/1's parser would act on them.
fn check(fields: &http::HeaderMap) -> Result<(), OriginError> {
    if render::is_of_connection(fields) {
        return Err(OriginError::Invalid(Rule::Http2(ErrorCode::PROTOCOL_ERROR)));
    }
    Ok(())
}

/// Content of an answer on a stream.
pub(in crate::origin) struct Body {
    stream: RecvStream,
    /// Received bytes that have not been read yet.
    piece: Bytes,
    /// Bytes that are still to be read, if the head declares a length.
    left: Option<u64>,
    /// All content was received, and the stream has ended.
    ended: bool,
    /// Error of the stream, once there is one.
    fault: Option<OriginError>,
    trailers: Vec<u8>,
    /// Sending side of the request's content, unless the rest of the request is still being sent. `h2` resets
    /// the stream when this is dropped before all content was sent.
    _content: Option<SendStream<Bytes>>,
    _place: Place,
}

impl Body {
    /// Reads available bytes into `into`; waits for at least one. The last bytes of a declared length are
    /// returned only once the stream has ended: more bytes would make the answer invalid, and it must not
    /// have been stored by then.
    pub(in crate::origin) async fn read(
        &mut self,
        into: Span<'_>,
        patience: &Patience,
    ) -> Result<BodyRead, OriginError> {
        if self.piece.is_empty() && !self.ended {
            Box::pin(patience.wait(poll_fn(|cx| self.poll_piece(cx)))).await??;
        }
        let bytes = self.take(into);
        if bytes == 0 {
            return Ok(BodyRead::End);
        }
        if self.left == Some(0) && !self.ended {
            Box::pin(patience.wait(poll_fn(|cx| self.poll_piece(cx)))).await??;
        }
        Ok(BodyRead::Bytes(bytes))
    }

    /// Reads as [`read`](Self::read) does, but does not wait; `None` if no byte is available yet.
    pub(in crate::origin) fn read_now(&mut self, into: Span<'_>) -> Option<Result<BodyRead, OriginError>> {
        let mut cx = Context::from_waker(Waker::noop());
        if self.piece.is_empty() && !self.ended {
            match self.poll_piece(&mut cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Some(Err(error)),
                Poll::Pending => return None,
            }
        }
        let bytes = self.take(into);
        if self.left == Some(0)
            && !self.ended
            && let Poll::Ready(Err(error)) = self.poll_piece(&mut cx)
        {
            return Some(Err(error));
        }
        Some(Ok(if bytes == 0 { BodyRead::End } else { BodyRead::Bytes(bytes) }))
    }

    /// Takes the whole content, if its length is known and all of it came in one frame.
    pub(in crate::origin) fn take_whole(&mut self) -> Option<Vec<u8>> {
        let bytes = self.left?;
        let mut cx = Context::from_waker(Waker::noop());
        if !self.ended && self.piece.is_empty() && bytes > 0 {
            let Poll::Ready(Ok(())) = self.poll_piece(&mut cx) else { return None };
        }
        if self.piece.len() as u64 != bytes {
            return None;
        }
        if !self.ended {
            // An error is reported by the next read.
            self.left = Some(0);
            let ended = self.poll_piece(&mut cx);
            self.left = Some(bytes);
            let Poll::Ready(Ok(())) = ended else { return None };
        }
        let whole = self.piece.to_vec();
        self.took(whole.len());
        Some(whole)
    }

    pub(in crate::origin) fn is_complete(&self) -> bool {
        self.ended && self.piece.is_empty()
    }

    pub(in crate::origin) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Moves bytes of the piece into `into`, and returns their number.
    fn take(&mut self, into: Span<'_>) -> usize {
        let bytes = self.piece.len().min(into.len());
        if bytes > 0 {
            into.slice(0..bytes).write_from(&self.piece[..bytes]);
            self.took(bytes);
        }
        bytes
    }

    /// Accounts for bytes that were read, and allows the origin to send the same number of bytes again.
    fn took(&mut self, bytes: usize) {
        self.piece.advance(bytes);
        self.left = self.left.map(|left| left.saturating_sub(bytes as u64));
        // Fails only for more bytes than were received, which cannot happen here.
        let _ = self.stream.flow_control().release_capacity(bytes);
    }

    /// Waits for the next piece, or for the end. An error is permanent.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), OriginError>> {
        if let Some(fault) = &self.fault {
            return Poll::Ready(Err(fault.clone()));
        }
        let came = ready!(self.poll_next(cx));
        self.fault = came.as_ref().err().cloned();
        Poll::Ready(came)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), OriginError>> {
        loop {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(piece)) if piece.is_empty() => {}
                // `h2` checks the length, too.
                Some(Ok(piece)) if self.left.is_some_and(|left| piece.len() as u64 > left) => {
                    return Poll::Ready(Err(OriginError::Invalid(Rule::Http2(ErrorCode::PROTOCOL_ERROR))));
                }
                Some(Ok(piece)) => {
                    self.ended = self.stream.is_end_stream();
                    if self.ended && self.left.is_some_and(|left| left != piece.len() as u64) {
                        return Poll::Ready(Err(OriginError::BodyShort));
                    }
                    self.piece = piece;
                    return Poll::Ready(Ok(()));
                }
                Some(Err(_)) => return Poll::Ready(Err(OriginError::BodyShort)),
                None => break,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).map_err(|_| OriginError::BodyShort)?;
        if self.left.is_some_and(|left| left > 0) {
            return Poll::Ready(Err(OriginError::BodyShort));
        }
        if let Some(trailers) = trailers {
            render::append(&trailers, &mut self.trailers);
            if self.trailers.len() > TRAILER_BYTES_MAX {
                return Poll::Ready(Err(OriginError::HeadTooLarge(TRAILER_BYTES_MAX)));
            }
        }
        self.ended = true;
        Poll::Ready(Ok(()))
    }
}
