//! A feed in this process, and plain clients that speak its protocol byte by byte.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use feed::{Config, Counter, Server};
use wire::nats::{
    Progress,
    server::{self, ServerOp},
};

/// Longest wait of a test for something that must happen; a machine that is busy for longer fails the test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a feed with `loops` event loops, all on the first processor. Connections are distributed
/// round-robin, so that traffic between two clients crosses loops.
pub(crate) fn start(loops: usize, change: impl FnOnce(&mut Config)) -> Server {
    let processors = engine::cores::available().expect("processors");
    let mut config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        cores: vec![processors[0]; loops],
        gathered: 1,
        ..Config::default()
    };
    config.lame_duck_grace_period = Duration::ZERO;
    config.lame_duck_duration = Duration::ZERO;
    change(&mut config);
    Server::start(config).expect("a feed")
}

/// CONNECT as a client library sends it first.
pub(crate) const HELLO: &[u8] =
    b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}\r\n";

/// A client's connection.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    have: Vec<u8>,
}

/// One operation from the server, or the end of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Got {
    Message { subject: String, sid: String, reply: String, header: Vec<u8>, payload: Vec<u8> },
    Pong,
    Ping,
    Ok,
    Info(String),
    Error(String),
    Closed,
}

impl Client {
    /// Connects and reads INFO, but sends nothing.
    pub(crate) fn silent(server: &Server) -> Self {
        Self::to(server.addresses()[0])
    }

    pub(crate) fn to(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("a connection");
        socket.set_nodelay(true).expect("an option");
        socket.set_read_timeout(Some(PATIENCE)).expect("an option");
        let mut client = Self { socket, have: Vec::new() };
        let Got::Info(_) = client.next() else { panic!("INFO comes first") };
        client
    }

    /// Connects like a client library: CONNECT, PING, and the second INFO.
    pub(crate) fn new(server: &Server) -> Self {
        let mut client = Self::silent(server);
        client.send(HELLO);
        client.ping();
        // INFO is sent again after CONNECT.
        let Got::Info(_) = client.next() else { panic!("INFO comes again") };
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("sent");
    }

    pub(crate) fn publish(&mut self, subject: &str, payload: &[u8]) {
        let mut out = Vec::new();
        wire::nats::write::publish(&mut out, subject.as_bytes(), b"", payload);
        self.send(&out);
    }

    /// Subscribes, and waits for the server's PONG.
    pub(crate) fn subscribe(&mut self, subject: &str, sid: &str) {
        self.send(format!("SUB {subject} {sid}\r\n").as_bytes());
        self.ping();
    }

    /// Sends PING and reads the PONG, which must come next.
    pub(crate) fn ping(&mut self) {
        self.send(b"PING\r\n");
        assert_eq!(self.next(), Got::Pong);
    }

    /// Sends PING and returns everything that arrives before its PONG.
    pub(crate) fn until_pong(&mut self) -> Vec<Got> {
        self.send(b"PING\r\n");
        let mut all = Vec::new();
        loop {
            match self.next() {
                Got::Pong => return all,
                Got::Closed => panic!("closed, after {all:?}"),
                got => all.push(got),
            }
        }
    }

    /// Returns the server's next operation. Panics if nothing arrives for [`PATIENCE`].
    pub(crate) fn next(&mut self) -> Got {
        loop {
            match server::parse(&self.have).expect("a server's words") {
                Progress::Complete(op, taken) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let got = match op {
                        ServerOp::Message { subject, sid, reply, header, payload } => Got::Message {
                            subject: text(subject),
                            sid: text(sid),
                            reply: text(reply),
                            header: header.to_vec(),
                            payload: payload.to_vec(),
                        },
                        ServerOp::Pong => Got::Pong,
                        ServerOp::Ping => Got::Ping,
                        ServerOp::Ok => Got::Ok,
                        ServerOp::Info { json } => Got::Info(text(json)),
                        ServerOp::Error { text: words } => Got::Error(text(words)),
                    };
                    self.have.drain(..taken);
                    // The server may send PING at any time.
                    if got == Got::Ping {
                        let _ = self.socket.write_all(b"PONG\r\n");
                        continue;
                    }
                    return got;
                }
                Progress::NeedMore(_) => {
                    let mut buffer = vec![0; 64 * 1024];
                    match self.socket.read(&mut buffer) {
                        Ok(0) => return Got::Closed,
                        Ok(bytes) => self.have.extend_from_slice(&buffer[..bytes]),
                        Err(error) if error.kind() == ErrorKind::ConnectionReset => return Got::Closed,
                        Err(error) => panic!("nothing comes: {error}"),
                    }
                }
            }
        }
    }

    /// Payload of the next operation, which must be a message.
    pub(crate) fn payload(&mut self) -> Vec<u8> {
        match self.next() {
            Got::Message { payload, .. } => payload,
            other => panic!("a message was expected, not {other:?}"),
        }
    }

    /// Reads all bytes until the server closes; returns them, and whether it closed.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut all = std::mem::take(&mut self.have);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return (all, true),
                Ok(bytes) => all.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return (all, true),
                Err(_) => return (all, false),
            }
        }
    }
}

/// Waits until `is_so` returns true, which another thread brings about.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = engine::cores::clock::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        pause();
    }
}

/// Sleeps for a moment, so that other threads may run.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

/// Adds a WebSocket port, and a handshake timeout that is long enough for a busy machine.
pub(crate) fn with_web(config: &mut Config) {
    config.limits.auth_timeout = Duration::from_secs(600);
    config.websocket = Some(feed::WebSocket {
        listen: ([127, 0, 0, 1], 0).into(),
        tls: None,
        allowed_origins: Vec::new(),
        same_origin: false,
    });
}

/// Connects by WebSocket. Returns `None` if the server closes.
pub(crate) fn web_client(server: &Server) -> Option<TcpStream> {
    web_handshake(server, "/", "Host: x\r\n").map(|(socket, _)| socket)
}

/// Sends a WebSocket handshake with this target and further fields. Returns the socket and the answer's head,
/// or `None` if the server closes.
pub(crate) fn web_handshake(server: &Server, target: &str, fields: &str) -> Option<(TcpStream, String)> {
    let mut socket = TcpStream::connect(server.addresses()[1]).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("an option");
    let upgrade = format!(
        "GET {target} HTTP/1.1\r\n{fields}Upgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(upgrade.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read(&mut byte).ok()? == 0 {
            return None;
        }
        answer.push(byte[0]);
    }
    Some((socket, String::from_utf8(answer).expect("text")))
}

/// Head of a binary message of `bytes` bytes, with a mask of zeros.
pub(crate) fn web_head(bytes: u64) -> Vec<u8> {
    [&[0x82, 0xff][..], &bytes.to_be_bytes(), &[0; 4]].concat()
}

/// Waits until clients that hold unfinished messages are cut, as many as needed and no more, and checks that
/// an honest client is still served.
pub(crate) fn expect_cut(server: &Server, honest: &mut Client, holders_max: usize) {
    wait_until("some are cut", || server.counted(Counter::SlowProducers) > 0);
    wait_until("no more are cut than is needed", || {
        (holders_max / 2..=holders_max).contains(&(server.counted(Counter::Connections) as usize))
    });
    honest.publish("honest", b"x");
    assert_eq!(honest.payload(), b"x");
}
