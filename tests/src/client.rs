//! An HTTP/1.1 client that sends exactly the bytes it is given and reads strictly.
//!
//! Why not a library: half of the tests send bytes that no library would, and the other half check *how* a
//! body ended, byte by byte as it arrives, which libraries smooth over. The program's output is held to the
//! letter of RFC 9112: a bare LF, a stray control character or a wrong chunk stops the test.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

use crate::{
    PATIENCE,
    message::{Headers, Request},
};

/// A connection to the server under test.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// Bytes received and not yet consumed.
    unread: Vec<u8>,
    body: Framing,
}

/// The head of an answer, interim or final.
#[derive(Debug, Clone)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The header fields.
    pub headers: Headers,
    /// Exactly the bytes received, including the empty line.
    pub bytes: Vec<u8>,
}

/// The way in which a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The body is complete by its framing. (A body without framing is complete when the connection closes:
    /// no client can tell more.)
    Complete,
    /// The connection was closed before the body was complete.
    Closed,
    /// The connection was reset before the body was complete.
    Reset,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// Interim answers (1xx) that preceded this one.
    pub interim: Vec<Head>,
    /// Head of the final answer.
    pub head: Head,
    /// Body without chunk framing, as far as it was received.
    pub body: Vec<u8>,
    /// The trailer fields.
    pub trailers: Headers,
    /// The way in which the body ended.
    pub end: End,
}

/// Remainder of the body that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Done,
    Length(u64),
    ChunkHead,
    Chunk(u64),
    UntilClose,
}

impl Response {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the first header field of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.first(name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Checks that the answer is complete, and returns it.
    ///
    /// # Panics
    /// When the connection ended before the body did.
    #[track_caller]
    pub fn whole(self) -> Self {
        assert_eq!(self.end, End::Complete, "cut after {} bytes:\n{}", self.body.len(), self.text_of_head());
        self
    }

    /// Checks that the answer is complete and has this status, and returns it.
    ///
    /// # Panics
    /// When the status differs; the message shows head and body.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Self {
        let whole = self.whole();
        let shown = &whole.body[..whole.body.len().min(2000)];
        assert_eq!(whole.status(), status, "{}{}", whole.text_of_head(), String::from_utf8_lossy(shown));
        whole
    }

    /// Returns the head as text, for messages.
    pub fn text_of_head(&self) -> String {
        String::from_utf8_lossy(&self.head.bytes).into_owned()
    }
}

/// Sends one request on a connection of its own.
///
/// # Panics
/// When the server does not accept the connection or does not answer within [`PATIENCE`].
#[track_caller]
pub fn fetch(server: SocketAddr, request: &Request) -> Response {
    Client::connect(server).exchange(request)
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// When no server listens there.
    #[track_caller]
    pub fn connect(server: SocketAddr) -> Self {
        Self::try_connect(server).unwrap_or_else(|error| panic!("cannot connect to {server}: {error}"))
    }

    /// Connects.
    ///
    /// # Errors
    /// The kernel's error, such as `ConnectionRefused`.
    pub fn try_connect(server: SocketAddr) -> io::Result<Self> {
        Self::over(TcpStream::connect_timeout(&server, PATIENCE)?)
    }

    /// Makes a client of a connection that was opened elsewhere (with a small receive buffer, say).
    ///
    /// # Errors
    /// When the socket's options cannot be set.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, unread: Vec::new(), body: Framing::Done })
    }

    /// Sends these bytes as they are, for tests that expect the server to close.
    ///
    /// # Errors
    /// When the server has closed the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends these bytes as they are.
    ///
    /// # Panics
    /// When the server has closed the connection.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("the server took no more bytes: {error}"));
    }

    /// Closes the sending side (FIN); the client can still read.
    pub fn finish_sending(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Returns the socket, so that a test can set its options.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a request and reads its answer.
    #[track_caller]
    pub fn exchange(&mut self, request: &Request) -> Response {
        self.send(&request.bytes());
        self.response(request.method())
    }

    /// Sends a plain `GET` and reads its answer.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.exchange(&Request::get(target))
    }

    /// Reads one final answer to a request with this method, in whatever way the body ends.
    ///
    /// # Panics
    /// When the connection ends before a complete head, or the bytes are not HTTP/1.1.
    #[track_caller]
    pub fn response(&mut self, method: &str) -> Response {
        self.try_response(method).expect("the connection was closed without an answer")
    }

    /// Reads like [`Self::response`]; `None` when the connection ends before the first byte of an answer.
    #[track_caller]
    pub fn try_response(&mut self, method: &str) -> Option<Response> {
        let mut interim = Vec::new();
        loop {
            let head = self.try_head(method)?;
            if head.status >= 200 || head.status == 101 {
                let (body, trailers, end) = self.rest_of_body();
                return Some(Response { interim, head, body, trailers, end });
            }
            interim.push(head);
        }
    }

    /// Reads one head, interim or final; the body is then read with [`Self::body_piece`] and its relatives.
    ///
    /// # Panics
    /// See [`Self::response`].
    #[track_caller]
    pub fn head(&mut self, method: &str) -> Head {
        self.try_head(method).expect("the connection was closed without an answer")
    }

    /// Reads like [`Self::head`]; `None` when the connection ends before the first byte of an answer.
    #[track_caller]
    pub fn try_head(&mut self, method: &str) -> Option<Head> {
        assert_eq!(self.body, Framing::Done, "the body before this answer was not read to its end");
        let length = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.unread.len() < 1 << 20, "an answer's head of more than 1 MiB");
            if let Err(end) = self.fill() {
                let part = String::from_utf8_lossy(&self.unread);
                assert!(part.is_empty(), "the connection ended ({end:?}) within a head: {part:?}");
                return None;
            }
        };
        let bytes: Vec<u8> = self.unread.drain(..length).collect();
        let (status, headers) =
            parse_head(&bytes).unwrap_or_else(|why| panic!("{why}: {:?}", bytes.escape_ascii().to_string()));
        self.body = framing(method, status, &headers).unwrap_or_else(|why| panic!("{why}: {headers:?}"));
        Some(Head { status, headers, bytes })
    }

    /// Returns the next bytes of the body as soon as there are any, at most `most`. At the body's end, the
    /// error says how it ended and holds the trailers.
    ///
    /// # Panics
    /// When the framing is wrong.
    pub fn body_piece(&mut self, most: usize) -> Result<Vec<u8>, (End, Headers)> {
        loop {
            match self.body {
                Framing::Done => return Err((End::Complete, Headers::default())),
                Framing::Length(0) => self.body = Framing::Done,
                Framing::Length(left) => {
                    let piece = self.take_some(left, most).map_err(|end| self.cut(end))?;
                    self.body = Framing::Length(left - piece.len() as u64);
                    return Ok(piece);
                }
                Framing::UntilClose => {
                    return self
                        .take_some(u64::MAX, most)
                        .map_err(|end| self.cut(if end == End::Closed { End::Complete } else { end }));
                }
                Framing::ChunkHead => {
                    let line = self.line().map_err(|end| self.cut(end))?;
                    let digits = line.split(';').next().unwrap_or_default();
                    let size = u64::from_str_radix(digits, 16)
                        .unwrap_or_else(|_| panic!("a chunk size of {line:?}"));
                    if size > 0 {
                        self.body = Framing::Chunk(size);
                        continue;
                    }
                    let mut lines = Vec::new();
                    loop {
                        let line = self.line().map_err(|end| self.cut(end))?;
                        if line.is_empty() {
                            break;
                        }
                        lines.push(line);
                    }
                    self.body = Framing::Done;
                    let trailers = Headers::parse(lines.iter().map(String::as_str))
                        .unwrap_or_else(|why| panic!("{why}"));
                    return Err((End::Complete, trailers));
                }
                Framing::Chunk(0) => {
                    let line = self.line().map_err(|end| self.cut(end))?;
                    assert_eq!(line, "", "something between a chunk's data and its line end");
                    self.body = Framing::ChunkHead;
                }
                Framing::Chunk(left) => {
                    let piece = self.take_some(left, most).map_err(|end| self.cut(end))?;
                    self.body = Framing::Chunk(left - piece.len() as u64);
                    return Ok(piece);
                }
            }
        }
    }

    /// Returns exactly the next `count` bytes of the body.
    ///
    /// # Panics
    /// When the body ends earlier.
    #[track_caller]
    pub fn body_exactly(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count);
        while bytes.len() < count {
            match self.body_piece(count - bytes.len()) {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err((end, _)) => panic!("the body ended ({end:?}) after {} of {count} bytes", bytes.len()),
            }
        }
        bytes
    }

    /// Returns the rest of the body, the trailers, and the way in which it ended.
    pub fn rest_of_body(&mut self) -> (Vec<u8>, Headers, End) {
        let mut bytes = Vec::new();
        loop {
            match self.body_piece(usize::MAX) {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err((end, trailers)) => return (bytes, trailers, end),
            }
        }
    }

    /// Reads and drops the rest of the body, however long. Returns its length and the way in which it ended.
    pub fn drain_body(&mut self) -> (u64, End) {
        let mut length = 0;
        loop {
            match self.body_piece(usize::MAX) {
                Ok(piece) => length += piece.len() as u64,
                Err((end, _)) => return (length, end),
            }
        }
    }

    /// Returns the next `count` bytes of a connection that no longer carries HTTP, as after an upgrade.
    ///
    /// # Panics
    /// When the connection ends first, or the bytes do not arrive within [`PATIENCE`].
    #[track_caller]
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            self.fill().unwrap_or_else(|end| panic!("{end:?} before {count} bytes"));
        }
        self.unread.drain(..count).collect()
    }

    /// Waits until the server closes the connection. Returns how it closed and the bytes that it sent before.
    ///
    /// # Panics
    /// When the server does not close within [`PATIENCE`].
    #[track_caller]
    pub fn until_closed(&mut self) -> (End, Vec<u8>) {
        loop {
            if let Err(end) = self.fill() {
                return (end, std::mem::take(&mut self.unread));
            }
        }
    }

    /// Returns whether neither a byte nor the connection's end arrives for that long.
    pub fn silent_for(&mut self, time: Duration) -> bool {
        assert!(self.unread.is_empty(), "something had come before");
        self.stream.set_read_timeout(Some(time)).expect("a positive timeout");
        let silent = matches!(
            self.stream.peek(&mut [0]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        );
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a positive timeout");
        silent
    }

    fn cut(&mut self, end: End) -> (End, Headers) {
        self.body = Framing::Done;
        (end, Headers::default())
    }

    fn take_some(&mut self, left: u64, most: usize) -> Result<Vec<u8>, End> {
        if self.unread.is_empty() {
            self.fill()?;
        }
        let count = self.unread.len().min(most).min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == self.unread.len() {
            return Ok(std::mem::take(&mut self.unread));
        }
        Ok(self.unread.drain(..count).collect())
    }

    fn line(&mut self) -> Result<String, End> {
        let length = loop {
            if let Some(at) = find(&self.unread, b"\r\n") {
                break at;
            }
            assert!(self.unread.len() < 1 << 20, "a line of more than 1 MiB");
            self.fill()?;
        };
        let line: Vec<u8> = self.unread.drain(..length + 2).take(length).collect();
        Ok(String::from_utf8(line).expect("a chunk's line is ASCII"))
    }

    /// Reads more bytes; the error is the connection's end.
    fn fill(&mut self) -> Result<(), End> {
        let held = self.unread.len();
        self.unread.resize(held + 64 * 1024, 0);
        let read = loop {
            match self.stream.read(&mut self.unread[held..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.unread.truncate(held + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => Err(End::Closed),
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("nothing came in {PATIENCE:?}; held: {:?}", String::from_utf8_lossy(&self.unread))
            }
            Err(_) => Err(End::Reset),
        }
    }
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn parse_head(bytes: &[u8]) -> Result<(u16, Headers), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "a head that is not ASCII".to_owned())?;
    let mut lines = text.strip_suffix("\r\n\r\n").unwrap_or(text).split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse().ok())
        .filter(|status| (100..1000).contains(status))
        .ok_or_else(|| format!("not a status line: {first:?}"))?;
    Ok((status, Headers::parse(lines)?))
}

/// Framing of a body by RFC 9112 §6.3, more strictly than there: two statements about the length are an
/// error.
fn framing(method: &str, status: u16, headers: &Headers) -> Result<Framing, String> {
    let codings = headers.joined("transfer-encoding");
    let lengths: Vec<&str> = headers.all("content-length").collect();
    if !codings.is_empty() && !lengths.is_empty() || lengths.len() > 1 {
        return Err("two statements about the body's length".to_owned());
    }
    let has_none = method == "HEAD" || status < 200 || status == 204 || status == 304;
    if has_none {
        return Ok(Framing::Done);
    }
    if !codings.is_empty() {
        return if codings.eq_ignore_ascii_case("chunked") {
            Ok(Framing::ChunkHead)
        } else {
            Err(format!("a transfer coding that nobody asked for: {codings}"))
        };
    }
    match lengths.first() {
        Some(length) => length.parse().map(Framing::Length).map_err(|_| format!("a length of {length:?}")),
        None => Ok(Framing::UntilClose),
    }
}
