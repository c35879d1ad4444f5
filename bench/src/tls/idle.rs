//! Idle connections: the memory that the server holds for each.
//!
//! The figure is the slope between few and many connections, so that a server's fixed memory does not count:
//! `RssAnon` of its process tree (proc(5)). Each connection has had one request and its answer. The kernel's
//! memory for sockets is in no figure. Each slope is measured on a freshly started server, because a server
//! that has had connections before would reuse their memory and show no growth.

use std::thread::sleep;
use std::time::Duration;

use lab::load::{Target, rest};
use lab::paired::spread::{Ratio, Verdict};
use lab::peers::PeerError;
use lab::peers::cache::contenders::{Contender, KIB, ServerProcess};
use lab::peers::cache::load::Filler;
use lab::report::{Table, grouped};
use lab::secured;

use crate::cache::session::CacheSession;
use crate::record::Figure;
use crate::tls::handshakes::secure;

/// Lower number of connections, for all contenders.
const FEW: usize = 2_000;
/// Upper number of connections of the peers, which are configured for 4,096.
const MANY_OF_PEERS: usize = 4_000;
/// Number of measurements of Nighttrain.
const TIMES: usize = 3;
/// Wait for memory that a server frees with a delay.
const SETTLED: Duration = Duration::from_millis(500);

/// Kinds of idle connections: heading, scheme, upper number of Nighttrain's connections, and bound in KiB per
/// connection. A process may hold 20,000 descriptors.
const KINDS: [(&str, &str, usize, f64); 3] = [
    ("HTTP/1.1 in the clear", "http", 18_000, 4.0),
    ("HTTP/1.1 under TLS", "https", 15_000, 16.0),
    ("HTTP/2 under TLS", "h2", 8_000, 24.0),
];

/// Results of one contender with one kind of connection.
#[derive(Debug)]
pub(crate) struct Idle {
    contender: Contender,
    kind: usize,
    few: usize,
    many: usize,
    /// KiB per connection of each measurement.
    kib: Vec<f64>,
}

/// Measures every contender except the floors.
pub(crate) fn measure(session: &mut CacheSession, running: &[ServerProcess], quick: bool) -> Vec<Idle> {
    let mut all = Vec::new();
    for (kind, (heading, scheme, most, _)) in KINDS.into_iter().enumerate() {
        for server in running.iter().filter(|server| !server.contender.is_floor()) {
            let is_ours = matches!(server.contender, Contender::Ours | Contender::Other);
            let (few, many, times) = match (quick, is_ours) {
                (true, _) => (FEW / 10, FEW / 2, 1),
                (false, true) => (FEW, most, TIMES),
                (false, false) => (FEW, MANY_OF_PEERS, 1),
            };
            println!("idle, {heading}: {}, {few} to {many} connections", server.name);
            let kib: Result<Vec<f64>, PeerError> = (0..times)
                .map(|time| {
                    let name = format!("{}-rest-{kind}-{time}", server.name);
                    let fresh = anew(session, server, &name)?;
                    slope(session, &fresh, scheme, few, many)
                })
                .collect();
            match kib {
                Ok(kib) => all.push(Idle { contender: server.contender, kind, few, many, kib }),
                Err(error) if is_ours => session.fail(format!("{}, {heading} at rest: {error}", server.name)),
                Err(error) => session.remarks.push(format!("{}, {heading} at rest: {error}", server.name)),
            }
        }
    }
    all
}

/// Starts another process of the same server, which has had no request.
fn anew(session: &mut CacheSession, server: &ServerProcess, name: &str) -> Result<ServerProcess, PeerError> {
    let program =
        session.program(server.contender).ok_or_else(|| PeerError::failed("its program is gone"))?;
    session
        .started(server.contender, name, &program, (&server.cores, &server.load_cores), None)
        .ok_or_else(|| PeerError::failed("it did not start"))
}

/// Returns the KiB per connection between `few` and `many` connections.
fn slope(
    session: &CacheSession,
    server: &ServerProcess,
    scheme: &str,
    few: usize,
    many: usize,
) -> Result<f64, PeerError> {
    let bodies = &session.bodies;
    let (port, mut filler) = if scheme == "http" {
        (server.port, Filler::new(server.port, bodies))
    } else {
        (server.edge.tls, Filler::secured(server.edge.tls, bodies, secure("127.0.0.1", false)?))
    };
    filler.fetch(KIB, 0)?;
    let failed = |error: &dyn std::fmt::Display| PeerError::failed(error.to_string());
    let target = Target::parse(&format!("{scheme}://127.0.0.1:{port}/size/{KIB}/0"), 1, false)
        .map_err(|error| failed(&error))?
        .by(secured::pinned());
    let of_few = rest(&target, few).map_err(|error| failed(&error))?;
    sleep(SETTLED);
    let before = server.tree.anonymous_bytes()?;
    let of_others = rest(&target, many - few).map_err(|error| failed(&error))?;
    sleep(SETTLED);
    let after = server.tree.anonymous_bytes()?;
    drop((of_few, of_others));
    Ok((after as f64 - before as f64) / (many - few) as f64 / KIB as f64)
}

/// Judges Nighttrain's memory against the bounds. Memory varies less than time, so the largest measurement
/// decides.
pub(crate) fn figures(all: &[Idle]) -> Vec<Figure> {
    let of_ours = all.iter().filter(|idle| idle.contender == Contender::Ours);
    of_ours
        .filter_map(|idle| {
            let (heading, _, _, bound) = KINDS[idle.kind];
            let [low, high] = [f64::min, f64::max].map(|pick| idle.kib.iter().copied().reduce(pick));
            let median = lab::paired::spread::median(&idle.kib)?;
            let ratio = Ratio { median, low: low?, high: high?, rounds: idle.kib.len() };
            Some(Figure {
                what: format!("KiB of a connection at rest, {heading}, ≤ {bound} (idle)"),
                bound,
                ratio: Some(ratio),
                verdict: if ratio.high <= bound { Verdict::Met } else { Verdict::NotMet },
                remark: format!("{} to {} connections", grouped(idle.few as u64), grouped(idle.many as u64)),
            })
        })
        .collect()
}

/// Tabulates the memory per idle connection of all contenders.
pub(crate) fn table(all: &[Idle]) -> Option<Table> {
    let mut table = Table::new(
        "Connections that have asked once and rest, memory of each",
        &[("", ""), ("", ""), ("connections", ""), ("of each", "KiB")],
    );
    for idle in all {
        let kib = lab::paired::spread::median(&idle.kib)?;
        let connections = format!("{} to {}", grouped(idle.few as u64), grouped(idle.many as u64));
        let (heading, name) = (KINDS[idle.kind].0.to_owned(), idle.contender.name().to_owned());
        table.row([heading, name, connections, format!("{kib:.1}")]);
    }
    (!table.rows.is_empty()).then_some(table)
}
