//! The requests that a client has received and may answer (`allow_responses`).
//!
//! One small map a connection, in its core's memory; only clients with the permission have one. It remembers at most
//! [`OPEN_REQUESTS_MAX`] requests and [`OPEN_BYTES_MAX`] of them; one more forgets the oldest. What the maps of a core take
//! is counted together, and is a part of `max_pending_total`.

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use super::permissions::Responses;

/// Requests remembered a connection (nats-server begins to prune at as many: `replyPermLimit`).
pub const OPEN_REQUESTS_MAX: usize = 4096;

/// Bytes that the requests of a connection take, at most.
const OPEN_BYTES_MAX: usize = 1 << 20;
/// What a request takes beside its reply subject: its entry in the map, and in the list of arrivals.
const OPEN_BYTES: usize = 96;
const ARRIVAL_BYTES: usize = 40;

/// Requests that may be answered. Times are the caller's monotonic milliseconds.
#[derive(Debug)]
pub struct Replies {
    allowed: Responses,
    open: HashMap<Box<[u8]>, Open>,
    /// The order of arrival; an entry whose number is not the map's is dead.
    order: VecDeque<(Box<[u8]>, u64)>,
    next: u64,
    bytes: usize,
    /// What all of a core take.
    sum: Rc<Cell<usize>>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    messages_left: Option<u32>,
    until_ms: Option<u64>,
}

impl Replies {
    /// Nothing is open.
    pub fn new(allowed: Responses) -> Self {
        Self::counted(allowed, Rc::default())
    }

    /// Nothing is open; what will be is counted in `sum`, too.
    pub fn counted(allowed: Responses, sum: Rc<Cell<usize>>) -> Self {
        Self { allowed, open: HashMap::new(), order: VecDeque::new(), next: 0, bytes: 0, sum }
    }

    /// Bytes of memory that the open requests take.
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

    /// A message with a reply subject is delivered to the client. `false` when an older request was forgotten for it.
    pub fn requested(&mut self, reply: &[u8], now_ms: u64) -> bool {
        self.forget_expired(now_ms);
        let until_ms = self.allowed.expires.map(|expires| now_ms.saturating_add(millis(expires)));
        let number = self.next;
        self.next += 1;
        let open = Open { number, messages_left: self.allowed.messages_max, until_ms };
        if self.open.insert(reply.into(), open).is_none() {
            self.takes(OPEN_BYTES + reply.len());
        }
        self.order.push_back((reply.into(), number));
        self.takes(ARRIVAL_BYTES + reply.len());
        let mut kept_all = true;
        while self.open.len() > OPEN_REQUESTS_MAX || self.bytes > OPEN_BYTES_MAX {
            self.forget_oldest();
            kept_all = false;
        }
        // Answered requests leave dead entries behind; they go before they outnumber the living.
        if self.order.len() > 2 * OPEN_REQUESTS_MAX {
            let (open, mut gone) = (&self.open, 0);
            self.order.retain(|(reply, number)| {
                let is_alive = open.get(reply).is_some_and(|open| open.number == *number);
                gone += if is_alive { 0 } else { ARRIVAL_BYTES + reply.len() };
                is_alive
            });
            self.gives_back(gone);
        }
        kept_all
    }

    /// Whether the client may publish to this subject as an answer; uses up one message if so.
    pub fn may_answer(&mut self, subject: &[u8], now_ms: u64) -> bool {
        let Some(open) = self.open.get_mut(subject) else { return false };
        let expired = open.until_ms.is_some_and(|until_ms| until_ms <= now_ms);
        let answers = !expired && open.messages_left != Some(0);
        if let Some(left) = &mut open.messages_left {
            *left = left.saturating_sub(1);
        }
        if expired || open.messages_left == Some(0) {
            self.open.remove(subject);
            self.gives_back(OPEN_BYTES + subject.len());
        }
        answers
    }

    /// How many requests are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn forget_expired(&mut self, now_ms: u64) {
        while let Some((reply, number)) = self.order.front() {
            let alive = self.open.get(reply).is_some_and(|open| {
                open.number == *number && open.until_ms.is_none_or(|until_ms| until_ms > now_ms)
            });
            if alive {
                break;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((reply, number)) = self.order.pop_front() else { return };
        self.gives_back(ARRIVAL_BYTES + reply.len());
        if self.open.get(&reply).is_some_and(|open| open.number == number) {
            self.open.remove(&reply);
            self.gives_back(OPEN_BYTES + reply.len());
        }
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

    fn replies(messages_max: Option<u32>, expires_ms: Option<u64>) -> Replies {
        Replies::new(Responses { messages_max, expires: expires_ms.map(Duration::from_millis) })
    }

    #[test]
    fn a_request_is_answered_as_often_as_allowed_and_in_time() {
        let mut replies = replies(Some(2), Some(100));
        assert!(!replies.may_answer(b"r", 0));
        replies.requested(b"r", 0);
        assert!(replies.may_answer(b"r", 50) && replies.may_answer(b"r", 99));
        assert!(!replies.may_answer(b"r", 99), "twice was the limit");
        replies.requested(b"s", 0);
        assert!(!replies.may_answer(b"s", 100), "too late");
        assert!(replies.is_empty());
    }

    #[test]
    fn the_same_reply_subject_again_is_a_new_request() {
        let mut replies = replies(Some(1), Some(100));
        replies.requested(b"r", 0);
        replies.requested(b"r", 90);
        // The first one's time is up; the second one's is not.
        replies.requested(b"other", 120);
        assert!(replies.may_answer(b"r", 130));
        assert_eq!(replies.len(), 1);
    }

    #[test]
    fn without_limits_it_stays_open() {
        let mut replies = replies(None, None);
        replies.requested(b"r", 0);
        assert!((0..1000).all(|_| replies.may_answer(b"r", u64::MAX)));
    }

    /// Reply subjects as long as a control line: the bytes are bounded, and all are given back.
    #[test]
    fn bytes_are_bounded_and_given_back() {
        let sum = Rc::new(Cell::new(0));
        let allowed = Responses { messages_max: Some(2), expires: None };
        let mut replies = Replies::counted(allowed, Rc::clone(&sum));
        for number in 0..3 * OPEN_REQUESTS_MAX {
            let reply = format!("{number}{}", "x".repeat(4000));
            replies.requested(reply.as_bytes(), 0);
            assert!(replies.bytes() <= OPEN_BYTES_MAX);
            assert_eq!(replies.bytes(), sum.get());
            if number % 3 == 0 {
                assert!(replies.may_answer(reply.as_bytes(), 0) && replies.may_answer(reply.as_bytes(), 0));
            }
        }
        let exact: usize = replies.open.keys().map(|reply| OPEN_BYTES + reply.len()).sum::<usize>()
            + replies.order.iter().map(|(reply, _)| ARRIVAL_BYTES + reply.len()).sum::<usize>();
        assert_eq!(replies.bytes(), exact);
        drop(replies);
        assert_eq!(sum.get(), 0);
    }

    #[test]
    fn memory_is_bounded_whatever_is_asked_and_answered() {
        let mut replies = replies(Some(1), None);
        let mut forgotten = 0;
        for i in 0..3 * OPEN_REQUESTS_MAX {
            let reply = i.to_string();
            forgotten += usize::from(!replies.requested(reply.as_bytes(), 0));
            assert!(replies.len() <= OPEN_REQUESTS_MAX && replies.order.len() <= 2 * OPEN_REQUESTS_MAX + 1);
        }
        assert_eq!(forgotten, 2 * OPEN_REQUESTS_MAX);
        for i in 0..10 * OPEN_REQUESTS_MAX {
            let reply = format!("x{i}");
            replies.requested(reply.as_bytes(), 0);
            assert!(replies.may_answer(reply.as_bytes(), 0));
            assert!(replies.order.len() <= 2 * OPEN_REQUESTS_MAX + 1);
        }
    }
}
