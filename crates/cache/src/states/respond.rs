//! Requests that are not hits: passes a request from state to state until there is an answer.
//!
//! ```text
//!            ┌──────────────────────── hit::answer ───────────────────────┐
//!            ▼               ▼                 ▼            ▼             ▼
//!          Parts ──lost──▶ Miss ──alone──▶  Pass          Purge         Synth ◀── a limit, a range, a broken rule
//!            │ refused ──────┼──────────────▶ │             │             │
//!            ▼               ▼                ▼             ▼             ▼
//!          Answer          Answer           Answer        Answer        Answer        ──▶ http1::deliver
//! ```
//! Besides these, `Blocks` and `MultipartRanges` answer from stored slices, `Decode` goes back to
//! `hit::answer` once the object has been decoded, `ToHttps` redirects, and `Pipe` is a WebSocket, which ends
//! in bytes both ways instead of an answer.
//!
//! The states know neither each other nor the client: each is a function from a request to a [`Step`].

use std::sync::Arc;

use engine::cores::clock;
use wire::http1::known::KnownHeader;

use crate::{
    body::{
        multipart_ranges::{MultipartRanges, Source},
        parts::{self, Unsent},
        slice,
        slices::{self, OpenSlices, SliceError},
    },
    core::{with_core, with_core_of},
    counters::Counter,
    deliver::{
        answer::{Answer, Body},
        downstream::Downstream,
    },
    error_page::Fault,
    fetch::{self, in_flight::FetchTerms},
    head::response_head::{CacheStatus, Fwd, Outcome},
    request::Request,
    states::{
        miss::{RANGE_ALONE, decode, miss, show_stale},
        pass,
        pipe::Pipe,
        purge::purge,
        state::{FoundInBlocks, PartsOnFile, State, Step},
        synth::{self, origin_failed, synth, to_https},
    },
};

/// Detail in Cache-Status for an object in the file if no more of its parts could be read at that time.
const PARTS_BUSY: &str = "parts-busy";

/// Maximum number of lookups for a request if the answers to the fetches that it joins do not fit it; after
/// that it is passed.
const LOOKS_MAX: usize = 3;

/// Final result of a request.
pub(crate) enum Response {
    Answer(Box<Answer<'static>>),
    /// A WebSocket.
    Pipe(Box<Pipe>),
}

/// Answers a request that was not a hit; `None` if its client is gone.
pub(crate) async fn respond(
    request: &Arc<Request>,
    state: State,
    fwd: Fwd,
    client: &mut impl Downstream,
) -> Option<Response> {
    let mut request = Arc::clone(request);
    let mut state = allowed(&request, state);
    let mut fwd = fwd;
    let mut looks = 0;
    let mut is_miss = false;
    loop {
        let step = match state {
            State::Miss { only_if_cached: true, .. } => {
                is_miss = true;
                Step::Then(State::Synth(Fault::OnlyIfCached))
            }
            State::Miss { .. } if looks == LOOKS_MAX => Step::Then(State::Pass(None)),
            State::Miss { terms, .. } => {
                looks += 1;
                is_miss = true;
                miss(&request, terms, fwd, client).await
            }
            State::Parts(found) => open_parts(*found, &request, &mut fwd).await,
            State::Blocks(found)
                if !found.only_if_cached
                    && let Some(plan) = &found.several
                    && slices::are_wide(&found.blocks, plan.ranges(), &request) =>
            {
                with_core(|core| core.count(Counter::WideRanges));
                Step::Then(State::Pass(Some(RANGE_ALONE)))
            }
            State::Blocks(found) => open_blocks(*found, &request, &mut fwd, &mut is_miss).await,
            State::Decode(undecoded) => {
                looks += 1;
                decode(&request, *undecoded, fwd, looks >= LOOKS_MAX).await
            }
            State::Pass(detail) => pass::pass(&request, fwd, detail, client).await?,
            State::Pipe => pass::switch(&request, client).await?,
            State::HeldBack(fault) => match show_stale(&request, fwd) {
                Step::Then(next) | Step::Under(_, next) if costs_work(&next) => {
                    Step::Then(State::Synth(fault))
                }
                step => step,
            },
            State::Purge => Step::Answer(Box::new(Box::pin(purge(&request)).await)),
            State::ToHttps => Step::Answer(Box::new(to_https(&request))),
            State::Challenge(answer) => Step::Answer(Box::new(synth::text("200 OK", &answer))),
            State::Synth(fault) => Step::Answer(Box::new(synth(Some(&request), fault))),
            State::OriginFailed(error) => Step::Answer(Box::new(origin_failed(&request, &error))),
        };
        match step {
            Step::Answer(answer) => {
                // If the new lookup found the object, that was already counted as a hit.
                if is_miss && !answer.is_hit() {
                    with_core(|core| {
                        core.count(Counter::Misses);
                        core.observers.last_clients.note(
                            request.hash,
                            request.visitor.address,
                            clock::unix_s(),
                        );
                    });
                }
                if answer.refresh.is_some() {
                    with_core(|core| fetch::refresh(core, Arc::clone(&request)));
                }
                let mut answer = answer;
                say_what_is_not_done(&request, &mut answer);
                answer.hsts_s = with_core_of(&request, |core| core.hsts_s(request.primary(), request.site));
                return Some(Response::Answer(answer));
            }
            Step::Gone => return None,
            Step::Pipe(pipe) => return Some(Response::Pipe(pipe)),
            Step::Then(next) => state = next,
            Step::Under(again, next) => (request, state) = (again, next),
        }
    }
}

/// Opens the parts of an object in the file.
async fn open_parts(found: PartsOnFile, request: &Request, fwd: &mut Fwd) -> Step {
    let PartsOnFile { answer, parts, only_if_cached } = found;
    match Box::pin(parts::open(parts, request.client_key(), request.hash, &request.key)).await {
        Ok(parts) => {
            let body = parts.map_or(Body::None, |parts| Body::Parts(Box::new(parts)));
            Step::Answer(Box::new(Answer { body, ..answer }))
        }
        Err(Unsent::Refused) if !only_if_cached => {
            *fwd = Fwd::Miss;
            Step::Then(State::Pass(Some(PARTS_BUSY)))
        }
        Err(_) => {
            *fwd = Fwd::Partial;
            Step::Then(State::Miss { terms: FetchTerms::BYPASS, only_if_cached })
        }
    }
}

/// Opens the slices of a sliced object; slices that are not stored are fetched.
async fn open_blocks(
    found: FoundInBlocks,
    request: &Arc<Request>,
    fwd: &mut Fwd,
    is_miss: &mut bool,
) -> Step {
    let FoundInBlocks { answer, blocks, several, only_if_cached } = found;
    match Box::pin(slices::open(blocks, request, only_if_cached)).await {
        Ok(OpenSlices { blocks, was_stored }) => {
            let body = match several {
                Some(plan) => {
                    Body::MultipartRanges(Box::new(MultipartRanges::new(plan, Source::Blocks(blocks))))
                }
                None => Body::Blocks(Box::new(blocks)),
            };
            let mut answer = Answer { body, ..answer };
            if !was_stored {
                // The head was stored, but not the wanted part of the content (RFC 9211 §2.2).
                let fwd = if *is_miss { *fwd } else { Fwd::Partial };
                *is_miss = true;
                answer.cache_status = Some(CacheStatus { stored: true, ..CacheStatus::fwd(fwd) });
            }
            Step::Answer(Box::new(answer))
        }
        Err(SliceError::OtherVersion) => {
            *fwd = Fwd::Stale;
            Step::Then(State::Miss { terms: FetchTerms::default(), only_if_cached })
        }
        Err(SliceError::Refused) => Step::Then(State::Pass(Some(slice::NO_RANGES))),
        Err(SliceError::OnlyIfCached) => Step::Then(State::Synth(Fault::OnlyIfCached)),
        Err(SliceError::Failed(error)) => Step::Then(State::OriginFailed(error)),
    }
}

/// Returns whether a state sends a request to an origin, which costs budget.
const fn costs_work(state: &State) -> bool {
    matches!(state, State::Miss { only_if_cached: false, .. } | State::Pass(_) | State::Pipe)
}

/// Returns the next state of a request: the given one, unless the budget of the client's class does not allow
/// its cost to the origin.
fn allowed(request: &Request, state: State) -> State {
    if !costs_work(&state) {
        return state;
    }
    match (with_core_of(request, |core| core.admit_work(request)), &state) {
        (Ok(()), _) => state,
        (Err(fault), State::Miss { .. }) => State::HeldBack(fault),
        (Err(fault), _) => State::Synth(fault),
    }
}

/// States in Cache-Status that the request asked to upgrade to another protocol, and that this was not
/// forwarded.
fn say_what_is_not_done(request: &Request, answer: &mut Answer<'static>) {
    if let Some(CacheStatus { outcome: Outcome::Fwd(_), detail, .. }) = &mut answer.cache_status
        && request.head().headers.has(KnownHeader::Upgrade)
    {
        *detail = Some("upgrade-not-forwarded");
    }
}
