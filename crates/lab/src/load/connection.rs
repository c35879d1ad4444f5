//! One connection of the generator: its socket, plain or TLS, what is under way on it, and who is owed what.

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

/// A server that does not take a connection within this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that one read takes.
pub(super) const READ_BYTES: usize = 64 << 10;

pub(super) struct Connection {
    transport: Transport,
    client: Box<dyn Client>,
    /// Requests that may wait for their answers at once, where the protocol allows more.
    depth_max: usize,
    out: Vec<u8>,
    /// Of `out`, what has left.
    left: usize,
    /// In the order in which they were sent.
    pub(super) waiting: VecDeque<InFlightRequest>,
    /// When it last became able to take a request.
    pub(super) free_ns: u64,
    /// A request has gone out on this connection.
    pub(super) is_used: bool,
    /// An answer has come on this connection.
    pub(super) is_answered: bool,
}

/// A request that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlightRequest {
    pub(super) due_ns: u64,
    pub(super) sent_ns: u64,
    /// It became due in the warm-up and is not recorded.
    pub(super) warm_up: bool,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// How TLS is spoken, where it is.
pub(super) type Tls = Option<(Arc<ClientConfig>, ServerName<'static>)>;

/// What a read brought.
pub(super) enum ReadOutcome {
    /// So many answers; there may be more to read.
    Answers(usize),
    /// Nothing more for now.
    Nothing,
    /// The end, and so many answers by it.
    End(usize),
}

/// Why a connection is given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionFault {
    #[error(transparent)]
    Wrong(#[from] InvalidReply),
    #[error("the connection broke: {0}")]
    Socket(#[from] io::Error),
}

impl Connection {
    /// Connects, and makes the socket non-blocking. No two connections of a run have the same number.
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

    /// Its socket alone; what TLS and the protocol knew of it is gone.
    pub(super) fn into_socket(self) -> TcpStream {
        match self.transport {
            Transport::Plain(socket) => socket,
            Transport::Tls(stream) => stream.into_parts().1,
        }
    }

    /// It may take another request now.
    pub(super) fn is_free(&self) -> bool {
        self.client.is_ready() && self.waiting.len() < self.client.depth().min(self.depth_max)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.client.is_ready()
    }

    pub(super) fn refusals(&self) -> (u64, Option<&str>) {
        self.client.refusals()
    }

    /// Puts a request into the output; [`Self::flush`] sends it.
    pub(super) fn request(&mut self, sent: InFlightRequest) {
        self.client.request(&mut self.out);
        self.waiting.push_back(sent);
        self.is_used = true;
    }

    /// The request that an answer has come for; each answer is asked about once.
    pub(super) fn take_answered(&mut self) -> Option<InFlightRequest> {
        self.is_answered = true;
        let place = self.client.next_answered();
        self.waiting.remove(place)
    }

    /// Writes what is to be written; whether all of it has left.
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

    /// Whether the kernel must say when more can be written.
    pub(super) fn wants_write(&self) -> bool {
        let handshake = match &self.transport {
            Transport::Plain(_) => false,
            Transport::Tls(stream) => stream.conn.wants_write(),
        };
        handshake || self.left < self.out.len()
    }

    /// One read.
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
            // A peer that closes TLS without saying so.
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
