//! *miss* and *deliver*: an answer that is fetched for the store, sent to the client that asked as it arrives.

use std::sync::Arc;

use engine::{
    cores::clock,
    store::{Hash, PinnedObject},
};
use wire::http1::head::{RequestHead, Version};

use crate::{
    client::Gone,
    connection::Connection,
    core::{Core, with_core},
    deliver::{self, Cut, Outgoing},
    error_page::Fault,
    fetch::{self, Start},
    growing::Cursor,
    hit::{self, Outcome, Why},
    parts::{self, InParts, Unsent},
    pass::pass,
    policy::{self, Verdict},
    request::Request,
    response::Response,
    response_head::{
        CacheStatus, Dynamic, Framing as Delimited, Fwd, Persistence, append_dynamic, append_not_modified,
        append_partial,
    },
    slow::account,
    synth::{origin_failed, synth},
};

/// How often a request looks again after another fetch turned out not to fit it; then it is passed.
const LOOKS_MAX: usize = 3;

/// *miss*: one fetch for all who want it; look again where that turned out to be another variant.
pub(crate) async fn miss(connection: &mut Connection, request: &Arc<Request>, anew: bool, fwd: Fwd) -> bool {
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
            Again::InParts { key, hash, answer } => match parts::begin(&answer, hash, &key).await {
                Ok(sending) => return parts::send(connection, &answer, sending, hash, &key).await,
                Err(Unsent::Refused) => break,
                Err(Unsent::Lost) => {
                    request = Arc::new(request.under(&key, hash));
                    anew = true;
                }
            },
            Again::Under { key, hash, anew: again } if look + 1 < LOOKS_MAX => {
                request = Arc::new(request.under(&key, hash));
                anew |= again;
            }
            Again::Under { .. } => {}
        }
    }
    pass(connection, &request, fwd, None).await
}

/// A large body that follows a head: the object, the first byte, the byte behind the last, and whether it is one chunk
/// with trailers behind it.
pub(crate) type LargeBody = (PinnedObject, u64, u64, bool);

/// What the second lookup found.
enum Again {
    /// It is there: the answer's head (and small body), and the large body that follows.
    Hit { head: Vec<u8>, large: Option<Box<LargeBody>>, close: bool },
    /// It is on the file, in parts, under this key and hash.
    InParts { key: Vec<u8>, hash: Hash, answer: Box<InParts> },
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
            Outcome::InParts { answer, hash, .. } => Again::InParts { key, hash, answer },
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
pub(crate) async fn deliver(
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
            let grace = with_core(|core| core.config.limits.pin_grace);
            let client = &connection.client;
            deliver::send_growing(client, &plan.head, &mut cursor, outgoing, from, to, grace).await
        }
    };
    account(&sent);
    let until_close = matches!(plan.body, Some((Outgoing::Plain, _, None)));
    match sent {
        // The client has stopped reading: a reset lets the kernel drop what it has not read.
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
    // A passed request took its conditions and ranges to the origin, which has applied them.
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
