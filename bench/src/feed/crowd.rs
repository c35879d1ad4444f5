//! Memory of idle connections and of subscriptions; and the latency of a message flow while another
//! connection keeps subscribing and unsubscribing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lab::paired::spread::{Ratio, Verdict, median};
use lab::peers::PeerError;
use lab::peers::feed::contenders::ServerProcess;
use lab::peers::feed::ends::SCRATCH_BYTES;
use lab::peers::feed::load::{Flow, Shape, open_loop};
use lab::peers::feed::wire::Wire;
use lab::report::{Table, grouped};
use serde::Serialize;

use crate::record::Figure;

const CONNECTIONS: usize = 10_000;
const CONNECTIONS_QUICK: usize = 500;
const SUBSCRIPTIONS_EACH: usize = 10;
/// Bounds on the memory of a connection and of a subscription.
const CONNECTION_BYTES_MAX: f64 = 4096.0;
const SUBSCRIPTION_BYTES_MAX: f64 = 200.0;
/// Wait before the memory is read, in which a server may free memory.
const SETTLE: Duration = Duration::from_millis(300);

const CHURN_PER_SECOND: u64 = 50_000;
const CHURN_RATE: u64 = 10_000;
const CHURN_RUN: Duration = Duration::from_millis(1_000);
/// SUB and UNSUB operations sent in one write.
const CHURN_BATCH: u64 = 50;

/// Memory use of one server with many idle clients.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Crowd {
    pub(crate) contender: &'static str,
    pub(crate) connections: usize,
    pub(crate) subscriptions: usize,
    /// Bytes per connection in each round.
    pub(crate) connection_bytes: Vec<Option<f64>>,
    /// Bytes per subscription in each round.
    pub(crate) subscription_bytes: Vec<Option<f64>>,
}

impl Crowd {
    pub(crate) fn of(contender: &'static str, quick: bool) -> Self {
        let connections = if quick { CONNECTIONS_QUICK } else { CONNECTIONS };
        Self {
            contender,
            connections,
            subscriptions: connections * SUBSCRIPTIONS_EACH,
            connection_bytes: Vec::new(),
            subscription_bytes: Vec::new(),
        }
    }

    /// Measures a fresh server's memory when it is empty, connected and subscribed.
    pub(crate) fn round(&mut self, server: &ServerProcess) -> Result<(), PeerError> {
        let resident = || -> Result<f64, PeerError> {
            std::thread::sleep(SETTLE);
            Ok(server.tree.usage()?.rss_bytes as f64)
        };
        let empty = resident()?;
        let mut streams = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            streams.push(Wire::Nats.producer(server.address)?);
        }
        let connected = resident()?;
        for (n, stream) in streams.iter_mut().enumerate() {
            let mut subscribe = String::new();
            for k in 0..SUBSCRIPTIONS_EACH {
                // Half of the subscriptions have wildcards, and no two are alike.
                let subject = match k % 4 {
                    0 => format!("crowd.{n}.{k}.*"),
                    1 => format!("crowd.{n}.{k}.>"),
                    _ => format!("crowd.{n}.{k}.news"),
                };
                subscribe += &format!("SUB {subject} {}\r\n", k + 1);
            }
            confirmed(stream, subscribe.as_bytes())?;
        }
        let subscribed = resident()?;
        self.connection_bytes.push(Some((connected - empty) / self.connections as f64));
        self.subscription_bytes.push(Some((subscribed - connected) / self.subscriptions as f64));
        Ok(())
    }
}

/// Sends protocol lines and waits until the server has processed them, by a PING.
fn confirmed(stream: &mut TcpStream, say: &[u8]) -> Result<(), PeerError> {
    stream.set_nonblocking(false)?;
    stream.write_all(say)?;
    stream.write_all(b"PING\r\n")?;
    let mut heard = Vec::new();
    let mut some = [0; 4096];
    // The server may send a PING of its own after its PONG, so the loop looks for the PONG anywhere in the
    // input.
    while !heard.windows(6).any(|six| six == b"PONG\r\n") {
        match stream.read(&mut some)? {
            0 => return Err(PeerError::failed("the server closed a connection of the crowd")),
            bytes => heard.extend_from_slice(&some[..bytes]),
        }
        if let Some(at) = heard.windows(4).position(|four| four == b"-ERR") {
            return Err(PeerError::failed(String::from_utf8_lossy(&heard[at..]).into_owned()));
        }
    }
    Ok(())
}

pub(crate) fn table(all: &[Crowd]) -> Option<Table> {
    let first = all.first()?;
    let title = format!(
        "Resident memory: {} idle connections, then {} subscriptions on them",
        grouped(first.connections as u64),
        grouped(first.subscriptions as u64)
    );
    let mut table = Table::new(title, &[("", ""), ("a connection", "bytes"), ("a subscription", "bytes")]);
    for crowd in all {
        let middle = |values: &[Option<f64>]| {
            let values: Vec<f64> = values.iter().copied().flatten().collect();
            median(&values).map_or_else(|| "–".to_owned(), |bytes| grouped(bytes.max(0.0) as u64))
        };
        table.row([
            crowd.contender.to_owned(),
            middle(&crowd.connection_bytes),
            middle(&crowd.subscription_bytes),
        ]);
    }
    Some(table)
}

pub(crate) fn figures(all: &[Crowd]) -> Vec<Figure> {
    let Some(ours) = all.iter().find(|crowd| crowd.contender == "ours") else { return Vec::new() };
    let figure = |what: &str, values: &[Option<f64>], most: f64| {
        let ratio = Ratio::paired(values, &vec![Some(most); values.len()]);
        let verdict = ratio.map_or(Verdict::NotMeasured, |ratio| Verdict::at_most(1.0, &ratio));
        Figure { what: what.to_owned(), bound: 1.0, ratio, verdict, remark: "share of the bound".into() }
    };
    vec![
        figure("memory of an idle connection, ≤ 4 KiB", &ours.connection_bytes, CONNECTION_BYTES_MAX),
        figure("memory of a subscription, ≤ 200 bytes", &ours.subscription_bytes, SUBSCRIPTION_BYTES_MAX),
    ]
}

/// Latency of a message flow while another connection subscribes and unsubscribes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Churn {
    pub(crate) contender: &'static str,
    /// Subscribe and unsubscribe operations completed per second.
    operations_per_second: f64,
    messages: usize,
    p50_us: f64,
    p99_us: f64,
    worst_us: f64,
}

/// Runs a verified flow at a fixed rate while another connection subscribes and unsubscribes.
pub(crate) fn churn(server: &ServerProcess, quick: bool) -> Result<Churn, PeerError> {
    let shape = Shape { flows: 1, consumers: 1, payload_bytes: 100, window: 0, per_second: None };
    let run = if quick { CHURN_RUN / 5 } else { CHURN_RUN };
    let flow = Flow::connect(server.contender.wire(), server.address, &shape, 0)?;
    let mut restless = Wire::Nats.producer(server.address)?;
    let (is_over, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    let (latencies, churned) = std::thread::scope(|scope| {
        let churner = scope.spawn(|| change_minds(&mut restless, &is_over, &operations));
        let latencies = open_loop(flow, CHURN_RATE, run);
        is_over.store(true, Ordering::Release);
        (latencies, churner.join())
    });
    churned.map_err(|_| PeerError::failed("the churning thread panicked"))??;
    let mut latencies = latencies?;
    latencies.sort_unstable();
    let at = |quantile: f64| {
        let rank = ((latencies.len() as f64 * quantile) as usize).min(latencies.len().saturating_sub(1));
        latencies.get(rank).map_or(0.0, |&ns| ns as f64 / 1e3)
    };
    Ok(Churn {
        contender: server.contender.name(),
        operations_per_second: operations.load(Ordering::Relaxed) as f64 / run.as_secs_f64(),
        messages: latencies.len(),
        p50_us: at(0.5),
        p99_us: at(0.99),
        worst_us: at(1.0),
    })
}

fn change_minds(
    stream: &mut TcpStream,
    is_over: &AtomicBool,
    operations: &AtomicU64,
) -> Result<(), PeerError> {
    let begun = Instant::now();
    let mut scratch = vec![0; SCRATCH_BYTES];
    let mut sid = 1;
    while !is_over.load(Ordering::Acquire) {
        let due = (begun.elapsed().as_secs_f64() * CHURN_PER_SECOND as f64) as u64;
        let done = operations.load(Ordering::Relaxed);
        if due < done + CHURN_BATCH {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        let mut say = String::new();
        for _ in 0..CHURN_BATCH / 2 {
            say += &format!("SUB churn.{sid}.* {sid}\r\nUNSUB {sid}\r\n");
            sid += 1;
        }
        confirmed(stream, say.as_bytes())?;
        operations.fetch_add(CHURN_BATCH, Ordering::Relaxed);
    }
    stream.set_nonblocking(true)?;
    // Any further output of the server is discarded.
    let _ = stream.read(&mut scratch);
    Ok(())
}

pub(crate) fn churn_table(all: &[Churn]) -> Option<Table> {
    if all.is_empty() {
        return None;
    }
    let title = format!(
        "A verified flow of {} messages/s beside {} subscribe and unsubscribe a second",
        grouped(CHURN_RATE),
        grouped(CHURN_PER_SECOND)
    );
    let columns =
        [("", ""), ("operations", "1/s"), ("messages", ""), ("p50", "µs"), ("p99", "µs"), ("worst", "µs")];
    let mut table = Table::new(title, &columns);
    for churn in all {
        table.row([
            churn.contender.to_owned(),
            grouped(churn.operations_per_second as u64),
            grouped(churn.messages as u64),
            format!("{:.1}", churn.p50_us),
            format!("{:.1}", churn.p99_us),
            format!("{:.1}", churn.worst_us),
        ]);
    }
    Some(table)
}
