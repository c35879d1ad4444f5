//! Misses: one fetch for all requests for an object, by the core that owns its key.
//!
//! ```text
//!  core of the client                     core that owns the key
//!  ──────────────────                     ──────────────────────────────────────────────
//!  ask(request) ──── Message::Fetch ────▶ begin: fetch under way?  ─ yes ─▶ join it
//!       │                                    │ no
//!       │                                    ▼
//!       │                                 fetch: origin ─ head ─▶ may it be stored?
//!       │◀──── FetchOutcome::Body (leader) ─────────┤ yes: stored as it arrives, all follow
//!       │◀──── FetchOutcome::Alone (others) ────────┘ no: the leader alone reads it; the others ask for themselves
//!       ▼
//!  the answer follows the chunks as they are published
//! ```
//! A fetch is run by the task of the request for which it began, if that is on the same core, until the head
//! of the answer is known, and by a task of its own from then on ([`FetchTask`]).
//!
//! Bounds: those of the table ([`in_flight`](crate::fetch::in_flight)) and of the origin's permits.

pub(crate) mod arriving;
pub(crate) mod fetch_entry;
pub(crate) mod fetch_task;
pub(crate) mod hit_for_miss;
pub(crate) mod in_flight;
pub(crate) mod judge;
pub(crate) mod leader;
pub(crate) mod query_shares;
pub(crate) mod refresh_throttle;
pub(crate) mod refused_keys;
pub(crate) mod response;
pub(crate) mod revalidate;
pub(crate) mod variants;

use std::{rc::Rc, sync::Arc};

use engine::{cores::clock, store::tier::FileRecord};
use tokio::sync::oneshot;
use wire::http1::framing::RequestKind;

use crate::{
    body::{
        cold,
        slice::{self, Block, Fit},
    },
    client::fin,
    core::{Core, Message, OfCore, SiteUpstreams, with_core, with_core_of},
    counters::Counter,
    deliver::downstream::Downstream,
    fetch::{
        arriving::receive,
        fetch_entry::Entry,
        fetch_task::FetchTask,
        in_flight::{FetchOutcome, FetchReply, FetchRequest, FetchTerms, Place, Reply, answer},
        leader::{Leader, NoClientLeft},
        response::Response,
        revalidate::{FreshenOutcome, OwnerReply, StaleObject},
    },
    origin::{self, AnswerHead, OriginError, OriginRequest, SendError},
    peers::{self, PeerQuery},
    request::{OriginNeed, Request},
};

/// Asks the owner of the request's key for the object. Returns `None` if the client is gone.
pub(crate) async fn ask(
    request: &Arc<Request>,
    terms: FetchTerms,
    client: &mut impl Downstream,
) -> Option<FetchOutcome> {
    let (reply, mut said) = oneshot::channel();
    let want = FetchRequest { request: Arc::clone(request), terms, reply };
    let begun = with_core(|core| {
        let owner = core.storage.store.owner(request.hash);
        if owner == core.index {
            return Some(begin(core, want));
        }
        let sent = core.give(owner, Message::Fetch(Box::new(want))).is_ok();
        if !sent {
            core.count(Counter::CoreRingFull);
        }
        sent.then(FetchTask::none)
    });
    let Some(mut begun) = begun else {
        return Some(FetchOutcome::Alone);
    };
    if request.is_of_peer {
        // A peer that waits gets interim answers meanwhile; one that does not read them must not hold up those
        // that join.
        begun.go_on_alone();
    }
    loop {
        let told = tokio::select! {
            biased;
            told = begun.reply(&mut said) => told,
            // The fetch continues without this client: its answer may be stored, and other requests may wait
            // for it.
            () = client.gone() => return None,
        };
        match told {
            Ok(FetchReply::Interim { head, next }) => {
                // This client may take its time, and the others that wait for the fetch must not.
                begun.go_on_alone();
                client.interim(&head).await;
                said = next;
            }
            Ok(FetchReply::Outcome(start)) => return Some(start),
            // The fetch ended without an outcome, which is a bug. The request is still served.
            Err(_) => return Some(FetchOutcome::Alone),
        }
    }
}

/// Joins the fetch under way for this key, or begins one and returns it. Runs on the owner's core.
pub(crate) fn begin(core: &Core, mut want: FetchRequest) -> FetchTask {
    let core = &*core.of_request(&want.request);
    let mut in_flight = core.fetches.in_flight.borrow_mut();
    let is_in_vain = core.fetches.waited_in_vain.has(want.request.hash, clock::monotonic_ms());
    want.terms.no_collapse |= is_in_vain;
    let is_still_good = |request: &Request, response: &Response| core.is_still_good(response, request);
    // Without a valid cluster lease this instance may not know of a purge made before the request, so the
    // request does not join an older fetch.
    let may_join = core.purges.cluster.membership.may_serve();
    let want = match in_flight.join(want, may_join, clock::unix_s(), is_still_good) {
        Place::Joined => {
            core.count(Counter::Collapsed);
            return FetchTask::none();
        }
        Place::Alone(want) => return FetchTask::answered(want.reply, FetchOutcome::Alone),
        Place::Full(want) => {
            core.count(Counter::FetchTableFull);
            return FetchTask::answered(want.reply, FetchOutcome::Alone);
        }
        Place::Vacant(want) => want,
    };
    let known = match OwnerReply::of(core, &want.request, want.terms.bypass_stored) {
        OwnerReply::Usable => return FetchTask::answered(want.reply, FetchOutcome::Again),
        OwnerReply::Known(known) => Some(known),
        OwnerReply::Nothing => None,
    };
    let number = in_flight.begin(&want);
    let entry = Entry::new(core, number);
    // Requests and purges find the fetch in the table from here on.
    let asking = PeerQuery::of(core, &want);
    in_flight.asks_peer(number, asking.is_some());
    drop(in_flight);
    let is_looked_for = !want.terms.bypass_stored && known.is_none();
    let cold = is_looked_for.then(|| core.shard_mut().find_on_file(want.request.hash, core.store_now_s()));
    match cold.flatten() {
        Some(cold) => FetchTask::of(load(want, entry, cold, asking)),
        None => FetchTask::of(fetch(want, entry, known, asking)),
    }
}

/// Begins the background refresh of a stale object that was served (RFC 5861 §3). The caller has recorded
/// that the refresh is under way.
pub(crate) fn refresh(core: &Core, request: Arc<Request>) {
    if core.admit_work(&request).is_err() {
        // The budget for origin requests is spent; a later visitor triggers the refresh.
        core.fetches.refreshed_lately.forget(request.hash);
        return;
    }
    core.count(Counter::Refreshes);
    prefetch(core, request);
}

/// Begins a fetch that no request waits for yet.
pub(crate) fn prefetch(core: &Core, request: Arc<Request>) {
    let (reply, _) = oneshot::channel();
    let want = FetchRequest { request, terms: FetchTerms::default(), reply };
    let owner = core.storage.store.owner(want.request.hash);
    if owner == core.index {
        begin(core, want).go_on_alone();
    } else if core.give(owner, Message::Fetch(Box::new(want))).is_err() {
        // A later request tries again.
        core.count(Counter::CoreRingFull);
    }
}

/// Reads an object from the file into memory, once for all waiting requests; if that fails, or the object is
/// stale, the origin is asked.
async fn load(want: FetchRequest, entry: Entry, cold: FileRecord, asking: Option<PeerQuery>) {
    cold::restore(want.request.hash, &want.request.key, cold).await;
    match with_core_of(&want.request, |core| OwnerReply::of(core, &want.request, want.terms.bypass_stored)) {
        OwnerReply::Usable => {
            entry.end(|| FetchOutcome::Again);
            answer(want.reply, FetchOutcome::Again);
        }
        OwnerReply::Known(known) => fetch(want, entry, Some(known), asking).await,
        OwnerReply::Nothing => fetch(want, entry, None, asking).await,
    }
}

/// Fetches an object from a peer or the origin. The processing of the answer waits for ready hits.
async fn fetch(
    want: FetchRequest,
    entry: Entry,
    mut known: Option<StaleObject>,
    mut asking: Option<PeerQuery>,
) {
    let FetchRequest { request, mut reply, .. } = want;
    let tell = |start: fn() -> FetchOutcome| {
        entry.end(start);
        start()
    };
    let stands_in = |known: &Option<StaleObject>| known.as_ref().is_some_and(|known| known.may_stand_in);
    if stands_in(&known)
        && !with_core_of(&request, |core| core.sites.group(request.site).may_try(clock::monotonic_ms()))
    {
        return answer(reply, tell(|| FetchOutcome::StandIn));
    }
    // Counts the fetch in this accelerator's load, for as long as it lasts.
    let mut load = None;
    loop {
        let arrived = match ask_before_origin(&request, known.as_ref(), &mut asking, &mut reply, &entry).await
        {
            Some(arrived) => Ok(arrived),
            None => {
                let fetches = with_core(|core| core.origins.peers.as_ref().map(|peers| peers.fetches()));
                load = fetches.or(load);
                exchange(&request, known.as_ref(), &mut reply, Some(&entry)).await
            }
        };
        let arrived = match arrived {
            Ok(arrived) => arrived,
            Err(SendError::Ours(NoClientLeft)) => {
                return with_core(|core| core.count(Counter::FetchesGivenUp));
            }
            Err(SendError::Origin(error)) => {
                let may_stand_in = stands_in(&known);
                count_failure(&request, &error, may_stand_in);
                if may_stand_in {
                    return answer(reply, tell(|| FetchOutcome::StandIn));
                }
                entry.end(|| FetchOutcome::Failed(error.clone()));
                return answer(reply, FetchOutcome::Failed(error));
            }
        };
        if arrived.peer.is_none() {
            with_core_of(&request, |core| core.sites.group(request.site).answered());
        }
        let status = arrived.head.head().status;
        // A 304 to a request without conditions is a failure, too.
        let is_unasked = |known: &StaleObject| status == 304 && !known.has_validator();
        let is_failure = matches!(status, 500 | 502..=504) || known.as_ref().is_some_and(is_unasked);
        if stands_in(&known) && is_failure {
            // stale-if-error (RFC 5861 §4): the stored answer is served and the origin's error page dropped.
            return answer(reply, tell(|| FetchOutcome::StandIn));
        }
        yield_to_hits().await;
        if let Some(block) = &request.block {
            return match with_core_of(&request, |core| {
                slice_misfit(core, &request, block, &arrived, entry.bans())
            }) {
                None => receive(&request, arrived, reply, entry).await,
                Some(start) => answer(reply, tell(start)),
            };
        }
        let Some(validated) = known.take().filter(|known| status == 304 && !is_unasked(known)) else {
            if status == 304 {
                let error = OriginError::UnaskedNotModified;
                with_core(|core| core.count(Counter::of_origin_error(&error)));
                entry.end(|| FetchOutcome::Failed(error.clone()));
                return answer(reply, FetchOutcome::Failed(error));
            }
            return receive(&request, arrived, reply, entry).await;
        };
        if let FreshenOutcome::Yes { set_cookie } = freshen(&request, &validated, arrived, &entry) {
            // A 304 with `Set-Cookie` is for the client that asked; the other requests ask the origin
            // themselves.
            entry.end(|| match set_cookie[..] {
                [] => FetchOutcome::Validated { set_cookie: Vec::new() },
                [..] => FetchOutcome::Alone,
            });
            return answer(reply, FetchOutcome::Validated { set_cookie });
        }
    }
}

/// Counts a failed exchange; if the origin is the cause, the failure also counts against the site's servers.
/// If the origin does not answer a request that it has answered before (`may_stand_in`: its answer is stored),
/// the origin is the cause. If it does not answer another request, the request itself may be the cause; otherwise a client
/// could make a whole site be served stale by requesting something that the origin cannot answer.
fn count_failure(request: &Request, error: &OriginError, may_stand_in: bool) {
    let is_origins = error.is_unreachable() || error.is_silence() && may_stand_in;
    with_core_of(request, |core| {
        core.count(Counter::of_origin_error(error));
        if is_origins {
            core.sites.group(request.site).failed(clock::monotonic_ms());
        }
    });
}

/// Freshens a stored object that the origin has validated with a 304, unless the object was purged since the
/// fetch began.
fn freshen(
    request: &Request,
    known: &StaleObject,
    arrived: Box<AnswerHead>,
    entry: &Entry,
) -> FreshenOutcome {
    with_core_of(request, |core| {
        let freshened = if entry.is_forgotten(core) {
            FreshenOutcome::No
        } else {
            revalidate::freshen(core, request, known, &arrived, entry.bans())
        };
        arrived.finish(&OfCore, &core.config.limits);
        if matches!(freshened, FreshenOutcome::Yes { .. }) {
            core.fetches.waited_in_vain.forget(request.hash);
        }
        freshened
    })
}

/// Asks the peer that owns the key, once; returns `None` if the origin must be asked.
async fn ask_before_origin(
    request: &Request,
    known: Option<&StaleObject>,
    asking: &mut Option<PeerQuery>,
    reply: &mut Reply,
    entry: &Entry,
) -> Option<Box<AnswerHead>> {
    let asked = asking.take()?;
    // Boxed, because unboxed the future would enlarge every fetch.
    let arrived = Box::pin(peers::ask(request, known, &asked, reply)).await;
    if arrived.is_none() {
        // A request from a peer may wait for this fetch from here on.
        entry.asks_peer(false);
    }
    arrived
}

/// Returns the outcome if an answer is not the requested slice; `None` if it is. Drops the slice's object if
/// no slice of it can be fetched any more.
fn slice_misfit(
    core: &Core,
    request: &Request,
    block: &Block,
    arrived: &AnswerHead,
    bans: u64,
) -> Option<fn() -> FetchOutcome> {
    let fit = block.fit(&arrived.head.head(), arrived.framing);
    let (start, is_lasting): (fn() -> FetchOutcome, _) = match fit {
        Fit::Block => {
            core.count(Counter::BlocksFetched);
            return None;
        }
        Fit::OtherVersion => (|| FetchOutcome::OtherVersion, true),
        Fit::NoRanges => (|| FetchOutcome::NoBlock, true),
        Fit::Other => (|| FetchOutcome::NoBlock, false),
    };
    if fit == Fit::NoRanges {
        let facts = core.facts_of(request);
        hit_for_miss::leave(core, request.primary(), &facts, slice::NO_RANGES, clock::unix_s(), bans, None);
    }
    let key = block.key_of_object(&request.key);
    let is_there = {
        let shard = core.storage.shard.borrow();
        shard.peek(block.object, key).is_some_and(|object| object.sequence() == block.of.sequence)
    };
    if is_lasting && is_there {
        core.count(Counter::BlocksLost);
        core.shard_mut().unlink(block.object, key);
    }
    // Of several slices that are fetched at once, the first to find a change has dropped the object, and the
    // others find the same change.
    if fit == Fit::OtherVersion && is_there {
        // The first time, the origin has changed the object. If it happens again, the origin's servers have
        // different versions, or the object is generated for each request: requests for it are passed for a
        // while.
        let now_ms = clock::monotonic_ms();
        if core.fetches.versions_differ.has(block.object, now_ms) {
            let facts = core.facts_of(request);
            let (primary, now_s) = (request.primary(), clock::unix_s());
            hit_for_miss::leave(core, primary, &facts, slice::VERSIONS_DIFFER, now_s, bans, None);
        }
        core.fetches.versions_differ.note(block.object, now_ms);
    }
    Some(start)
}

/// Requests a slice from the origin for one client.
pub(crate) async fn fetch_for_one(request: &Request) -> Result<Box<AnswerHead>, OriginError> {
    let (mut reply, _) = oneshot::channel();
    let arrived = exchange(request, None, &mut reply, None).await.map_err(|error| match error {
        SendError::Origin(error) => error,
        // Without an entry the client is not watched, so the exchange is never abandoned.
        SendError::Ours(NoClientLeft) => OriginError::Closed,
    });
    if let Err(error) = &arrived {
        with_core(|core| core.count(Counter::of_origin_error(error)));
    }
    arrived
}

/// Waits until the ready hits have been answered.
async fn yield_to_hits() {
    let behind = with_core(|core| Rc::clone(&core.storage.behind));
    let hits = || with_core(|core| core.observers.counters.value(Counter::Hits));
    if behind.turn(hits).await {
        with_core(|core| core.count(Counter::FetchesBehind));
    }
}

/// Sends the request of a fetch for the store, with conditions on the `known` object, and waits for the head
/// of the answer. With `entry`, an exchange that ends at its client's FIN ([`fin`]) is given up once the
/// client has gone and no other request waits for the answer.
async fn exchange(
    request: &Request,
    known: Option<&StaleObject>,
    reply: &mut Reply,
    entry: Option<&Entry>,
) -> Result<Box<AnswerHead>, SendError<NoClientLeft>> {
    let conditions = match &request.block {
        Some(block) => block.conditions(),
        None => known.map(StaleObject::conditions).unwrap_or_default(),
    };
    let (config, head) = with_core_of(request, |core| {
        core.count(Counter::Fetches);
        (Arc::clone(&core.config), request.for_store(&conditions, core.manner(request.site)))
    });
    let why = match (&request.block, known) {
        (Some(_), _) => "block",
        (None, Some(known)) if known.has_validator() => "revalidate",
        (None, _) => "fetch",
    };
    let asked = OriginRequest {
        head: &head,
        wanted: OriginNeed::Storing,
        client: request.client(),
        answered: RequestKind::Other,
        is_idempotent: true,
        why,
        trace: request.trace.as_ref(),
        server: None,
    };
    let connected = || with_core(|core| core.count(Counter::OriginConnects));
    let mut leader = Leader {
        reply: Some(reply),
        is_to_peer: false,
        entry: entry.filter(|_| fin::ends_exchange(request)),
    };
    let of_site = SiteUpstreams::of(request).with_member_of(known.map_or(0, StaleObject::member));
    origin::ask(&of_site, &config.limits, &asked, &mut leader, connected).await
}
