//! Fetches under way on one core, by the hash of their key, with the requests that wait for them or may join.

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

/// Maximum number of fetches under way on one core; further requests are passed through.
const FETCHES_MAX: usize = 10_000;

/// Use that a fetch makes of stored answers and of other requests' fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FetchTerms {
    /// True if a stored answer must not be used (RFC 9111 §5.2.1.4).
    pub(crate) bypass_stored: bool,
    /// True if the last answer was not storable, so the next one is unlikely to be: no other request waits
    /// for this fetch.
    pub(crate) no_collapse: bool,
}

impl FetchTerms {
    /// No stored answer is used, but a fetch under way is joined.
    pub(crate) const BYPASS: Self = Self { bypass_stored: true, no_collapse: false };
}

/// Request of a core to the owner of a key.
pub(crate) struct FetchRequest {
    pub(crate) request: Arc<Request>,
    pub(crate) terms: FetchTerms,
    pub(crate) reply: Reply,
}

/// Reply to the core that requested the fetch.
pub(crate) enum FetchReply {
    /// An interim answer of the origin; the next reply follows on `next`.
    Interim { head: Vec<u8>, next: oneshot::Receiver<FetchReply> },
    /// The outcome of the fetch.
    Outcome(FetchOutcome),
}

/// Channel to a request that waits for the fetch.
pub(crate) type Reply = oneshot::Sender<FetchReply>;

/// Outcome of a fetch, for one request.
pub(crate) enum FetchOutcome {
    /// The answer: its head, and its body as it arrives.
    Body {
        /// Head and metadata of the response.
        response: Arc<Response>,
        /// The reader's position in the body.
        cursor: Cursor,
        /// True if the request joined another request's fetch.
        collapsed: bool,
    },
    /// The object is in the store by now; the request must look it up again.
    Again,
    /// The origin has validated the stored object with a 304: the object may be used, fresh or not. The lines
    /// are the `Set-Cookie` fields of the 304, for this client alone.
    Validated { set_cookie: Vec<u8> },
    /// The origin fails, and the stored answer may be served stale instead.
    StandIn,
    /// The request was for a slice, and the origin has another version of the object by now; the stored
    /// version is dropped.
    OtherVersion,
    /// The request was for a slice, and the origin does not send it.
    NoBlock,
    /// The answer is for one client only, or there is no room: the request must ask the origin itself.
    Alone,
    /// The origin failed.
    Failed(OriginError),
}

/// Sends the outcome to a waiting request. If its client has gone, the outcome is dropped, which is not an
/// error.
pub(crate) fn answer(reply: Reply, start: FetchOutcome) {
    let _ = reply.send(FetchReply::Outcome(start));
}

/// Sends an interim answer of the origin to a waiting request.
pub(crate) fn tell_interim(reply: &mut Reply, head: Vec<u8>) {
    let (later, next) = oneshot::channel();
    let _ = std::mem::replace(reply, later).send(FetchReply::Interim { head, next });
}

/// A fetch under way, in its owner's table.
struct FetchEntry {
    /// The request that began the fetch; purges match the part of its key that all variants share.
    request: Arc<Request>,
    /// True if only the client that asked first gets this response body: the body is being stored in parts,
    /// or is unlikely to be storable. Other clients find the object when it is complete.
    is_alone: bool,
    /// True while a peer is asked for the object; that peer might ask this accelerator for the same object.
    asks_peer: bool,
    /// Serial number of the fetch on this core.
    number: u64,
    /// Requests that wait for the head of the answer.
    waiting: Vec<Reply>,
    /// The answer, once its head has arrived and if it may be shared; holds the first chunk for requests that
    /// join later.
    started: Option<SharedAnswer>,
}

/// An answer that further requests may join.
#[derive(Clone)]
pub(crate) struct SharedAnswer {
    pub(crate) response: Arc<Response>,
    pub(crate) growing: Arc<GrowingState>,
    pub(crate) first: Arc<Chunk>,
}

impl SharedAnswer {
    /// Creates a reader of the answer from its first byte.
    pub(crate) fn join(&self, collapsed: bool) -> FetchOutcome {
        let cursor = Cursor::new(Arc::clone(&self.growing), Arc::clone(&self.first));
        FetchOutcome::Body { response: Arc::clone(&self.response), cursor, collapsed }
    }
}

/// Identity of a fetch. The hash alone is not enough: after a purge another fetch may begin under the same
/// hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    hash: Hash,
    number: u64,
}

/// Result of looking for a fetch to join.
pub(crate) enum Place {
    /// The request joined a fetch: it is answered, or will be.
    Joined,
    /// A fetch of another key with the same hash, or a fetch that cannot be joined, is under way.
    Alone(FetchRequest),
    /// No fetch is under way, and there is no room for another.
    Full(FetchRequest),
    /// No fetch is under way: one must begin.
    Vacant(FetchRequest),
}

/// Table of the fetches under way on one core.
#[derive(Default)]
pub(crate) struct InFlight {
    fetches: HashMap<Hash, FetchEntry, BuildHasherDefault<IdentityHasher>>,
    begun: u64,
}

impl InFlight {
    /// Joins the fetch under way for a key, if there is one. If `is_still_good` returns false, the fetch's
    /// answer was purged since the fetch began: then the fetch continues only for requests that joined
    /// earlier, and is not stored. A request without `may_join` asks the origin alone.
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
        // The two accelerators would wait for each other.
        let is_circle = under_way.asks_peer && want.request.is_of_peer;
        if under_way.is_alone || !may_join || is_circle || under_way.request.key != want.request.key {
            // The object is being written to the file and can be read once it is complete; or it is unlikely
            // to be storable; or two keys have the same 64-bit hash. In each case the request asks the origin
            // on its own.
            return Place::Alone(want);
        }
        let is_purged =
            under_way.started.as_ref().is_some_and(|shared| !is_still_good(&want.request, &shared.response));
        // No request joins an answer that is only for requests that were already waiting. The next request
        // begins the next fetch, which further requests join.
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
            // The head arrived so long ago that it is stale for this request; the fetch continues for earlier
            // requests.
            Some(shared) if !shared.response.is_fresh(now_s) => return Place::Alone(want),
            Some(shared) => answer(want.reply, shared.join(true)),
            None => under_way.waiting.push(want.reply),
        }
        Place::Joined
    }

    /// Adds a new fetch. The table must have no entry for the hash of its key yet.
    pub(crate) fn begin(&mut self, FetchRequest { request, terms, .. }: &FetchRequest) -> Number {
        let number = self.begun;
        self.begun += 1;
        let under_way = FetchEntry {
            request: Arc::clone(request),
            waiting: Vec::new(),
            is_alone: terms.no_collapse,
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

    /// Records whether a peer is currently asked for the object.
    pub(crate) fn asks_peer(&mut self, number: Number, is_asking: bool) {
        if let Some(under_way) = self.of(number) {
            under_way.asks_peer = is_asking;
        }
    }

    /// Returns whether a fetch was purged or invalidated since it began.
    pub(crate) fn is_forgotten(&self, number: Number) -> bool {
        self.fetches.get(&number.hash).is_none_or(|under_way| under_way.number != number.number)
    }

    /// Removes a fetch from the table, and returns the requests that wait for it.
    pub(crate) fn end(&mut self, number: Number) -> Vec<Reply> {
        if self.is_forgotten(number) {
            return Vec::new();
        }
        self.fetches.remove(&number.hash).map(|ended| ended.waiting).unwrap_or_default()
    }

    /// Keeps the response body for the client that asked first, and returns the waiting requests. The fetch
    /// stays in the table, so that the object is stored once, and not at all if it is purged in the meantime.
    pub(crate) fn go_alone(&mut self, number: Number) -> Vec<Reply> {
        self.of(number)
            .map(|under_way| {
                under_way.is_alone = true;
                std::mem::take(&mut under_way.waiting)
            })
            .unwrap_or_default()
    }

    /// Returns whether further requests wait for a fetch, besides the one for which it began.
    pub(crate) fn is_waited_for(&self, number: Number) -> bool {
        self.fetches
            .get(&number.hash)
            .is_some_and(|under_way| under_way.number == number.number && !under_way.waiting.is_empty())
    }

    /// Shares the answer with the waiting requests and with later ones. (Requests that waited at the time of
    /// a purge have asked again, and such a fetch cannot be joined.)
    pub(crate) fn announce(&mut self, number: Number, shared: &SharedAnswer) {
        let Some(under_way) = self.of(number) else { return };
        under_way.started = Some(shared.clone());
        for other in std::mem::take(&mut under_way.waiting) {
            answer(other, shared.join(true));
        }
    }

    /// Removes the fetches for an object and its variants from the table, because the object was purged or
    /// invalidated. Their responses are not stored, no request joins them any more, and waiting requests ask
    /// again. A client that is already reading a response continues to read it, and so does the client for
    /// which the fetch began: they asked before the purge. Returns whether there was such a fetch.
    pub(crate) fn forget(&mut self, primary: &[u8]) -> bool {
        // A variant's key has another hash than the URL's, so all fetches are searched; there are only a few.
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
    use super::*;
    use crate::{
        config::{Config, Origin},
        request::{active_config::ActiveConfig, test_requests},
    };

    fn want(no_collapse: bool) -> (FetchRequest, oneshot::Receiver<FetchReply>) {
        let in_force = ActiveConfig::of_test(Config::new(Origin::http("a", 9)), 1);
        let text = "GET /page HTTP/1.1\r\nHost: a\r\n\r\n";
        let request = test_requests::request(text, |key| Hash::seeded(key, 0), &in_force);
        let (reply, answered) = oneshot::channel();
        let terms = FetchTerms { bypass_stored: false, no_collapse };
        (FetchRequest { request: Arc::new(request), terms, reply }, answered)
    }

    #[test]
    fn nobody_waits_for_what_will_hardly_be_stored() {
        for (no_collapse, waits) in [(false, true), (true, false)] {
            let mut table = InFlight::default();
            let number = table.begin(&want(no_collapse).0);
            let (second, mut answered) = want(no_collapse);
            assert_eq!(matches!(table.join(second, true, 0, |_, _| true), Place::Joined), waits);
            // A waiting request has no answer yet; a request that does not wait has been returned and must
            // ask the origin on its own.
            assert_eq!(matches!(answered.try_recv(), Err(oneshot::error::TryRecvError::Empty)), waits);
            assert_eq!(table.end(number).len(), usize::from(waits));
            assert!(matches!(table.join(want(false).0, true, 0, |_, _| true), Place::Vacant(_)));
        }
    }

    #[test]
    fn a_request_barred_from_joining_fetches_alone() {
        let mut table = InFlight::default();
        assert!(matches!(table.join(want(false).0, false, 0, |_, _| true), Place::Vacant(_)));
        table.begin(&want(false).0);
        assert!(matches!(table.join(want(false).0, false, 0, |_, _| true), Place::Alone(_)));
        assert!(matches!(table.join(want(false).0, true, 0, |_, _| true), Place::Joined));
    }
}
