//! The web server behind every contender.
//!
//! | request | response |
//! |---|---|
//! | `/size/BYTES/ID` | a cacheable body of BYTES bytes that depends on ID only |
//! | `/private/BYTES/ID` | the same body, with `Cache-Control: private` |
//! | `/slow/BYTES/ID` | the private body, after [`SLOW_TIME`] |
//! | `/checked/BYTES/ID` | the body, fresh for one second; 304 to a conditional request |
//! | `/awaited/BYTES/ID` | the cacheable body, after [`AWAITED_TIME`] |
//! | `POST /upload/BYTES/ID` | the number of received bytes, in decimal |
//!
//! The origin runs on one thread: it shares a processor with the load while misses and passes are measured,
//! and must cost less than the contender under test. Uploaded bytes are discarded in the kernel. Its request
//! count proves that hits were hits, and that requests meant for the origin reached it.

use std::io::{self, IoSlice, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use engine::cold_mutex::ColdMutex;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};

/// Largest body that can be requested.
pub const BODY_BYTES_MAX: u64 = 1 << 20;
/// Delay before the origin answers a request for `/slow/`.
pub const SLOW_TIME: Duration = Duration::from_millis(100);
/// Delay before the origin answers a request for `/awaited/`; a thousand clients send their requests within
/// it.
pub const AWAITED_TIME: Duration = Duration::from_millis(500);
/// Maximum number of open connections; each contender keeps idle connections in addition to the busy ones.
const CONNECTIONS_MAX: usize = 4_096;
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Bytes that one call discards.
const DISCARD_BYTES: usize = 256 << 10;
const PERIOD: u64 = 251;

/// Kind of page that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Cacheable by shared caches.
    Shared,
    /// Private to one client.
    Private,
    /// Private to one client, sent after [`SLOW_TIME`].
    Slow,
    /// Cacheable, but stale after one second, when it must be revalidated.
    Checked,
    /// Cacheable, sent after [`AWAITED_TIME`].
    Awaited,
    /// Target of uploads; it has no content.
    Upload,
}

impl Page {
    const ALL: [Self; 6] =
        [Self::Shared, Self::Private, Self::Slow, Self::Checked, Self::Awaited, Self::Upload];

    /// Returns the path prefix of the page's URLs.
    pub const fn root(self) -> &'static str {
        match self {
            Self::Shared => "/size/",
            Self::Private => "/private/",
            Self::Slow => "/slow/",
            Self::Checked => "/checked/",
            Self::Awaited => "/awaited/",
            Self::Upload => "/upload/",
        }
    }

    const fn cache_control(self) -> &'static str {
        match self {
            Self::Shared | Self::Awaited => "max-age=3600",
            Self::Private | Self::Slow => "private",
            Self::Checked => "max-age=1",
            Self::Upload => "no-store",
        }
    }
}

/// A running origin.
#[derive(Debug)]
pub struct Origin {
    /// Loopback port of the origin.
    pub port: u16,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    not_modified: AtomicU64,
    /// Time at which a page of `/awaited/` was last answered.
    answered_awaited: ColdMutex<Option<Instant>>,
}

impl Origin {
    /// Listens on a free loopback port until the process ends.
    ///
    /// # Errors
    /// The system's error if no port, thread or event loop can be created.
    pub fn start() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let counts = Arc::<Counts>::default();
        let counter = Arc::clone(&counts);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("origin".into()).spawn(move || {
            // A failed origin makes every contender answer 502, which the bench detects.
            let _ = runtime.block_on(accept(listener, &counter));
        })?;
        Ok(Self { port, counts })
    }

    /// Returns the number of requests that have reached the origin.
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Returns the time at which the origin last began to answer a request for `/awaited/`.
    pub fn answered_awaited(&self) -> Option<Instant> {
        *self.counts.answered_awaited.lock()
    }

    /// Returns the number of requests answered with 304.
    pub fn not_modified(&self) -> u64 {
        self.counts.not_modified.load(Ordering::Relaxed)
    }
}

/// Source of all bodies, which are windows into one repeated pattern: two IDs that are not equal modulo 251
/// differ in every byte.
#[derive(Debug)]
pub struct Bodies(Vec<u8>);

impl Bodies {
    /// Creates the pattern.
    #[must_use]
    pub fn new() -> Self {
        Self((0..BODY_BYTES_MAX + PERIOD).map(|at| (at % PERIOD) as u8).collect())
    }

    /// Returns the body of `/size/bytes/id`; `None` beyond [`BODY_BYTES_MAX`].
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

async fn accept(listener: std::net::TcpListener, counts: &Arc<Counts>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let bodies = Arc::new(Bodies::new());
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue; // closed by the drop; the cache in front answers 502, and the bench sees that
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (bodies, counts, open) = (Arc::clone(&bodies), Arc::clone(counts), Arc::clone(&open));
        tokio::spawn(async move {
            // A cache may close its connection at any time.
            let _ = serve(stream, &bodies, &counts).await;
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn serve(mut stream: TcpStream, bodies: &Bodies, counts: &Counts) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut received, mut head) = (Vec::with_capacity(HEAD_BYTES_MAX), Vec::with_capacity(512));
    loop {
        let asked = loop {
            if let Some(asked) = OriginRequest::parse(&received)? {
                break asked;
            }
            if received.len() >= HEAD_BYTES_MAX || stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        };
        counts.requests.fetch_add(1, Ordering::Relaxed);
        let OriginRequest { head_bytes, body_bytes, page, head_only, has_it, close } = asked;
        let early = body_bytes.min((received.len() - head_bytes) as u64);
        received.drain(..head_bytes + early as usize);
        discard(&stream, body_bytes - early).await?;

        let count;
        let (kind, body, id) = match page {
            Some((Page::Upload, ..)) => {
                count = body_bytes.to_string();
                (Page::Upload, Some(count.as_bytes()), 0)
            }
            Some((kind, bytes, id)) => (kind, bodies.body(bytes, id), id),
            None => (Page::Upload, None, 0),
        };
        match kind {
            Page::Slow => tokio::time::sleep(SLOW_TIME).await,
            Page::Awaited => tokio::time::sleep(AWAITED_TIME).await,
            Page::Shared | Page::Private | Page::Checked | Page::Upload => {}
        }
        let date = httpdate::fmt_http_date(SystemTime::now());
        head.clear();
        let is_same = kind == Page::Checked && has_it;
        match body {
            Some(body) => {
                write!(
                    head,
                    "HTTP/1.1 {}\r\nDate: {date}\r\nCache-Control: {}\r\nETag: \"{}-{id}\"\r\n\
                     Last-Modified: Sun, 01 Nov 2026 00:00:00 GMT\r\n",
                    if is_same { "304 Not Modified" } else { "200 OK" },
                    kind.cache_control(),
                    body.len(),
                )?;
                if is_same {
                    counts.not_modified.fetch_add(1, Ordering::Relaxed);
                    head.extend(b"\r\n");
                } else {
                    let length = body.len();
                    write!(
                        head,
                        "Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
                    )?;
                }
            }
            None => write!(head, "HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n")?,
        }
        let body = body.filter(|_| !head_only && !is_same).unwrap_or_default();
        if kind == Page::Awaited {
            let mut answered = counts.answered_awaited.lock();
            *answered = Some(Instant::now());
        }
        write_both(&mut stream, &head, body).await?;
        if close {
            return Ok(());
        }
    }
}

/// Writes head and body, in one call if the socket accepts both.
async fn write_both(stream: &mut TcpStream, head: &[u8], body: &[u8]) -> io::Result<()> {
    let mut parts = [IoSlice::new(head), IoSlice::new(body)];
    let mut parts = &mut parts[..];
    let mut left = head.len() + body.len();
    while left > 0 {
        let written = stream.write_vectored(parts).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        left -= written;
        IoSlice::advance_slices(&mut parts, written);
    }
    Ok(())
}

/// Discards `left` bytes from the socket without copying them (tcp(7), `MSG_TRUNC`).
async fn discard(stream: &TcpStream, mut left: u64) -> io::Result<()> {
    if left == 0 {
        return Ok(());
    }
    let mut never_written = vec![0; DISCARD_BYTES];
    while left > 0 {
        let most = left.min(DISCARD_BYTES as u64) as usize;
        let taken = stream
            .async_io(Interest::READABLE, || {
                Ok(recv(stream.as_fd(), &mut never_written[..most], RecvFlags::TRUNC)?.1)
            })
            .await?;
        if taken == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= taken as u64;
    }
    Ok(())
}

/// A parsed request head.
#[derive(Debug, PartialEq, Eq)]
struct OriginRequest {
    head_bytes: usize,
    body_bytes: u64,
    page: Option<(Page, u64, u64)>,
    head_only: bool,
    /// True if the request is conditional (If-None-Match or If-Modified-Since). Its validator always matches,
    /// because a page never changes.
    has_it: bool,
    close: bool,
}

impl OriginRequest {
    /// Parses a request; `None` while its head is incomplete.
    fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let head_bytes = match request.parse(bytes).map_err(io::Error::other)? {
            httparse::Status::Complete(head_bytes) => head_bytes,
            httparse::Status::Partial => return Ok(None),
        };
        let value = |name: &str| {
            let header = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            header.map(|header| header.value.trim_ascii())
        };
        if value("transfer-encoding").is_some() {
            return Err(io::Error::other("nobody sends chunks where the length is known"));
        }
        let body_bytes = match value("content-length").map(str::from_utf8) {
            None => 0,
            Some(text) => text.ok().and_then(|text| text.parse().ok()).ok_or(io::ErrorKind::InvalidData)?,
        };
        Ok(Some(Self {
            head_bytes,
            body_bytes,
            page: request.path.and_then(parse_target),
            head_only: request.method == Some("HEAD"),
            has_it: value("if-none-match").is_some() || value("if-modified-since").is_some(),
            close: value("connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close")),
        }))
    }
}

/// Parses `/size/BYTES/ID` and its siblings, also in absolute form, which some caches send.
fn parse_target(target: &str) -> Option<(Page, u64, u64)> {
    let target = match target.strip_prefix("http://") {
        Some(rest) => &rest[rest.find('/')?..],
        None => target,
    };
    let page = Page::ALL.into_iter().find(|page| target.starts_with(page.root()))?;
    let (bytes, id) = target.strip_prefix(page.root())?.split_once('/')?;
    Some((page, bytes.parse().ok()?, id.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

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
        assert_eq!(parse_target("/size/1024/5"), Some((Page::Shared, 1024, 5)));
        assert_eq!(parse_target("http://127.0.0.1:80/slow/1/2"), Some((Page::Slow, 1, 2)));
        assert_eq!(parse_target("/private/1/2"), Some((Page::Private, 1, 2)));
        assert_eq!(parse_target("/size/x/2"), None);
        assert_eq!(parse_target("/"), None);
    }

    fn said(requests: &[u8]) -> String {
        let origin = Origin::start().unwrap();
        let mut stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, origin.port)).unwrap();
        stream.write_all(requests).unwrap();
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).unwrap();
        String::from_utf8_lossy(&answers).into_owned()
    }

    #[test]
    fn the_origin_states_cacheability_and_upload_size() {
        let mut requests =
            b"GET /size/3/1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /private/3/1 HTTP/1.1\r\nHost: a\r\n\r\n\
            POST /upload/0/0 HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n"
                .to_vec();
        requests.resize(requests.len() + 600_000, b'n');
        requests.extend(
            b"GET /checked/3/2 HTTP/1.1\r\n\r\nGET /checked/3/2 HTTP/1.1\r\nIf-None-Match: \"3-2\"\r\n\r\n",
        );
        requests.extend(b"GET /else HTTP/1.1\r\nConnection: close\r\n\r\n");
        let said = said(&requests);
        let mut at = 0;
        for part in [
            "200 OK",
            "max-age=3600",
            "\r\n\r\n\u{1}\u{2}\u{3}HTTP/1.1 200",
            "private",
            "Length: 3\r\n\r\nHTTP/1.1 200",
            "Length: 6\r\n\r\n600000HTTP/1.1 200",
            "max-age=1",
            "\r\n\r\n\u{2}\u{3}\u{4}HTTP/1.1 304",
            "GMT\r\n\r\nHTTP/1.1 404",
        ] {
            let found = said[at..].find(part).unwrap_or_else(|| panic!("{part:?} is not next in {said:?}"));
            at += found;
        }
    }

    #[test]
    fn a_slow_page_takes_its_time() {
        let begun = std::time::Instant::now();
        let said = said(b"GET /slow/1/0 HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert!(said.contains("private") && begun.elapsed() >= SLOW_TIME, "{said}");
    }
}
