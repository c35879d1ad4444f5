//! Entry points for fuzz targets into private code: a whole client session, WebSocket input, and monitoring
//! queries. This module is built for tests, which replay the seeds, and for the fuzzer; no program contains
//! it.
//!
//! ```text
//!   bytes ─┬─ in one piece ─▶ serve ─▶ INFO, MSG, PONG … ─┐
//!          ├─ cut ─────────▶ serve ─▶ INFO, MSG, PONG … ─┼─▶ the same for each subscription
//!          └─ the twin of the parser ─▶ the twin of the session ─┘
//! ```

#![allow(clippy::expect_used, reason = "a check may fail")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
};

use engine::{
    cores::{listener::Balance, mesh::Mesh},
    meter::CounterSet,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::nats::{
    Progress,
    client::Limits,
    server::{self, ServerOp},
};

use crate::{
    accounts::identity::{Authorization, Entry, Identities, Permissions, Responses, Rules, Secret, User},
    client::{
        acceptors::Acceptors,
        connection::{Transport, Writer},
        serve::{Arrival, serve},
        session::read_options,
        stream::Stream,
    },
    config::Config,
    counters::Counter,
    mesh::{
        core::{CoreSeed, Local},
        links::{Message, RING_MESSAGES},
        settings::Settings,
        shared::SharedState,
    },
};

#[path = "../../../../fuzz/checks/cut.rs"]
mod cut;
#[allow(unreachable_pub, reason = "a file of tests")]
#[path = "../../../wire/tests/it/naive_nats/mod.rs"]
mod naive_nats;
#[cfg(test)]
#[path = "../../../../fuzz/checks/seeds.rs"]
mod seeds;

mod query;
mod websocket;

use naive_nats::{Naive, Op};
pub use query::monitor_query;
pub use websocket::websocket;

/// Bound that is larger than the answers to any session of a few kilobytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// CONNECT line that is sent first if the lowest bit of the input's first byte is set.
const HELLO: &[u8] =
    b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n";

/// Builds the cores of a feed that admits every client, all on this thread, so that traffic between them is
/// counted too.
#[cfg(test)]
pub(crate) fn cores(count: usize) -> Vec<Rc<Local>> {
    cores_of(count, &Authorization::default())
}

pub(crate) fn cores_of(count: usize, authorization: &Authorization) -> Vec<Rc<Local>> {
    cores_with(count, authorization, &Arc::default())
}

/// Builds cores with this authorization and these hubs.
pub(crate) fn cores_with(
    count: usize,
    authorization: &Authorization,
    hubs: &Arc<[Arc<crate::leaf::Seed>]>,
) -> Vec<Rc<Local>> {
    let address = SocketAddr::from(([127, 0, 0, 1], 4222));
    let mesh = Mesh::<Message>::new(count, 0, RING_MESSAGES).expect("a mesh");
    let counters = CounterSet::<Counter>::new(count);
    let settings = Arc::new(Settings {
        config: Config { authorization: authorization.clone(), ..Config::default() },
        identities: Identities::build(authorization, None).expect("it is sound"),
        acceptors: Acceptors::default(),
        hubs: Arc::clone(hubs),
    });
    let (shared, balance) = (SharedState::new(address, Arc::clone(&counters), None), Balance::new(count));
    let endpoints = mesh.into_endpoints().into_iter().enumerate();
    endpoints
        .map(|(index, endpoint)| {
            let (sender, receiver) = endpoint.split();
            Local::new(CoreSeed {
                index,
                cores: count,
                shared: Arc::clone(&shared),
                settings: Arc::clone(&settings),
                sender,
                receiver,
                counters: counters.core(index),
                balance: Arc::clone(&balance),
                system: tokio::sync::mpsc::channel(1).0,
                scribe: None,
            })
        })
        .collect()
}

/// Subject, reply, header and payload of a message.
type DeliveredMessage = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

/// Messages and answers that a client received. Messages to queue groups are kept in one place, because any
/// member may get a message.
#[derive(Debug, Default, PartialEq, Eq)]
struct Got {
    by_sid: BTreeMap<Vec<u8>, Vec<DeliveredMessage>>,
    of_groups: Vec<DeliveredMessage>,
    pongs: usize,
    oks: usize,
}

/// Fuzzes a client's session. The input is flags (bit 0: begin with CONNECT; bit 1: the server requires
/// credentials), eight lengths of the first pieces, and the client's bytes. If credentials are required, the
/// user `u` with the password `p` has permissions for a few subjects; the twin does not cover those sessions.
pub fn nats_session(bytes: &[u8]) {
    let (parameters, said) = bytes.split_at(bytes.len().min(9));
    let flags = parameters.first().copied().unwrap_or_default();
    let hello = if flags & 1 == 1 { HELLO } else { b"" };
    let authorization = if flags & 2 == 2 { with_a_user() } else { Authorization::default() };
    let said = [hello, said].concat();
    let mut rest = &said[..];
    let mut pieces = Vec::new();
    for cut in parameters.iter().skip(1) {
        let (piece, after) = rest.split_at(usize::from(*cut).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);

    let grouped = sids_of_groups(&said);
    let whole = got(&session(&authorization, &[&said]), &grouped);
    // A run of similar messages is delivered subscriber by subscriber, so a cut may change only the order
    // between subscribers.
    assert_eq!(got(&session(&authorization, &pieces), &grouped), whole, "{}", said.escape_ascii());
    if let Some(twin) = twin(&said).filter(|_| authorization.is_open()) {
        assert_eq!(whole, twin, "{}", said.escape_ascii());
    }
}

/// Returns an authorization with one user, who may subscribe to `a.>` except `a.secret`, may not subscribe to
/// `b`, and may publish to `a.*`.
fn with_a_user() -> Authorization {
    let entry = |subject: &str| Entry { subject: subject.to_owned(), queue: None };
    let permissions = Permissions {
        publish: Rules { allow: Some(vec![entry("a.*")]), deny: Vec::new() },
        subscribe: Rules { allow: Some(vec![entry("a.>")]), deny: vec![entry("a.secret")] },
        responses: Some(Responses::default()),
    };
    let user = User {
        user: Some("u".to_owned()),
        password: Some(Secret::new("p")),
        permissions: Some(permissions),
        ..User::default()
    };
    Authorization { users: vec![user], ..Authorization::default() }
}

/// An in-memory stream in place of a client's socket.
impl crate::client::stream::Duplex for tokio::io::DuplexStream {}

/// Returns the output of a server with one core for these pieces of input.
fn session(authorization: &Authorization, pieces: &[&[u8]]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let local = cores_of(1, authorization).remove(0);
        let (client, server) = tokio::io::duplex(ANSWER_BYTES_MAX);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let arrival = Arrival::new(&local.core.borrow(), address, Transport::default());
        let serving = serve(local, Stream::Wrapped(Box::new(server)), Writer::Task, arrival, false);
        let talking = async {
            let (mut reads, mut writes) = tokio::io::split(client);
            for piece in pieces {
                // The server may have closed the connection.
                if writes.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let _ = writes.shutdown().await;
            let mut answer = Vec::new();
            reads.read_to_end(&mut answer).await.expect("memory");
            answer
        };
        tokio::join!(serving, talking).1
    })
}

/// Parses the server's output, which must be complete operations and begin with INFO.
fn got(answer: &[u8], grouped: &BTreeSet<Vec<u8>>) -> Got {
    let mut got = Got::default();
    let mut rest = answer;
    assert!(rest.starts_with(b"INFO "), "{}", rest.escape_ascii());
    while !rest.is_empty() {
        let Ok(Progress::Complete(op, taken)) = server::parse(rest) else {
            panic!("not an operation of a server: {}", rest.escape_ascii())
        };
        rest = &rest[taken..];
        match op {
            ServerOp::Message { subject, sid, reply, header, payload } => {
                // Answers of the server itself contain its name and the time.
                let payload =
                    if payload.starts_with(b"{") && payload.windows(9).any(|nine| nine == b"\"server\":") {
                        b"the server's answer"
                    } else {
                        payload
                    };
                let message = (subject.to_vec(), reply.to_vec(), header.to_vec(), payload.to_vec());
                if grouped.contains(sid) {
                    got.of_groups.push(message);
                } else {
                    got.by_sid.entry(sid.to_vec()).or_default().push(message);
                }
            }
            ServerOp::Pong => got.pongs += 1,
            ServerOp::Ok => got.oks += 1,
            ServerOp::Info { .. } | ServerOp::Error { .. } => {}
            ServerOp::Ping => panic!("nobody was silent for so long"),
        }
    }
    got.of_groups.sort();
    got
}

/// Parses a client's operations up to the first invalid one, with the limits that apply at each of them.
fn operations(said: &[u8]) -> Vec<Op> {
    let config = Config::default().limits;
    let mut limits = Limits {
        control_line_bytes_max: config.max_control_line,
        payload_bytes_max: config.max_payload,
        headers: false,
    };
    let mut operations = Vec::new();
    let mut rest = said;
    while let Naive::Complete(op, taken) = naive_nats::parse(rest, &limits) {
        rest = &rest[taken..];
        if let Op::Connect(json) = &op {
            let options = read_options(json).ok().flatten().unwrap_or_default();
            limits.headers = options.headers.unwrap_or(limits.headers);
        }
        operations.push(op);
    }
    operations
}

fn sids_of_groups(said: &[u8]) -> BTreeSet<Vec<u8>> {
    let of_group = |op| match op {
        Op::Subscribe { queue: Some(_), sid, .. } => Some(sid),
        _ => None,
    };
    operations(said).into_iter().filter_map(of_group).collect()
}

/// A subscription in the slow twin.
struct Wish {
    sid: Vec<u8>,
    pattern: Vec<u8>,
    queue: Option<Vec<u8>>,
    delivered: u64,
    max: u64,
}

fn tokens(subject: &[u8]) -> Vec<&[u8]> {
    subject.split(|byte| *byte == b'.').collect()
}

fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    let (wanted, present) = (tokens(pattern), tokens(subject));
    let is_tail = wanted.last() == Some(&&b">"[..]);
    let heads = if is_tail { wanted.len() - 1 } else { wanted.len() };
    present.iter().all(|token| !token.is_empty())
        && if is_tail { present.len() > heads } else { present.len() == heads }
        && wanted[..heads].iter().zip(&present).all(|(want, have)| *want == b"*" || want == have)
}

/// Slow twin of a session: one list of subscriptions, searched for each message. `None` if the client does
/// something that the twin does not cover: it logs in, sends requests to the server, publishes requests
/// without responders, or uses unusual bytes in subjects.
fn twin(said: &[u8]) -> Option<Got> {
    let (mut verbose, mut echo, mut headers, mut no_responders) = (true, true, false, false);
    let mut got = Got::default();
    let mut wishes: Vec<Wish> = Vec::new();
    let grouped = sids_of_groups(said);
    for op in operations(said) {
        match op {
            Op::Ping => got.pongs += 1,
            Op::Pong | Op::Ignored => {}
            Op::Connect(json) => {
                let options = read_options(&json).ok()??;
                let logs_in =
                    [&options.user, &options.pass, &options.auth_token, &options.nkey, &options.jwt];
                let is_odd = logs_in.into_iter().any(Option::is_some)
                    || !(0..=1).contains(&options.protocol.unwrap_or(0));
                headers = options.headers.unwrap_or(headers);
                no_responders = options.no_responders.unwrap_or(no_responders);
                if is_odd || !json.starts_with(b"{") || (no_responders && !headers) {
                    return None;
                }
                // A second CONNECT removes the earlier subscriptions.
                wishes.clear();
                verbose = options.verbose.unwrap_or(verbose);
                echo = options.echo.unwrap_or(echo);
                got.oks += usize::from(verbose);
            }
            Op::Subscribe { subject: pattern, queue, sid } => {
                let parts = tokens(&pattern);
                if pattern.iter().any(|byte| byte.is_ascii_control()) || queue.as_deref() == Some(b"_sys_") {
                    return None;
                }
                let tail = parts.iter().position(|token| *token == b">").unwrap_or(parts.len());
                if parts.iter().any(|token| token.is_empty()) || tail + 1 < parts.len() {
                    continue;
                }
                got.oks += usize::from(verbose);
                if grouped.contains(&sid) && queue.is_none() {
                    return None;
                }
                if wishes.iter().all(|wish| wish.sid != sid) {
                    wishes.push(Wish { sid, pattern, queue, delivered: 0, max: u64::MAX });
                }
            }
            Op::Unsubscribe { sid, max } => {
                got.oks += usize::from(verbose);
                let Some(at) = wishes.iter().position(|wish| wish.sid == sid) else { continue };
                let max = max.unwrap_or(0);
                if max > 0 && wishes[at].queue.is_some() {
                    return None;
                }
                if max == 0 || wishes[at].delivered >= max {
                    wishes.remove(at);
                } else {
                    wishes[at].max = max;
                }
            }
            Op::Publish { subject, reply, header_bytes, body } => {
                // Messages on subjects that are reserved for servers are refused.
                let is_theirs = |subject: &[u8], theirs: &[&str]| {
                    theirs.iter().any(|theirs| subject.starts_with(theirs.as_bytes()))
                };
                if is_theirs(&subject, &["_GR_.", "$GR.", "$NRG."])
                    || is_theirs(&reply, &["_R_.", "$JS.ACK.", "_GR_.", "$GR."])
                {
                    continue;
                }
                got.oks += usize::from(verbose);
                let (header, payload) = body.split_at(header_bytes.unwrap_or(0));
                let message = (subject, reply, header.to_vec(), payload.to_vec());
                let mut groups = BTreeSet::new();
                let mut reached = false;
                for wish in wishes.iter_mut().filter(|wish| echo && matches(&wish.pattern, &message.0)) {
                    reached = true;
                    if let Some(queue) = &wish.queue {
                        groups.insert(queue);
                    } else {
                        wish.delivered += 1;
                        got.by_sid.entry(wish.sid.clone()).or_default().push(message.clone());
                    }
                }
                got.of_groups.extend(groups.iter().map(|_| message.clone()));
                wishes.retain(|wish| wish.delivered < wish.max);
                let (subject, reply, ..) = &message;
                if !reached && !reply.is_empty() && (no_responders || subject.starts_with(b"$")) {
                    return None;
                }
            }
        }
    }
    got.of_groups.sort();
    Some(got)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_sessions() {
        super::seeds::replay("nats_session", super::nats_session);
    }

    #[test]
    fn the_seeds_of_what_browsers_send() {
        super::seeds::replay("websocket", super::websocket);
    }

    #[test]
    fn the_seeds_of_questions_behind_paths() {
        super::seeds::replay("monitor_query", super::monitor_query);
    }
}
