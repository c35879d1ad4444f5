//! What the server itself answers in the system account: `$SYS.REQ.SERVER.PING`, as nats-server's tools ask it.

use engine::cores::clock;
use serde::Serialize;
use wire::nats::write;

use crate::{
    backpressure::Producer, connection::ConnId, core::Core, counters::Counter, identity::AccountId,
    publish::Run, shared::PROTOCOL_VERSION,
};

const PINGS: [&[u8]; 2] = [b"$SYS.REQ.SERVER.PING", b"$SYS.REQ.SERVER.PING.STATSZ"];

/// The answer, with nats-server's names.
#[derive(Serialize)]
struct Answer<'a> {
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

impl Core {
    /// Answers if this asks the server; whether it did.
    #[cold]
    pub(crate) fn answer_for_server(&mut self, id: ConnId, run: &Run<'_>) -> bool {
        let connection = &self.connections[id];
        let (root, account) = (connection.root, connection.account);
        if account != AccountId::SYSTEM.0 || !PINGS.contains(&run.subject) || run.reply.is_empty() {
            return false;
        }
        let total = |counter| self.shared.counters.total(counter);
        let answer = Answer {
            server: ServerInfo {
                name: &self.settings.config.server_name,
                host: self.shared.address.ip().to_string(),
                id: &self.shared.server_id,
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
        let body = serde_json::to_vec(&answer)
            .unwrap_or_else(|error| panic!("an answer cannot be written: {error}"));
        let mut bytes = Vec::with_capacity(body.len() + 64);
        write::publish(&mut bytes, run.reply, b"", &body);
        let answer = Run {
            bytes: &bytes,
            stride: bytes.len(),
            tail_at: "PUB ".len() + run.reply.len(),
            body_bytes: body.len(),
            header_bytes: None,
            subject: run.reply,
            reply: b"",
        };
        // Nobody's: no connection has this number, so nobody can be held back for it.
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 64 cores")]
        let server = Producer { core: self.index as u16, conn: ConnId::MAX, cid: 0 };
        for _ in 0..run.count() {
            let (slot, matched) = self.matches.take(&self.trie, root, run.reply);
            self.spread(id, account, server, &answer, &matched);
            self.matches.put_back(slot, matched);
        }
        true
    }
}
