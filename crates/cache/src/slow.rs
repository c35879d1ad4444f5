//! Requests that are not hits: purge, miss, pass, and what is said when nothing can be answered.
//!
//! The states carry Varnish's names: *recv* decided in [`hit`](crate::hit); here are *miss*, *pass*, *purge*, *synth*,
//! *backend_error* and *deliver*.

use std::sync::Arc;

use engine::{
    cores::clock,
    store::{Hash, PinnedObject},
};
use wire::http1::{
    framing::{Answered, BodyDecoder, ChunkedEncoder, Framing},
    head::{HeadRule, RequestHead, Version},
    known::KnownHeader,
};

use crate::{
    client::Gone,
    connection::Connection,
    core::{Core, CorePools, Message, with_core},
    counters::Counter,
    deliver::{self, Cut, Outgoing},
    error_page::{self, Fault, Rule},
    fetch::{self, Start},
    growing::Cursor,
    hit::{self, Outcome, Slow, Why},
    key,
    origin::{self, Handed, OriginError},
    policy::{self, Verdict, invalidate, request::Method},
    request::{Purpose, Request},
    response::{self, Response},
    response_head::{
        CacheStatus, Dynamic, Framing as Delimited, Fwd, Persistence, append_dynamic, append_not_modified,
        append_partial,
    },
};

/// How often a request looks again after another fetch turned out not to fit it; then it is passed.
const LOOKS_MAX: usize = 3;
/// Bytes of a request's body that are read at once.
const BODY_READ_BYTES: usize = 64 * 1024;

/// Answers a request that was not a hit; true if the connection can go on.
pub(crate) async fn respond(connection: &mut Connection, request: &Arc<Request>, slow: Slow) -> bool {
    connection.client.watch.work();
    match slow.why {
        Why::Miss { anew, only_if_cached } => {
            with_core(|core| core.count(Counter::Misses));
            if only_if_cached {
                return synth(connection, request, Fault::OnlyIfCached).await;
            }
            miss(connection, request, anew, slow.fwd).await
        }
        Why::Pass(reason) => pass(connection, request, slow.fwd, Some(reason.name())).await,
        Why::Purge => purge(connection, request).await,
        Why::Synth(fault) => synth(connection, request, fault).await,
    }
}

/// *miss*: one fetch for all who want it; look again where that turned out to be another variant.
async fn miss(connection: &mut Connection, request: &Arc<Request>, anew: bool, fwd: Fwd) -> bool {
    let mut request = Arc::clone(request);
    let mut anew = anew;
    let cookies = with_core(|core| core.config.cookies);
    for look in 0..LOOKS_MAX {
        match fetch::ask(&request, anew).await {
            Start::Body { response, cursor, collapsed } => {
                if !collapsed || response.fits(&request, cookies) {
                    let status = CacheStatus {
                        stored: response.stored,
                        detail: response.not_stored.map(policy::Why::name),
                        collapsed,
                        ..CacheStatus::fwd(fwd)
                    };
                    return deliver(connection, &request, &response, cursor, status, false).await;
                }
            }
            Start::Again => {}
            Start::Alone => return pass(connection, &request, fwd, None).await,
            Start::Failed(error) => return origin_failed(connection, &request, &error).await,
        }
        // It may be stored by now, perhaps under the key of a variant.
        match look_again(&request) {
            Again::Hit { head, large, close } => {
                return send_hit(connection, &head, large.map(|large| *large), close).await;
            }
            Again::Under { key, hash, anew: again } if look + 1 < LOOKS_MAX => {
                request = Arc::new(request.under(&key, hash));
                anew |= again;
            }
            Again::Under { .. } => {}
        }
    }
    pass(connection, &request, fwd, None).await
}

/// A large body that follows a head: the object, the first byte, the byte behind the last, and whether it is one chunk with
/// trailers behind it.
pub(crate) type LargeBody = (PinnedObject, u64, u64, bool);

/// What a second look found.
enum Again {
    /// It is there: the answer's head (and small body), and the large body that follows.
    Hit { head: Vec<u8>, large: Option<Box<LargeBody>>, close: bool },
    /// Not there; the key and hash that were looked up last, and whether something is there that must not be used.
    Under { key: Vec<u8>, hash: Hash, anew: bool },
}

/// Looks a request up once more, as the hit path does.
fn look_again(request: &Request) -> Again {
    with_core(|core| {
        let (mut key, mut stored_head, mut out) = (Vec::new(), Vec::new(), Vec::new());
        let mut buffers = hit::Buffers { key: &mut key, head: &mut stored_head, out: &mut out };
        let turn = core.reader.turn();
        let now_s = clock::unix_s();
        let outcome = request.with(|head| hit::answer(core, &turn, head, false, now_s, &mut buffers));
        match outcome {
            Outcome::Written { close } => Again::Hit { head: out, large: None, close },
            Outcome::Large { object, from, to, chunked, close } => {
                Again::Hit { head: out, large: Some(Box::new((object, from, to, chunked))), close }
            }
            Outcome::Slow(slow) => {
                let anew = matches!(slow.why, Why::Miss { anew: true, .. });
                Again::Under { key, hash: slow.hash, anew }
            }
        }
    })
}

/// Sends an answer from the store, waiting for the client where needed; true if the connection can go on.
pub(crate) async fn send_hit(
    connection: &Connection,
    head: &[u8],
    large: Option<LargeBody>,
    close: bool,
) -> bool {
    let sent = match large {
        None => connection.client.send_all(head).await.map_err(Cut::Client),
        Some((mut object, from, to, chunked)) => {
            let grace = with_core(|core| core.config.limits.pin_grace);
            deliver::send_stored(&connection.client, head, &mut object, from, to, chunked, grace).await
        }
    };
    account(&sent);
    if matches!(sent, Err(Cut::Client(Gone::Stalled | Gone::Wanted))) {
        deliver::reset_on_close(&connection.client);
    }
    sent.is_ok() && !close
}

/// *deliver*: sends an answer that is arriving, or has just arrived, to the client that asked.
async fn deliver(
    connection: &mut Connection,
    request: &Arc<Request>,
    response: &Response,
    mut cursor: Cursor,
    status: CacheStatus,
    close: bool,
) -> bool {
    let plan = request.with(|head| with_core(|core| plan(core, head, response, status, close)));
    let plan = match plan {
        Ok(plan) => plan,
        Err(fault) => return synth(connection, request, fault).await,
    };
    let sent = match plan.body {
        None => connection.client.send_all(&plan.head).await.map_err(Cut::Client),
        Some((outgoing, from, to)) => {
            deliver::send_growing(&connection.client, &plan.head, &mut cursor, outgoing, from, to).await
        }
    };
    account(&sent);
    let until_close = matches!(plan.body, Some((Outgoing::Plain, _, None)));
    match sent {
        // Nobody waits for what this client has not read.
        Err(Cut::Client(Gone::Stalled | Gone::Wanted)) => deliver::reset_on_close(&connection.client),
        // Chunks and lengths show by themselves that something is missing.
        Err(Cut::Origin) if until_close => deliver::reset_on_close(&connection.client),
        _ => {}
    }
    sent.is_ok() && !plan.close
}

/// How an arriving answer is sent to one client.
struct Plan {
    head: Vec<u8>,
    /// Which bytes follow, and how they are delimited; to its end where the length is not known.
    body: Option<(Outgoing, u64, Option<u64>)>,
    close: bool,
}

fn plan(
    core: &Core,
    head: &RequestHead<'_, '_>,
    response: &Response,
    status: CacheStatus,
    close: bool,
) -> Result<Plan, Fault> {
    let mut persistence = if close { Persistence::Close } else { hit::persistence(core, head) };
    let is_get = head.method == "GET";
    let has_body = head.method != "HEAD" && !hit::is_bodiless(response.meta.status);
    // What is passed was conditioned by the origin itself.
    let ours = response.is_shared();
    let validators = response.meta.validators(&response.head);
    let verdict = if ours {
        policy::evaluate(&head.headers, is_get, response.meta.status, &validators, response.length)
    } else {
        Verdict::Whole
    };
    let mut out = Vec::with_capacity(response.head.len() + core.identity.dynamic_bytes_max());
    match verdict {
        Verdict::NotModified => append_not_modified(&mut out, &response.head),
        Verdict::Partial { .. } => append_partial(&mut out, &response.head),
        Verdict::Whole => out.extend_from_slice(&response.head),
        // As a hit would answer.
        Verdict::Unsatisfiable { complete } => return Err(Fault::RangeNotSatisfiable { complete }),
    }
    let (framing, body) = match (verdict, response.length) {
        (Verdict::NotModified, _) => (Delimited::Unstated, None),
        (Verdict::Partial { first, last, complete }, _) => {
            let part = has_body.then_some((Outgoing::Plain, first, Some(last + 1)));
            (Delimited::Part { first, last, complete }, part)
        }
        _ if hit::is_bodiless(response.meta.status) => (Delimited::Unstated, None),
        (_, Some(bytes)) => (Delimited::Length(bytes), has_body.then_some((Outgoing::Plain, 0, Some(bytes)))),
        (_, None) if !has_body => (Delimited::Unstated, None),
        (_, None) if head.version == Version::Http11 => {
            (Delimited::Chunked, Some((Outgoing::Chunked, 0, None)))
        }
        (_, None) => {
            // HTTP/1.0 knows no chunks: the end of the connection ends the body.
            persistence = Persistence::Close;
            (Delimited::Unstated, Some((Outgoing::Plain, 0, None)))
        }
    };
    let age_s = response.age_s(clock::unix_s());
    let dynamic = Dynamic { age_s, cache_status: Some(status), persistence, framing };
    append_dynamic(&mut out, &core.identity, &dynamic);
    Ok(Plan { head: out, body, close: persistence == Persistence::Close })
}

/// *pass*: this very request goes to the origin, and its answer to this client only.
async fn pass(
    connection: &mut Connection,
    request: &Arc<Request>,
    fwd: Fwd,
    detail: Option<&'static str>,
) -> bool {
    with_core(|core| core.count(Counter::Passes));
    let (config, head, body_max) = with_core(|core| {
        let config = Arc::clone(&core.config);
        let body_max = config.limits.request_body_bytes_max;
        (config, request.for_origin(Purpose::Pass, &core.config.name), body_max)
    });
    let limits = &config.limits;
    if matches!(request.framing, Framing::Length(bytes) if bytes > body_max) {
        with_core(|core| core.count(Counter::BodiesTooLarge));
        return refuse(connection, Some(request), Fault::BodyTooLarge).await;
    }
    let has_body = request.has_body();
    let method = request.method();
    let repeatable = !has_body && matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS");
    let mut fresh = false;
    let answer = loop {
        let mut exchange = match origin::connect(&CorePools, &config.origin, limits, fresh || has_body).await
        {
            Ok(exchange) => exchange,
            Err(error) => return origin_failed(connection, request, &error).await,
        };
        let reused = exchange.reused;
        if !reused {
            with_core(|core| core.count(Counter::OriginConnects));
        }
        let mut sent = exchange.send(&head, limits.origin_first_byte_time_max).await;
        let mut early = false;
        if sent.is_ok() && has_body {
            // The origin may answer before it has read all, and close: its answer counts.
            match send_body(connection, request, &mut exchange, body_max).await {
                Ok(Handed::Over) => {}
                Ok(Handed::Answered) => early = true,
                Err(Upload::Origin(error)) => sent = Err(error),
                Err(Upload::Client(gone)) => {
                    account(&Err(Cut::Client(gone)));
                    return false;
                }
                Err(Upload::Refused(fault)) => return refuse(connection, Some(request), fault).await,
            }
        }
        early |= sent.is_err();
        let answered = match sent {
            Err(error) if !error.is_end() => Err(error),
            Ok(()) | Err(_) => exchange.answer(Answered::of_method(&method), limits).await,
        };
        match answered {
            Err(error) if reused && repeatable && !fresh && error.is_end() => fresh = true,
            Err(error) => return origin_failed(connection, request, &error).await,
            Ok(answer) => break (answer, early),
        }
    };
    let (answer, early) = answer;
    invalidate_after(request, &answer.head).await;
    let response = response::passed(&answer.head, answer.framing, answer.requested_ms);
    let cursor = fetch::pass(answer, response.length);
    let status = CacheStatus { detail, ..CacheStatus::fwd(fwd) };
    let open = deliver(connection, request, &response, cursor, status, early).await;
    if early {
        // The client is still sending what nobody wants.
        connection.linger().await;
    }
    open
}

/// Why a request's body did not reach the origin.
enum Upload {
    Client(Gone),
    Origin(OriginError),
    Refused(Fault),
}

/// Streams the request's body to the origin, a buffer at a time: whoever is slower holds the other back. Ends early
/// when the origin answers without waiting for the rest (RFC 9112 §9.5).
async fn send_body(
    connection: &mut Connection,
    request: &Request,
    exchange: &mut origin::Exchange,
    body_max: u64,
) -> Result<Handed, Upload> {
    let (wants_continue, limits) = with_core(|core| (request.expects_continue(), core.config.limits.clone()));
    if wants_continue && connection.pending.is_empty() {
        // RFC 9110 §10.1.1: the client waits for this before it sends the body.
        connection.client.send_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(Upload::Client)?;
    }
    let chunked = request.framing == Framing::Chunked;
    let mut decoder = BodyDecoder::new(request.framing);
    let mut received = std::mem::take(&mut connection.pending);
    let mut buffer = vec![0; BODY_READ_BYTES];
    let mut out = Vec::with_capacity(BODY_READ_BYTES + 32);
    let mut total = 0u64;
    loop {
        let mut at = 0;
        out.clear();
        while !decoder.is_done() && at < received.len() {
            let rest = &received[at..];
            let step = decoder.decode(rest).map_err(|error| {
                with_core(|core| core.count(Counter::BadRequests));
                Upload::Refused(Fault::BadRequest(Rule::Body(error.rule)))
            })?;
            let data = &rest[step.data.clone()];
            at += step.consumed;
            total += data.len() as u64;
            if total > body_max {
                with_core(|core| core.count(Counter::BodiesTooLarge));
                return Err(Upload::Refused(Fault::BodyTooLarge));
            }
            if chunked && !data.is_empty() {
                out.extend_from_slice(ChunkedEncoder::chunk_header(data.len() as u64).as_bytes());
                out.extend_from_slice(data);
                out.extend_from_slice(ChunkedEncoder::CHUNK_END);
            } else {
                out.extend_from_slice(data);
            }
            if step.consumed == 0 {
                break;
            }
        }
        received.drain(..at);
        let done = decoder.is_done();
        if done && chunked {
            for part in ChunkedEncoder::last_chunk(decoder.trailers()) {
                out.extend_from_slice(part);
            }
        }
        if !out.is_empty() {
            let at_most = limits.origin_between_bytes_time_max;
            let handed = exchange.send_body(&out, at_most, &limits).await.map_err(Upload::Origin)?;
            // The last part may cross with the answer to the whole.
            if handed == Handed::Answered {
                return Ok(Handed::Answered);
            }
        }
        if done {
            connection.keep_pending(received);
            return Ok(Handed::Over);
        }
        let read = tokio::select! {
            read = connection.client.read_body(&mut buffer, limits.request_head_time_max) => read,
            early = exchange.answered_early(&limits) => {
                connection.client.watch.work();
                return early.map(|()| Handed::Answered).map_err(Upload::Origin);
            }
        };
        match read.map_err(Upload::Client)? {
            0 => return Err(Upload::Client(Gone::Closed)),
            bytes => received.extend_from_slice(&buffer[..bytes]),
        }
    }
}

/// RFC 9111 §4.4: a successful unsafe request makes what is stored for its target obsolete.
async fn invalidate_after(request: &Request, response_head: &[u8]) {
    let keys = request.with(|head| {
        response::with_head(response_head, |answer| {
            let mut keys = Vec::new();
            if !invalidate::invalidates(Method::of(head.method), answer.status) {
                return keys;
            }
            keys.push(request.primary().to_vec());
            if let Some(base) = key::base_of(head) {
                for reference in invalidate::references(&answer.headers) {
                    let mut key = key::host_of(request.primary()).to_vec();
                    if invalidate::same_origin_path(&base, reference, &mut key) {
                        keys.push(key);
                    }
                }
            }
            keys
        })
    });
    for key in keys {
        if unlink_at_owner(key).await {
            with_core(|core| core.count(Counter::Invalidations));
        }
    }
}

/// *purge*: drops the object, wherever it is.
async fn purge(connection: &mut Connection, request: &Arc<Request>) -> bool {
    let allowed = with_core(|core| {
        let from = connection.address;
        // A list stands alone: behind a proxy on this machine every stranger comes from loopback.
        match core.config.purge_from.as_slice() {
            [] => from.is_loopback(),
            listed => listed.contains(&from),
        }
    });
    if !allowed {
        return synth(connection, request, Fault::PurgeForbidden).await;
    }
    with_core(|core| core.count(Counter::Purges));
    let (status, body) = if unlink_at_owner(request.primary().to_vec()).await {
        ("200 OK", "Purged.\n")
    } else {
        ("404 Not Found", "There was nothing to purge.\n")
    };
    let close = request.wants_close();
    let end = if close { "Connection: close\r\n" } else { "" };
    let bytes = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {bytes}\r\n{end}\r\n{body}"
    );
    connection.client.send_all(answer.as_bytes()).await.is_ok() && !close
}

async fn unlink_at_owner(key: Vec<u8>) -> bool {
    let hash = Hash::of(&key);
    let (done, answer) = tokio::sync::oneshot::channel();
    let sent = with_core(|core| {
        let owner = core.store.owner(hash);
        if owner == core.index {
            // The receiver is right here.
            let _ = done.send(unlink(core, hash, &key));
            return true;
        }
        core.send(owner, Message::Unlink { hash, key, is_purge: false, done })
    });
    sent && answer.await.unwrap_or(false)
}

/// Drops an object and keeps a fetch under way from storing it. Runs on the owner's core.
pub(crate) fn unlink(core: &Core, hash: Hash, key: &[u8]) -> bool {
    let under_way = fetch::forget(core, key);
    core.shard.borrow_mut().unlink(hash, key) || under_way
}

/// *backend_error*: says what failed on the origin's side.
async fn origin_failed(connection: &mut Connection, request: &Arc<Request>, error: &OriginError) -> bool {
    tracing::warn!(%error, "the origin failed");
    let fault = match error {
        OriginError::Unresolved(_) => Fault::OriginUnresolved,
        OriginError::Refused | OriginError::Connect(_) => Fault::OriginRefused,
        OriginError::ConnectTimeout(_) => Fault::OriginConnectTimeout,
        OriginError::Busy(_) => Fault::Overloaded,
        OriginError::Closed | OriginError::HeadShort => Fault::OriginClosedEarly,
        OriginError::FirstByteTimeout(_) => Fault::OriginStalled,
        OriginError::HeadTooLarge(_) => Fault::OriginHeadTooLarge,
        OriginError::Invalid(rule) => Fault::OriginInvalid(*rule),
        OriginError::Switched => Fault::OriginInvalid(Rule::Head(HeadRule::StatusCode)),
        OriginError::Reset | OriginError::BodyShort | OriginError::BodyStalled(_) => Fault::OriginReset,
    };
    // What is left of the request's body has nowhere to go.
    synth(connection, request, fault).await
}

/// *synth*: an answer of our own; the connection goes on where nothing of the request is left unread.
async fn synth(connection: &mut Connection, request: &Arc<Request>, fault: Fault) -> bool {
    let unread = request.has_body();
    let open = send_page(connection, Some(request), fault, unread).await;
    if unread {
        connection.linger().await;
    }
    open
}

/// Says what the client did wrong, and ends the connection.
pub(crate) async fn refuse(
    connection: &mut Connection,
    request: Option<&Arc<Request>>,
    fault: Fault,
) -> bool {
    send_page(connection, request, fault, true).await;
    connection.linger().await;
    false
}

async fn send_page(
    connection: &mut Connection,
    request: Option<&Arc<Request>>,
    fault: Fault,
    close: bool,
) -> bool {
    let id = with_core(Core::request_id);
    tracing::info!(request = %id, client = %connection.address, fault = fault.words().code, "answered with an error");
    let accept = request.and_then(|request| request.value(KnownHeader::Accept));
    let is_head = request.is_some_and(|request| request.method() == "HEAD");
    let close = close || request.is_none_or(|request| request.wants_close());
    let page = error_page::render(fault, &id, accept.as_deref());
    let mut out = Vec::with_capacity(512 + page.body.len());
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(page.status.to_string().as_bytes());
    for part in [" ", page.reason, "\r\nContent-Type: ", page.content_type, "\r\n", &*page.headers] {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(httpdate::fmt_http_date(clock::now_system()).as_bytes());
    out.extend_from_slice(b"\r\nX-Request-Id: ");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\r\nContent-Length: ");
    out.extend_from_slice(page.body.len().to_string().as_bytes());
    out.extend_from_slice(if close { b"\r\nConnection: close\r\n\r\n" } else { b"\r\n\r\n" });
    if !is_head {
        out.extend_from_slice(&page.body);
    }
    connection.client.send_all(&out).await.is_ok() && !close
}

/// Counts how a body ended.
pub(crate) fn account(sent: &Result<(), Cut>) {
    let counter = match sent {
        Ok(()) => return,
        Err(Cut::Client(Gone::Closed)) => Counter::ClientsGone,
        Err(Cut::Client(Gone::Stalled)) => Counter::ClientsStalled,
        // Counted where it was decided.
        Err(Cut::Client(Gone::Wanted)) => return,
        Err(Cut::Origin) => Counter::BodiesCut,
    };
    with_core(|core| core.count(counter));
}
