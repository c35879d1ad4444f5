//! An origin that follows its script, good or bad, and remembers the requests.
//!
//! Each connection has a thread. A path's script is a closure that gets the request and the [`Reply`]: it may
//! answer well, or stall, drip, lie, cut, reset, or send bytes that are not HTTP. Every request is kept
//! whole, so that a test can check how many requests reached the origin, and with which fields.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    client::find,
    eventually,
    message::{Answer, Headers},
};

/// A request as the origin received it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The method.
    pub method: String,
    /// The target as it was sent.
    pub target: String,
    /// The header fields.
    pub headers: Headers,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
    /// The trailers after a chunked body.
    pub trailers: Headers,
}

impl Seen {
    /// Returns the target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns the first header field of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.first(name)
    }
}

/// Fate of the connection after a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The connection waits for the next request.
    KeepAlive,
    /// The connection is closed in order (FIN).
    Close,
    /// The connection is reset (RST): bytes that the peer has not read yet are lost.
    Reset,
}

/// The origin's side of one exchange.
#[derive(Debug)]
pub struct Reply<'a> {
    stream: &'a mut TcpStream,
    stopped: &'a AtomicBool,
    method: &'a str,
}

impl Reply<'_> {
    /// Sends these bytes as they are, at once.
    ///
    /// # Errors
    /// When the accelerator has closed the connection; a script may return this error.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a well-formed answer and keeps the connection.
    ///
    /// # Errors
    /// See [`Self::send`].
    pub fn answer(&mut self, answer: &Answer) -> io::Result<Next> {
        self.send(&answer.bytes(self.method))?;
        Ok(Next::KeepAlive)
    }

    /// Reads the next bytes as they are; 0 means that none follow.
    ///
    /// # Errors
    /// See [`Self::send`]; or no bytes arrived in time.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(crate::PATIENCE))?;
        self.stream.read(into)
    }

    /// Sends nothing more until the peer closes or the origin stops.
    pub fn stall(&mut self) -> Next {
        let _ = self.stream.set_read_timeout(Some(Duration::from_millis(20)));
        while !self.stopped.load(Ordering::Acquire) {
            match self.stream.read(&mut [0; 1024]) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(_) => break,
            }
        }
        Next::Close
    }

    /// Returns whether the origin is being dropped: an endless script ends then.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

type Script = Arc<dyn Fn(&Seen, &mut Reply<'_>) -> io::Result<Next> + Send + Sync>;

#[derive(Default)]
struct Shared {
    scripts: Mutex<HashMap<String, Script>>,
    otherwise: Mutex<Option<Script>>,
    nonsense: Mutex<Vec<String>>,
    seen: Mutex<Vec<Seen>>,
    connections: Mutex<u64>,
    /// Open connections by their numbers.
    streams: Mutex<HashMap<u64, TcpStream>>,
    stopped: AtomicBool,
}

/// A server whose every answer is scripted. Stops when dropped.
pub struct ScriptedOrigin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl ScriptedOrigin {
    /// Starts on a free port. A path without a script is answered 404 with `no-store`.
    ///
    /// # Panics
    /// When there is no port on loopback.
    pub fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts at this address, where another origin may have listened before.
    ///
    /// # Panics
    /// When the address is taken.
    pub fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared::default());
        let of_listener = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_listener.stopped.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let mut connections = of_listener.connections.lock().unwrap();
                *connections += 1;
                let number = *connections;
                drop(connections);
                let second = stream.try_clone().ok().map(|second| (number, second));
                of_listener.streams.lock().unwrap().extend(second);
                let of_connection = Arc::clone(&of_listener);
                // A thread's error means that its peer has left, which many tests are about.
                thread::spawn(move || {
                    let _ = serve(stream, &of_connection);
                    // The connection is closed with its last handle.
                    of_connection.streams.lock().unwrap().remove(&number);
                });
            }
        });
        Self { address, shared }
    }

    /// Ends at once, with all connections, whatever is in progress on them. Afterwards no one listens at the
    /// address.
    ///
    /// # Panics
    /// When the address still accepts connections.
    pub fn kill(self) {
        let address = self.address;
        let shared = Arc::clone(&self.shared);
        drop(self);
        eventually("its listener is closed", || TcpStream::connect(address).is_err());
        for stream in shared.streams.lock().unwrap().values() {
            // The connection may have ended before.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Address where the origin listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the value for `--origin`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Scripts a path (without query).
    pub fn on(
        &self,
        path: &str,
        script: impl Fn(&Seen, &mut Reply<'_>) -> io::Result<Next> + Send + Sync + 'static,
    ) {
        self.shared.scripts.lock().unwrap().insert(path.to_owned(), Arc::new(script));
    }

    /// Scripts every path that has no script of its own.
    pub fn otherwise(
        &self,
        script: impl Fn(&Seen, &mut Reply<'_>) -> io::Result<Next> + Send + Sync + 'static,
    ) {
        *self.shared.otherwise.lock().unwrap() = Some(Arc::new(script));
    }

    /// Scripts a path with the same good answer each time.
    pub fn answers(&self, path: &str, answer: Answer) {
        self.on(path, move |_, reply| reply.answer(&answer));
    }

    /// Scripts a path with the same bytes each time, and the fate of the connection after them.
    pub fn sends(&self, path: &str, bytes: impl Into<Vec<u8>>, next: Next) {
        let bytes = bytes.into();
        self.on(path, move |_, reply| reply.send(&bytes).map(|()| next));
    }

    /// Returns the requests for a path (without query) so far.
    pub fn seen(&self, path: &str) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().iter().filter(|request| request.path() == path).cloned().collect()
    }

    /// Counts the requests for a path (without query) so far.
    pub fn count(&self, path: &str) -> usize {
        self.shared.seen.lock().unwrap().iter().filter(|request| request.path() == path).count()
    }

    /// Returns all requests so far.
    pub fn all_seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Returns descriptions of the bytes received so far that were no request: bytes behind a request's end,
    /// say.
    pub fn nonsense(&self) -> Vec<String> {
        self.shared.nonsense.lock().unwrap().clone()
    }

    /// Counts the connections accepted so far.
    pub fn connections(&self) -> u64 {
        *self.shared.connections.lock().unwrap()
    }
}

impl Drop for ScriptedOrigin {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // Wakes the listener, so that it sees the end and gives the port back.
        let _ = TcpStream::connect(self.address);
    }
}

/// A loopback address that refuses every connection for as long as the value exists: the port is bound, so no
/// other process can listen there, and this socket does not listen.
#[derive(Debug)]
pub struct NobodyThere {
    socket: socket2::Socket,
}

impl NobodyThere {
    /// Binds a port.
    ///
    /// # Panics
    /// When there is no port on loopback.
    #[expect(clippy::new_without_default, reason = "taking a port is an act")]
    pub fn new() -> Self {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port on loopback");
        Self { socket }
    }

    /// Returns the address that refuses.
    pub fn address(&self) -> SocketAddr {
        self.socket
            .local_addr()
            .ok()
            .and_then(|address| address.as_socket())
            .expect("a bound socket has an address")
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut unread = Vec::new();
    loop {
        stream.set_read_timeout(None)?;
        let read = read_request(&mut stream, &mut unread);
        if let Err(error) = &read
            && error.kind() == io::ErrorKind::InvalidData
        {
            shared.nonsense.lock().unwrap().push(error.to_string());
        }
        let Some(request) = read? else {
            if !unread.is_empty() {
                shared.nonsense.lock().unwrap().push(unread.escape_ascii().to_string());
            }
            return Ok(());
        };
        let script = shared.scripts.lock().unwrap().get(request.path()).cloned();
        let script = script.or_else(|| shared.otherwise.lock().unwrap().clone());
        // Counted before it is answered, because a test that has the answer must find it counted.
        shared.seen.lock().unwrap().push(request.clone());
        let mut reply = Reply { stream: &mut stream, stopped: &shared.stopped, method: &request.method };
        let next = match script {
            Some(script) => script(&request, &mut reply)?,
            None => reply
                .answer(&Answer::new(404, "no script for this path\n").header("Cache-Control", "no-store"))?,
        };
        match next {
            Next::KeepAlive => {}
            Next::Close => return Ok(()),
            Next::Reset => return socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
        }
    }
}

fn read_request(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<Option<Seen>> {
    let garbage = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let head_length = loop {
        if let Some(at) = find(unread, b"\r\n\r\n") {
            break at + 4;
        }
        if !more(stream, unread)? {
            return Ok(None);
        }
    };
    let head: Vec<u8> = unread.drain(..head_length).collect();
    let head = String::from_utf8(head).map_err(|_| garbage("a head that is not UTF-8"))?;
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers = Headers::parse(lines).map_err(|why| garbage(&why))?;

    if framings(&headers) > 1 || headers.all("host").count() != 1 {
        return Err(garbage(&format!("a request that can be read in two ways: {head:?}")));
    }
    // RFC 9110 §10.1.1: a client that expects 100 Continue gets it.
    if headers.first("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = Vec::new();
    let mut trailers = Headers::default();
    if headers.joined("transfer-encoding").eq_ignore_ascii_case("chunked") {
        loop {
            let line = read_line(stream, unread)?;
            let size = usize::from_str_radix(line.trim(), 16).map_err(|_| garbage("a chunk size"))?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&read_exactly(stream, unread, size)?);
            read_line(stream, unread)?;
        }
        let mut lines = Vec::new();
        loop {
            let line = read_line(stream, unread)?;
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        trailers = Headers::parse(lines.iter().map(String::as_str)).map_err(|why| garbage(&why))?;
    } else if headers.first("transfer-encoding").is_some() {
        return Err(garbage(&format!("a coding that is not chunked: {head:?}")));
    } else if let Some(length) = headers.first("content-length") {
        let length = length.parse().map_err(|_| garbage("a length"))?;
        body = read_exactly(stream, unread, length)?;
    }
    Ok(Some(Seen { method: method.to_owned(), target: target.to_owned(), headers, body, trailers }))
}

/// Counts the statements about the body's length.
fn framings(headers: &Headers) -> usize {
    headers.all("content-length").chain(headers.all("transfer-encoding")).count()
}

fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 16 * 1024];
    let read = stream.read(&mut buffer)?;
    unread.extend_from_slice(&buffer[..read]);
    Ok(read > 0)
}

fn read_line(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<String> {
    loop {
        if let Some(at) = find(unread, b"\r\n") {
            let line: Vec<u8> = unread.drain(..at + 2).take(at).collect();
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
        if !more(stream, unread)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn read_exactly(stream: &mut TcpStream, unread: &mut Vec<u8>, count: usize) -> io::Result<Vec<u8>> {
    while unread.len() < count {
        if !more(stream, unread)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(unread.drain(..count).collect())
}
