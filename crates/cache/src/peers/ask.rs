//! Requests to a peer: made like those to an origin, with a pool of their own. If the peer's answer is not
//! good, the origin is asked.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::time::timeout;
use wire::http1::{framing::RequestKind, head::HEADERS_MAX};

use super::{
    FIELDS_MORE, KEPT_WITHIN, Load, Peer, Peers,
    mark::{FIELD, How, Mac},
};
use crate::{
    body::slice::strong_tag,
    core::{Core, OfCore, with_core, with_core_of},
    counters::Counter,
    fetch::{
        in_flight::{FetchRequest, Reply},
        leader::Leader,
        revalidate::StaleObject,
    },
    origin::{
        self, AnswerHead, Client, MemberId, OriginError, OriginRequest, Pools, SendError, TriedMembers,
        Upstream, Upstreams,
    },
    request::{OriginNeed, Request},
};
use engine::cores::clock;

/// The peer that a fetch asks before the origin.
///
/// **Purges.** `sequence` is the last purge that this accelerator had *begun* to apply, read when the fetch
/// was already in the table of fetches. The peer reports the last purge that it had applied *wholly* before
/// it looked up the object. Its answer is used only if that purge is at least as recent. So a purge up to
/// `sequence` was applied by the peer before it answered. A later purge is applied here while the fetch is in
/// the table, and affects it as it does any fetch.
pub(crate) struct PeerQuery {
    pub(crate) peer: Arc<Peer>,
    sequence: u64,
    /// The peer's stored answer is outdated, because a visitor of this accelerator has changed the resource
    /// (RFC 9111 §4.4).
    is_anew: bool,
    _load: Load,
}

impl PeerQuery {
    /// Chooses the peer to ask for a request; `None` means the origin. Must be called when the request's
    /// fetch is in the table.
    pub(crate) fn of(core: &Core, want: &FetchRequest) -> Option<Self> {
        let peers = core.origins.peers.as_ref()?;
        let FetchRequest { request, terms, .. } = want;
        if terms.bypass_stored || terms.no_collapse || !may_be_asked(core, request) {
            return None;
        }
        let sequence = core.purges.cluster.membership.begun();
        let peer = peers.asked_for(request.primary())?;
        let load = peer.count_fetch();
        let is_anew = core
            .origins
            .changed_here
            .get(core.storage.store.hash(request.primary()))
            .is_some_and(|is_so| is_so);
        Some(Self { peer, sequence, is_anew, _load: load })
    }
}

/// Returns whether a peer may be asked for a request. Excluded are requests from another peer, and requests
/// with credentials, which go to the origin. While this accelerator may have missed purges for too long, no
/// peer is asked.
fn may_be_asked(core: &Core, request: &Request) -> bool {
    let head = request.head();
    !request.is_of_peer
        && !request.is_of_certificate()
        && core.purges.cluster.membership.may_serve()
        && head.headers.len() + FIELDS_MORE <= HEADERS_MAX
        && !["authorization", "proxy-authorization"].iter().any(|name| head.headers(name).next().is_some())
}

/// Outcome of one request to a peer.
enum PeerOutcome {
    Answer(Box<AnswerHead>),
    /// The peer's process is not the one that the request was signed for; the request must be signed again.
    Anew,
    Nothing,
}

/// Asks the peer; `None` if the origin must be asked.
pub(crate) async fn ask(
    request: &Request,
    known: Option<&StaleObject>,
    asking: &PeerQuery,
    reply: &mut Reply,
) -> Option<Box<AnswerHead>> {
    let peers = with_core(|core| core.origins.peers.clone())?;
    // At the first request the peer's epoch is not known yet, so there is a second try.
    for _ in 0..2 {
        match ask_once(&peers, request, known, asking, reply).await {
            PeerOutcome::Answer(mut arrived) => {
                let is_wanted = known.is_some() || request.block.is_some();
                arrived.is_kept = with_core(|core| is_asked_again(core, request)) || is_wanted;
                if asking.is_anew {
                    with_core(|core| {
                        core.origins.changed_here.set(core.storage.store.hash(request.primary()), false)
                    });
                }
                arrived.peer = Some(Arc::clone(&asking.peer));
                return Some(arrived);
            }
            PeerOutcome::Anew => {}
            PeerOutcome::Nothing => return None,
        }
    }
    None
}

/// Returns whether a peer was asked for the same address a moment ago, and records the current request.
fn is_asked_again(core: &Core, request: &Request) -> bool {
    let (place, now_ms) = (core.storage.store.hash(request.primary()), clock::monotonic_ms());
    let within_ms = u64::try_from(KEPT_WITHIN.as_millis()).unwrap_or(u64::MAX);
    let before_ms = core.origins.asked_of_peers.get(place);
    core.origins.asked_of_peers.set(place, now_ms);
    before_ms.is_some_and(|before_ms| now_ms < before_ms + within_ms)
}

async fn ask_once(
    peers: &Arc<Peers>,
    request: &Request,
    known: Option<&StaleObject>,
    PeerQuery { peer, sequence, is_anew, .. }: &PeerQuery,
    reply: &mut Reply,
) -> PeerOutcome {
    let conditions = match &request.block {
        Some(block) => block.conditions(),
        None => known.map(StaleObject::conditions).unwrap_or_default(),
    };
    let (within, head) = with_core_of(request, |core| {
        core.count(Counter::PeerAsks);
        let manner = core.manner(request.site).to_peer();
        (core.config.limits.origin_first_byte_time_max, request.for_store(&conditions, manner))
    });
    let (head, mac) = peers.marked(head, peer, *sequence, *is_anew);
    let asked = OriginRequest {
        head: &head,
        wanted: OriginNeed::Storing,
        client: Client::NOBODY,
        answered: RequestKind::Other,
        is_idempotent: true,
        why: "peer",
        trace: request.trace.as_ref(),
        server: Some(&peer.name),
    };
    let upstreams = OfPeer { peer, peers, is_asked: AtomicBool::new(false) };
    let mut leader = Leader { reply: Some(reply), is_to_peer: true, entry: None };
    let answered = origin::ask(&upstreams, &peers.limits, &asked, &mut leader, || ());
    match timeout(within + peers.rules.patience, Box::pin(answered)).await {
        Ok(Ok(arrived)) => judge_answer(peers, peer, *sequence, &mac, arrived),
        Ok(Err(SendError::Origin(error))) => {
            failed(peer, &error);
            PeerOutcome::Nothing
        }
        // Without an entry the client is not watched, so only a timeout gets here. A late peer has sent signs
        // of life while it waited for its origin, so the slow one is the origin, not the peer.
        Ok(Err(SendError::Ours(_))) | Err(_) => PeerOutcome::Nothing,
    }
}

/// Returns whether a peer's answer is usable: the peer had applied at least the purges that were announced
/// before our fetch began (see [`PeerQuery`]).
pub(super) const fn is_usable(carried_out: u64, begun: u64) -> bool {
    carried_out >= begun
}

/// Judges a peer's answer by its MAC, and by the last purge that the peer had applied when it looked up the
/// object.
fn judge_answer(
    peers: &Peers,
    peer: &Peer,
    sequence: u64,
    mac: &Mac,
    mut arrived: Box<AnswerHead>,
) -> PeerOutcome {
    let told = {
        let head = arrived.head.head();
        let mut marks = head.headers(FIELD);
        let mark = marks.next().filter(|_| marks.next().is_none());
        mark.and_then(|mark| peers.signing.read_answer_mark(mark, mac))
    };
    let Some(told) = told else {
        with_core(|core| core.count(Counter::PeerFailures));
        peer.failed("the server at the address is not a peer, or has another secret");
        return PeerOutcome::Nothing;
    };
    peer.answered(&told, told.how == How::Hit);
    let counter = match told.how {
        How::Hit | How::Fetched | How::Alone if !is_usable(told.sequence, sequence) => {
            Counter::PeerAnswersBehind
        }
        How::Hit | How::Fetched | How::Alone => {
            if told.how == How::Hit {
                with_core(|core| core.count(Counter::PeerHits));
                // The peer has the whole answer in its store, so a pause is the peer's own fault, and the
                // rest can be fetched from the origin.
                if strong_tag(&arrived.head.head().headers).is_some() {
                    arrived.wait_between_bytes(peers.rules.patience);
                }
            }
            arrived.is_for_one = told.how == How::Alone;
            return PeerOutcome::Answer(arrived);
        }
        How::Behind => Counter::PeerAnswersBehind,
        How::Declined => Counter::PeerDeclined,
        How::Epoch => {
            arrived.finish(&OfCore, &peers.limits);
            return PeerOutcome::Anew;
        }
    };
    with_core(|core| core.count(counter));
    if arrived.is_complete() {
        arrived.finish(&OfCore, &peers.limits);
    }
    PeerOutcome::Nothing
}

/// Puts the peer into back-off, if the failure was its fault.
fn failed(peer: &Peer, error: &OriginError) {
    let is_ours = matches!(error, OriginError::Queue(_) | OriginError::Busy(_) | OriginError::NoSocket(_));
    with_core(|core| {
        core.count(if is_ours { Counter::PeersBusy } else { Counter::PeerFailures });
    });
    // A head that is too large because of the fields that the peer adds is no reason for a back-off.
    if error.is_unreachable()
        || error.is_silence()
        || matches!(error, OriginError::HeadShort | OriginError::Broken(_))
    {
        peer.failed(&error.to_string());
    }
}

/// The current core's connections to a peer.
struct OfPeer<'a> {
    peer: &'a Peer,
    peers: &'a Peers,
    is_asked: AtomicBool,
}

impl Upstreams for OfPeer<'_> {
    fn choose(&self, _: &mut TriedMembers) -> Option<MemberId> {
        let is_again = self.is_asked.swap(true, Relaxed);
        self.peer.member.as_ref().filter(|_| !is_again).map(|member| member.id)
    }

    fn note_retry(&self) {}

    fn note_outcome(&self, _: MemberId, _: bool) {}
}

impl Pools for OfPeer<'_> {
    fn upstream<R>(&self, _: MemberId, with: impl FnOnce(&mut Upstream) -> R) -> Option<R> {
        let member = self.peer.member.as_ref()?;
        with_core(|core| Some(with(core.origins.pool.borrow_mut().upstream(member, &self.peers.limits))))
    }
}
