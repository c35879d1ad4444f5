//! Filling the caches, and asking for what they hold, and for what they do not.

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

/// How many draws a list holds before it repeats: some ten times what a connection asks for in a round.
const DRAWS: usize = 1 << 18;
const SEED: u64 = 20_100_611;
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// What a browser sends beside the request line and Host, without a cookie: in all about 600 bytes, in two parts
/// around the Referer, which names a page by [`REFERER_DIGITS`].
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
/// The object's ID four times. wrk's LuaJIT hashes a long string by four bytes at each end, in the middle and at
/// a quarter: requests that differ elsewhere only all collide, and wrk spends half a minute starting. These digits
/// stand in the middle.
const REFERER_DIGITS: &str = "%06d%06d%06d%06d";
/// How many different ones these digits can say.
const REFERERS: u64 = 1_000_000;

/// The Zipf exponent: YCSB's, which is near what web traces show (Breslau et al., 1999: 0.64–0.83, and higher
/// behind a browser's own cache).
pub const ZIPF_EXPONENT: f64 = 0.99;

/// Which URLs a load asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urls {
    /// One, with wrk's own short request.
    One,
    /// That many, drawn by Zipf, with a request as a browser sends it.
    Zipf(u64),
    /// Each request another, from this one on, with a request as a browser sends it.
    Each(u64),
    /// So many in turn, from one of them on, with a request as a browser sends it.
    Round {
        /// How many; their IDs are those below.
        urls: u64,
        /// The first.
        first: u64,
    },
}

/// What a load asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSpec {
    /// What kind of page.
    pub page: Page,
    /// Of each body, the answer's or the upload's.
    pub body_bytes: u64,
    /// Kept alive, each with one request under way.
    pub connections: u32,
    /// Which objects.
    pub urls: Urls,
}

/// The scripts that wrk runs, and the lists that they read.
#[derive(Debug)]
pub struct Scripts {
    report: PathBuf,
    zipf: PathBuf,
    each: PathBuf,
    upload: PathBuf,
    directory: PathBuf,
}

impl Scripts {
    /// Writes them into `directory`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(directory: &Path) -> Result<Self, PeerError> {
        // One line that this program reads back; wrk's own summary is rounded for people.
        let report = "done = function(summary, latency)\n  local e = summary.errors\n  io.write(string.format(\
                      \"RESULT %d %d %d %d %d %d %d %d %d\\n\", summary.requests, summary.duration, e.connect, e.read, \
                      e.write, e.timeout, e.status, latency:percentile(50), latency:percentile(99)))\nend\n";
        // As a browser asks, where `id` is the object's, `path` its path and `low` the last digits of its ID.
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

/// In Lua's quotes.
fn lua_string(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\r', "\\r").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

/// `count` draws from 1..=`urls`, where the k-th URL is asked for in proportion to k^-0.99. Popular URLs are not
/// neighbours: ranks are spread over the IDs.
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

/// Runs wrk for `seconds` against `port` and reads what it did.
///
/// # Errors
/// wrk is not there, or ended without a result.
pub fn wrk(
    scripts: &Scripts,
    asked: &LoadSpec,
    port: u16,
    cores: &Cores,
    seconds: u64,
) -> Result<Work, PeerError> {
    let path = format!("{}{}", asked.page.root(), asked.body_bytes);
    // Two threads would ask for the same URLs.
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

/// The same over TLS, for one URL. `openssl` is the configuration of its TLS.
///
/// # Errors
/// wrk is not there, or ended without a result.
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

/// One keep-alive connection that asks for one object after the other and compares each with what the origin has.
#[derive(Debug)]
pub struct Filler<'a> {
    port: u16,
    bodies: &'a Bodies,
    secure: Option<Secure>,
    stream: Option<Stream>,
    buffer: Vec<u8>,
}

/// How TLS is spoken with a server.
#[derive(Clone, Debug)]
pub struct Secure {
    /// Protocols, ciphers, tickets.
    pub config: Arc<ClientConfig>,
    /// The name that is asked for.
    pub name: ServerName<'static>,
}

/// A connection.
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

    /// Says that nothing follows, where that is said; and which handshake there was.
    fn close(self) -> Option<HandshakeKind> {
        let Self::Secured(mut stream) = self else { return None };
        stream.conn.send_close_notify();
        // Who is gone already need not be told.
        let _ = stream.flush();
        stream.conn.handshake_kind()
    }
}

impl<'a> Filler<'a> {
    /// For the server at this port of loopback.
    pub fn new(port: u16, bodies: &'a Bodies) -> Self {
        Self { port, bodies, secure: None, stream: None, buffer: Vec::new() }
    }

    /// For the server that speaks TLS at this port of loopback.
    pub fn secured(port: u16, bodies: &'a Bodies, secure: Secure) -> Self {
        Self { secure: Some(secure), ..Self::new(port, bodies) }
    }

    /// Asks for `/size/body_bytes/id` and checks the answer byte for byte. (The limit answers only one thing, so
    /// it is not asked here.)
    ///
    /// # Errors
    /// Nobody answers, or with something else.
    pub fn fetch(&mut self, body_bytes: u64, id: u64) -> Result<(), PeerError> {
        self.fetch_page(Page::Shared, body_bytes, id)
    }

    /// The same over a connection of its own, which is closed; and which handshake of TLS that began with.
    ///
    /// # Errors
    /// Nobody answers, or with something else.
    pub fn fetch_anew(&mut self, body_bytes: u64, id: u64) -> Result<Option<HandshakeKind>, PeerError> {
        self.stream = None;
        self.exchange(Page::Shared, body_bytes, id)?;
        Ok(self.stream.take().and_then(Stream::close))
    }

    /// The connection's socket, which stays open as long as that is kept; nothing more can be said on it by TLS.
    pub fn into_socket(self) -> Option<TcpStream> {
        match self.stream? {
            Stream::Plain(stream) => Some(stream),
            Stream::Secured(stream) => Some(stream.into_parts().1),
        }
    }

    /// Asks for a page of any kind and checks the answer byte for byte; uploads so many bytes to [`Page::Upload`].
    ///
    /// # Errors
    /// Nobody answers, or with something else.
    pub fn fetch_page(&mut self, page: Page, body_bytes: u64, id: u64) -> Result<(), PeerError> {
        // A server may close a connection that it kept for us: once more on a new one, then it is an error.
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

/// Bytes of the head, length of the body, and whether the connection ends with it; `None` for "need more".
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
    fn a_browsers_request_has_about_600_bytes_and_its_own_middle() {
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
    fn heads_are_read_in_parts_and_only_good_ones_pass() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 3\r\nConnection: close\r\n\r\nabc";
        assert_eq!(parse_head(whole).unwrap(), Some((whole.len() - 3, 3, true)));
        for cut in 0..whole.len() - 3 {
            assert_eq!(parse_head(&whole[..cut]).unwrap(), None, "cut at {cut}");
        }
        assert!(parse_head(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").is_err());
        assert!(parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }
}
