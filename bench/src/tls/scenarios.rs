//! The scenarios of the TLS bench, with their requests, protocols and rounds.

use lab::peers::cache::contenders::{Contender, KIB};

use crate::tls::handshakes::Kind;

/// Kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Load by wrk, with one request after the other on keep-alive TLS connections.
    KeptAlive { connections: u32 },
    /// Load by the bench's handshake client, with a new TLS connection for each request.
    Anew { kind: Kind, is_rsa: bool },
    /// Load by h2load, with concurrent HTTP/2 streams.
    Streams { connections: u32, streams: u32, is_secured: bool },
    /// Load by `lab load` over TLS, at a fixed rate.
    Paced { is_http2: bool, per_second: u32 },
    /// Idle connections ([`crate::tls::idle`]).
    Idle,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) way: Way,
    pub(crate) body_bytes: u64,
    pub(crate) rounds: usize,
}

/// Rounds of a scenario with a bound, and of one without.
const ROUNDS_GATE: usize = 7;
const ROUNDS_SHOWN: usize = 3;

/// Shapes of the HTTP/2 loads: connections, and streams per connection. Bounds apply from ten streams on.
const SHAPES: [(u32, u32); 5] = [(1, 1), (1, 10), (1, 100), (10, 10), (10, 100)];
/// Minimum number of streams per connection for which a scenario has a bound.
pub(crate) const STREAMS_GATE: u32 = 10;
/// Concurrent requests per connection in loads with a fixed rate.
pub(crate) const PACED_STREAMS: usize = 10;
/// Number of connections in loads with a fixed rate.
pub(crate) const PACED_CONNECTIONS: usize = 32;
/// Requests per second that every contender can answer.
const PER_SECOND: u32 = 4_000;

pub(crate) const IDLE: &str = "idle";

/// Returns all scenarios, in the order in which they run.
pub(crate) fn all(quick: bool) -> Vec<Scenario> {
    let one =
        |name: &str, way, body_bytes| Scenario { name: name.into(), way, body_bytes, rounds: ROUNDS_GATE };
    let mut all: Vec<Scenario> = [("tls-1k", KIB), ("tls-64k", 64 * KIB)]
        .map(|(name, body_bytes)| one(name, Way::KeptAlive { connections: 64 }, body_bytes))
        .into();
    for (name, kind, is_rsa) in [
        ("full-ecdsa", Kind::Full, false),
        ("full-rsa", Kind::Full, true),
        ("resumed-ecdsa", Kind::Resumed, false),
    ] {
        all.push(one(name, Way::Anew { kind, is_rsa }, KIB));
    }
    for is_secured in [false, true] {
        let scheme = if is_secured { "h2" } else { "h2c" };
        for (connections, streams) in SHAPES {
            let rounds = if streams >= STREAMS_GATE { ROUNDS_GATE } else { ROUNDS_SHOWN };
            let name = format!("{scheme}-1k-{connections}x{streams}");
            let way = Way::Streams { connections, streams, is_secured };
            all.push(Scenario { rounds, ..one(&name, way, KIB) });
        }
        let way = Way::Streams { connections: 10, streams: 10, is_secured };
        all.push(one(&format!("{scheme}-64k-10x10"), way, 64 * KIB));
    }
    let per_second = if quick { PER_SECOND / 4 } else { PER_SECOND };
    all.push(one("paced-tls-1k", Way::Paced { is_http2: false, per_second }, KIB));
    all.push(one("paced-h2-1k", Way::Paced { is_http2: true, per_second }, KIB));
    all.push(one(IDLE, Way::Idle, KIB));
    all
}

impl Scenario {
    /// Returns whether the scenario uses TLS.
    pub(crate) fn is_secured(&self) -> bool {
        !matches!(self.way, Way::Streams { is_secured: false, .. })
    }

    /// Returns the unit of work.
    pub(crate) fn unit(&self) -> &'static str {
        if matches!(self.way, Way::Anew { .. }) { "connection" } else { "hit" }
    }

    /// Returns whether a contender takes part: the floors do not support TLS.
    pub(crate) fn is_for(&self, contender: Contender) -> bool {
        !contender.is_floor() || !self.is_secured()
    }

    /// Returns whether the scenario uses HTTP/2.
    pub(crate) const fn is_http2(&self) -> bool {
        matches!(self.way, Way::Streams { .. } | Way::Paced { is_http2: true, .. })
    }

    /// Describes the scenario in a sentence.
    pub(crate) fn what(&self) -> String {
        let kib = self.body_bytes / KIB;
        match self.way {
            Way::KeptAlive { connections } => {
                format!("HTTP/1.1 over TLS 1.3, {kib} KiB, {connections} connections, one URL, wrk.")
            }
            Way::Anew { kind, is_rsa } => {
                let key = if is_rsa { "RSA-2048" } else { "ECDSA P-256" };
                let how = match kind {
                    Kind::Full => "a full handshake of TLS 1.3",
                    Kind::Resumed => "a handshake of TLS 1.3 resumed by a ticket",
                };
                format!("A connection with {how} ({key}), and one hit of {kib} KiB over HTTP/1.1.")
            }
            Way::Streams { connections, streams, is_secured } => {
                let over = if is_secured { "over TLS 1.3" } else { "in the clear" };
                let at = if connections == 1 { "connection" } else { "connections" };
                let each = if streams == 1 { "stream" } else { "streams" };
                format!("HTTP/2 {over}, {kib} KiB, {connections} {at} of {streams} {each}, one URL, h2load.")
            }
            Way::Paced { is_http2, per_second } => {
                let protocol = if is_http2 { "HTTP/2" } else { "HTTP/1.1" };
                format!(
                    "{protocol} over TLS 1.3, {kib} KiB, {per_second} a second as from visitors who do not know of each \
                     other, {PACED_CONNECTIONS} connections, `lab load`; latencies from when each was due."
                )
            }
            Way::Idle => "Connections that have asked once and rest: memory of each.".into(),
        }
    }
}
