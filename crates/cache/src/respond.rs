//! Requests that are not hits: from state to state until there is an answer.
//!
//! ```text
//!            ┌──────────────────────── hit::answer ───────────────────────┐
//!            ▼               ▼                 ▼            ▼             ▼
//!          Parts ──lost──▶ Miss ──alone──▶  Pass          Purge         Synth ◀── a limit, a range, a broken rule
//!            │ refused ──────┼──────────────▶ │             │             │
//!            ▼               ▼                ▼             ▼             ▼
//!          Answer          Answer           Answer        Answer        Answer        ──▶ http1::deliver
//! ```
//! The states know neither each other nor the client: each is a function from a request to a [`Step`].

use std::sync::Arc;

use crate::{
    answer::{Answer, Body},
    core::with_core,
    counters::Counter,
    error_page::Fault,
    miss::miss,
    parts::{self, Unsent},
    pass::pass,
    purge::purge,
    request::Request,
    request_body::RequestBody,
    response_head::Fwd,
    state::{Found, State, Step},
    synth::{origin_failed, synth},
};

/// How often a request looks again after another fetch turned out not to fit it; then it is passed.
const LOOKS_MAX: usize = 3;

/// Answers a request that was not a hit; `None`: its client is gone.
pub(crate) async fn respond(
    request: &Arc<Request>,
    state: State,
    fwd: Fwd,
    body: &mut impl RequestBody,
) -> Option<Answer<'static>> {
    let mut request = Arc::clone(request);
    let mut state = state;
    let mut looks = 0;
    let mut is_miss = false;
    loop {
        let step = match state {
            State::Miss { only_if_cached: true, .. } => {
                is_miss = true;
                Step::Then(State::Synth(Fault::OnlyIfCached))
            }
            State::Miss { .. } if looks == LOOKS_MAX => Step::Then(State::Pass(None)),
            State::Miss { anew, .. } => {
                looks += 1;
                is_miss = true;
                miss(&request, anew, fwd).await
            }
            State::Parts(found) => {
                let Found { answer, parts, only_if_cached } = *found;
                match parts::open(parts, request.hash, &request.key).await {
                    Ok(parts) => {
                        Step::Answer(Box::new(Answer { body: Body::Parts(Box::new(parts)), ..answer }))
                    }
                    Err(Unsent::Refused) if !only_if_cached => Step::Then(State::Pass(None)),
                    Err(_) => Step::Then(State::Miss { anew: true, only_if_cached }),
                }
            }
            State::Pass(detail) => pass(&request, fwd, detail, body).await?,
            State::Purge => Step::Answer(Box::new(purge(&request).await)),
            State::Synth(fault) => Step::Answer(Box::new(synth(Some(&request), fault))),
            State::OriginFailed(error) => Step::Answer(Box::new(origin_failed(&request, &error))),
        };
        match step {
            Step::Answer(answer) => {
                // What the store had after all was counted as the hit that it is.
                if is_miss && !answer.is_hit() {
                    with_core(|core| core.count(Counter::Misses));
                }
                return Some(*answer);
            }
            Step::Then(next) => state = next,
            Step::Under(again, next) => (request, state) = (again, next),
        }
    }
}
