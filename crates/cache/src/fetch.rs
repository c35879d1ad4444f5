//! Misses: one fetch for all who want the same object, by the core that owns its key.
//!
//! ```text
//!  core of the client                     core that owns the key
//!  ──────────────────                     ──────────────────────────────────────────────
//!  ask(request) ──── Message::Fetch ────▶ begin: fetch under way?  ─ yes ─▶ join it
//!       │                                    │ no
//!       │                                    ▼
//!       │                                 fetch: origin ─ head ─▶ may it be stored?
//!       │◀──── Start::Body (leader) ─────────┤ yes: stored as it arrives, all follow
//!       │◀──── Start::Alone (others) ────────┘ no: the leader alone reads it; the others ask for themselves
//!       ▼
//!  the answer follows the chunks as they are published
//! ```
//!
//! Bounds: those of the table ([`in_flight`](crate::in_flight)) and of the origin's permits.

use std::sync::Arc;

use engine::{cores::clock, store::tier::Cold};
use tokio::sync::oneshot;
use wire::http1::framing::Answered;

use crate::{
    arriving::receive,
    cold,
    core::{Core, Message, OfSite, with_core},
    counters::Counter,
    entry::Entry,
    in_flight::{Place, Start, Want, answer},
    origin::{self, Arrived, Asked, NoBody, OriginError, SendError},
    request::{Request, Wanted},
};

/// Asks the owner of the request's key for the object; for itself `alone`, if it will hardly be stored.
pub(crate) async fn ask(request: &Arc<Request>, anew: bool, alone: bool) -> Start {
    let (reply, answer) = oneshot::channel();
    let want = Want { request: Arc::clone(request), anew, alone, reply };
    let sent = with_core(|core| {
        let owner = core.store.owner(request.hash);
        if owner == core.index {
            begin(core, want);
            return true;
        }
        let sent = core.give(owner, Message::Fetch(Box::new(want))).is_ok();
        if !sent {
            core.count(Counter::CoreRingFull);
        }
        sent
    });
    if !sent {
        return Start::Alone;
    }
    // The fetch ended without an answer: a bug of ours on its core. The request is served all the same.
    answer.await.unwrap_or(Start::Alone)
}

/// Joins the fetch under way for this key, or begins one. Runs on the owner's core.
pub(crate) fn begin(core: &Core, want: Want) {
    let mut in_flight = core.in_flight.borrow_mut();
    let want = match in_flight.join(want, clock::unix_s()) {
        Place::Joined => return core.count(Counter::Collapsed),
        Place::Alone(want) => return answer(want.reply, Start::Alone),
        Place::Full(want) => {
            core.count(Counter::FetchTableFull);
            return answer(want.reply, Start::Alone);
        }
        Place::Vacant(want) => want,
    };
    let hash = want.request.hash;
    if !want.anew && core.is_fresh(hash, &want.request.key) {
        return answer(want.reply, Start::Again);
    }
    let entry = Entry::new(in_flight.begin(&want));
    drop(in_flight);
    let cold = if want.anew { None } else { core.shard_mut().cold(hash, core.store_now_s()) };
    match cold {
        Some(cold) => tokio::spawn(load(want, entry, cold)),
        None => tokio::spawn(fetch(want, entry)),
    };
}

/// Reads an object from the file into memory, once for all clients that want it; if that fails, it is fetched from the
/// origin.
async fn load(want: Want, entry: Entry, cold: Cold) {
    if !cold::restore(&want.request, cold).await {
        return fetch(want, entry).await;
    }
    entry.end(|| Start::Again);
    answer(want.reply, Start::Again);
}

/// Asking is behind the hits already, as everything that is none; taking the answer in is work that waits for its turn.
async fn fetch(want: Want, entry: Entry) {
    let Want { request, reply, .. } = want;
    match exchange(&request).await {
        Ok(arrived) => {
            behind_hits().await;
            receive(&request, arrived, reply, entry).await;
        }
        Err(error) => {
            with_core(|core| core.count(Counter::of_origin_error(&error)));
            entry.end(|| Start::Failed(error.clone()));
            answer(reply, Start::Failed(error));
        }
    }
}

/// Waits until what is ready to be answered has been answered.
async fn behind_hits() {
    let behind = with_core(|core| Arc::clone(&core.behind));
    if behind.turn().await {
        with_core(|core| core.count(Counter::FetchesBehind));
    }
}

/// Sends the request as it is asked for the store, and waits for the head.
async fn exchange(request: &Request) -> Result<Box<Arrived>, OriginError> {
    let (config, head) = with_core(|core| {
        core.count(Counter::Fetches);
        (Arc::clone(&core.config), request.for_origin(Wanted::ToStore, &core.pseudonym))
    });
    let asked =
        Asked { head: &head, wanted: Wanted::ToStore, answered: Answered::Other, is_idempotent: true };
    let connected = || with_core(|core| core.count(Counter::OriginConnects));
    let arrived = origin::ask(&OfSite(request.site), &config.limits, &asked, &mut NoBody, connected).await;
    arrived.map_err(|error| match error {
        SendError::Origin(error) => error,
        SendError::Ours(never) => match never {},
    })
}
