//! A request on an HTTP/2 stream and its answer, which comes from the store's memory within the turn, or
//! otherwise from a separate task.
//!
//! ```text
//!   answer ── a hit ─▶ begin: head, small content ─▶ `out`          content that is not accepted at once ─▶ task: finish
//!      └── not a hit ─▶ task: respond (the states) ─▶ begin ─▶ finish
//! ```
//! *Bounds:* the tasks of a core (the same number as its connection limit) and the bytes of the heads that
//! they keep, both charged to each [client](crate::client::limits::request_tasks). A stream that exceeds a
//! bound is refused, and its client may retry.

use std::sync::Arc;

use engine::{accounts::ClientKey, cores::clock, store::EpochGuard, sys::span::Part};
use wire::{
    http1::{
        framing::Framing,
        head::{HeadError, Progress, RequestHead},
    },
    http2::error::ErrorCode,
};

use crate::client::http2::{
    hpack_cache::HpackBlockCache,
    multiplex::{Multiplex, Number, Stream, reset, with},
    stream_body::{OngoingUpload, StreamBody},
    upload::Upload,
};
use crate::{
    client::{front, limits::request_tasks::StreamTask},
    core::Core,
    counters::Counter,
    deliver::{
        self, AnswerContext, Rest,
        answer::{Answer, Length},
        send,
        sink::{SinkError, TrySend},
    },
    error_page::Fault,
    head::response_head::Fwd,
    log::{
        request_meta,
        transaction::{Draft, Moment},
    },
    origin::OriginError,
    request::{
        Request, Sender,
        client_ip::{Peer, Visitor},
    },
    states::{
        hit,
        pipe::{self, Pipe},
        respond::{Response, respond},
        state::{Slow, State, Trust},
        synth::{origin_failed, synth},
    },
};

/// Connection, stream and peer of a request.
#[derive(Clone, Copy)]
pub(super) struct StreamContext {
    pub(super) number: Number,
    pub(super) stream: u32,
    pub(super) peer: Peer,
    /// True if the request ends with its head.
    pub(super) is_whole: bool,
    /// True for an extended CONNECT (RFC 8441), for which 2xx would mean that the connection switches to the
    /// other protocol.
    pub(super) is_connect: bool,
}

impl StreamContext {
    const fn id(&self) -> StreamId {
        StreamId { number: self.number, stream: self.stream }
    }
}

/// Stream of one of the core's connections.
#[derive(Clone, Copy)]
pub(super) struct StreamId {
    /// Number of the connection.
    pub(super) number: Number,
    pub(super) stream: u32,
}

/// Buffers of the thread for one request.
pub(super) struct Buffers<'s> {
    pub(super) stored_head: &'s mut Vec<u8>,
    pub(super) key: &'s mut Vec<u8>,
    pub(super) answer: AnswerBuffers<'s>,
}

/// Buffers of the thread for an answer.
pub(super) struct AnswerBuffers<'s> {
    /// Buffer for the head as text, and for small content.
    pub(super) text: &'s mut Vec<u8>,
    /// Encoder of the head.
    pub(super) blocks: &'s mut HpackBlockCache,
}

/// Request that is being answered.
struct AnsweredRequest {
    stream: u32,
    asked: AnswerContext,
    /// Log record of the request.
    draft: Draft,
}

/// Answers a request, already rendered as an HTTP/1 head, from memory, or spawns a task for it. Returns the
/// request if its answer must be refreshed in the background.
pub(super) fn answer(
    core: &Core,
    turn: &EpochGuard<'_>,
    multiplex: &mut Multiplex,
    asker: StreamContext,
    read: Result<Progress<(RequestHead<'_, '_>, usize)>, HeadError>,
    buffers: Buffers<'_>,
    now_ms: u64,
) -> Result<Option<Request>, SinkError> {
    let Buffers { stored_head, key, answer: answer_buffers } = buffers;
    let ((head, visitor), head_bytes) = match read {
        Ok(Progress::Complete((head, bytes))) => (asker.peer.asks(head, &core.config.trusted_proxies), bytes),
        refused => {
            let fault = refused.err().map_or(Fault::HeadTooLarge, |error| {
                core.count(Counter::of_head_error(&error));
                Fault::from(&error)
            });
            let draft = Draft::of_nothing(asker.peer.address());
            return refuse(core, multiplex, asker.id(), fault, answer_buffers, now_ms, draft).map(|()| None);
        }
    };
    let moment = Moment::now();
    let mut draft =
        request_meta::begin(core, moment, &head, head_bytes, visitor, true, multiplex.transport.session());
    let framing = match admit(core, multiplex, &asker, &head, visitor) {
        Ok(framing) => framing,
        Err(fault) => {
            return refuse(core, multiplex, asker.id(), fault, answer_buffers, now_ms, draft).map(|()| None);
        }
    };
    // A stream that ended with its head has no content. `Content-Length: 0` is passed to the origin
    // nevertheless: some origins answer 411 to a POST without it.
    let framing = if asker.is_whole && framing != Framing::Length(0) { Framing::None } else { framing };
    let asked = hit::LookupRequest {
        head: &head,
        has_body: !matches!(framing, Framing::None | Framing::Length(0)),
        trust: Trust::Fresh,
        visitor,
        came: multiplex.transport.client_auth(),
        showing: hit::CodingChoice::Accepted,
    };
    let buffers = hit::Buffers { key: &mut *key, head: stored_head };
    match hit::answer(core, turn, &asked, clock::unix_s(), buffers) {
        Ok(answer) => {
            let refresh = answer.refresh.map(|keyed| (keyed, multiplex.transport.client_auth().clone()));
            // The log record of the background refresh names this hit.
            let trace = refresh.as_ref().and_then(|_| draft.trace());
            let answered =
                AnsweredRequest { stream: asker.stream, asked: AnswerContext::on_stream(&head), draft };
            if let Some(unsent) = begin(core, multiplex, answered, answer, answer_buffers, now_ms)? {
                let client = visitor.client(&core.config.shared_networks);
                let finishing = finish(asker.number, asker.stream, unsent, None);
                spawn(core, multiplex, asker.id(), asker.is_whole, client, None, finishing);
            }
            Ok(refresh.map(|(keyed, auth)| {
                let sender = Sender { visitor, auth };
                let mut request =
                    Request::new(&head, head_bytes, key, keyed, framing, sender, &core.in_force);
                request.trace = trace;
                request
            }))
        }
        Err(Slow { keyed, state, fwd }) => {
            let sender = Sender { visitor, auth: multiplex.transport.client_auth().clone() };
            let mut request = Request::new(&head, head_bytes, key, keyed, framing, sender, &core.in_force);
            request.trace = draft.trace();
            let answering = answer_slowly(asker, Arc::new(request), state, fwd, draft);
            let client = visitor.client(&core.config.shared_networks);
            spawn(core, multiplex, asker.id(), asker.is_whole, client, Some(head_bytes), answering);
            Ok(None)
        }
    }
}

/// Returns the framing of a request that may be looked up.
fn admit(
    core: &Core,
    multiplex: &Multiplex,
    asker: &StreamContext,
    head: &RequestHead<'_, '_>,
    visitor: Visitor,
) -> Result<Framing, Fault> {
    let framing = front::framing(core, head)?;
    front::admit(core, head, visitor.address, multiplex.transport.session())?;
    if asker.is_connect && !pipe::is_asked_for(head) {
        return Err(Fault::MethodNotImplemented);
    }
    Ok(framing)
}

/// Answers a request with an error page.
pub(super) fn refuse(
    core: &Core,
    multiplex: &mut Multiplex,
    id: StreamId,
    fault: Fault,
    buffers: AnswerBuffers<'_>,
    now_ms: u64,
    draft: Draft,
) -> Result<(), SinkError> {
    let StreamId { number, stream } = id;
    let answered = AnsweredRequest { stream, asked: AnswerContext::NO_STREAM, draft };
    if let Some(unsent) = begin(core, multiplex, answered, synth(None, fault), buffers, now_ms)? {
        let client = ClientKey::Connection(number.serial());
        spawn(core, multiplex, id, true, client, None, finish(number, stream, unsent, None));
    } else {
        multiplex.wire.reset(stream, ErrorCode::NO_ERROR, &mut multiplex.out);
    }
    Ok(())
}

/// Part of an answer that has not been sent.
struct Unsent {
    /// Content that is sent first.
    prefix: Vec<u8>,
    rest: Rest,
    /// Remaining bytes of content, if known.
    left: Option<u64>,
    /// Bytes of head and content that have been sent.
    sent_bytes: u64,
    draft: Draft,
}

/// Writes an answer's head, and as much content as the windows and the socket accept. Returns the unsent
/// rest.
fn begin(
    core: &Core,
    multiplex: &mut Multiplex,
    answered: AnsweredRequest,
    answer: Answer<'_>,
    AnswerBuffers { text, blocks }: AnswerBuffers<'_>,
    now_ms: u64,
) -> Result<Option<Unsent>, SinkError> {
    let AnsweredRequest { stream, asked, mut draft } = answered;
    let told = match answer.length {
        Length::Exact(bytes) => Some(bytes),
        Length::Part { first, last, .. } => Some(last + 1 - first),
        Length::None => Some(0),
        Length::Unknown => None,
    };
    text.clear();
    let sending = deliver::begin(core, answer, asked, text, &mut draft, 0);
    draft.note_body_begun();
    let mut sent_bytes = text.len() as u64;
    let (head, content) = text.split_at(sending.head_bytes);
    let block = blocks.of_head(head);
    let has_trailers = match &sending.rest {
        Rest::Trailers(_) => true,
        Rest::Pinned { object, ending, .. } => ending.takes_trailers() && !object.tail().is_empty(),
        Rest::Parts { parts, ending } => ending.takes_trailers() && !parts.trailers().is_empty(),
        Rest::None | Rest::Blocks(_) | Rest::MultipartRanges(_) | Rest::Growing { .. } => false,
    };
    let is_whole = matches!(sending.rest, Rest::None);
    let ends = is_whole && content.is_empty();
    if !multiplex.wire.send_headers(stream, block, ends, &mut multiplex.out) {
        return Ok(None);
    }
    if ends {
        draft.end(None, sent_bytes);
        return Ok(None);
    }
    let mut content = content;
    while !content.is_empty() {
        let allowed = sendable(multiplex, stream, content.len(), now_ms)?;
        if allowed == 0 {
            break;
        }
        let is_last = is_whole && allowed == content.len();
        let header = multiplex.wire.data_header(stream, allowed, is_last);
        multiplex.out.extend_from_slice(&header);
        multiplex.out.extend_from_slice(&content[..allowed]);
        content = &content[allowed..];
    }
    sent_bytes -= content.len() as u64;
    if is_whole && content.is_empty() {
        draft.end(None, sent_bytes);
        return Ok(None);
    }
    let mut left = told.filter(|_| !has_trailers);
    let mut rest = sending.rest;
    if let Rest::Pinned { object, from, to, .. } = &mut rest {
        let mut direct = Direct { multiplex, stream, left, now_ms };
        let (_, sent_to) = send::send_without_waiting(core, &mut direct, &[], object, *from, *to)?;
        sent_bytes += sent_to - *from;
        if sent_to == *to && left.is_some() {
            draft.end(None, sent_bytes);
            return Ok(None);
        }
        left = left.map(|left| left - (sent_to - *from));
        object.release_before(sent_to);
        *from = sent_to;
    }
    Ok(Some(Unsent { prefix: content.to_vec(), rest, left, sent_bytes, draft }))
}

fn sendable(multiplex: &mut Multiplex, stream: u32, want: usize, now_ms: u64) -> Result<usize, SinkError> {
    multiplex.wire.sendable(stream, want, now_ms).map_err(|ended| {
        multiplex.ended = Some(ended);
        SinkError::Closed
    })
}

/// Sink of a stream within a turn.
struct Direct<'m> {
    multiplex: &'m mut Multiplex,
    stream: u32,
    left: Option<u64>,
    now_ms: u64,
}

impl TrySend for Direct<'_> {
    fn lends(&self) -> bool {
        false
    }

    fn try_send(&mut self, parts: &[Part<'_>]) -> Result<usize, SinkError> {
        let bytes: usize = parts.iter().map(Part::len).sum();
        let is_last = self.left == Some(bytes as u64);
        self.multiplex.send_content(self.stream, parts, is_last, self.now_ms)
    }
}

/// Spawns the task that answers a stream, or refuses the stream if its client may have no more tasks.
/// `is_whole` means that the request ends with its head; `head_bytes` is the size of a head that is kept
/// while the task runs.
fn spawn(
    core: &Core,
    multiplex: &mut Multiplex,
    StreamId { number, stream: id }: StreamId,
    is_whole: bool,
    client: ClientKey,
    head_bytes: Option<usize>,
    answering: impl Future<Output = ()> + 'static,
) {
    let Some(working) = StreamTask::new(&core.budgets.accounts, client, head_bytes) else {
        core.count(Counter::StreamsRefused);
        reset(multiplex, id, ErrorCode::REFUSED_STREAM);
        return;
    };
    let task = tokio::task::spawn_local(async move {
        tokio::select! {
            biased;
            () = answering => {}
            () = working.cut() => give_way(number, id),
        }
    });
    multiplex.streams.push(Stream {
        id,
        task: task.abort_handle(),
        sending: None,
        receiving: None,
        content: Vec::new(),
        is_whole,
        trailers: Vec::new(),
    });
}

/// Resets a stream because other clients need room and its client has the most streams. The client may retry.
fn give_way(number: Number, stream: u32) {
    with(number, |core, multiplex| {
        core.count(Counter::StreamsRefused);
        reset(multiplex, stream, ErrorCode::ENHANCE_YOUR_CALM);
        multiplex.leave(stream);
        multiplex.pass_on();
        multiplex.wake();
    });
}

/// Answers a request that is not a hit.
async fn answer_slowly(asker: StreamContext, request: Arc<Request>, state: State, fwd: Fwd, draft: Draft) {
    let StreamContext { number, stream, .. } = asker;
    let mut upload = Upload::new(number, stream, &request);
    let answer = match respond(&request, state, fwd, &mut upload).await {
        None => return leave(number, stream, false),
        // The origin has answered the CONNECT request normally without opening the WebSocket.
        Some(Response::Answer(answer)) if asker.is_connect && answer.is_successful() => {
            origin_failed(&request, &OriginError::NotSwitched)
        }
        Some(Response::Answer(answer)) => *answer,
        // Boxed: a pipe is rare, but unboxed it would enlarge every stream's task.
        Some(Response::Pipe(pipe)) => return Box::pin(piped(number, stream, *pipe, draft)).await,
    };
    let asked = AnswerContext::on_stream(&request.head());
    let begun = with(number, |core, multiplex| {
        let http2 = &mut *core.buffers.http2.borrow_mut();
        let buffers = AnswerBuffers { text: &mut http2.text, blocks: &mut http2.blocks };
        let answered = AnsweredRequest { stream, asked, draft };
        let begun = begin(core, multiplex, answered, answer, buffers, clock::monotonic_ms());
        multiplex.wake();
        begun
    });
    match begun {
        Some(Ok(Some(unsent))) => finish(number, stream, unsent, OngoingUpload::of(upload)).await,
        Some(Ok(None)) => leave(number, stream, true),
        Some(Err(_)) | None => leave(number, stream, false),
    }
}

/// Opens a WebSocket on a stream, and forwards bytes in both directions until one side ends.
async fn piped(number: Number, stream: u32, pipe: Pipe, mut draft: Draft) {
    draft.note_websocket(200, 0, 0);
    let begun = with(number, |core, multiplex| {
        let blocks = &mut core.buffers.http2.borrow_mut().blocks;
        let block = blocks.of_opened(&pipe.head);
        let begun = multiplex.wire.send_headers(stream, block, false, &mut multiplex.out);
        multiplex.wake();
        begun
    });
    let mut client = StreamBody { number, stream, left: None, sent_bytes: 0, through: None };
    let end = if begun == Some(true) { pipe.run(Vec::new(), &mut client).await } else { pipe::End::Gone };
    draft.end(end.word(), client.sent_bytes);
    leave(number, stream, end == pipe::End::Closed);
}

/// Sends the rest of an answer, while the rest of the request is forwarded to the origin.
async fn finish(number: Number, stream: u32, unsent: Unsent, through: Option<Box<OngoingUpload>>) {
    let Unsent { prefix, rest, left, sent_bytes, draft } = unsent;
    let mut sending = StreamBody { number, stream, left, sent_bytes, through };
    let mut drafts = if draft.is_some() { vec![draft] } else { Vec::new() };
    let is_sent = deliver::finish(&mut sending, prefix, rest, &mut drafts).await;
    leave(number, stream, is_sent);
}

/// Ends a stream: after its content, or with an error if the answer was sent only in part (`is_sent` is
/// false).
fn leave(number: Number, stream: u32, is_sent: bool) {
    with(number, |_, multiplex| {
        if !is_sent {
            reset(multiplex, stream, ErrorCode::INTERNAL_ERROR);
        } else if multiplex.wire.is_open(stream) {
            let header = multiplex.wire.data_header(stream, 0, true);
            multiplex.out.extend_from_slice(&header);
        }
        // RFC 9113 §8.1: the client is told to stop sending content that is no longer read.
        if multiplex.stream(stream).is_some_and(|stream| !stream.is_whole) {
            multiplex.wire.reset(stream, ErrorCode::NO_ERROR, &mut multiplex.out);
        }
        multiplex.leave(stream);
        multiplex.pass_on();
        multiplex.wake();
    });
}
