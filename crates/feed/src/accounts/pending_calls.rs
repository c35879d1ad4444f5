//! Pending requests to services of other accounts.
//!
//! ```text
//!   B requests q, reply _INBOX.1 ─▶ A gets x, reply _R_.<core>.<token>      token ─▶ {B, _INBOX.1, how often, until}
//!   A answers to _R_.<core>.<token> ─▶ that core ─▶ B's _INBOX.1
//! ```
//! Each core has one table in its own memory, for the requests of its own clients. A token is a hash under a
//! secret key, so that only the service that got the request can answer it.
//!
//! *Bounds.* The tables of all cores together hold at most `waiting_requests_bytes_max` bytes. When a core's
//! table is full, a client that uses 1/[`HEAVY_SHARE`] of it or more is refused: its request is answered with
//! 503, as if there were no responders (`feed_requests_refused`). A client that uses less displaces the
//! request that expires next (`feed_requests_forgotten`). If one client fills the table with unanswered
//! requests, the displaced request is one of these. *Time limit:* the export's threshold, two minutes by
//! default (`feed_requests_unanswered`).

use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher as _, RandomState},
    rc::Rc,
};

use engine::random;

use crate::accounts::{identity::Response, imports::ServiceImport};

/// Memory counted for each pending request, in bytes, in addition to its reply subject.
const REQUEST_BYTES: usize = 256;
/// Divisor of the table's bytes: a client that uses more than this fraction is refused when the table is
/// full.
const HEAVY_SHARE: usize = 64;
/// Largest capacity, in entries, that an empty table of pending requests keeps; a larger table is freed.
const KEPT_REQUESTS_MAX: usize = 1024;
/// Prefix of the reply subjects of forwarded requests (nats-server's).
pub(crate) const RESERVED: &[u8] = b"_R_.";
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Lengths, in base-62 digits, of the core's part of a reply subject and of the token.
const OWN_LETTERS: usize = 6;
const TOKEN_LETTERS: usize = 11;

/// A core's table of pending requests.
pub(crate) struct Requests {
    /// Prefix of this core's reply subjects: `_R_.`, an identifier of the core, and a dot.
    prefix: Vec<u8>,
    open: HashMap<u64, Request>,
    /// Expiry time and token of each request, in the order of expiry.
    due: BTreeSet<(u64, u64)>,
    bytes: usize,
    bytes_max: usize,
    /// Bytes of pending requests by requesting client.
    held: HashMap<u64, usize>,
    keys: RandomState,
    next: u64,
}

/// Accounts between which an answer passes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerRoute {
    /// Account in which the answer is published.
    pub(crate) at: u16,
    /// Account to which the answer is forwarded.
    pub(crate) to: u16,
}

/// A pending request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) route: AnswerRoute,
    /// Reply subject in the account to which the answer is forwarded.
    pub(crate) reply: Rc<[u8]>,
    pub(crate) taken: Rc<ServiceImport>,
    /// Connection number of the requesting client; never reused.
    pub(crate) cid: u64,
    due_ms: u64,
}

/// Result of [`Requests::open`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OpenOutcome {
    /// The request is pending under this token. `forgot`: an older request was displaced.
    Open { token: u64, forgot: bool },
    /// The client has too many pending requests.
    Refused,
}

impl Requests {
    /// Builds an empty table. All `cores` share `bytes_max`.
    pub(crate) fn new(bytes_max: usize, cores: usize) -> Self {
        let seed =
            random::number().unwrap_or_else(|error| panic!("the system's random source failed: {error}"));
        let mut prefix = RESERVED.to_vec();
        write_number(seed, OWN_LETTERS, &mut prefix);
        prefix.push(b'.');
        Self {
            prefix,
            open: HashMap::new(),
            due: BTreeSet::new(),
            bytes: 0,
            bytes_max: bytes_max / cores.max(1),
            held: HashMap::new(),
            keys: RandomState::new(),
            next: 0,
        }
    }

    /// Returns the pattern of this core's reply subjects.
    pub(crate) fn pattern(&self) -> Vec<u8> {
        [&self.prefix[..], b"*"].concat()
    }

    /// Returns the number of pending requests.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Records a request and starts the time limit for its answer.
    pub(crate) fn open(
        &mut self,
        route: AnswerRoute,
        reply: &[u8],
        taken: &Rc<ServiceImport>,
        cid: u64,
        now_ms: u64,
    ) -> OpenOutcome {
        let price = REQUEST_BYTES + reply.len();
        let mut forgot = false;
        if self.bytes + price > self.bytes_max {
            let held = self.held.get(&cid).copied().unwrap_or_default();
            if held + price > self.bytes_max / HEAVY_SHARE {
                return OpenOutcome::Refused;
            }
            while self.bytes + price > self.bytes_max {
                let Some(&(_, first)) = self.due.first() else { return OpenOutcome::Refused };
                self.close(first);
                forgot = true;
            }
        }
        let token = loop {
            self.next += 1;
            let token = self.keys.hash_one(self.next);
            if !self.open.contains_key(&token) {
                break token;
            }
        };
        let due_ms = now_ms.saturating_add(time_of(taken));
        let request = Request { route, reply: reply.into(), taken: Rc::clone(taken), cid, due_ms };
        self.open.insert(token, request);
        self.due.insert((due_ms, token));
        self.bytes += price;
        *self.held.entry(cid).or_default() += price;
        OpenOutcome::Open { token, forgot }
    }

    /// Returns the token in a subject, if it is a reply subject of this core.
    #[inline]
    pub(crate) fn token_of(&self, subject: &[u8]) -> Option<u64> {
        let token = subject.strip_prefix(&self.prefix[..])?;
        (token.len() == TOKEN_LETTERS).then(|| read_number(token)).flatten()
    }

    /// Returns the reply subject for a token.
    pub(crate) fn subject_of(&self, token: u64) -> Vec<u8> {
        let mut subject = Vec::with_capacity(self.prefix.len() + TOKEN_LETTERS);
        subject.extend_from_slice(&self.prefix);
        write_number(token, TOKEN_LETTERS, &mut subject);
        subject
    }

    /// Returns the pending request that an answer published in the account `at` belongs to.
    pub(crate) fn find(&self, token: u64, at: u16, now_ms: u64) -> Option<&Request> {
        self.open.get(&token).filter(|request| {
            request.route.at == at && request.due_ms > now_ms && !request.taken.is_gone.get()
        })
    }

    /// Notes that an answer was forwarded. The last answer closes the request; any other restarts its time.
    pub(crate) fn answered(&mut self, token: u64, is_last: bool, now_ms: u64) {
        let Some(request) = self.open.get_mut(&token) else { return };
        if is_last || request.taken.service.service.response == Response::Singleton {
            self.close(token);
            return;
        }
        self.due.remove(&(request.due_ms, token));
        request.due_ms = now_ms.saturating_add(time_of(&request.taken));
        self.due.insert((request.due_ms, token));
    }

    /// Removes a request.
    pub(crate) fn close(&mut self, token: u64) {
        let Some(request) = self.open.remove(&token) else { return };
        self.due.remove(&(request.due_ms, token));
        let price = REQUEST_BYTES + request.reply.len();
        self.bytes -= price;
        if let Some(held) = self.held.get_mut(&request.cid) {
            *held -= price;
            if *held == 0 {
                self.held.remove(&request.cid);
            }
        }
        if self.open.is_empty() && self.open.capacity() > KEPT_REQUESTS_MAX {
            self.open = HashMap::new();
            self.held = HashMap::new();
        }
    }

    /// Closes up to `at_most` expired requests. Returns how many it closed, and the time at which the next
    /// one expires.
    pub(crate) fn close_overdue(&mut self, now_ms: u64, at_most: usize) -> (usize, Option<u64>) {
        for closed in 0..at_most {
            match self.due.first() {
                Some(&(due_ms, token)) if due_ms <= now_ms => self.close(token),
                first => return (closed, first.map(|(due_ms, _)| *due_ms)),
            }
        }
        (at_most, self.due.first().map(|(due_ms, _)| *due_ms))
    }

    /// Closes the requests whose service import a reload has removed.
    pub(crate) fn close_gone(&mut self) {
        let gone = self.open.iter().filter(|(_, request)| request.taken.is_gone.get());
        let gone: Vec<u64> = gone.map(|(token, _)| *token).collect();
        gone.into_iter().for_each(|token| self.close(token));
    }
}

fn time_of(taken: &ServiceImport) -> u64 {
    u64::try_from(taken.service.service.threshold.as_millis()).unwrap_or(u64::MAX)
}

fn write_number(mut number: u64, letters: usize, into: &mut Vec<u8>) {
    for _ in 0..letters {
        into.push(DIGITS[(number % 62) as usize]);
        number /= 62;
    }
}

fn read_number(letters: &[u8]) -> Option<u64> {
    letters.iter().rev().try_fold(0_u64, |number, letter| {
        let digit = DIGITS.iter().position(|digit| digit == letter)? as u64;
        number.checked_mul(62)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc, time::Duration};

    use super::*;
    use crate::accounts::identity::{Service, ServiceExport, Target};

    const BYTES_MAX: usize = 64 << 20;
    const ROUTE: AnswerRoute = AnswerRoute { at: 2, to: 3 };

    fn taken(response: Response, seconds: u64) -> Rc<ServiceImport> {
        let service = ServiceExport { response, threshold: Duration::from_secs(seconds) };
        let to = Target::Subject("x".to_owned());
        let service =
            Service { importer: 3, exporter: 2, export: 0, local: "q".to_owned(), to, service, share: false };
        Rc::new(ServiceImport { service: Arc::new(service), export: Cell::new(0), is_gone: Cell::new(false) })
    }

    fn open(requests: &mut Requests, taken: &Rc<ServiceImport>, cid: u64, now_ms: u64) -> u64 {
        match requests.open(ROUTE, b"inbox", taken, cid, now_ms) {
            OpenOutcome::Open { token, .. } => token,
            OpenOutcome::Refused => panic!("there is room"),
        }
    }

    #[test]
    fn tokens_are_written_and_read() {
        let requests = Requests::new(BYTES_MAX, 1);
        for token in [0, 1, 61, 62, u64::MAX] {
            assert_eq!(requests.token_of(&requests.subject_of(token)), Some(token));
        }
        let other = Requests::new(BYTES_MAX, 1);
        assert_eq!(other.token_of(&requests.subject_of(7)), None);
        let subject = requests.subject_of(7);
        assert_eq!(requests.token_of(&subject[..subject.len() - 1]), None);
        assert_eq!(requests.token_of(&[&subject[..15], b"zzzzzzz"].concat()), None);
    }

    #[test]
    fn answers_must_fit_kind_time_and_account() {
        let mut requests = Requests::new(BYTES_MAX, 1);
        let one = open(&mut requests, &taken(Response::Singleton, 2), 1, 0);
        assert!(requests.find(one, 2, 1999).is_some());
        assert!(requests.find(one, 3, 1).is_none(), "published in another account");
        assert!(requests.find(one, 2, 2000).is_none(), "too late");
        requests.answered(one, false, 1);
        assert!(requests.find(one, 2, 1).is_none());
        let many = open(&mut requests, &taken(Response::Stream, 2), 1, 0);
        requests.answered(many, false, 1500);
        assert!(requests.find(many, 2, 3000).is_some());
        requests.answered(many, true, 3000);
        assert!(requests.find(many, 2, 3000).is_none());
        assert_eq!((requests.len(), requests.bytes, requests.due.len(), requests.held.len()), (0, 0, 0, 0));
    }

    #[test]
    fn overdue_requests_are_closed_in_batches() {
        let mut requests = Requests::new(BYTES_MAX, 1);
        let (short, long) = (taken(Response::Singleton, 1), taken(Response::Singleton, 5));
        for _ in 0..10 {
            open(&mut requests, &short, 1, 0);
        }
        open(&mut requests, &long, 1, 0);
        assert_eq!(requests.close_overdue(999, 100), (0, Some(1000)));
        assert_eq!(requests.close_overdue(1000, 4), (4, Some(1000)));
        assert_eq!(requests.close_overdue(1000, 100), (6, Some(5000)));
        long.is_gone.set(true);
        requests.close_gone();
        assert_eq!((requests.len(), requests.bytes, requests.held.len()), (0, 0, 0));
    }

    #[test]
    fn a_requester_filling_the_table_blocks_nobody_else() {
        let mut requests = Requests::new(BYTES_MAX, 64);
        let taken = taken(Response::Singleton, 1);
        let mut now_ms = 0;
        let mut first = None;
        let refused = loop {
            now_ms += 1;
            match requests.open(ROUTE, b"inbox", &taken, 1, now_ms) {
                OpenOutcome::Open { token, forgot } => {
                    assert!(!forgot, "it is told instead");
                    first = first.or(Some(token));
                }
                OpenOutcome::Refused => break requests.len(),
            }
        };
        assert_eq!(refused, requests.bytes_max / (REQUEST_BYTES + 5));
        let opened = requests.open(ROUTE, b"inbox", &taken, 2, now_ms);
        assert!(matches!(opened, OpenOutcome::Open { forgot: true, .. }), "{opened:?}");
        let first = first.expect("there was one");
        assert!(requests.find(first, 2, 2).is_none(), "the oldest made room");
        assert!(requests.bytes <= requests.bytes_max);
    }
}
