//! The fetches under way on one core, by the hash of their key: who waits for them, and who may join.

use std::{collections::HashMap, hash::BuildHasherDefault, sync::Arc};

use engine::store::Hash;
use tokio::sync::oneshot;

use crate::{
    body::growing::{Chunk, Cursor, GrowingState},
    core::identity_hasher::IdentityHasher,
    fetch::response::Response,
    log::transaction::Trace,
    origin::OriginError,
    request::Request,
};

/// Fetches under way on one core; a request beyond is passed through.
const FETCHES_MAX: usize = 10_000;

/// What a core asks of the owner of a key.
pub(crate) struct FetchRequest {
    pub(crate) request: Arc<Request>,
    /// What is stored already must not be used (RFC 9111 §5.2.1.4).
    pub(crate) anew: bool,
    /// It was not storable the last time, and will hardly be: nobody waits for what comes of it.
    pub(crate) alone: bool,
    pub(crate) reply: Reply,
}

/// What one who asked is told.
pub(crate) enum FetchReply {
    /// What the origin says before its answer; more is to come.
    Interim { head: Vec<u8>, next: oneshot::Receiver<FetchReply> },
    /// How it goes on.
    Outcome(FetchOutcome),
}

/// Where one who asked is told.
pub(crate) type Reply = oneshot::Sender<FetchReply>;

/// How a miss goes on.
pub(crate) enum FetchOutcome {
    /// The answer: its head, and its body as it arrives.
    Body {
        /// The head and what is known of the body.
        response: Arc<Response>,
        /// The reader's place in the body.
        cursor: Cursor,
        /// Someone else's fetch was joined.
        collapsed: bool,
    },
    /// It is in the store by now: look again.
    Again,
    /// The origin says (304) that the stored object is still the same: it may be used, fresh or not. The lines are the
    /// `Set-Cookie` fields of the 304, for this client alone.
    Validated { set_cookie: Vec<u8> },
    /// The origin fails, and what is stored may be shown in the place of that.
    StandIn,
    /// A block was asked for, and the origin has another version of the object by now; this one is dropped.
    OtherVersion,
    /// A block was asked for, and the origin does not send it.
    NoBlock,
    /// The answer is for one client only, or there is no room: ask the origin for yourself.
    Alone,
    /// The origin failed.
    Failed(OriginError),
}

/// Answers one who asked. A client that has gone away does not want its answer any more: that is no error.
pub(crate) fn answer(reply: Reply, start: FetchOutcome) {
    let _ = reply.send(FetchReply::Outcome(start));
}

/// Tells one who asked what the origin says before its answer.
pub(crate) fn tell_interim(reply: &mut Reply, head: Vec<u8>) {
    let (later, next) = oneshot::channel();
    let _ = std::mem::replace(reply, later).send(FetchReply::Interim { head, next });
}

/// A fetch under way, as its owner sees it.
struct FetchEntry {
    /// Whose key it is; a purge names the part of it that all variants share.
    request: Arc<Request>,
    /// Only the client that asked first gets this response body: it is being stored in parts, or will hardly be stored.
    /// Other clients find the object when all of it is.
    is_alone: bool,
    /// Another accelerator is being asked for it, which may ask us for the same.
    asks_peer: bool,
    /// Which of the fetches that this core began it is.
    number: u64,
    /// Who asked before the origin had answered.
    waiting: Vec<Reply>,
    /// The answer, once its head is there and if it may be shared; keeps the first chunk for those who join later.
    started: Option<SharedAnswer>,
}

/// An answer that others may join.
#[derive(Clone)]
pub(crate) struct SharedAnswer {
    pub(crate) response: Arc<Response>,
    pub(crate) growing: Arc<GrowingState>,
    pub(crate) first: Arc<Chunk>,
}

impl SharedAnswer {
    /// A reader of it from its first byte.
    pub(crate) fn join(&self, collapsed: bool) -> FetchOutcome {
        let cursor = Cursor::new(Arc::clone(&self.growing), Arc::clone(&self.first));
        FetchOutcome::Body { response: Arc::clone(&self.response), cursor, collapsed }
    }
}

/// Which fetch of the table; after a purge there may be another under the same hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    hash: Hash,
    number: u64,
}

/// What becomes of one who asks.
pub(crate) enum Place {
    /// A fetch was under way: it is answered, or will be.
    Joined,
    /// A fetch of another key with the same hash, or one that nobody may join, is under way.
    Alone(FetchRequest),
    /// There is none, and no room for another.
    Full(FetchRequest),
    /// There is none: one is to be begun.
    Vacant(FetchRequest),
}

/// The table.
#[derive(Default)]
pub(crate) struct InFlight {
    fetches: HashMap<Hash, FetchEntry, BuildHasherDefault<IdentityHasher>>,
    begun: u64,
}

impl InFlight {
    /// Joins the fetch under way for a key, if there is one. `is_still_good` says whether what it brings was not purged
    /// since it began: then it goes on for those who asked before, and is not stored. Who must not join (`may_join`) asks
    /// alone.
    pub(crate) fn join(
        &mut self,
        want: FetchRequest,
        may_join: bool,
        now_s: u64,
        is_still_good: impl Fn(&Request, &Response) -> bool,
    ) -> Place {
        let is_full = self.fetches.len() >= FETCHES_MAX;
        let Some(under_way) = self.fetches.get_mut(&want.request.hash) else {
            return if is_full { Place::Full(want) } else { Place::Vacant(want) };
        };
        // Each would wait for the other.
        let is_circle = under_way.asks_peer && want.request.is_of_peer;
        if under_way.is_alone || !may_join || is_circle || under_way.request.key != want.request.key {
            // The object is being written to the file, and can be read when that is done; or nobody expects it to be
            // stored at all. Or two keys have the same 64-bit hash: still right.
            return Place::Alone(want);
        }
        let is_purged =
            under_way.started.as_ref().is_some_and(|shared| !is_still_good(&want.request, &shared.response));
        // No request joins an answer that is for those who waited. The next request begins the next fetch, and others
        // wait for that one.
        let is_over = under_way
            .started
            .as_ref()
            .is_some_and(|shared| shared.response.is_for_waiters() && !shared.response.is_fresh(now_s));
        if is_purged || is_over {
            self.fetches.remove(&want.request.hash);
            return Place::Vacant(want);
        }
        Trace::joins(want.request.trace.as_ref(), under_way.request.trace.as_ref());
        match &under_way.started {
            // Its head came so long ago that it is stale for who asks now; it goes on for those who asked in time.
            Some(shared) if !shared.response.is_fresh(now_s) => return Place::Alone(want),
            Some(shared) => answer(want.reply, shared.join(true)),
            None => under_way.waiting.push(want.reply),
        }
        Place::Joined
    }

    /// Enters a fetch that begins; its key's hash has no place in the table yet.
    pub(crate) fn begin(&mut self, FetchRequest { request, alone, .. }: &FetchRequest) -> Number {
        let number = self.begun;
        self.begun += 1;
        let under_way = FetchEntry {
            request: Arc::clone(request),
            waiting: Vec::new(),
            is_alone: *alone,
            asks_peer: false,
            started: None,
            number,
        };
        self.fetches.insert(request.hash, under_way);
        Number { hash: request.hash, number }
    }

    fn of(&mut self, number: Number) -> Option<&mut FetchEntry> {
        self.fetches.get_mut(&number.hash).filter(|under_way| under_way.number == number.number)
    }

    /// Another accelerator is asked for it; or is not any more.
    pub(crate) fn asks_peer(&mut self, number: Number, is_asking: bool) {
        if let Some(under_way) = self.of(number) {
            under_way.asks_peer = is_asking;
        }
    }

    /// Whether a fetch was purged or became invalid meanwhile.
    pub(crate) fn is_forgotten(&self, number: Number) -> bool {
        self.fetches.get(&number.hash).is_none_or(|under_way| under_way.number != number.number)
    }

    /// Takes a fetch out of the table, and returns who waited for it.
    pub(crate) fn end(&mut self, number: Number) -> Vec<Reply> {
        if self.is_forgotten(number) {
            return Vec::new();
        }
        self.fetches.remove(&number.hash).map(|ended| ended.waiting).unwrap_or_default()
    }

    /// Only the client that asked first gets the response body; who waited is returned. The fetch stays in the table,
    /// so that the object is stored once, and not at all if it is purged meanwhile.
    pub(crate) fn go_alone(&mut self, number: Number) -> Vec<Reply> {
        self.of(number)
            .map(|under_way| {
                under_way.is_alone = true;
                std::mem::take(&mut under_way.waiting)
            })
            .unwrap_or_default()
    }

    /// Returns whether requests wait for a fetch, beside the one that it was begun for.
    pub(crate) fn is_waited_for(&self, number: Number) -> bool {
        self.fetches
            .get(&number.hash)
            .is_some_and(|under_way| under_way.number == number.number && !under_way.waiting.is_empty())
    }

    /// The answer may be shared: tells who waited, and leaves it for those to come. (Who waited when it was purged has
    /// asked again, and nobody may join.)
    pub(crate) fn announce(&mut self, number: Number, shared: &SharedAnswer) {
        let Some(under_way) = self.of(number) else { return };
        under_way.started = Some(shared.clone());
        for other in std::mem::take(&mut under_way.waiting) {
            answer(other, shared.join(true));
        }
    }

    /// Takes the fetches for an object and its variants out of the table, because it was purged or has become invalid:
    /// their responses are not stored, nobody joins them any more, and clients that wait for them ask again. A client
    /// that reads one already goes on, as does the client that it was begun for: they asked before the purge. Answers
    /// whether there was such a fetch.
    pub(crate) fn forget(&mut self, primary: &[u8]) -> bool {
        // A fetch of a variant has another hash than the URL; few are under way at once.
        let forgotten: Vec<_> =
            self.fetches.extract_if(|_, under_way| under_way.request.primary() == primary).collect();
        let any = !forgotten.is_empty();
        for (_, under_way) in forgotten {
            for other in under_way.waiting {
                answer(other, FetchOutcome::Again);
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use wire::http1::{
        framing::Framing,
        head::{HeadLimits, HeaderSlots, Progress, parse_request},
    };

    use super::*;
    use crate::{
        config::{Config, Origin},
        request::{
            active_config::ActiveConfig, client_auth::ClientAuth, client_ip::Visitor, key,
            lookup_key::LookupKey,
        },
        site::SiteTable,
    };

    fn want(alone: bool) -> (FetchRequest, oneshot::Receiver<FetchReply>) {
        let mut slots = HeaderSlots::new();
        let bytes = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n";
        let Ok(Progress::Complete((head, head_bytes))) =
            parse_request(bytes, &mut slots, &HeadLimits::default())
        else {
            panic!("a valid head");
        };
        let mut key = Vec::new();
        let site = key::of_request(&head, &SiteTable::default(), &mut key);
        let keyed =
            LookupKey { hash: Hash::seeded(&key, 0), primary_bytes: key.len(), site, is_known: false };
        let in_force = ActiveConfig::of_test(Config::new(Origin::http("a", 9)), 1);
        let client = Visitor::alone(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let request = Request::new(
            (&head, head_bytes),
            &key,
            keyed,
            Framing::None,
            (client, ClientAuth::Plain),
            &in_force,
        );
        let (reply, answered) = oneshot::channel();
        (FetchRequest { request: Arc::new(request), anew: false, alone, reply }, answered)
    }

    #[test]
    fn nobody_waits_for_what_will_hardly_be_stored() {
        for (alone, waits) in [(false, true), (true, false)] {
            let mut table = InFlight::default();
            let number = table.begin(&want(alone).0);
            let (second, mut answered) = want(alone);
            assert_eq!(matches!(table.join(second, true, 0, |_, _| true), Place::Joined), waits);
            // Who waits has no answer yet; who does not has been given back to ask alone.
            assert_eq!(matches!(answered.try_recv(), Err(oneshot::error::TryRecvError::Empty)), waits);
            assert_eq!(table.end(number).len(), usize::from(waits));
            assert!(matches!(table.join(want(false).0, true, 0, |_, _| true), Place::Vacant(_)));
        }
    }

    #[test]
    fn who_may_not_join_asks_alone_and_begins_where_nothing_is_under_way() {
        let mut table = InFlight::default();
        assert!(matches!(table.join(want(false).0, false, 0, |_, _| true), Place::Vacant(_)));
        table.begin(&want(false).0);
        assert!(matches!(table.join(want(false).0, false, 0, |_, _| true), Place::Alone(_)));
        assert!(matches!(table.join(want(false).0, true, 0, |_, _| true), Place::Joined));
    }
}
