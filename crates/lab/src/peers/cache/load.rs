//! Load on the caches: a client that fills and checks them, and wrk for measured requests.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use crate::paired::place::program;
use crate::paired::spread::Draws;
use crate::paired::tree::{Cores, pinned};
use crate::paired::{Latency, Work};

use super::origin::{Bodies, Page};
use crate::peers::PeerError;

/// Number of draws in a list before it repeats: about ten times what a connection requests in a round.
const DRAWS: usize = 1 << 18;
const SEED: u64 = 20_100_611;
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// Headers that a browser sends in addition to the request line and Host, without a cookie: in all about 600
/// bytes, in two parts around the Referer's page, which is written by [`REFERER_DIGITS`].
const BROWSER_HEADERS: [&str; 2] = [
    "Connection: keep-alive\r\n\
     DNT: 1\r\n\
     Priority: u=2, i\r\n\
     sec-ch-ua: \"Chromium\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\n\
     User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 \
     Safari/537.36\r\n\
     Referer: http://bench.example/",
    "\r\n\
     Accept: image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8\r\n\
     sec-ch-ua-mobile: ?0\r\n\
     sec-ch-ua-platform: \"Linux\"\r\n\
     Sec-Fetch-Site: same-origin\r\n\
     Sec-Fetch-Mode: no-cors\r\n\
     Sec-Fetch-Dest: image\r\n\
     Accept-Encoding: gzip, deflate, br, zstd\r\n\
     Accept-Language: en-GB,en;q=0.9,da;q=0.8\r\n",
];
/// Format of the Referer's page: the object's ID four times. wrk's LuaJIT hashes only a few bytes of a long
/// string: four at each end, in the middle and at a quarter. Requests that differ only elsewhere all collide,
/// and wrk then needs half a minute to start. These digits are in the middle of the request.
const REFERER_DIGITS: &str = "%06d%06d%06d%06d";
/// Number of different pages that these digits can name.
const REFERERS: u64 = 1_000_000;

/// Zipf exponent of the URL popularity: YCSB's value, close to what web traces show (Breslau et al., 1999:
/// 0.64–0.83, and higher behind a browser's own cache).
pub const ZIPF_EXPONENT: f64 = 0.99;

/// Distribution of the URLs that a load requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urls {
    /// One URL, with wrk's own short request.
    One,
    /// This number of URLs with Zipf popularity, in browser-like requests.
    Zipf(u64),
    /// A new URL for each request, with IDs that count up from this one, in browser-like requests.
    Each(u64),
    /// A fixed number of URLs in a cycle, in browser-like requests.
    Round {
        /// Number of URLs; their IDs are `0..urls`.
        urls: u64,
        /// ID to start at, modulo `urls`.
        first: u64,
    },
}

/// Requests that a load sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSpec {
    /// Kind of page that is requested.
    pub page: Page,
    /// Size of each body, in the response or the upload.
    pub body_bytes: u64,
    /// Number of keep-alive connections, each with one outstanding request.
    pub connections: u32,
    /// URLs that are requested.
    pub urls: Urls,
}

/// Lua scripts that wrk runs, and the lists of URLs that they read.
#[derive(Debug)]
pub struct Scripts {
    report: PathBuf,
    zipf: PathBuf,
    each: PathBuf,
    upload: PathBuf,
    directory: PathBuf,
}

impl Scripts {
    /// Writes the scripts into `directory`.
    ///
    /// # Errors
    /// An I/O error if a file cannot be written.
    pub fn write(directory: &Path) -> Result<Self, PeerError> {
        // The script prints one line for this program to parse, because wrk's own summary is rounded.
        let report = "done = function(summary, latency)\n  local e = summary.errors\n  io.write(string.format(\
                      \"RESULT %d %d %d %d %d %d %d %d %d\\n\", summary.requests, summary.duration, e.connect, e.read, \
                      e.write, e.timeout, e.status, latency:percentile(50), latency:percentile(99)))\nend\n";
        // Builds a browser-like request: `path` and `id` name the object, `low` is the last digits of the ID.
        let browsers = format!(
            "local headers = {{ {}, {} }}\n\
             local function browsers(path, id, low)\n  \
               local page = string.format(\"{REFERER_DIGITS}\", low, low, low, low)\n  \
               return \"GET \" .. path .. \"/\" .. id .. \" HTTP/1.1\\r\\nHost: \" .. wrk.host .. \":\" .. wrk.port .. \
                 \"\\r\\n\" .. headers[1] .. page .. headers[2] .. \"\\r\\n\"\nend\n",
            lua_string(BROWSER_HEADERS[0]),
            lua_string(BROWSER_HEADERS[1]),
        );
        let zipf = format!(
            "{browsers}local draws, requests, at = {{}}, {{}}, 0\n\
             function init(args)\n  \
               for line in io.lines(args[1]) do\n    \
                 local id = tonumber(line)\n    \
                 draws[#draws + 1] = id\n    \
                 requests[id] = requests[id] or browsers(args[2], id, id)\n  \
               end\nend\n\
             function request()\n  at = at % #draws + 1\n  return requests[draws[at]]\nend\n{report}"
        );
        let each = format!(
            "{browsers}local path, id, urls\n\
             function init(args)\n  path, id, urls = args[1], tonumber(args[2]), tonumber(args[3])\nend\n\
             function request()\n  id = id + 1\n  if urls then id = id % urls end\n  \
               return browsers(path, id, id % {REFERERS})\nend\n{report}"
        );
        let upload = format!(
            "function init(args)\n  wrk.method, wrk.body = \"POST\", string.rep(\"n\", tonumber(args[1]))\nend\n{report}"
        );
        let this = Self {
            report: directory.join("report.lua"),
            zipf: directory.join("zipf.lua"),
            each: directory.join("each.lua"),
            upload: directory.join("upload.lua"),
            directory: directory.to_owned(),
        };
        fs::write(&this.report, report)?;
        fs::write(&this.zipf, zipf)?;
        fs::write(&this.each, each)?;
        fs::write(&this.upload, upload)?;
        Ok(this)
    }

    fn draws(&self, urls: u64) -> Result<PathBuf, PeerError> {
        let path = self.directory.join(format!("draws-{urls}"));
        if !path.exists() {
            let list: Vec<String> = zipf(urls, DRAWS).iter().map(u64::to_string).collect();
            fs::write(&path, list.join("\n") + "\n")?;
        }
        Ok(path)
    }
}

/// Quotes a string as a Lua literal.
fn lua_string(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\r', "\\r").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

/// Returns `count` draws from 1..=`urls`, where the k-th most popular URL has a probability proportional to
/// k^-0.99. IDs are shuffled, so that popular URLs are not neighbours.
fn zipf(urls: u64, count: usize) -> Vec<u64> {
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=urls)
        .map(|rank| {
            sum += (rank as f64).powf(-ZIPF_EXPONENT);
            sum
        })
        .collect();
    let mut draws = Draws::new(SEED);
    let mut ids: Vec<u64> = (1..=urls).collect();
    for last in (1..ids.len()).rev() {
        ids.swap(last, draws.below(last + 1));
    }
    (0..count)
        .filter_map(|_| {
            let point = draws.unit() * sum;
            ids.get(cumulative.partition_point(|&below| below <= point)).copied()
        })
        .collect()
}

/// Runs wrk for `seconds` against `port` and parses its result.
///
/// # Errors
/// `PeerError` if wrk is missing or ends without a result.
pub fn wrk(
    scripts: &Scripts,
    asked: &LoadSpec,
    port: u16,
    cores: &Cores,
    seconds: u64,
) -> Result<Work, PeerError> {
    let path = format!("{}{}", asked.page.root(), asked.body_bytes);
    // Two threads would request the same URLs.
    let threads = if matches!(asked.urls, Urls::Each(_) | Urls::Round { .. }) { 1 } else { cores.count() };
    let mut command = pinned(cores, &program("wrk"));
    command.args([format!("-t{threads}"), format!("-c{}", asked.connections), format!("-d{seconds}s")]);
    match asked.urls {
        Urls::One if asked.page == Page::Upload => {
            command.arg("-s").arg(&scripts.upload).arg(format!("http://127.0.0.1:{port}{path}/0"));
            command.arg("--").arg(asked.body_bytes.to_string());
        }
        Urls::One => {
            command.arg("-s").arg(&scripts.report).arg(format!("http://127.0.0.1:{port}{path}/0"));
        }
        Urls::Zipf(urls) => {
            command.arg("-s").arg(&scripts.zipf).arg(format!("http://127.0.0.1:{port}/"));
            command.arg("--").arg(scripts.draws(urls)?).arg(&path);
        }
        Urls::Each(first) => {
            command.arg("-s").arg(&scripts.each).arg(format!("http://127.0.0.1:{port}/"));
            command.arg("--").arg(&path).arg(first.to_string());
        }
        Urls::Round { urls, first } => {
            command.arg("-s").arg(&scripts.each).arg(format!("http://127.0.0.1:{port}/"));
            command.arg("--").arg(&path).arg((first % urls).to_string()).arg(urls.to_string());
        }
    }
    run_wrk(command)
}

/// Runs wrk over TLS for one URL. `openssl` is the OpenSSL configuration file for wrk.
///
/// # Errors
/// `PeerError` if wrk is missing or ends without a result.
pub fn wrk_secured(
    scripts: &Scripts,
    (connections, body_bytes): (u32, u64),
    port: u16,
    cores: &Cores,
    seconds: u64,
    openssl: &Path,
) -> Result<Work, PeerError> {
    let mut command = pinned(cores, &program("wrk"));
    command.env("OPENSSL_CONF", openssl);
    command.args(["-t1".into(), format!("-c{connections}"), format!("-d{seconds}s")]);
    let root = Page::Shared.root();
    command.arg("-s").arg(&scripts.report).arg(format!("https://127.0.0.1:{port}{root}{body_bytes}/0"));
    run_wrk(command)
}

fn run_wrk(mut command: Command) -> Result<Work, PeerError> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_result(&text).ok_or_else(|| {
        PeerError::failed(format!("wrk gave no result: {}{}", text, String::from_utf8_lossy(&output.stderr)))
    })
}

fn parse_result(text: &str) -> Option<Work> {
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let [requests, duration_us, connect, read, write, timeout, status, p50_us, p99_us] = fields[..] else {
        return None;
    };
    let mut doubts = Vec::new();
    if connect + read + write + timeout > 0 {
        doubts
            .push(format!("socket errors: {connect} connect, {read} read, {write} write, {timeout} timeout"));
    }
    if status > 0 {
        doubts.push(format!("{status} answers were errors"));
    }
    let latency = Some(Latency { p50_us: p50_us as f64, p95_us: None, p99_us: p99_us as f64, last_us: None });
    Some(Work { units: requests, wall_s: Some(duration_us as f64 / 1e6), latency, doubts })
}

/// Client with one keep-alive connection that requests objects one after the other and compares each body
/// with the origin's.
#[derive(Debug)]
pub struct Filler<'a> {
    port: u16,
    bodies: &'a Bodies,
    secure: Option<Secure>,
    stream: Option<Stream>,
    buffer: Vec<u8>,
}

/// TLS settings of a client.
#[derive(Clone, Debug)]
pub struct Secure {
    /// Protocol versions, ciphers and session tickets.
    pub config: Arc<ClientConfig>,
    /// Server name (SNI) that the client requests.
    pub name: ServerName<'static>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Secured(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn open(port: u16, secure: Option<&Secure>) -> Result<Self, PeerError> {
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let Some(Secure { config, name }) = secure else { return Ok(Self::Plain(stream)) };
        let connection = ClientConnection::new(Arc::clone(config), name.clone())
            .map_err(|error| PeerError::failed(error.to_string()))?;
        Ok(Self::Secured(Box::new(StreamOwned::new(connection, stream))))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            Self::Secured(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(room),
            Self::Secured(stream) => stream.read(room),
        }
    }

    /// Sends TLS close_notify and returns the kind of handshake; `None` for a plain connection.
    fn close(self) -> Option<HandshakeKind> {
        let Self::Secured(mut stream) = self else { return None };
        stream.conn.send_close_notify();
        // An error means that the server has already closed the connection.
        let _ = stream.flush();
        stream.conn.handshake_kind()
    }
}

impl<'a> Filler<'a> {
    /// Creates a client for the server at this loopback port.
    pub fn new(port: u16, bodies: &'a Bodies) -> Self {
        Self { port, bodies, secure: None, stream: None, buffer: Vec::new() }
    }

    /// Creates a TLS client for the server at this loopback port.
    pub fn secured(port: u16, bodies: &'a Bodies, secure: Secure) -> Self {
        Self { secure: Some(secure), ..Self::new(port, bodies) }
    }

    /// Requests `/size/body_bytes/id` and checks the body byte for byte. (Not for floors, which answer with
    /// their own bytes.)
    ///
    /// # Errors
    /// `PeerError` if the server does not answer, or the answer is wrong.
    pub fn fetch(&mut self, body_bytes: u64, id: u64) -> Result<(), PeerError> {
        self.fetch_page(Page::Shared, body_bytes, id)
    }

    /// Fetches like [`Self::fetch`] on a new connection, closes it, and returns the kind of its TLS
    /// handshake.
    ///
    /// # Errors
    /// `PeerError` if the server does not answer, or the answer is wrong.
    pub fn fetch_anew(&mut self, body_bytes: u64, id: u64) -> Result<Option<HandshakeKind>, PeerError> {
        self.stream = None;
        self.exchange(Page::Shared, body_bytes, id)?;
        Ok(self.stream.take().and_then(Stream::close))
    }

    /// Returns the connection's socket, which keeps the connection open; the TLS state is dropped.
    pub fn into_socket(self) -> Option<TcpStream> {
        match self.stream? {
            Stream::Plain(stream) => Some(stream),
            Stream::Secured(stream) => Some(stream.into_parts().1),
        }
    }

    /// Requests a page of any kind and checks the body byte for byte; for [`Page::Upload`], uploads
    /// `body_bytes` bytes.
    ///
    /// # Errors
    /// `PeerError` if the server does not answer, or the answer is wrong.
    pub fn fetch_page(&mut self, page: Page, body_bytes: u64, id: u64) -> Result<(), PeerError> {
        // A server may close an idle keep-alive connection, so a failed request is retried once on a new
        // connection.
        match self.exchange(page, body_bytes, id) {
            Ok(()) => Ok(()),
            Err(_) => {
                self.stream = None;
                self.exchange(page, body_bytes, id)
            }
        }
    }

    fn exchange(&mut self, page: Page, body_bytes: u64, id: u64) -> Result<(), PeerError> {
        let port = self.port;
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => Stream::open(port, self.secure.as_ref())?,
        };
        let host = match self.secure.as_ref().map(|secure| &secure.name) {
            Some(ServerName::DnsName(name)) => name.as_ref().to_owned(),
            _ => format!("127.0.0.1:{port}"),
        };
        let root = page.root();
        let head = format!("{root}{body_bytes}/{id} HTTP/1.1\r\nHost: {host}\r\n");
        let said;
        let expected = if page == Page::Upload {
            let head = format!("POST {head}Content-Length: {body_bytes}\r\n\r\n");
            stream.write_all(head.as_bytes())?;
            stream.write_all(self.bodies.body(body_bytes, id).unwrap_or_default())?;
            said = body_bytes.to_string();
            Some(said.as_bytes())
        } else {
            stream.write_all(format!("GET {head}\r\n").as_bytes())?;
            self.bodies.body(body_bytes, id)
        };
        self.buffer.clear();
        let (head_bytes, length, close) = loop {
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
        if self.buffer.get(head_bytes..) != expected {
            return Err(PeerError::failed(format!("{root}{body_bytes}/{id} came back with other bytes")));
        }
        if !close {
            self.stream = Some(stream);
        }
        Ok(())
    }
}

fn read_some(stream: &mut Stream, buffer: &mut Vec<u8>) -> Result<(), PeerError> {
    let mut chunk = [0; 32 << 10];
    match stream.read(&mut chunk)? {
        0 => Err(PeerError::failed("the connection was closed in the middle of an answer")),
        read => {
            buffer.extend(chunk.iter().take(read));
            Ok(())
        }
    }
}

/// Parses a response head; returns its length, the body's length, and whether the server closes the
/// connection after the body; `None` while the head is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(usize, usize, bool)>, PeerError> {
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
    let value = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()
    };
    let length = value("content-length").and_then(|value| value.trim().parse().ok());
    let close = value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    match length {
        Some(length) => Ok(Some((head_bytes, length, close))),
        None => Err(PeerError::failed("an answer without Content-Length, though the origin sent one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_law() {
        let (urls, count) = (1_000, 200_000);
        let draws = zipf(urls, count);
        assert_eq!(draws.len(), count);
        let mut counts = vec![0_usize; urls as usize + 1];
        for draw in &draws {
            counts[*draw as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let harmonic: f64 = (1..=urls).map(|rank| (rank as f64).powf(-ZIPF_EXPONENT)).sum();
        for rank in [1_usize, 2, 10] {
            let expected = count as f64 * (rank as f64).powf(-ZIPF_EXPONENT) / harmonic;
            let share = counts[rank - 1] as f64 / expected;
            assert!((0.9..1.1).contains(&share), "rank {rank}: {share} of what the law says");
        }
        assert_eq!(draws, zipf(urls, count));
    }

    #[test]
    fn a_browser_request_has_about_600_bytes() {
        let [before, after] = BROWSER_HEADERS;
        for (path, digits) in
            [("/size/1024/7", 24), ("/size/65536/100000", 24), ("/size/1024/1000000000", 24)]
        {
            let head = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:34567\r\n{before}");
            let bytes = head.len() + digits + after.len() + 2;
            assert!((570..=650).contains(&bytes), "{bytes}");
            let middle = bytes / 2 - 2;
            let run = head.len()..=head.len() + digits - 4;
            assert!(run.contains(&middle), "the middle {middle} is not within {run:?}");
        }
    }

    #[test]
    fn lua_reads_back_what_was_quoted() {
        assert_eq!(lua_string("a\r\n\"b\\"), r#""a\r\n\"b\\""#);
    }

    #[test]
    fn results_are_read_and_errors_marked() {
        let work = parse_result("Running 1s test\nRESULT 5000 1001000 0 0 0 0 0 900 1500\n").unwrap();
        assert_eq!((work.units, work.wall_s), (5_000, Some(1.001)));
        assert_eq!(
            work.latency,
            Some(Latency { p50_us: 900.0, p95_us: None, p99_us: 1_500.0, last_us: None })
        );
        assert!(work.doubts.is_empty());
        assert_eq!(parse_result("RESULT 5 1 0 1 0 0 2 1 1").unwrap().doubts.len(), 2);
        assert!(parse_result("unable to connect").is_none());
    }

    #[test]
    fn partial_heads_wait_and_bad_heads_fail() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 3\r\nConnection: close\r\n\r\nabc";
        assert_eq!(parse_head(whole).unwrap(), Some((whole.len() - 3, 3, true)));
        for cut in 0..whole.len() - 3 {
            assert_eq!(parse_head(&whole[..cut]).unwrap(), None, "cut at {cut}");
        }
        assert!(parse_head(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").is_err());
        assert!(parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }
}
