//! *pass*: a request that goes to the origin past the store, with its body, and an answer for its client only.

use std::sync::Arc;

use wire::http1::framing::{Answered, BodyDecoder, ChunkedEncoder, Framing};

use crate::{
    client::Gone,
    connection::Connection,
    core::{CorePools, READ_BYTES, with_core},
    counters::Counter,
    deliver::Cut,
    error_page::{Fault, Rule},
    fetch, key,
    miss::deliver,
    origin::{self, Handed, OriginError},
    policy::{invalidate, request::Method},
    purge::unlink_at_owner,
    request::{Purpose, Request},
    response,
    response_head::{CacheStatus, Fwd},
    slow::account,
    synth::{origin_failed, refuse},
    trailers::going_on,
};

/// Bytes of a request's body that are read at once. What is read beyond the body's end goes back to the connection,
/// whose buffer must have room for it.
const BODY_READ_BYTES: usize = 32 * 1024;
const _: () = assert!(BODY_READ_BYTES <= READ_BYTES / 2, "what was read beyond a body fits the scratch");

/// *pass*: this very request goes to the origin, and its answer to this client only.
pub(crate) async fn pass(
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
        // The client is still sending a body that the origin does not want.
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
            let trailers = request.with(|head| going_on(decoder.trailers(), &head.headers));
            for part in ChunkedEncoder::last_chunk(&trailers) {
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
        if unlink_at_owner(key, false).await.was_there {
            with_core(|core| core.count(Counter::Invalidations));
        }
    }
}
