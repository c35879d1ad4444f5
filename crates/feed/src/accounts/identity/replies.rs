//! Requests that a client has received and may answer (`allow_responses`).
//!
//! ```text
//!   reply subject ─ by_reply ─▶ request {requester, messages left, expiry}
//!                                  │ in two lists, oldest first: all requests ─▶ the first one expires next
//!                                  └ the requests of one requester ───────────▶ the first one is forgotten to make room
//! ```
//! Each connection with the permission has one small table in its core's memory. The table holds at most
//! [`OPEN_REQUESTS_MAX`] requests and [`OPEN_BYTES_MAX`] bytes. Above that, the requesters with the most open
//! bytes lose their oldest requests. So a requester can displace the requests of another one only while it
//! has fewer open bytes itself. All tables of a core together count towards `max_pending_total`.

use std::{
    cell::Cell,
    collections::{BinaryHeap, HashMap},
    hash::{BuildHasher, RandomState},
    rc::Rc,
    time::Duration,
};

use hashbrown::HashTable;
use slab::Slab;

use super::permissions::Responses;

/// Largest number of requests remembered for a connection (nats-server begins to prune at this number:
/// `replyPermLimit`).
pub const OPEN_REQUESTS_MAX: usize = 4096;

/// Maximum number of bytes that the requests of a connection may take.
const OPEN_BYTES_MAX: usize = 1 << 20;
/// Memory counted for each request, in bytes, in addition to its reply subject: the entry, its table slot,
/// and the spare capacity of both.
const OPEN_BYTES: usize = 128;
/// Memory counted for each requester, in bytes, in addition to its requests.
const REQUESTER_BYTES: usize = 64;
/// Divisor of both bounds of the table. When the table is full, requests are forgotten until this fraction of
/// the bounds is free; otherwise every further request would search for the requester with the most bytes.
const SPARED_PART: usize = 16;

/// Requests that may be answered. Times are monotonic milliseconds, given by the caller.
#[derive(Debug)]
pub struct Replies {
    allowed: Responses,
    open: Slab<OpenReply>,
    /// Requests by reply subject.
    by_reply: HashTable<usize>,
    hasher: RandomState,
    /// All requests in the order of arrival, in which they also expire.
    order: List,
    requesters: HashMap<u64, Requester>,
    bytes: usize,
    /// Total bytes of all such tables of the core.
    sum: Rc<Cell<usize>>,
}

#[derive(Debug)]
struct OpenReply {
    reply: Box<[u8]>,
    requester: u64,
    messages_left: Option<u32>,
    until_ms: Option<u64>,
    /// Links to the neighbours in the list of all requests and in the list of the same requester's requests.
    links: [Link; 2],
}

#[derive(Debug, Default)]
struct Requester {
    order: List,
    bytes: usize,
}

/// A doubly linked list of requests; each request stores its own links.
#[derive(Debug, Clone, Copy, Default)]
struct List {
    first: Option<usize>,
    last: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Link {
    before: Option<usize>,
    behind: Option<usize>,
}

/// Indices into a request's links: the list of all requests, and the list of one requester's requests.
const OF_ALL: usize = 0;
const OF_REQUESTER: usize = 1;

impl List {
    fn push(&mut self, open: &mut Slab<OpenReply>, which: usize, at: usize) {
        open[at].links[which] = Link { before: self.last, behind: None };
        match self.last {
            Some(last) => open[last].links[which].behind = Some(at),
            None => self.first = Some(at),
        }
        self.last = Some(at);
    }

    fn take_out(&mut self, open: &mut Slab<OpenReply>, which: usize, at: usize) {
        let Link { before, behind } = std::mem::take(&mut open[at].links[which]);
        match before {
            Some(before) => open[before].links[which].behind = behind,
            None => self.first = behind,
        }
        match behind {
            Some(behind) => open[behind].links[which].before = before,
            None => self.last = before,
        }
    }
}

impl Replies {
    /// Builds an empty table.
    pub fn new(allowed: Responses) -> Self {
        Self::counted(allowed, Rc::default())
    }

    /// Builds an empty table whose bytes are added to `sum`, too.
    pub fn counted(allowed: Responses, sum: Rc<Cell<usize>>) -> Self {
        Self {
            allowed,
            open: Slab::new(),
            by_reply: HashTable::new(),
            hasher: RandomState::new(),
            order: List::default(),
            requesters: HashMap::new(),
            bytes: 0,
            sum,
        }
    }

    /// Returns the bytes of memory that the open requests take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn takes(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.sum.set(self.sum.get() + bytes);
    }

    fn gives_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.sum.set(self.sum.get() - bytes);
    }

    /// Records that a request of `requester` (a connection's number) was delivered to the client. Returns how
    /// many older requests were forgotten to make room.
    pub fn requested(&mut self, requester: u64, reply: &[u8], now_ms: u64) -> usize {
        self.forget_expired(now_ms);
        let until_ms = self.allowed.expires.map(|expires| now_ms.saturating_add(millis(expires)));
        let messages_left = self.allowed.messages_max;
        if let Some(at) = self.find(reply) {
            // The request's reply subject is already open. The requester that used the subject first keeps
            // it, so that no other requester can take over its request.
            let open = &mut self.open[at];
            (open.until_ms, open.messages_left) = (until_ms, messages_left);
            self.order.take_out(&mut self.open, OF_ALL, at);
            self.order.push(&mut self.open, OF_ALL, at);
            return 0;
        }
        let links = [Link::default(); 2];
        let at =
            self.open.insert(OpenReply { reply: reply.into(), requester, messages_left, until_ms, links });
        let Self { open, by_reply, hasher, .. } = self;
        by_reply.insert_unique(hasher.hash_one(reply), at, |&at| hasher.hash_one(&*open[at].reply));
        self.order.push(&mut self.open, OF_ALL, at);
        let bytes = OPEN_BYTES + reply.len();
        let is_known = self.requesters.contains_key(&requester);
        let of = self.requesters.entry(requester).or_default();
        of.order.push(&mut self.open, OF_REQUESTER, at);
        of.bytes += bytes;
        self.takes(bytes + if is_known { 0 } else { REQUESTER_BYTES });
        if self.is_above(OPEN_REQUESTS_MAX, OPEN_BYTES_MAX) { self.make_room() } else { 0 }
    }

    /// Returns whether the client may publish to this subject as an answer, and uses up one message if so.
    pub fn may_answer(&mut self, subject: &[u8], now_ms: u64) -> bool {
        let Some(at) = self.find(subject) else { return false };
        let open = &mut self.open[at];
        let expired = open.until_ms.is_some_and(|until_ms| until_ms <= now_ms);
        let answers = !expired && open.messages_left != Some(0);
        if let Some(left) = &mut open.messages_left {
            *left = left.saturating_sub(1);
        }
        if expired || open.messages_left == Some(0) {
            self.forget(at);
        }
        answers
    }

    /// Returns the number of open requests.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns whether no request is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn find(&self, reply: &[u8]) -> Option<usize> {
        self.by_reply.find(self.hasher.hash_one(reply), |&at| *self.open[at].reply == *reply).copied()
    }

    fn is_above(&self, requests: usize, bytes: usize) -> bool {
        self.open.len() > requests || self.bytes > bytes
    }

    fn forget_expired(&mut self, now_ms: u64) {
        while let Some(at) = self.order.first {
            if self.open[at].until_ms.is_none_or(|until_ms| until_ms > now_ms) {
                break;
            }
            self.forget(at);
        }
    }

    /// Forgets requests of the requesters with the most open bytes until the table has room again. Returns
    /// how many requests were forgotten.
    #[cold]
    fn make_room(&mut self) -> usize {
        let mut by_bytes: BinaryHeap<(usize, u64)> =
            self.requesters.iter().map(|(&requester, of)| (of.bytes, requester)).collect();
        let (requests, bytes) = (
            OPEN_REQUESTS_MAX - OPEN_REQUESTS_MAX / SPARED_PART,
            OPEN_BYTES_MAX - OPEN_BYTES_MAX / SPARED_PART,
        );
        let before = self.open.len();
        while self.is_above(requests, bytes) {
            let Some((_, requester)) = by_bytes.pop() else { break };
            let Some(oldest) = self.requesters.get(&requester).and_then(|of| of.order.first) else { break };
            self.forget(oldest);
            by_bytes.extend(self.requesters.get(&requester).map(|of| (of.bytes, requester)));
        }
        before - self.open.len()
    }

    fn forget(&mut self, at: usize) {
        self.order.take_out(&mut self.open, OF_ALL, at);
        let requester = self.open[at].requester;
        let mut bytes = OPEN_BYTES + self.open[at].reply.len();
        if let Some(of) = self.requesters.get_mut(&requester) {
            of.order.take_out(&mut self.open, OF_REQUESTER, at);
            of.bytes -= bytes;
            if of.order.first.is_none() {
                self.requesters.remove(&requester);
                bytes += REQUESTER_BYTES;
            }
        }
        let open = self.open.remove(at);
        if let Ok(entry) = self.by_reply.find_entry(self.hasher.hash_one(&*open.reply), |&found| found == at)
        {
            entry.remove();
        }
        self.gives_back(bytes);
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.gives_back(self.bytes);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u64 = 1;
    const EVE: u64 = 2;

    fn replies(messages_max: Option<u32>, expires_ms: Option<u64>) -> Replies {
        Replies::new(Responses { messages_max, expires: expires_ms.map(Duration::from_millis) })
    }

    #[test]
    fn replies_are_bounded_in_count_and_time() {
        let mut replies = replies(Some(2), Some(100));
        assert!(!replies.may_answer(b"r", 0));
        replies.requested(ANN, b"r", 0);
        assert!(replies.may_answer(b"r", 50) && replies.may_answer(b"r", 99));
        assert!(!replies.may_answer(b"r", 99), "twice was the limit");
        replies.requested(ANN, b"s", 0);
        assert!(!replies.may_answer(b"s", 100), "too late");
        assert!(replies.is_empty());
    }

    #[test]
    fn a_reused_reply_subject_is_a_new_request() {
        let mut replies = replies(Some(1), Some(100));
        replies.requested(ANN, b"r", 0);
        replies.requested(ANN, b"r", 90);
        // The first request has expired; the second one has not.
        replies.requested(ANN, b"other", 120);
        assert!(replies.may_answer(b"r", 130));
        assert_eq!(replies.len(), 1);
    }

    #[test]
    fn without_limits_it_stays_open() {
        let mut replies = replies(None, None);
        replies.requested(ANN, b"r", 0);
        assert!((0..1000).all(|_| replies.may_answer(b"r", u64::MAX)));
    }

    /// Reply subjects as long as a control line: the table's bytes stay bounded, and all of them are released
    /// in the end.
    #[test]
    fn bytes_are_bounded_and_given_back() {
        let sum = Rc::new(Cell::new(0));
        let allowed = Responses { messages_max: Some(2), expires: None };
        let mut replies = Replies::counted(allowed, Rc::clone(&sum));
        for number in 0..3 * OPEN_REQUESTS_MAX {
            let reply = format!("{number}{}", "x".repeat(4000));
            replies.requested(ANN, reply.as_bytes(), 0);
            assert!(replies.bytes() <= OPEN_BYTES_MAX);
            assert_eq!(replies.bytes(), sum.get());
            if number % 3 == 0 {
                assert!(replies.may_answer(reply.as_bytes(), 0) && replies.may_answer(reply.as_bytes(), 0));
            }
        }
        let exact: usize = replies.open.iter().map(|(_, open)| OPEN_BYTES + open.reply.len()).sum::<usize>()
            + REQUESTER_BYTES;
        assert_eq!(replies.bytes(), exact);
        drop(replies);
        assert_eq!(sum.get(), 0);
    }

    #[test]
    fn memory_is_bounded_whatever_is_asked_and_answered() {
        let mut replies = replies(Some(1), None);
        let mut forgotten = 0;
        for i in 0..3 * OPEN_REQUESTS_MAX {
            forgotten += replies.requested(ANN, i.to_string().as_bytes(), 0);
            assert!(replies.len() <= OPEN_REQUESTS_MAX);
        }
        assert_eq!(forgotten + replies.len(), 3 * OPEN_REQUESTS_MAX);
        assert!(replies.len() >= OPEN_REQUESTS_MAX / SPARED_PART * (SPARED_PART - 1));
        let before = replies.len();
        for i in 0..10 * OPEN_REQUESTS_MAX {
            let reply = format!("x{i}");
            replies.requested(ANN, reply.as_bytes(), 0);
            assert!(replies.may_answer(reply.as_bytes(), 0));
        }
        assert!(replies.len() <= before && replies.open.capacity() <= 2 * OPEN_REQUESTS_MAX);
    }

    /// If one client opens hundreds of long reply subjects or thousands of short ones, the requests of other
    /// clients stay.
    #[test]
    fn who_asks_most_gives_way() {
        for (count, bytes) in [(200, 3900), (1000, 3900), (5000, 10), (50_000, 10)] {
            let mut replies = replies(Some(1), Some(60_000));
            replies.requested(ANN, b"_INBOX.ann", 0);
            let forgotten: usize = (0..count)
                .map(|number| replies.requested(EVE, format!("{number}.{}", "e".repeat(bytes)).as_bytes(), 0))
                .sum();
            assert_eq!(forgotten + replies.len(), count + 1);
            assert!(replies.may_answer(b"_INBOX.ann", 1), "{count} of {bytes} bytes");
            let newest = format!("{}.{}", count - 1, "e".repeat(bytes));
            assert!(replies.may_answer(newest.as_bytes(), 1), "of hers the oldest went");
        }
    }

    /// With a hundred clients that have twenty requests each and one client that has thousands, only the
    /// latter loses requests. Its requests that use another client's reply subject do not take over that
    /// subject.
    #[test]
    fn who_asks_little_loses_nothing() {
        let mut replies = replies(Some(1), None);
        let reply = |client: u64, number: u64| format!("_INBOX.{client}.{number}");
        for number in 0..20 {
            for client in 10..110 {
                assert_eq!(replies.requested(client, reply(client, number).as_bytes(), 0), 0);
            }
        }
        for number in 0..10_000 {
            replies.requested(EVE, reply(EVE, number).as_bytes(), 0);
            replies.requested(EVE, reply(10, number % 20).as_bytes(), 0);
        }
        for client in 10..110 {
            assert!(
                (0..20).all(|number| replies.may_answer(reply(client, number).as_bytes(), 0)),
                "{client}"
            );
        }
        assert_eq!(replies.requesters.len(), 1, "of the others nothing is left");
    }
}
