//! *pass*: sends a request with its body to the origin, without the store, and the answer to its client only.
//! Requests for a WebSocket are sent here, too.

use std::{sync::Arc, time::Duration};

use engine::cores::clock;
use wire::http1::{
    framing::{Framing, RequestKind},
    known::KnownHeader,
};

use crate::{
    config::Limits,
    core::{Core, SiteUpstreams, with_core, with_core_of},
    counters::Counter,
    deliver::downstream::{BodyError, Downstream, READ_BYTES},
    error_page::Fault,
    fetch::{
        arriving::{self, Content},
        judge,
    },
    head::{
        response_head::{CacheStatus, Fwd},
        sent_fields::{Manner, SentFields},
    },
    log::transaction::Trace,
    origin::{
        self, AnswerHead, Exchange, OriginError, OriginRequest, Part, RequestSender, SendError, SendResult,
    },
    policy::conditional::is_part_marked,
    request::{OriginNeed, Request},
    states::{
        full_duplex::{self, Onward},
        head_validation, hit,
        miss::of_response,
        put,
        state::{State, Step},
        synth::last_hop,
        unsafe_methods::invalidate_after,
        websocket_handshake,
    },
};

/// Time for which a client may send nothing of its request's body before the exchange gives its slot to other
/// requests.
const UPLOAD_SILENCE_MAX: Duration = Duration::from_secs(1);

/// *pass*: sends exactly this request to the origin, and the answer to this client only. `None` if the client
/// is gone.
pub(crate) async fn pass(
    request: &Arc<Request>,
    fwd: Fwd,
    detail: Option<&'static str>,
    client: &mut impl Downstream,
) -> Option<Step> {
    if request.max_forwards() == Some(0) {
        return Some(Step::Answer(Box::new(last_hop())));
    }
    with_core(|core| core.count(Counter::Passes));
    let (config, head) = with_core_of(request, |core| {
        let manner = Manner { has_range_tag: has_range_tag(core, request), ..core.manner(request.site) };
        (Arc::clone(&core.config), request.for_origin(OriginNeed::Passing, manner))
    });
    let limits = &config.limits;
    let body_bytes_max = with_core_of(request, |core| core.body_bytes_max(request.site));
    if matches!(request.framing, Framing::Length(bytes) if bytes > body_bytes_max) {
        with_core(|core| core.count(Counter::BodiesTooLarge));
        return Some(Step::Then(State::Synth(Fault::BodyTooLarge)));
    }
    let method = request.head().method;
    let asked = OriginRequest {
        head: &head,
        wanted: OriginNeed::Passing,
        client: request.client(),
        answered: RequestKind::of_method(method),
        is_idempotent: is_idempotent(method),
        why: "pass",
        trace: request.trace.as_ref(),
        server: None,
    };
    let connected = || with_core(|core| core.count(Counter::OriginConnects));
    let bans = with_core(|core| core.purges.invalidations.youngest());
    let mut upload = Upload { request, client, limits, has_begun: false };
    let origin = SiteUpstreams::of(request);
    let arrived = match origin::ask(&origin, limits, &asked, &mut upload, connected).await {
        Ok(mut arrived) => {
            if let Some(half) = arrived.take_half(limits.pipe_idle_time_max) {
                client.goes_on(Box::new(Onward::new(half, request)));
            }
            arrived
        }
        Err(SendError::Origin(error)) => return Some(failed(request, error)),
        Err(SendError::Ours(BodyError::Gone)) => return None,
        Err(SendError::Ours(BodyError::Refused(fault))) => return Some(Step::Then(State::Synth(fault))),
    };
    let headers = request.head().headers;
    let is_conditional = headers.has(KnownHeader::IfNoneMatch) || headers.has(KnownHeader::IfModifiedSince);
    if arrived.head.head().status == 304 && !is_conditional {
        let error = OriginError::UnaskedNotModified;
        with_core(|core| core.count(Counter::of_origin_error(&error)));
        return Some(Step::Then(State::OriginFailed(error)));
    }
    Some(answer_passed(request, arrived, CacheStatus { detail, ..CacheStatus::fwd(fwd) }, bans).await)
}

/// Returns whether the tag in `If-Range` is the stored object's own, and so the origin's, although it ends in
/// one of our suffixes.
fn has_range_tag(core: &Core, request: &Request) -> bool {
    let head = request.head();
    let Some(said) = head.known(KnownHeader::IfRange).filter(|_| is_part_marked(&head.headers)) else {
        return false;
    };
    let (mut key, mut stored) = (request.primary().to_vec(), Vec::new());
    let mut hash = core.storage.store.hash(&key);
    let fields = SentFields { head: &head, visitor: request.visitor, manner: core.manner(request.site) };
    let turn = core.storage.reader.turn();
    let Ok((object, meta)) = hit::chosen(&turn, &fields, &mut hash, &mut key) else { return false };
    object.head().copy_to(&mut stored);
    meta.etag_of(&stored) == Some(said)
}

/// *pipe*: passes a request for a WebSocket to the origin.
pub(crate) async fn switch(request: &Arc<Request>, client: &mut impl Downstream) -> Option<Step> {
    with_core(|core| core.count(Counter::Passes));
    let nonce = match websocket_handshake::nonce_of(request) {
        Ok(nonce) => nonce,
        Err(error) => return Some(Step::Then(State::OriginFailed(OriginError::NoSocket(error.to_string())))),
    };
    let (config, head) = with_core_of(request, |core| {
        (Arc::clone(&core.config), request.for_switch(nonce.as_deref(), core.manner(request.site)))
    });
    let asked = OriginRequest {
        head: &head,
        wanted: OriginNeed::Switching,
        client: request.client(),
        answered: RequestKind::of_method("GET"),
        is_idempotent: false,
        why: "pipe",
        trace: request.trace.as_ref(),
        server: None,
    };
    let connected = || with_core(|core| core.count(Counter::OriginConnects));
    let bans = with_core(|core| core.purges.invalidations.youngest());
    let mut upload = Upload { request, client, limits: &config.limits, has_begun: false };
    let origin = SiteUpstreams::of(request);
    let switching = origin::switch(&origin, &config.limits, &asked, &mut upload, connected);
    match Box::pin(switching).await {
        Ok(origin::ExchangeResult::Final(arrived)) => {
            Some(answer_passed(request, arrived, CacheStatus::fwd(Fwd::Bypass), bans).await)
        }
        Ok(origin::ExchangeResult::Switched(switched)) => {
            Some(websocket_handshake::open(*switched, nonce.as_deref()))
        }
        Err(SendError::Origin(error)) => Some(failed(request, error)),
        Err(SendError::Ours(_)) => None,
    }
}

/// Handles a failed pass. While the origin is unreachable, stored answers are served to other requests.
fn failed(request: &Request, error: OriginError) -> Step {
    if error.is_unreachable() {
        with_core_of(request, |core| core.sites.group(request.site).failed(clock::monotonic_ms()));
    }
    Step::Then(State::OriginFailed(error))
}

/// Handles the answer to a passed request.
async fn answer_passed(
    request: &Arc<Request>,
    arrived: Box<AnswerHead>,
    status: CacheStatus,
    bans: u64,
) -> Step {
    with_core_of(request, |core| core.sites.group(request.site).answered());
    invalidate_after(request, &arrived.head.head()).await;
    head_validation::check_against_head(request, &arrived.head.head());
    let response = Arc::new(with_core_of(request, |core| judge::passed_response(core, request, &arrived)));
    let as_get = with_core_of(request, |core| judge::as_get(core, request, &arrived, bans));
    let content = arriving::pass(arrived, response.length);
    if let (Some((response, expires_s)), Content::Whole(body)) = (as_get, &content) {
        with_core_of(request, |core| put::keep(core, request, &response, expires_s, body));
    }
    match of_response(request, response, content, status) {
        Ok(answer) => Step::Answer(Box::new(answer)),
        Err(fault) => Step::Then(State::Synth(fault)),
    }
}

/// Returns whether a method is idempotent (RFC 9110 §9.2.2); unknown methods are not.
fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE")
}

/// Upload of a request's body to the origin, one buffer at a time: the slower side holds up the other.
struct Upload<'a, D> {
    request: &'a Request,
    client: &'a mut D,
    limits: &'a Limits,
    /// Some of the body was taken from the client.
    has_begun: bool,
}

impl<D: Downstream> RequestSender for Upload<'_, D> {
    type Error = BodyError;

    fn has_body(&self) -> bool {
        self.request.has_body()
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    async fn send(&mut self, exchange: &mut Exchange) -> Result<SendResult, SendError<BodyError>> {
        let Self { request, client, limits, has_begun } = self;
        let is_chunked = request.framing == Framing::Chunked;
        let mut piece = Vec::with_capacity(READ_BYTES);
        loop {
            let more = {
                let read = client.read(&mut piece);
                let silence = tokio::time::sleep(UPLOAD_SILENCE_MAX);
                tokio::pin!(read, silence);
                loop {
                    tokio::select! {
                        read = &mut read => break read.map_err(SendError::Ours)?,
                        // The origin may answer without waiting for the rest.
                        early = exchange.answered_early(limits) => {
                            early.map_err(SendError::Origin)?;
                            let at_most = limits.origin_first_byte_time_max;
                            exchange.resume_answered(at_most).await.map_err(SendError::Origin)?;
                            return Ok(SendResult::Answered);
                        }
                        () = &mut silence, if !silence.is_elapsed() => exchange.pause(),
                    }
                }
            };
            let at_most = limits.origin_first_byte_time_max;
            exchange.resume(at_most).await.map_err(SendError::Origin)?;
            *has_begun = true;
            Trace::add_content(request.trace.as_ref(), piece.len());
            let trailers =
                if more { Vec::new() } else { full_duplex::last(request, client.trailers(), is_chunked) };
            let part = if more { Part::Bytes(&piece) } else { Part::End(&trailers) };
            let handed = exchange.send_body(part, is_chunked, limits).await.map_err(SendError::Origin)?;
            piece.clear();
            // After the last part the upload is over, whether or not the origin has answered by then.
            if handed == SendResult::Answered || !more {
                return Ok(handed);
            }
        }
    }

    async fn gone(&mut self) -> BodyError {
        self.client.gone().await;
        with_core(|core| core.count(Counter::ClientsGone));
        BodyError::Gone
    }

    async fn interim(&mut self, head: Vec<u8>) {
        self.client.interim(&head).await;
    }
}
