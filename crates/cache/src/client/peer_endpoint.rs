//! A connection on which a peer requests objects whose keys belong to this accelerator: one request at a
//! time, each with its MAC.
//!
//! ```text
//!  head ─▶ valid MAC? ─ none: 403, closed ─▶ free slot? lease? up to date? ─ no: declined, and the peer asks
//!                                              │ yes                             the origin
//!                                              ▼
//!          the store ─▶ a running fetch, or a new one ─ meanwhile: 102, every tenth of a second ─▶ answer, with our MAC
//! ```
//! The request is never forwarded to a third accelerator ([`Request::is_of_peer`]). The answer is the object
//! as its origin sent it, with its tags. *Bounds:* those of clients' connections, of heads, and
//! [`Peers::serve`].

use std::{future::poll_fn, net::SocketAddr, rc::Rc, sync::Arc, task::Poll, time::Duration};

use engine::{
    cores::{
        clock,
        watch::{Phase, Watch},
    },
    store::EpochGuard,
};
use tokio::{
    net::TcpStream,
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};
use wire::http1::{
    framing::{Framing, request_framing},
    head::{HeadLimits, HeaderSlots, Progress, RequestHead, parse_request},
};

use crate::client::http1::client::Client;
use crate::{
    client::{
        limits::connection_counts::ConnectionSlot,
        transport::{Transport, is_over},
    },
    core::{Core, with_core, with_core_of},
    counters::Counter,
    deliver::{
        self, AnswerContext,
        answer::{Answer, Head},
        downstream::WithoutBody,
        sink::Sink as _,
    },
    fetch::{self, in_flight::FetchTerms, response::ResponseRole},
    head::{response_head::Fwd, sent_fields::SentFields},
    log::{
        request_meta,
        transaction::{Draft, Moment},
    },
    peers::{
        HEAD_BYTES_MORE, Peers, SIGN_EVERY,
        mark::{Ask, How, Mac, MarkError},
    },
    request::{
        Request, Sender,
        client_auth::ClientAuth,
        client_ip::{Peer, Visitor},
        key,
        lookup_key::LookupKey,
    },
    states::{
        hit,
        respond::{self, respond},
        state::{Slow, State, Trust},
    },
    tags,
};

/// Maximum number of interim (1xx) answers from the origin that are queued for the peer; more are dropped.
const INTERIMS_MAX: usize = 4;
/// Maximum wait for a purge that the requesting peer has applied and this accelerator has not; `BEHIND_PAUSE`
/// is the polling interval.
const BEHIND_MAX: Duration = Duration::from_millis(100);
const BEHIND_PAUSE: Duration = Duration::from_millis(2);

/// Serves a peer until it leaves. `stranger` is the connection's slot under the limit for its address. The
/// slot is held until a valid MAC has arrived, because a peer that has the secret may have as many
/// connections as it needs.
pub(crate) async fn serve_peer(
    stream: TcpStream,
    watch: Rc<Watch>,
    address: SocketAddr,
    stranger: ConnectionSlot,
) {
    let (peers, limits, idle_time_max) = with_core(|core| {
        let limits = &core.config.limits;
        let heads = HeadLimits {
            head_bytes_max: limits.request_head_bytes_max + HEAD_BYTES_MORE,
            line_bytes_max: limits.request_line_bytes_max.min(limits.request_head_bytes_max)
                + HEAD_BYTES_MORE,
        };
        (core.origins.peers.clone(), heads, limits.idle_time_max)
    });
    let Some(peers) = peers else { return };
    let transport = Transport::plain(stream);
    let client = with_core(|core| Client::new(transport, watch, &core.config.limits));
    let mut serving = PeerConnection { peers, client, address, limits, idle_time_max };
    let mut came = Vec::new();
    let mut stranger = Some(stranger);
    while let Some(head_bytes) = serving.head(&mut came).await {
        let rest = came.split_off(head_bytes);
        let head = std::mem::replace(&mut came, rest);
        if !serving.answer(&head).await || with_core(|core| core.is_draining.get()) {
            return;
        }
        stranger = None;
    }
    drop(stranger);
}

/// Connection from a peer.
struct PeerConnection {
    peers: Arc<Peers>,
    client: Client,
    address: SocketAddr,
    limits: HeadLimits,
    idle_time_max: Duration,
}

/// Result of checking a peer's request.
enum FirstLook {
    /// The request is refused; `goes_on` says whether the connection remains open.
    Refused {
        lines: String,
        goes_on: bool,
    },
    Declined {
        how: How,
        counter: Counter,
    },
    Answer(Box<Answer<'static>>, Option<Vec<u8>>, Draft),
    Slow(Box<Request>, State, Fwd, Draft),
}

/// MAC of a peer's request, and the purge position that its answer reflects.
struct PeerContext {
    mac: Mac,
    sequence: u64,
    asked: AnswerContext,
}

/// Position up to which the received bytes were searched for the end of the head. A head that arrives in
/// small pieces is parsed once, not after each piece.
#[derive(Default)]
struct HeadEnd {
    searched: usize,
}

impl HeadEnd {
    /// Returns whether the bytes since the last call may complete the head, or make it too long.
    fn may_be_here(&mut self, came: &[u8], bytes_max: usize) -> bool {
        const END: &[u8] = b"\r\n\r\n";
        let from = self.searched.saturating_sub(END.len() - 1);
        self.searched = came.len();
        came.len() > bytes_max || memchr::memmem::find(&came[from..], END).is_some()
    }
}

impl PeerConnection {
    /// Reads until the head is complete, and returns its length. `None`: the connection has ended or the head
    /// is invalid.
    async fn head(&mut self, came: &mut Vec<u8>) -> Option<usize> {
        let mut end = HeadEnd::default();
        loop {
            if end.may_be_here(came, self.limits.head_bytes_max) {
                match parse_request(came, &mut HeaderSlots::new(), &self.limits) {
                    Ok(Progress::Complete((_, head_bytes))) => return Some(head_bytes),
                    Ok(Progress::NeedMore) => {}
                    Err(error) => {
                        with_core(|core| core.count(Counter::of_head_error(&error)));
                        return None;
                    }
                }
            }
            let Client { transport, watch, .. } = &mut self.client;
            let phase = if came.is_empty() { Phase::Idle } else { Phase::Head };
            watch.wait(phase, clock::monotonic_ms(), self.idle_time_max);
            let read = poll_fn(|cx| {
                if is_over(watch, cx) {
                    return Poll::Ready(None);
                }
                transport.poll_append(cx, came, HEAD_BYTES_MORE).map(Result::ok)
            });
            read.await.filter(|bytes| *bytes > 0)?;
            watch.work();
        }
    }

    /// Answers one request. Returns whether the connection can carry another.
    async fn answer(&mut self, head: &[u8]) -> bool {
        let leave = self.peers.serve();
        let asked = self.peers.verify_request(head);
        if let Ok((Ask { sequence, .. }, _)) = &asked {
            wait_for_purge(*sequence).await;
        }
        let (looked, known) =
            with_core(|core| look(core, &self.peers, self.address, head, asked, leave.is_some()));
        match (looked, known) {
            (FirstLook::Refused { lines, goes_on }, _) => {
                let connection = if goes_on { "" } else { "Connection: close\r\n" };
                let refusal =
                    format!("HTTP/1.1 403 Forbidden\r\n{lines}{connection}Content-Length: 0\r\n\r\n");
                self.client.send_all(refusal.as_bytes()).await.is_ok() && goes_on
            }
            (FirstLook::Declined { how, counter }, Some(known)) => {
                with_core(|core| core.count(counter));
                self.decline(how, &known).await
            }
            (FirstLook::Answer(answer, tags, draft), Some(known)) => match tags {
                Some(tags) => self.deliver(*answer, &tags, draft, &known).await,
                None => self.decline_counted(&known).await,
            },
            (FirstLook::Slow(request, state, fwd, draft), Some(known)) => {
                self.respond(Arc::from(request), state, fwd, draft, &known).await
            }
            (_, None) => false,
        }
    }

    async fn respond(
        &mut self,
        request: Arc<Request>,
        state: State,
        fwd: Fwd,
        draft: Draft,
        known: &PeerContext,
    ) -> bool {
        let (tell, mut told) = mpsc::channel(INTERIMS_MAX);
        // An interim answer that arrives faster than it can be sent is dropped, because interim answers are
        // optional.
        let mut waiting = WithoutBody(move |head: &[u8]| _ = tell.try_send(head.to_vec()));
        let mut responding = Box::pin(respond(&request, state, fwd, &mut waiting));
        let mut signs = interval_at(Instant::now() + SIGN_EVERY / 4, SIGN_EVERY);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let response = loop {
            let sign = tokio::select! {
                biased;
                response = &mut responding => break response,
                Some(head) = told.recv() => [&head[..], b"\r\n"].concat(),
                _ = signs.tick() => b"HTTP/1.1 102 Processing\r\n\r\n".to_vec(),
            };
            if self.client.send_all(&sign).await.is_err() {
                // Other requests that wait for the fetch still get its answer.
                return false;
            }
        };
        drop(responding);
        match response {
            Some(respond::Response::Answer(answer)) if is_an_answer(&answer) => {
                let tags = with_core_of(&request, |core| tags_of_answer(core, &request, &answer));
                match tags {
                    Some(tags) => self.deliver(*answer, &tags, draft, known).await,
                    None => self.decline_counted(known).await,
                }
            }
            Some(_) => self.decline_counted(known).await,
            None => false,
        }
    }

    async fn decline_counted(&mut self, known: &PeerContext) -> bool {
        with_core(|core| core.count(Counter::PeerServedNot));
        self.decline(How::Declined, known).await
    }

    /// Declines the request, so that the peer asks the origin.
    async fn decline(&mut self, how: How, known: &PeerContext) -> bool {
        let lines = self.peers.tell(how, known.sequence, &known.mac);
        let declined = format!("HTTP/1.1 503 Service Unavailable\r\n{lines}Content-Length: 0\r\n\r\n");
        self.client.send_all(declined.as_bytes()).await.is_ok() && known.asked.persists
    }

    /// Sends an answer with our MAC, and with its tags.
    async fn deliver(
        &mut self,
        answer: Answer<'static>,
        tags: &[u8],
        mut draft: Draft,
        known: &PeerContext,
    ) -> bool {
        let how = how(&answer);
        let answer = Answer { varies: false, hsts_s: None, refresh: None, ..answer };
        let (prefix, sending) = with_core(|core| {
            core.count(Counter::PeerServed);
            let out = &mut core.buffers.scratch.borrow_mut().out;
            out.clear();
            let sending = deliver::begin(core, answer, known.asked, out, &mut draft, self.client.sent_bytes);
            draft.note_body_begun();
            let mut lines = self.peers.tell(how, known.sequence, &known.mac).into_bytes();
            if let Some(field) = core.config.tags.first().filter(|_| !tags.is_empty()) {
                for part in [field.as_bytes(), b": ", tags, b"\r\n"] {
                    lines.extend_from_slice(part);
                }
            }
            let status_line = memchr::memchr(b'\n', out).map_or(out.len(), |lf| lf + 1);
            (with_lines(out, status_line, &lines), sending)
        });
        let mut drafts = vec![draft];
        deliver::finish(&mut self.client, prefix, sending.rest, &mut drafts).await && !sending.close
    }
}

fn with_lines(out: &[u8], at: usize, lines: &[u8]) -> Vec<u8> {
    [&out[..at], lines, &out[at..]].concat()
}

/// Returns how the answer was obtained, for the peer.
fn how(answer: &Answer<'_>) -> How {
    let is_for_one = |standing| matches!(standing, ResponseRole::Passed | ResponseRole::NotStorable(_));
    match &answer.head {
        Head::Fetched(response) if is_for_one(response.standing) => How::Alone,
        _ if answer.is_hit() => How::Hit,
        _ => How::Fetched,
    }
}

/// Returns whether the answer comes from the origin. An error page of this accelerator is not sent to a peer:
/// the accelerator that serves the client generates its own.
fn is_an_answer(answer: &Answer<'_>) -> bool {
    answer.cache_status.is_some() && answer.reason.is_none()
}

/// Returns the tags of an answer as text; `None` if its tags cannot be read.
fn tags_of_answer(core: &Core, request: &Request, answer: &Answer<'_>) -> Option<Vec<u8>> {
    if let Head::Fetched(response) = &answer.head {
        return Some(response.tag_words.clone());
    }
    let turn = core.storage.reader.turn();
    let fields =
        SentFields { head: &request.head(), visitor: request.visitor, manner: core.manner(request.site) };
    tags_of(&turn, &fields, request.primary())
}

/// Returns the tags of the object stored for a request as text; `None` also if the object is no longer
/// stored.
fn tags_of(turn: &EpochGuard<'_>, fields: &SentFields<'_>, primary: &[u8]) -> Option<Vec<u8>> {
    let (mut key, mut hash) = (primary.to_vec(), turn.hash(primary));
    let (object, _) = hit::chosen(turn, fields, &mut hash, &mut key).ok()?;
    tags::stored_words(object.extra()).ok().flatten()
}

/// Waits briefly for a purge that the requesting peer has already applied; purges reach every accelerator
/// within milliseconds.
async fn wait_for_purge(sequence: u64) {
    let is_there = || with_core(|core| core.purges.cluster.membership.applied() >= sequence);
    let until = Instant::now() + BEHIND_MAX;
    while !is_there() && Instant::now() < until {
        sleep(BEHIND_PAUSE).await;
    }
}

/// Returns the refusal of a request whose MAC is not a peer's.
fn refusal_of(core: &Core, peers: &Peers, error: &MarkError) -> FirstLook {
    match error {
        MarkError::Forged => core.count(Counter::PeerForged),
        MarkError::Replayed => core.count(Counter::PeerReplayed),
        MarkError::Epoch(mac) => {
            return FirstLook::Refused { lines: peers.tell(How::Epoch, 0, mac), goes_on: true };
        }
    }
    FirstLook::Refused { lines: String::new(), goes_on: false }
}

/// Verifies the peer's MAC, and looks up the answer to its request.
fn look(
    core: &Core,
    peers: &Peers,
    address: SocketAddr,
    bytes: &[u8],
    asked: Result<(Ask<'_>, Mac), MarkError>,
    has_leave: bool,
) -> (FirstLook, Option<PeerContext>) {
    let (Ask { sequence: theirs, is_anew, .. }, mac) = match asked {
        Ok(asked) => asked,
        Err(error) => return (refusal_of(core, peers, &error), None),
    };
    // The purge position is read before the lookup, so that no object purged up to it can be found.
    let sequence = core.purges.cluster.membership.applied();
    let moment = Moment::now();
    let mut slots = HeaderSlots::new();
    let heads = HeadLimits { head_bytes_max: bytes.len(), line_bytes_max: bytes.len() };
    let Ok(Progress::Complete((head, head_bytes))) = parse_request(bytes, &mut slots, &heads) else {
        return (FirstLook::Refused { lines: String::new(), goes_on: false }, None);
    };
    let known = PeerContext { mac, sequence, asked: AnswerContext::of(&head) };
    let declined = |how, counter| FirstLook::Declined { how, counter };
    if !has_leave {
        return (declined(How::Declined, Counter::PeerRequestsMax), Some(known));
    }
    let is_plain = head.method == "GET" && matches!(request_framing(&head), Ok(Framing::None));
    if !is_plain || !core.purges.cluster.membership.may_serve() {
        return (declined(How::Declined, Counter::PeerServedNot), Some(known));
    }
    if sequence < theirs {
        return (declined(How::Behind, Counter::PeerServedNot), Some(known));
    }
    let (head, visitor) = Peer::of_ours(address).asks(head, &core.config.trusted_proxies);
    let (mut key, mut stored_head) = (Vec::new(), Vec::new());
    let turn = core.storage.reader.turn();
    let asked = hit::LookupRequest {
        head: &head,
        has_body: false,
        trust: Trust::Fresh,
        visitor,
        came: &ClientAuth::Plain,
        showing: hit::CodingChoice::AsSent,
    };
    let buffers = hit::Buffers { key: &mut key, head: &mut stored_head };
    let found = hit::answer(core, &turn, &asked, clock::unix_s(), buffers).map(Answer::into_owned);
    let of_request = |key: &mut Vec<u8>| {
        let site = key::of_request(&head, &core.sites.table, key);
        LookupKey { hash: turn.hash(key), primary_bytes: key.len(), site, is_known: false }
    };
    let draft = || request_meta::begin(core, moment, &head, head_bytes, visitor, false, None);
    let (keyed, state, fwd) = match found {
        Ok(_) if is_anew => {
            let keyed = of_request(&mut key);
            (keyed, State::Miss { terms: FetchTerms::BYPASS, only_if_cached: false }, Fwd::Request)
        }
        Ok(mut answer) if is_an_answer(&answer) => {
            let refresh =
                answer.refresh.take().map(|keyed| of_peer(core, &head, head_bytes, &key, keyed, visitor));
            let LookupKey { primary_bytes, site, .. } = of_request(&mut key);
            let fields = SentFields { head: &head, visitor, manner: core.manner(site) };
            let tags = tags_of(&turn, &fields, &key[..primary_bytes]);
            drop(turn);
            if let Some(request) = refresh {
                fetch::refresh(core, Arc::new(request));
            }
            return (FirstLook::Answer(Box::new(answer), tags, draft()), Some(known));
        }
        Ok(_) => return (declined(How::Declined, Counter::PeerServedNot), Some(known)),
        Err(Slow { keyed, state: State::Miss { mut terms, .. }, fwd }) => {
            terms.bypass_stored |= is_anew;
            (keyed, State::Miss { terms, only_if_cached: false }, fwd)
        }
        Err(Slow { state: State::Parts(_) | State::Blocks(_), .. }) if is_anew => {
            let keyed = of_request(&mut key);
            (keyed, State::Miss { terms: FetchTerms::BYPASS, only_if_cached: false }, Fwd::Request)
        }
        Err(Slow { keyed, state: state @ (State::Parts(_) | State::Blocks(_)), fwd }) => (keyed, state, fwd),
        // A request that is passed, refused or redirected is handled by the accelerator that has the client.
        Err(_) => return (declined(How::Declined, Counter::PeerServedNot), Some(known)),
    };
    let mut draft = draft();
    let mut request = of_peer(core, &head, head_bytes, &key, keyed, visitor);
    request.trace = draft.trace();
    (FirstLook::Slow(Box::new(request), state, fwd, draft), Some(known))
}

/// Builds the internal request for a peer's request.
fn of_peer(
    core: &Core,
    head: &RequestHead<'_, '_>,
    head_bytes: usize,
    key: &[u8],
    keyed: LookupKey,
    visitor: Visitor,
) -> Request {
    let sender = Sender { visitor, auth: ClientAuth::Plain };
    let mut request = Request::new(head, head_bytes, key, keyed, Framing::None, sender, &core.in_force);
    request.is_of_peer = true;
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dribbled_head_is_parsed_once() {
        let head = [&b"GET / HTTP/1.1\r\n"[..], &b"X: y\r\n".repeat(1000), b"\r\n"].concat();
        for crumb in [1, 2, 3, 4, 5, 1000] {
            let (mut end, mut parsed, mut came) = (HeadEnd::default(), 0, Vec::new());
            for crumb in head.chunks(crumb) {
                came.extend_from_slice(crumb);
                parsed += usize::from(end.may_be_here(&came, usize::MAX));
            }
            assert_eq!((parsed, came.len()), (1, head.len()), "crumbs of {crumb}");
        }
        assert!(HeadEnd::default().may_be_here(&head[..100], 99), "one that is too long is refused at once");
    }
}
