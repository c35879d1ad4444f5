//! The web server behind every contender: `/size/BYTES/ID` answers that many bytes that depend on ID alone.
//!
//! One thread a connection, blocking: it serves misses while the caches fill, one or two connections at a time,
//! and afterwards its count of requests is the proof that hits were hits.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::SystemTime;

/// The largest body that can be asked for.
pub const BODY_BYTES_MAX: u64 = 1 << 20;
const CONNECTIONS_MAX: usize = 512;
const HEAD_LINES_MAX: usize = 100;
const PERIOD: u64 = 251;

/// A running origin.
#[derive(Debug)]
pub struct Origin {
    /// Of loopback.
    pub port: u16,
    requests: Arc<AtomicU64>,
}

impl Origin {
    /// Listens on a free loopback port until the process ends.
    ///
    /// # Errors
    /// No port, no thread.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        let requests = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&requests);
        thread::Builder::new().name("origin".into()).spawn(move || accept(&listener, &counter))?;
        Ok(Self { port, requests })
    }

    /// How many requests have reached it.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Bodies are windows into one repeated pattern: two IDs that are not equal modulo 251 differ in every byte.
#[derive(Debug)]
pub struct Bodies(Vec<u8>);

impl Bodies {
    /// All of them.
    #[must_use]
    pub fn new() -> Self {
        Self((0..BODY_BYTES_MAX + PERIOD).map(|at| (at % PERIOD) as u8).collect())
    }

    /// The body of `/size/bytes/id`; `None` beyond [`BODY_BYTES_MAX`].
    pub fn body(&self, bytes: u64, id: u64) -> Option<&[u8]> {
        let from = (id % PERIOD) as usize;
        (bytes <= BODY_BYTES_MAX).then(|| self.0.get(from..from + bytes as usize))?
    }
}

impl Default for Bodies {
    fn default() -> Self {
        Self::new()
    }
}

fn accept(listener: &TcpListener, requests: &Arc<AtomicU64>) {
    let bodies = Arc::new(Bodies::new());
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().flatten() {
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue; // closed by the drop; the cache in front answers 502, and the bench sees that
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (bodies, requests, open) = (Arc::clone(&bodies), Arc::clone(requests), Arc::clone(&open));
        thread::spawn(move || {
            // A cache that goes away in the middle is its own affair.
            let _ = serve(stream, &bodies, &requests);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn serve(stream: TcpStream, bodies: &Bodies, requests: &AtomicU64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_ascii_whitespace();
        let head_only = words.next() == Some("HEAD");
        let body = words.next().and_then(parse).and_then(|(bytes, id)| Some((bodies.body(bytes, id)?, id)));
        let mut close = false;
        let mut lines = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 || lines > HEAD_LINES_MAX {
                return Ok(());
            }
            lines += 1;
            let header = line.trim_end().to_ascii_lowercase();
            close |= header.starts_with("connection:") && header.ends_with("close");
            if header.is_empty() {
                break;
            }
        }
        requests.fetch_add(1, Ordering::Relaxed);
        let date = httpdate::fmt_http_date(SystemTime::now());
        let Some((body, id)) = body else {
            write!(writer, "HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        };
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Type: application/octet-stream\r\n\
             Cache-Control: max-age=3600\r\nETag: \"{}-{id}\"\r\nLast-Modified: Sun, 01 Nov 2026 00:00:00 GMT\r\n\
             Content-Length: {}\r\n\r\n",
            body.len(),
            body.len()
        )
        .into_bytes();
        if !head_only {
            answer.extend_from_slice(body);
        }
        writer.write_all(&answer)?;
        if close {
            return Ok(());
        }
    }
}

/// `/size/BYTES/ID`, also in absolute form, as some caches ask.
fn parse(target: &str) -> Option<(u64, u64)> {
    let (_, rest) = target.split_once("/size/")?;
    let (bytes, id) = rest.split_once('/')?;
    Some((bytes.parse().ok()?, id.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_length_and_differ_by_id() {
        let bodies = Bodies::new();
        assert_eq!(bodies.body(1024, 7).unwrap().len(), 1024);
        assert_eq!(bodies.body(BODY_BYTES_MAX, 250).unwrap().len() as u64, BODY_BYTES_MAX);
        assert_eq!(bodies.body(BODY_BYTES_MAX + 1, 0), None);
        let (one, two) = (bodies.body(64, 1).unwrap(), bodies.body(64, 2).unwrap());
        assert!(one.iter().zip(two).all(|(a, b)| a != b));
        assert_eq!(bodies.body(64, 3), bodies.body(64, 3 + PERIOD));
    }

    #[test]
    fn targets_are_parsed_in_both_forms() {
        assert_eq!(parse("/size/1024/5"), Some((1024, 5)));
        assert_eq!(parse("http://127.0.0.1:80/size/1/2"), Some((1, 2)));
        assert_eq!(parse("/size/x/2"), None);
        assert_eq!(parse("/"), None);
    }
}
