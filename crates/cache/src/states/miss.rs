//! *miss*: one fetch for all requests for the same object, and a new lookup if the answer is another variant.

use std::sync::Arc;

use engine::cores::clock;
use wire::http1::{fields::EntityTag, head::Headers};

use crate::{
    body::slice,
    coding::Coding,
    core::{with_core, with_core_of},
    counters::Counter,
    deliver::{
        answer::{Answer, Body, Head, Length, Lines},
        downstream::Downstream,
    },
    encoding::encoded_variants,
    error_page::Fault,
    fetch::{
        self,
        arriving::Content,
        in_flight::{FetchOutcome, FetchTerms},
        response::{Misfit, Response},
    },
    head::response_head::{CacheStatus, CodedHead, Flags, Fwd, is_bodiless},
    policy::{self, Verdict, accept::AcceptedCodings},
    request::Request,
    states::{
        hit,
        state::{DecodeFirst, State, Step, Trust},
    },
};

/// *miss*: answers with the result of a fetch, this request's own or another's, or looks up again.
pub(crate) async fn miss(
    request: &Arc<Request>,
    terms: FetchTerms,
    fwd: Fwd,
    client: &mut impl Downstream,
) -> Step {
    let Some(start) = fetch::ask(request, terms, client).await else {
        return Step::Gone;
    };
    let FetchTerms { bypass_stored, .. } = terms;
    match start {
        FetchOutcome::Body { response, cursor, collapsed } => {
            // A request that joined a fetch may have arrived after a purge, although the fetch began before
            // that purge.
            let misfit = || {
                with_core_of(request, |core| {
                    let (facts, cookies) = (core.facts_of(request), core.config.cookies);
                    let manner = core.manner(request.site);
                    let fits = response.fits(request, &facts, cookies, manner, clock::unix_s());
                    fits.err().or_else(|| (!core.is_still_good(&response, request)).then_some(Misfit::Other))
                })
            };
            let misfit = if collapsed { misfit() } else { None };
            if misfit == Some(Misfit::Stale) {
                // The answer of the next fetch would not fit either, so the request does not wait for one.
                let look = Look { no_collapse: true, ..Look::of(Trust::Fresh, None) };
                return look_again(request, bypass_stored, fwd, look);
            }
            if misfit.is_none() && is_far_behind(request, &response) {
                // A pass makes the origin send only the range. The answer that has begun is dropped, and its
                // connection closed.
                with_core(|core| core.count(Counter::WideRanges));
                return Step::Then(State::Pass(Some(RANGE_ALONE)));
            }
            if misfit.is_none() {
                let status = CacheStatus {
                    stored: response.is_stored(),
                    detail: response.not_stored().or_else(|| response.late_reason()),
                    collapsed,
                    ..CacheStatus::fwd(fwd)
                };
                if is_to_be_decoded(request, &response) && cursor.is_stored_whole(bytes_max()).await {
                    return look_again(request, bypass_stored, fwd, Look::of(Trust::Validated, Some(status)));
                }
                return match of_response(request, response, Content::Growing(cursor), status) {
                    Ok(answer) => Step::Answer(Box::new(answer)),
                    Err(fault) => Step::Then(State::Synth(fault)),
                };
            }
        }
        FetchOutcome::Again => {}
        FetchOutcome::Validated { set_cookie } => {
            let look = Look { set_cookie, ..Look::of(Trust::Validated, None) };
            return look_again(request, bypass_stored, fwd, look);
        }
        FetchOutcome::StandIn => {
            with_core(|core| core.fetches.refreshed_lately.note(request.hash, clock::monotonic_ms()));
            return look_again(request, bypass_stored, fwd, Look::of(Trust::StandIn, None));
        }
        // `OtherVersion` and `NoBlock` occur only for slices.
        FetchOutcome::Alone | FetchOutcome::OtherVersion | FetchOutcome::NoBlock => {
            return Step::Then(State::Pass(None));
        }
        FetchOutcome::Failed(error) => return Step::Then(State::OriginFailed(error)),
    }
    // The object may be stored by now, perhaps under the key of a variant.
    look_again(request, bypass_stored, fwd, Look::of(Trust::Fresh, None))
}

/// Detail in Cache-Status for a range that was fetched by itself, because the whole is not stored.
pub(crate) const RANGE_ALONE: &str = "range-alone";

/// Maximum number of bytes of an answer that are read and dropped to reach a range in it.
const SKIPPED_BYTES_MAX: u64 = slice::BLOCK_BYTES;

/// Returns whether a request asks for a range that begins so far into an answer that too many bytes before it
/// would be read and dropped. Returns false for an answer that is stored.
fn is_far_behind(request: &Request, response: &Response) -> bool {
    if response.is_stored() || request.is_of_peer || request.block.is_some() {
        return false;
    }
    let validators = response.meta.validators(&response.head);
    let (head, status) = (request.head(), response.meta.status);
    let verdict = policy::evaluate(&head.headers, head.method == "GET", status, &validators, response.length);
    matches!(verdict, Verdict::Partial { first, .. } if first > SKIPPED_BYTES_MAX)
}

/// Serves a stale object, if that is allowed when the origin fails, because the origin must not be asked now.
pub(crate) fn show_stale(request: &Arc<Request>, fwd: Fwd) -> Step {
    look_again(request, false, fwd, Look::of(Trust::StandIn, None))
}

/// Returns whether an answer that is being stored has a coding that the client does not accept, and that may
/// be removed. Returns false for an answer that this client may not share because of its cookies: a new
/// lookup would not find it.
fn is_to_be_decoded(request: &Request, response: &Response) -> bool {
    let flags = response.meta.flags;
    let is_shared = || {
        with_core_of(request, |core| response.meta.may_answer(&core.facts_of(request), core.config.cookies))
    };
    !request.is_of_peer
        && response.is_stored()
        && flags.has(Flags::MAY_BE_DECODED)
        && encoded_variants::wants_decoded(&request.head().headers, response.meta.coding)
        && is_shared()
}

/// Returns the length of the longest content that is decoded.
fn bytes_max() -> u64 {
    with_core(|core| core.config.compress.bytes_max)
}

/// *decode*: waits until the object has been decoded, and looks up again. `is_last`: the request has already
/// waited once.
pub(crate) async fn decode(request: &Arc<Request>, undecoded: DecodeFirst, fwd: Fwd, is_last: bool) -> Step {
    let DecodeFirst { trust, said, set_cookie, refresh } = undecoded;
    let as_sent = !encoded_variants::decode(request).await || is_last;
    let step = look_again(request, false, fwd, Look { as_sent, set_cookie, ..Look::of(trust, said) });
    match step {
        Step::Answer(mut answer) => {
            answer.refresh = answer.refresh.or(refresh);
            Step::Answer(answer)
        }
        Step::Under(request, State::Decode(mut undecoded)) => {
            undecoded.refresh = undecoded.refresh.or(refresh);
            Step::Under(request, State::Decode(undecoded))
        }
        step => step,
    }
}

/// Parameters of a second lookup.
struct Look {
    trust: Trust,
    /// Value for Cache-Status, if known already.
    said: Option<CacheStatus>,
    /// An object that is still not decoded is sent as its origin sent it.
    as_sent: bool,
    /// `Set-Cookie` lines that the answer gets in addition to its head.
    set_cookie: Vec<u8>,
    /// The request joins no other request's fetch if it misses again.
    no_collapse: bool,
}

impl Look {
    const fn of(trust: Trust, said: Option<CacheStatus>) -> Self {
        Self { trust, said, as_sent: false, set_cookie: Vec::new(), no_collapse: false }
    }
}

/// Looks a request up again, as the hit path does. After the origin was asked this is not reported as a hit,
/// even if the store has the bytes.
fn look_again(request: &Arc<Request>, bypass_stored: bool, fwd: Fwd, look: Look) -> Step {
    let Look { trust, said, as_sent, set_cookie, no_collapse: is_alone } = look;
    with_core_of(request, |core| {
        let (mut key, mut stored_head) = (Vec::new(), Vec::new());
        let turn = core.storage.reader.turn();
        let buffers = hit::Buffers { key: &mut key, head: &mut stored_head };
        let (head, visitor, came) = (&request.head(), request.visitor, &request.came);
        let showing = match (request.is_of_peer, as_sent) {
            (true, _) => hit::CodingChoice::AsSent,
            (false, true) => hit::CodingChoice::Waited,
            (false, false) => hit::CodingChoice::Accepted,
        };
        let asked = hit::LookupRequest { head, has_body: false, trust, visitor, came, showing };
        let slow = match hit::answer(core, &turn, &asked, clock::unix_s(), buffers) {
            Ok(answer) => {
                let mut answer = answer.into_owned();
                let of_hit = answer.cache_status;
                answer.cache_status = said.or(of_hit.map(|status| after_asking(status, fwd, trust)));
                answer.append_lines(&set_cookie);
                return Step::Answer(Box::new(answer));
            }
            Err(slow) => slow,
        };
        let state = match slow.state {
            State::Miss { mut terms, only_if_cached } => {
                terms.bypass_stored |= bypass_stored;
                terms.no_collapse |= is_alone;
                State::Miss { terms, only_if_cached }
            }
            State::Decode(undecoded) => {
                State::Decode(Box::new(DecodeFirst { said, set_cookie, ..*undecoded }))
            }
            State::Parts(mut found) => {
                found.answer.append_lines(&set_cookie);
                State::Parts(found)
            }
            State::Blocks(mut found) => {
                found.answer.append_lines(&set_cookie);
                State::Blocks(found)
            }
            state => state,
        };
        Step::Under(Arc::new(request.under(&key, slow.keyed.hash)), state)
    })
}

/// Returns the Cache-Status of a stored answer about which the origin was asked (RFC 9211 §2.2, §2.3).
fn after_asking(status: CacheStatus, fwd: Fwd, trust: Trust) -> CacheStatus {
    match trust {
        Trust::Fresh => status,
        Trust::Validated => CacheStatus { fwd_status: Some(304), ..CacheStatus::fwd(fwd) },
        Trust::StandIn => CacheStatus { ttl_s: status.ttl_s, detail: status.detail, ..CacheStatus::fwd(fwd) },
    }
}

/// Builds the answer to one request from an origin's response. Conditions and ranges that were not forwarded
/// are applied here; for a passed request the origin has applied them.
pub(crate) fn of_response(
    request: &Request,
    response: Arc<Response>,
    content: Content,
    status: CacheStatus,
) -> Result<Answer<'static>, Fault> {
    let head = request.head();
    let had = if request.is_of_peer { None } else { coding_had(&response, &head.headers) };
    let verdict = if had.is_some() {
        Verdict::NotModified
    } else if response.is_fetched() {
        let validators = response.meta.validators(&response.head);
        policy::evaluate(
            &head.headers,
            head.method == "GET",
            response.meta.status,
            &validators,
            response.length,
        )
    } else {
        Verdict::Whole
    };
    let has_content = head.method != "HEAD" && !is_bodiless(response.meta.status);
    let (lines, length, range) = match verdict {
        // An unsatisfiable range gets the same error as on a hit.
        Verdict::Unsatisfiable { complete } => return Err(Fault::RangeNotSatisfiable { complete }),
        Verdict::NotModified => (Lines::NotModified, Length::None, None),
        Verdict::Partial { first, last, complete } => {
            (Lines::Partial, Length::Part { first, last, complete }, Some((first, Some(last + 1))))
        }
        Verdict::Whole if is_bodiless(response.meta.status) => (Lines::All, Length::None, None),
        // Several ranges of a response that is still arriving are answered with the whole.
        Verdict::Whole | Verdict::Several { .. } => match response.length {
            Some(bytes) => (Lines::All, Length::Exact(bytes), Some((0, Some(bytes)))),
            None => (Lines::All, Length::Unknown, Some((0, None))),
        },
    };
    let body = match (range.filter(|_| has_content), content) {
        (Some((from, to)), Content::Growing(cursor)) => Body::Growing { cursor, from, to },
        (Some(_), Content::Whole(bytes)) => Body::Owned { bytes, trailers: Vec::new() },
        (None, _) => Body::None,
    };
    let age_s = response.age_s(clock::unix_s());
    let (received, cache_status) = (response.meta.received(), Some(status));
    let varies = response.meta.varies_unsaid();
    let head = match had {
        Some(coding) => {
            let mut head = Vec::with_capacity(response.head.len() + 64);
            CodedHead::new(coding, &response.meta).append(&response.head, &mut head);
            Head::Owned(head)
        }
        None => Head::Fetched(response),
    };
    Ok(Answer {
        head,
        lines,
        length,
        age_s,
        cache_status,
        received,
        varies,
        hsts_s: None,
        body,
        refresh: None,
        reason: None,
    })
}

/// Returns the coding of a response that the client already has, if the response may be sent encoded or
/// decoded.
fn coding_had(response: &Response, headers: &Headers<'_, '_>) -> Option<Coding> {
    if !response.meta.is_negotiated() {
        return None;
    }
    let etag = response.meta.etag_of(&response.head).and_then(EntityTag::parse)?;
    let accepted = AcceptedCodings::of(headers);
    if response.meta.flags.has(Flags::MAY_BE_DECODED) {
        let has = accepted.accepts(Coding::Decoded) && policy::has_decoded(headers, &etag);
        return has.then_some(Coding::Decoded);
    }
    policy::coding_had(headers, &etag, &accepted)
}
