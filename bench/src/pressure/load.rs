//! Load generator: workers with one connection each, that send requests at due times or one after the other.
//!
//! ```text
//!   schedule: request i is due at start + i / rate ──▶ the next free worker waits for that moment ─▶ asks ─▶ verifies
//! ```
//! With due times, a request that finds no free worker is late from the start, and its lateness counts. So
//! the latencies of a server that stalls include the requests that were due during the stall.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use engine::cold_mutex::ColdMutex;
use lab::latency::{Latencies, LatencyOrigin};
use lab::pressure::objects;

use lab::peers::PeerError;

const READ_TIMEOUT: Duration = Duration::from_secs(20);
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// Results of a load.
#[derive(Default)]
pub(crate) struct LoadOutcome {
    pub(crate) answered: u64,
    pub(crate) body_bytes: u64,
    /// Number of requests without an answer, with another status than 200, or with a wrong body.
    pub(crate) failed: u64,
    /// Message of the first failure.
    pub(crate) failure: Option<String>,
    /// Latencies of hot objects.
    pub(crate) hot: Latencies,
    /// Latencies of all other objects.
    pub(crate) others: Latencies,
    pub(crate) seconds: f64,
}

impl LoadOutcome {
    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 / self.seconds
    }

    /// Returns the p50, p99 and p99.9 of hot objects in microseconds, counted from the due times.
    pub(crate) fn hot_us(&self) -> [f64; 3] {
        [0.5, 0.99, 0.999].map(|quantile| self.hot.quantile(LatencyOrigin::Due, quantile) as f64 / 1e3)
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.body_bytes += other.body_bytes;
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
        self.hot.add(&other.hot);
        self.others.add(&other.others);
    }
}

/// Times at which requests are sent.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// At due times, with this number of requests per second.
    Due(u64),
    /// One after the other, each as soon as the last is answered.
    AtOnce,
}

/// Nice value of threads that share their core with a measuring load.
const NICE: i32 = 10;

/// Lowers the priority of this thread and of those that it starts. Otherwise the load's threads would wait
/// for the core, and the measured latency would include that wait.
pub(crate) fn give_way() {
    // If the call fails, the measurement is only noisier.
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Requests `ids` in order, until they end or the time is over.
pub(crate) fn load(
    port: u16,
    connections: usize,
    pace: Pace,
    seconds: Option<f64>,
    ids: impl Iterator<Item = u64> + Send,
    hot: &HashSet<u64>,
) -> LoadOutcome {
    let start = Instant::now();
    let end = seconds.map(|seconds| start + Duration::from_secs_f64(seconds));
    let schedule = ColdMutex::new(ids.zip(0_u32..));
    // A worker holds the lock only while it takes the next request. A panicked worker has already failed the
    // run.
    let next = || {
        let taken = schedule.lock().next();
        taken.map(|(id, number)| {
            let due = match pace {
                Pace::Due(rate) => Some(start + Duration::from_secs_f64(f64::from(number) / rate as f64)),
                Pace::AtOnce => None,
            };
            (id, due)
        })
    };
    let mut all = LoadOutcome::default();
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..connections).map(|_| scope.spawn(|| work(port, start, end, &next, hot))).collect();
        for worker in workers {
            match worker.join() {
                Ok(done) => all.add(done),
                Err(_) => all.failure = Some("a worker of the load panicked".into()),
            }
        }
    });
    all.seconds = start.elapsed().as_secs_f64();
    all
}

fn work(
    port: u16,
    start: Instant,
    end: Option<Instant>,
    next: &impl Fn() -> Option<(u64, Option<Instant>)>,
    hot: &HashSet<u64>,
) -> LoadOutcome {
    let mut done = LoadOutcome::default();
    let mut client = Client::new(port);
    // The default timer slack would delay each wake-up by 50 µs, as long as a hit takes. If the call fails,
    // every contender is delayed alike.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    while let Some((id, due)) = next() {
        if end.is_some_and(|end| due.unwrap_or_else(Instant::now) >= end) {
            break;
        }
        if let Some(wait) = due.and_then(|due| due.checked_duration_since(Instant::now())) {
            thread::sleep(wait);
        }
        let sent = Instant::now();
        match client.fetch(id) {
            Ok(bytes) => {
                done.answered += 1;
                done.body_bytes += bytes as u64;
                let at = |moment: Instant| (moment - start).as_nanos() as u64;
                let latencies = if hot.contains(&id) { &mut done.hot } else { &mut done.others };
                latencies.record(at(due.unwrap_or(sent)), at(sent), at(Instant::now()));
            }
            Err(error) => {
                done.failed += 1;
                done.failure.get_or_insert_with(|| error.to_string());
                // The pause avoids retrying at full speed when the server is gone.
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
    done
}

/// A client with one keep-alive connection.
pub(crate) struct Client {
    port: u16,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn new(port: u16) -> Self {
        Self { port, stream: None, buffer: Vec::new() }
    }

    /// Fetches an object and compares every byte of its body; returns the body's length. If the server has
    /// closed the connection, the request is retried once on a new one.
    pub(crate) fn fetch(&mut self, id: u64) -> Result<usize, PeerError> {
        let fresh = self.stream.is_none();
        match self.exchange(id) {
            Err(PeerError::Io(_)) if !fresh => self.exchange(id),
            done => done,
        }
    }

    fn exchange(&mut self, id: u64) -> Result<usize, PeerError> {
        // The connection is stored again only after a successful exchange.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(READ_TIMEOUT))?;
                stream
            }
        };
        stream
            .write_all(format!("GET /o/{id} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", self.port).as_bytes())?;
        self.buffer.clear();
        let (head_bytes, length) = loop {
            if let Some(head) = parse_head(&self.buffer)? {
                break head;
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(PeerError::failed("the head of the answer does not end"));
            }
            read_some(&mut stream, &mut self.buffer)?;
        };
        while self.buffer.len() < head_bytes + length {
            read_some(&mut stream, &mut self.buffer)?;
        }
        if !self.buffer.get(head_bytes..).is_some_and(|body| objects::is_body(id, body)) {
            return Err(PeerError::failed(format!("/o/{id} came back with other bytes")));
        }
        self.stream = Some(stream);
        Ok(length)
    }
}

fn read_some(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(), PeerError> {
    let mut chunk = [0; 32 << 10];
    match stream.read(&mut chunk)? {
        0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        read => {
            buffer.extend_from_slice(&chunk[..read]);
            Ok(())
        }
    }
}

/// Parses a response head; returns its length and the body's length; `None` while the head is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(usize, usize)>, PeerError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head_bytes = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(PeerError::failed(format!("not an HTTP answer: {error}"))),
    };
    if response.code != Some(200) {
        return Err(PeerError::failed(format!("answered {}", response.code.unwrap_or(0))));
    }
    let length = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse().ok());
    length
        .map(|length| Some((head_bytes, length)))
        .ok_or_else(|| PeerError::failed("an answer without Content-Length, though the origin sent one"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::origin::Origin;

    #[test]
    fn heads_are_read_in_parts() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 3\r\n\r\nabc";
        assert_eq!(parse_head(whole).unwrap(), Some((whole.len() - 3, 3)));
        for cut in 0..whole.len() - 3 {
            assert_eq!(parse_head(&whole[..cut]).unwrap(), None, "cut at {cut}");
        }
        assert!(parse_head(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").is_err());
        assert!(parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn due_requests_are_sent_and_verified() {
        let origin = Origin::start().unwrap();
        let hot = HashSet::from([1, 3]);
        let done = load(origin.port, 3, Pace::Due(2_000), Some(10.0), 0..40, &hot);
        assert_eq!((done.answered, done.failed), (40, 0), "{:?}", done.failure);
        assert_eq!((done.hot.count(), done.others.count()), (2, 38));
        assert_eq!(done.body_bytes, (0..40).map(|id| u64::from(objects::bytes(id))).sum::<u64>());
        assert!(done.seconds >= 39.0 / 2_000.0, "nothing is asked before it is due");
        assert_eq!(origin.requests(), 40);
        let at_once = load(origin.port, 2, Pace::AtOnce, None, 0..10, &hot);
        assert_eq!(at_once.answered, 10);
    }

    #[test]
    fn a_server_that_is_not_there_is_counted() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let done = load(port, 1, Pace::AtOnce, None, 0..3, &HashSet::new());
        assert_eq!((done.answered, done.failed), (0, 3));
        assert!(done.failure.is_some());
    }
}
