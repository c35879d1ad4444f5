//! A connection of the generator: its socket, plain or TLS, its requests under way, and their due times.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

use super::{
    client::{Client, InvalidReply},
    target::Target,
};

/// Timeout for connecting, after which the server counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes that one call reads.
pub(super) const READ_BYTES: usize = 64 << 10;

pub(super) struct Connection {
    transport: Transport,
    client: Box<dyn Client>,
    /// Maximum number of requests that wait for their answers, if the protocol allows more.
    depth_max: usize,
    out: Vec<u8>,
    /// Number of bytes of `out` that have been written.
    left: usize,
    /// Requests that wait for their answers, in the order in which they were sent.
    pub(super) waiting: VecDeque<InFlightRequest>,
    /// Time at which the connection last became able to take a request.
    pub(super) free_ns: u64,
    /// True once a request was sent on this connection.
    pub(super) is_used: bool,
    /// True once an answer arrived on this connection.
    pub(super) is_answered: bool,
}

/// A request that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlightRequest {
    pub(super) due_ns: u64,
    pub(super) sent_ns: u64,
    /// True if the request became due in the warm-up and is not recorded.
    pub(super) warm_up: bool,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// TLS configuration and server name; `None` without TLS.
pub(super) type Tls = Option<(Arc<ClientConfig>, ServerName<'static>)>;

/// Result of a read.
pub(super) enum ReadOutcome {
    /// This many answers; there may be more to read.
    Answers(usize),
    /// No more bytes for now.
    Nothing,
    /// End of the connection, and this many answers that it completed.
    End(usize),
}

/// Reason why a connection is given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionFault {
    #[error(transparent)]
    Wrong(#[from] InvalidReply),
    #[error("the connection broke: {0}")]
    Socket(#[from] io::Error),
}

impl Connection {
    /// Connects, and makes the socket non-blocking. `number` is unique among the connections of a run.
    pub(super) fn open(target: &Target, tls: &Tls, number: u64) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&target.address(), CONNECT_TIMEOUT)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let transport = match tls {
            None => Transport::Plain(socket),
            Some((config, name)) => {
                let connection =
                    ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
                Transport::Tls(Box::new(StreamOwned::new(connection, socket)))
            }
        };
        let mut client = target.client(number);
        let depth_max = target.depth_max();
        let mut out = Vec::new();
        client.greet(&mut out);
        Ok(Self {
            transport,
            client,
            depth_max,
            out,
            left: 0,
            waiting: VecDeque::new(),
            free_ns: 0,
            is_used: false,
            is_answered: false,
        })
    }

    /// Returns the socket alone; the state of TLS and of the protocol is dropped.
    pub(super) fn into_socket(self) -> TcpStream {
        match self.transport {
            Transport::Plain(socket) => socket,
            Transport::Tls(stream) => stream.into_parts().1,
        }
    }

    /// Returns whether the connection may take another request now.
    pub(super) fn is_free(&self) -> bool {
        self.client.is_ready() && self.waiting.len() < self.client.depth().min(self.depth_max)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.client.is_ready()
    }

    pub(super) fn refusals(&self) -> (u64, Option<&str>) {
        self.client.refusals()
    }

    /// Appends a request to the output; [`Self::flush`] sends it.
    pub(super) fn request(&mut self, sent: InFlightRequest) {
        self.client.request(&mut self.out);
        self.waiting.push_back(sent);
        self.is_used = true;
    }

    /// Removes and returns the request that was answered; called once for each answer.
    pub(super) fn take_answered(&mut self) -> Option<InFlightRequest> {
        self.is_answered = true;
        let place = self.client.next_answered();
        self.waiting.remove(place)
    }

    /// Writes the pending output; returns whether all of it was written.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while self.left < self.out.len() {
            let rest = &self.out[self.left..];
            let written = match &mut self.transport {
                Transport::Plain(socket) => socket.write(rest),
                Transport::Tls(stream) => stream.write(rest),
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.left += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.left = 0;
        if let Transport::Tls(stream) = &mut self.transport {
            match stream.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                flushed => flushed?,
            }
        }
        Ok(true)
    }

    /// Returns whether the connection must wait for the socket to become writable.
    pub(super) fn wants_write(&self) -> bool {
        let handshake = match &self.transport {
            Transport::Plain(_) => false,
            Transport::Tls(stream) => stream.conn.wants_write(),
        };
        handshake || self.left < self.out.len()
    }

    /// Reads once.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, ConnectionFault> {
        let read = match &mut self.transport {
            Transport::Plain(socket) => socket.read(buffer),
            Transport::Tls(stream) => stream.read(buffer),
        };
        match read {
            Ok(0) => Ok(ReadOutcome::End(self.client.closed()?)),
            Ok(bytes) => Ok(ReadOutcome::Answers(self.client.received(&buffer[..bytes], &mut self.out)?)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(ReadOutcome::Nothing),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(ReadOutcome::Answers(0)),
            // The server closed TLS without close_notify.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Ok(ReadOutcome::End(self.client.closed()?))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.transport {
            Transport::Plain(socket) => socket.as_fd(),
            Transport::Tls(stream) => stream.sock.as_fd(),
        }
    }
}
