//! What the server itself answers in the system account: `$SYS.REQ.SERVER.PING`, as nats-server's tools ask it.

use engine::cores::clock;
use serde::Serialize;
use wire::nats::write;

use crate::{
    core::Settings,
    counters::Counter,
    identity::AccountId,
    publish::Run,
    shared::{PROTOCOL_VERSION, Shared},
};

const PINGS: [&[u8]; 2] = [b"$SYS.REQ.SERVER.PING", b"$SYS.REQ.SERVER.PING.STATSZ"];

/// The answer, with nats-server's names.
#[derive(Serialize)]
struct Words<'a> {
    server: ServerInfo<'a>,
    statsz: Statsz,
}

#[derive(Serialize)]
struct ServerInfo<'a> {
    name: &'a str,
    host: String,
    id: &'a str,
    ver: &'a str,
    jetstream: bool,
    /// Milliseconds since 1970: how fresh this is.
    time_ms: u64,
}

#[derive(Serialize)]
struct Statsz {
    connections: u64,
    total_connections: u64,
    subscriptions: u64,
    sent: Flow,
    received: Flow,
    slow_consumers: u64,
}

#[derive(Serialize)]
struct Flow {
    msgs: u64,
    bytes: u64,
}

/// What the server says to a question.
pub(crate) struct Answer {
    bytes: Vec<u8>,
    body_bytes: usize,
}

impl Answer {
    /// It as a message to who asked.
    pub(crate) fn run<'a>(&'a self, reply: &'a [u8]) -> Run<'a> {
        Run {
            bytes: &self.bytes,
            stride: self.bytes.len(),
            tail_at: "PUB ".len() + reply.len(),
            body_bytes: self.body_bytes,
            header_bytes: None,
            subject: reply,
            reply: b"",
        }
    }
}

/// The answer if this asks the server itself.
pub(crate) fn answer(shared: &Shared, settings: &Settings, account: u16, run: &Run<'_>) -> Option<Answer> {
    if account != AccountId::SYSTEM.0 || !PINGS.contains(&run.subject) || run.reply.is_empty() {
        return None;
    }
    let total = |counter| shared.counters.total(counter);
    let words = Words {
        server: ServerInfo {
            name: &settings.config.server_name,
            host: shared.address.ip().to_string(),
            id: &shared.server_id,
            ver: PROTOCOL_VERSION,
            jetstream: false,
            time_ms: clock::unix_ms(),
        },
        statsz: Statsz {
            connections: total(Counter::Connections),
            total_connections: total(Counter::Accepted),
            subscriptions: total(Counter::Subscriptions),
            sent: Flow { msgs: total(Counter::MessagesOut), bytes: total(Counter::PayloadOut) },
            received: Flow { msgs: total(Counter::MessagesIn), bytes: total(Counter::PayloadIn) },
            slow_consumers: [Counter::SlowPending, Counter::SlowHold, Counter::SlowDeadline]
                .into_iter()
                .map(total)
                .sum(),
        },
    };
    let body =
        serde_json::to_vec(&words).unwrap_or_else(|error| panic!("an answer cannot be written: {error}"));
    let mut bytes = Vec::with_capacity(body.len() + 64);
    write::publish(&mut bytes, run.reply, b"", &body);
    Some(Answer { bytes, body_bytes: body.len() })
}
