//! Log records of a client's request and of an origin's answer: one record each, from beginning to end.
//!
//! ```text
//!   request parsed ─▶ Draft::client ─▶ deliver::begin: the answer is begun ─▶ the answer ends: Draft::end ──▶ the ring
//!                          │ Trace, with the request                │ dropped before: the client is gone
//!                          ▼                                        ▼
//!   an origin is asked ─▶ Draft::origin ─▶ its head ─▶ its body's end, or dropped before: given up
//! ```
//! While the log has no reader a draft is `None`, and nothing here takes time: no clock is read, no memory
//! allocated. With a reader, drafts are boxes that the core keeps for the next requests, so that even then a
//! hit allocates nothing.
//!
//! The two records name each other by a [`Trace`], which travels with the request through fetches and passes,
//! and to other cores. The origin's record names the client's request for which it was made. The client's
//! record names the origin request for which it waited, even if that fetch was begun by another client's
//! request.
//!
//! *Not logged:* cookies, credentials, any header but User-Agent, Referer and X-Request-Id, and the values of
//! parameters that are [secret](Secrets).

mod trace;

use std::{
    cell::{OnceCell, RefCell},
    fmt::Display,
    net::IpAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use engine::{cores::clock, journal::Scribe};
use memchr::memmem;
use wire::{
    http1::{
        head::{RequestHead, Version},
        known::KnownHeader,
        url::{Scheme, Target},
    },
    transaction::{self as record, HEAD_BYTES, Kind, Secrets, Tag},
};

use crate::{
    head::response_head::{self, CacheStatus, Fwd},
    log::last_logged::{LastSaid, around},
    request::client_ip::Visitor,
    site::Sites,
};

pub(crate) use trace::{Moment, Trace};

/// Maximum number of drafts that a core keeps for reuse: as many as one turn of the loop needs.
const SPARE_MAX: usize = 512;
/// Maximum size of a record's buffer in bytes; a draft with a larger one is not kept for reuse.
const SPARE_BYTES_MAX: usize = 4 * 1024;
/// Position of the status in a response's first line.
const STATUS_AT: std::ops::Range<usize> = 9..12;

/// A core's log of requests.
struct Log {
    /// The core's ring; `None` if there is no journal.
    scribe: Option<Scribe>,
    /// Query parameters whose values are not logged.
    secrets: Secrets,
    /// Buffers of written records, for reuse.
    spare: RefCell<Spare>,
}

type Spare = Vec<Box<Inner>>;

thread_local! {
    /// Log of this thread, thread-local so that a draft can write its record when it is dropped.
    static LOG: OnceCell<Log> = const { OnceCell::new() };
}

/// Installs this thread's log.
pub(crate) fn install(scribe: Option<Scribe>, secrets: Secrets) {
    LOG.with(|cell| {
        let log = Log { scribe, secrets, spare: RefCell::default() };
        assert!(cell.set(log).is_ok(), "a thread is one core");
    });
}

/// Runs `with` with this thread's log, if the thread has one with a ring.
#[inline]
fn with_log<R>(with: impl FnOnce(&Log, &Scribe) -> R) -> Option<R> {
    // While the thread ends, its log is already gone.
    LOG.try_with(|cell| {
        let log = cell.get()?;
        Some(with(log, log.scribe.as_ref()?))
    })
    .ok()
    .flatten()
}

/// Outcome of an answer, for the log.
pub(crate) struct Outcome {
    pub(crate) cache_status: Option<CacheStatus>,
    /// The answer is an origin's, passed to this client alone.
    pub(crate) is_passed: bool,
    /// Reason for an answer that we generated.
    pub(crate) reason: Option<&'static str>,
}

/// Log record that is not complete; empty if the log has no reader. A draft that is dropped logs that its
/// client is gone, or that the origin's answer was given up.
pub(crate) struct Draft(Option<Box<Inner>>);

/// Facts about a request that are not in its head.
pub(crate) struct RequestMeta<'a> {
    pub(crate) moment: Moment,
    /// Length of the request's head in bytes.
    pub(crate) head_bytes: usize,
    pub(crate) is_http2: bool,
    /// The TLS version.
    pub(crate) tls: Option<&'static str>,
    /// The host that the request names.
    pub(crate) host: Option<&'a str>,
    /// The hosts of the request's site.
    pub(crate) site: &'a str,
}

/// Buffer and state of a draft.
struct Inner {
    /// The record so far.
    bytes: Vec<u8>,
    id: u64,
    began_ns: u64,
    /// Time at which the answer's first byte was sent to the client, or received from the origin.
    first_byte_ns: u64,
    /// Length of the request's head in bytes.
    in_bytes: u64,
    /// Length of the answer's head in bytes.
    head_bytes: u64,
    /// Offset, in the bytes given to the connection, at which the answer begins; `to` is where it ends, if
    /// known.
    from: u64,
    to: Option<u64>,
    /// Bytes of an origin's content that were received.
    content_bytes: u64,
    is_of_origin: bool,
    /// The origin's answer was received completely.
    is_whole: bool,
    trace: Option<Arc<Trace>>,
}

impl Draft {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Begins the record for received bytes that are not a valid request; only the client's address is known.
    pub(crate) fn of_nothing(client: IpAddr) -> Self {
        let Some(moment) = Moment::now() else { return Self(None) };
        let mut inner = Inner::begin(Kind::Client, 0, moment);
        record::address(Tag::Client, client, &mut inner.bytes);
        Self(Some(inner))
    }

    /// Begins the record of a client's request.
    pub(crate) fn client(came: &RequestMeta<'_>, head: &RequestHead<'_, '_>, visitor: Visitor) -> Self {
        let mut inner = Inner::begin_client(came.moment, came.head_bytes, head);
        inner.request(came, head, visitor);
        Self(Some(inner))
    }

    /// Begins the record of a request that may reuse the tags of its connection's last request. `came`
    /// supplies the facts if the tags do not fit.
    #[inline]
    pub(crate) fn client_again<'a>(
        moment: Moment,
        head: &RequestHead<'_, '_>,
        bytes: &[u8],
        visitor: Visitor,
        sites: &Arc<Sites>,
        last: &mut LastSaid,
        came: impl FnOnce() -> RequestMeta<'a>,
    ) -> Self {
        let Some(around) = around(bytes, head) else { return Self::client(&came(), head, visitor) };
        let mut inner = Inner::begin_client(moment, bytes.len(), head);
        if let Some(tags) = last.tags(around, visitor, sites) {
            inner.bytes.extend_from_slice(tags);
        } else {
            let from = inner.bytes.len();
            inner.request(&came(), head, visitor);
            last.keep(around, visitor, sites, &inner.bytes[from..]);
        }
        Self(Some(inner))
    }

    /// Logs that the answer is sent now. `head` is its head; `from` and `to` are the offsets of the answer in
    /// the bytes given to the connection.
    pub(crate) fn answered(
        &mut self,
        head: &[u8],
        Outcome { cache_status, is_passed, reason }: Outcome,
        from: u64,
        to: Option<u64>,
    ) {
        let Some(inner) = &mut self.0 else { return };
        let out = &mut inner.bytes;
        record::number(Tag::Status, status_in(head), out);
        let word = if is_passed { "pass" } else { word_of(cache_status) };
        record::text(Tag::Cache, word.as_bytes(), out);
        let detail = cache_status.and_then(detail_of).or(reason);
        if let Some(detail) = detail {
            record::text(Tag::Detail, detail.as_bytes(), out);
        }
        if cache_status.is_some_and(|status| status.collapsed) {
            record::number(Tag::Collapsed, 1, out);
        }
        if cache_status.is_none()
            && let Some(id) = request_id_in(head)
        {
            record::text(Tag::RequestId, id, out);
        }
        (inner.head_bytes, inner.from, inner.to) = (head.len() as u64, from, to);
    }

    /// Logs that the connection is a WebSocket from now on. `from` and `head_bytes` locate the head of the
    /// answer in the bytes given to the connection.
    pub(crate) fn note_websocket(&mut self, status: u64, from: u64, head_bytes: u64) {
        let Some(inner) = &mut self.0 else { return };
        record::number(Tag::Status, status, &mut inner.bytes);
        record::text(Tag::Cache, b"pipe", &mut inner.bytes);
        (inner.head_bytes, inner.from, inner.to) = (head_bytes, from, None);
        inner.first_byte_ns = clock::monotonic_ns();
    }

    /// Logs the time at which the first bytes of the answer are sent, if more follow.
    pub(crate) fn note_body_begun(&mut self) {
        if let Some(inner) = &mut self.0
            && inner.first_byte_ns == 0
        {
            inner.first_byte_ns = clock::monotonic_ns();
        }
    }

    /// Returns the trace that travels with the request, through which the origin's records refer to it.
    pub(crate) fn trace(&mut self) -> Option<Arc<Trace>> {
        let inner = self.0.as_mut()?;
        let id = inner.id;
        let new = || {
            Arc::new(Trace {
                id,
                fetch: AtomicU64::new(0),
                asked_ns: AtomicU64::new(0),
                bytes_in: AtomicU64::new(0),
                joined: OnceLock::new(),
            })
        };
        Some(Arc::clone(inner.trace.get_or_insert_with(new)))
    }

    /// Ends the client's record. `how` is the reason for an incomplete answer; `sent_bytes` is the number of
    /// bytes that the connection was given.
    #[inline]
    pub(crate) fn end(mut self, how: Option<&str>, sent_bytes: u64) {
        if let Some(inner) = self.0.take() {
            inner.end_of_client(how, sent_bytes, clock::monotonic_ns());
        }
    }

    /// Begins the record of a request with this head to an origin's server, made for a client's request.
    pub(crate) fn origin(trace: Option<&Arc<Trace>>, head: &[u8], why: &str, server: &str) -> Self {
        let (Some(trace), Some(moment)) = (trace, Moment::now()) else { return Self(None) };
        let mut inner = Inner::begin(Kind::Origin, trace.id, moment);
        trace.fetch.store(inner.id, Relaxed);
        trace.asked_ns.store(moment.ns, Relaxed);
        inner.is_of_origin = true;
        let out = &mut inner.bytes;
        record::text(Tag::Server, server.as_bytes(), out);
        record::text(Tag::Why, why.as_bytes(), out);
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        if let (Some(method), Some(target)) = (words.next(), words.next()) {
            record::text(Tag::Method, method, out);
            url(Tag::Url, target, out);
        }
        Self(Some(inner))
    }

    /// Logs whether the request uses a kept connection or a new one.
    pub(crate) fn note_connection(&mut self, is_reused: bool) {
        if let Some(inner) = &mut self.0 {
            record::number(Tag::Reused, u64::from(is_reused), &mut inner.bytes);
        }
    }

    /// Logs that the origin's head has been received.
    pub(crate) fn note_head(&mut self, status: u16) {
        if let Some(inner) = &mut self.0 {
            record::number(Tag::Status, u64::from(status), &mut inner.bytes);
            inner.first_byte_ns = clock::monotonic_ns();
        }
    }

    /// Counts received bytes of the origin's content; `is_whole` says whether they are the last.
    #[inline]
    pub(crate) fn note_content(&mut self, bytes: usize, is_whole: bool) {
        if let Some(inner) = &mut self.0 {
            inner.content_bytes += bytes as u64;
            inner.is_whole |= is_whole;
        }
    }

    /// Logs the origin's failure.
    pub(crate) fn failed(&mut self, error: &impl Display) {
        if let Some(inner) = &mut self.0 {
            record::text(Tag::Error, error.to_string().as_bytes(), &mut inner.bytes);
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Some(inner) = self.0.take() else { return };
        let now_ns = clock::monotonic_ns();
        if inner.is_of_origin {
            inner.end_of_origin(now_ns);
        } else {
            inner.end_of_client(Some("client-gone"), 0, now_ns);
        }
    }
}

impl Inner {
    fn begin(kind: Kind, parent: u64, moment: Moment) -> Box<Self> {
        let (id, spare) =
            with_log(|log, scribe| (scribe.next_id(), log.spare.borrow_mut().pop())).unwrap_or_default();
        let mut inner = spare.unwrap_or_else(|| {
            Box::new(Self {
                bytes: Vec::with_capacity(SPARE_BYTES_MAX / 4),
                id,
                began_ns: 0,
                first_byte_ns: 0,
                in_bytes: 0,
                head_bytes: 0,
                from: 0,
                to: None,
                content_bytes: 0,
                is_of_origin: false,
                is_whole: false,
                trace: None,
            })
        });
        let Self { bytes, .. } = &mut *inner;
        bytes.clear();
        record::begin(kind, id, parent, moment.unix_us, bytes);
        inner.id = id;
        inner.began_ns = moment.ns;
        (inner.first_byte_ns, inner.in_bytes, inner.head_bytes, inner.content_bytes) = (0, 0, 0, 0);
        (inner.from, inner.to) = (0, None);
        (inner.is_of_origin, inner.is_whole) = (false, false);
        inner
    }

    /// Begins a client's record with the parts that differ in every request: the time, the size of the head,
    /// and the target.
    #[inline]
    fn begin_client(moment: Moment, head_bytes: usize, head: &RequestHead<'_, '_>) -> Box<Self> {
        let mut inner = Self::begin(Kind::Client, 0, moment);
        inner.in_bytes = head_bytes as u64;
        inner.target(head);
        inner
    }

    /// Logs the target, often the only difference between two consecutive requests of a client.
    #[inline]
    fn target(&mut self, head: &RequestHead<'_, '_>) {
        let target = if head.target.starts_with('/') {
            head.target
        } else {
            Target::parse(head.method, head.target).map_or(head.target, |(_, target)| target.path_and_query)
        };
        url(Tag::Url, target.as_bytes(), &mut self.bytes);
    }

    /// Logs a request without its target: client, method, scheme, host and site.
    fn request(&mut self, came: &RequestMeta<'_>, head: &RequestHead<'_, '_>, visitor: Visitor) {
        let out = &mut self.bytes;
        record::address(Tag::Client, visitor.address, out);
        if let Some(through) = visitor.through {
            record::address(Tag::Through, through, out);
        }
        record::text(Tag::Method, head.method.as_bytes(), out);
        let scheme: &[u8] = if head.scheme == Some(Scheme::Https) { b"https" } else { b"http" };
        record::text(Tag::Scheme, scheme, out);
        if let Some(host) = came.host {
            record::text(Tag::Host, host.as_bytes(), out);
        }
        if !came.site.is_empty() {
            record::text(Tag::Site, came.site.as_bytes(), out);
        }
        let protocol: &[u8] = match (came.is_http2, head.version) {
            (true, _) => b"HTTP/2.0",
            (_, Version::Http10) => b"HTTP/1.0",
            _ => b"HTTP/1.1",
        };
        record::text(Tag::Protocol, protocol, out);
        if let Some(version) = came.tls {
            record::text(Tag::Tls, version.as_bytes(), out);
        }
        for (header, tag) in
            [(KnownHeader::UserAgent, Tag::UserAgent), (KnownHeader::XRequestId, Tag::RequestId)]
        {
            if head.headers.has(header)
                && let Some(value) = head.known(header)
            {
                record::text(tag, value, out);
            }
        }
        if head.headers.has(KnownHeader::Referer)
            && let Some(referer) = head.known(KnownHeader::Referer)
        {
            url(Tag::Referer, referer, out);
        }
    }

    fn end_of_client(mut self: Box<Self>, how: Option<&str>, sent_bytes: u64, now_ns: u64) {
        let out_bytes = self.to.unwrap_or(u64::MAX).min(sent_bytes).saturating_sub(self.from);
        let of_content = self.trace.as_ref().map_or(0, |trace| trace.bytes_in.load(Relaxed));
        let first_byte_ns = if self.first_byte_ns > 0 { self.first_byte_ns } else { now_ns };
        let (in_bytes, body_bytes) = (self.in_bytes + of_content, out_bytes.saturating_sub(self.head_bytes));
        let Self { bytes: out, began_ns, trace, .. } = &mut *self;
        let since_us = |ns: u64| ns.saturating_sub(*began_ns) / 1000;
        record::numbers(
            &[
                (Tag::BytesIn, in_bytes),
                (Tag::BytesOut, out_bytes),
                (Tag::BytesBody, body_bytes),
                (Tag::TimeDone, since_us(now_ns)),
                (Tag::TimeFirstByte, since_us(first_byte_ns)),
            ][..if out_bytes > 0 { 5 } else { 4 }],
            out,
        );
        if let Some(trace) = trace {
            let asked_ns = trace.asked_ns.load(Relaxed);
            if asked_ns > 0 {
                record::number(Tag::TimeAsked, since_us(asked_ns), out);
            }
            let fetch = trace.fetch();
            if fetch > 0 {
                record::number(Tag::Fetch, fetch, out);
            }
        }
        if let Some(how) = how {
            record::text(Tag::End, how.as_bytes(), out);
        }
        self.write();
    }

    fn end_of_origin(mut self: Box<Self>, now_ns: u64) {
        let out = &mut self.bytes;
        let since_us = |ns: u64| ns.saturating_sub(self.began_ns) / 1000;
        record::number(Tag::BytesBody, self.content_bytes, out);
        if self.first_byte_ns > 0 {
            record::number(Tag::TimeFirstByte, since_us(self.first_byte_ns), out);
        }
        record::number(Tag::TimeDone, since_us(now_ns), out);
        if !self.is_whole {
            record::text(Tag::End, b"not-whole", out);
        }
        self.write();
    }

    /// Writes the record into the ring, and keeps its buffer for the next one.
    fn write(mut self: Box<Self>) {
        record::end(&mut self.bytes);
        debug_assert!(self.bytes.len() >= HEAD_BYTES && self.bytes.len() <= record::RECORD_BYTES_MAX);
        self.trace = None;
        with_log(|log, scribe| {
            scribe.write(&[&self.bytes]);
            let mut spare = log.spare.borrow_mut();
            if spare.len() < SPARE_MAX && self.bytes.capacity() <= SPARE_BYTES_MAX {
                spare.push(self);
            }
        });
    }
}

/// Appends a URL without the values of its secret parameters.
fn url(tag: Tag, bytes: &[u8], out: &mut Vec<u8>) {
    with_log(|log, _| record::url(tag, bytes, &log.secrets, out));
}

/// Ends the drafts of a connection whose answers lie within its first `sent_bytes` bytes. The other drafts
/// move to `left`.
#[inline]
pub(crate) fn end_sent(drafts: &mut Vec<Draft>, sent_bytes: u64, left: &mut Vec<Draft>) {
    if drafts.is_empty() {
        return;
    }
    let now_ns = clock::monotonic_ns();
    for mut draft in drafts.drain(..) {
        let is_sent = draft.0.as_ref().is_none_or(|inner| inner.to.is_some_and(|to| to <= sent_bytes));
        match draft.0.take() {
            Some(inner) if is_sent => inner.end_of_client(None, sent_bytes, now_ns),
            None => {}
            inner => {
                draft.0 = inner;
                draft.note_body_begun();
                left.push(draft);
            }
        }
    }
}

/// Ends all drafts of a connection that was given `sent_bytes` bytes. `how` is the reason if the last answer
/// is incomplete; `None` if it is complete.
pub(crate) fn end_all(drafts: &mut Vec<Draft>, how: Option<&str>, sent_bytes: u64) {
    if drafts.is_empty() {
        return;
    }
    let now_ns = clock::monotonic_ns();
    for mut draft in drafts.drain(..) {
        if let Some(inner) = draft.0.take() {
            let how = how.filter(|_| inner.to.is_none_or(|to| to > sent_bytes));
            inner.end_of_client(how, sent_bytes, now_ns);
        }
    }
}

/// Returns the log's word for the cache's handling of an answer, such as `hit` or `pass`.
fn word_of(status: Option<CacheStatus>) -> &'static str {
    let Some(CacheStatus { outcome, fwd_status, detail, .. }) = status else { return "synth" };
    match (outcome, detail) {
        (response_head::Outcome::Hit, None) => "hit",
        (response_head::Outcome::Hit, Some(_)) | (_, Some("stale-if-error")) => "stale",
        (response_head::Outcome::Fwd(_), _) if fwd_status == Some(304) => "revalidated",
        (response_head::Outcome::Fwd(Fwd::Bypass | Fwd::Method), _) => "pass",
        (response_head::Outcome::Fwd(_), _) => "miss",
    }
}

/// Returns the detail that the log adds to the word for the cache's handling of an answer.
fn detail_of(status: CacheStatus) -> Option<&'static str> {
    match status.outcome {
        response_head::Outcome::Fwd(fwd) => Some(status.detail.unwrap_or(fwd.token())),
        response_head::Outcome::Hit => status.detail,
    }
}

/// Parses the status in the first line of a response head that this accelerator wrote; 0 if there is none.
fn status_in(head: &[u8]) -> u64 {
    let digits = head.get(STATUS_AT).filter(|digits| digits.iter().all(u8::is_ascii_digit));
    digits.unwrap_or_default().iter().fold(0, |status, digit| status * 10 + u64::from(digit - b'0'))
}

/// Finds the request number that one of our error pages shows.
fn request_id_in(head: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"X-Request-Id: ";
    let at = memmem::find(head, NAME)? + NAME.len();
    head[at..].split(|byte| *byte == b'\r').next()
}
