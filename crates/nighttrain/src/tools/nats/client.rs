//! A blocking connection to a NATS server, for a tool's thread.
//!
//! ```text
//!  publish ─▶ out (FLUSH_BYTES) ─write─▶ server ─read─▶ buffer ─wire::nats::server─▶ each message, borrowed
//! ```
//! The buffer grows to the largest message (at most `BUFFER_BYTES_MAX`) and keeps its size.

use std::{
    collections::VecDeque,
    fs, io,
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use base64::Engine as _;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde::Deserialize;
use wire::nats::{Progress, server, server::ServerOp, write};

use super::target::Target;

/// Number of bytes of queued operations at which they are sent.
const FLUSH_BYTES: usize = 64 << 10;
/// Initial size of the receive buffer.
const READ_BYTES: usize = 256 << 10;
/// Largest size of the receive buffer; a larger message from the server is an error.
const BUFFER_BYTES_MAX: usize = 80 << 20;
/// Time limit for each of connecting, a handshake, and a confirmation.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Error on a connection to a NATS server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The connection cannot be established.
    #[error("cannot connect to {0}: {1}")]
    Connect(Box<str>, io::Error),
    /// The connection failed.
    #[error("the connection to {0} broke: {1}")]
    Broken(Box<str>, io::Error),
    /// The server closed the connection.
    #[error("{0} closed the connection")]
    Closed(Box<str>),
    /// The server sent `-ERR`.
    #[error("{0} says: {1}")]
    Refused(Box<str>, String),
    /// The server does not speak NATS.
    #[error("{0} is not a NATS server: {1}")]
    NotNats(Box<str>, String),
    /// TLS cannot be set up.
    #[error("TLS with {0} failed: {1}")]
    Tls(Box<str>, String),
    /// The seed does not belong to a user's nkey.
    #[error("invalid seed: a user's nkey seed begins with SU")]
    Seed,
    /// The server did not answer in time.
    #[error("{0} did not answer within 10 s")]
    Silent(Box<str>),
}

/// Fields of INFO that a tool needs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Info {
    /// Configured name of the server.
    pub(crate) server_name: String,
    /// Version of the server.
    pub(crate) version: String,
    /// Maximum size of a message in bytes.
    pub(crate) max_payload: usize,
    /// The server requires credentials.
    pub(crate) auth_required: bool,
    /// The server requires TLS.
    pub(crate) tls_required: bool,
    /// The server supports TLS.
    pub(crate) tls_available: bool,
    /// Nonce that an nkey must sign.
    pub(crate) nonce: String,
}

/// A message, borrowed from the connection's buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    /// Subject under which the message was published.
    pub(crate) subject: &'a [u8],
    /// Reply subject; may be empty.
    pub(crate) reply: &'a [u8],
    /// Header of the message; may be empty.
    pub(crate) header: &'a [u8],
    /// Payload of the message.
    pub(crate) payload: &'a [u8],
}

/// Result of a call to [`Client::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveOutcome {
    /// This many messages were received; 0 if only other operations arrived.
    Messages(usize),
    /// Nothing arrived in time.
    Nothing,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }
}

/// A blocking connection to a NATS server.
pub(crate) struct Client {
    target: Target,
    stream: Stream,
    info: Info,
    out: Vec<u8>,
    buffer: Vec<u8>,
    /// Range of `buffer` with bytes that were received and not parsed yet.
    filled: std::ops::Range<usize>,
    pongs: usize,
    /// Messages that arrived while the client waited for a confirmation.
    early: VecDeque<OwnedMessage>,
}

struct OwnedMessage {
    subject: Vec<u8>,
    reply: Vec<u8>,
    header: Vec<u8>,
    payload: Vec<u8>,
}

impl Client {
    /// Connects to a server and logs in.
    ///
    /// # Errors
    /// [`ClientError`] if the server cannot be reached, refuses the client, or does not answer.
    pub(crate) fn connect(target: &Target, name: &str) -> Result<Self, ClientError> {
        let socket = reach(target).map_err(|error| ClientError::Connect(named(target), error))?;
        let broken = |error| ClientError::Broken(named(target), error);
        socket.set_nodelay(true).map_err(broken)?;
        let mut client = Self {
            target: target.clone(),
            stream: Stream::Plain(socket),
            info: Info::default(),
            out: Vec::with_capacity(FLUSH_BYTES * 2),
            buffer: vec![0; READ_BYTES],
            filled: 0..0,
            pongs: 0,
            early: VecDeque::new(),
        };
        client.wait_for(|client| !client.info.version.is_empty())?;
        if client.info.tls_required || target.tls {
            client.begin_tls()?;
        }
        let hello = client.hello(name)?;
        write::connect(&mut client.out, hello.as_bytes());
        client.confirm()?;
        Ok(client)
    }

    /// Returns the server's INFO.
    pub(crate) fn info(&self) -> &Info {
        &self.info
    }

    /// Queues a message. It is sent at the next [`Self::flush`], or earlier when enough is queued.
    ///
    /// # Errors
    /// [`ClientError::Broken`] if the connection failed.
    pub(crate) fn publish(
        &mut self,
        subject: &[u8],
        reply: &[u8],
        payload: &[u8],
    ) -> Result<(), ClientError> {
        write::publish(&mut self.out, subject, reply, payload);
        if self.out.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Queues a subscription; it is active after the next [`Self::confirm`].
    pub(crate) fn subscribe(&mut self, subject: &[u8], queue: &[u8], sid: &[u8]) {
        write::subscribe(&mut self.out, subject, queue, sid);
    }

    /// Sends everything that is queued.
    ///
    /// # Errors
    /// [`ClientError::Broken`] if the connection failed.
    pub(crate) fn flush(&mut self) -> Result<(), ClientError> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(|error| ClientError::Broken(self.server(), error))
    }

    /// Waits until the server has processed everything that was sent.
    ///
    /// # Errors
    /// [`ClientError`] if the server sends `-ERR`, or does not answer in time.
    pub(crate) fn confirm(&mut self) -> Result<(), ClientError> {
        self.out.extend_from_slice(b"PING\r\n");
        self.flush()?;
        let before = self.pongs;
        self.wait_for(|client| client.pongs > before)
    }

    /// Reads from the connection once, waiting up to `wait_at_most`, and passes each complete message to
    /// `each`.
    ///
    /// # Errors
    /// [`ClientError`] if the connection ended, or the server sent `-ERR`.
    pub(crate) fn receive(
        &mut self,
        wait_at_most: Duration,
        mut each: impl FnMut(Message<'_>),
    ) -> Result<ReceiveOutcome, ClientError> {
        let mut messages = 0;
        while let Some(early) = self.early.pop_front() {
            messages += 1;
            each(Message {
                subject: &early.subject,
                reply: &early.reply,
                header: &early.header,
                payload: &early.payload,
            });
        }
        if messages > 0 {
            return Ok(ReceiveOutcome::Messages(messages));
        }
        if !self.fill(wait_at_most)? {
            return Ok(ReceiveOutcome::Nothing);
        }
        self.take(|message| {
            messages += 1;
            each(message);
        })?;
        Ok(ReceiveOutcome::Messages(messages))
    }

    fn server(&self) -> Box<str> {
        named(&self.target)
    }

    fn wait_for(&mut self, mut is_there: impl FnMut(&Self) -> bool) -> Result<(), ClientError> {
        while !is_there(self) {
            if !self.fill(ANSWER_TIME_MAX)? {
                return Err(ClientError::Silent(self.server()));
            }
            let mut early = VecDeque::new();
            self.take(|message| {
                early.push_back(OwnedMessage {
                    subject: message.subject.to_vec(),
                    reply: message.reply.to_vec(),
                    header: message.header.to_vec(),
                    payload: message.payload.to_vec(),
                });
            })?;
            self.early.append(&mut early);
        }
        Ok(())
    }

    /// Reads from the connection once. Returns false if nothing arrived in time.
    fn fill(&mut self, wait_at_most: Duration) -> Result<bool, ClientError> {
        if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        if self.filled.end == self.buffer.len() {
            let larger = self.buffer.len() * 2;
            if larger > BUFFER_BYTES_MAX {
                return Err(ClientError::NotNats(self.server(), "a message above 64 MiB".to_owned()));
            }
            self.buffer.resize(larger, 0);
        }
        let wait = wait_at_most.max(Duration::from_millis(1));
        let read = self
            .stream
            .socket()
            .set_read_timeout(Some(wait))
            .and_then(|()| self.stream.read(&mut self.buffer[self.filled.end..]));
        match read {
            Ok(0) => Err(ClientError::Closed(self.server())),
            Ok(bytes) => {
                self.filled.end += bytes;
                Ok(true)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(ClientError::Broken(self.server(), error)),
        }
    }

    /// Processes every complete operation in the buffer.
    fn take(&mut self, mut each: impl FnMut(Message<'_>)) -> Result<(), ClientError> {
        let mut pings = 0;
        while let Progress::Complete(operation, bytes) = server::parse(&self.buffer[self.filled.clone()])
            .map_err(|fault| ClientError::NotNats(self.server(), fault.to_string()))?
        {
            match operation {
                ServerOp::Message { subject, reply, header, payload, .. } => {
                    each(Message { subject, reply, header, payload });
                }
                ServerOp::Info { json } => {
                    self.info = serde_json::from_slice(json)
                        .map_err(|error| ClientError::NotNats(self.server(), error.to_string()))?;
                }
                ServerOp::Ping => pings += 1,
                ServerOp::Pong => self.pongs += 1,
                ServerOp::Ok => {}
                ServerOp::Error { text } => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    return Err(ClientError::Refused(self.server(), text));
                }
            }
            self.filled.start += bytes;
        }
        if pings > 0 {
            self.stream
                .write_all(&b"PONG\r\n".repeat(pings))
                .map_err(|error| ClientError::Broken(self.server(), error))?;
        }
        Ok(())
    }

    fn begin_tls(&mut self) -> Result<(), ClientError> {
        let failed = |why: String| ClientError::Tls(self.server(), why);
        let roots = match &self.target.ca_file {
            Some(path) => roots(path).map_err(failed)?,
            None => {
                return Err(failed("set --tls-ca FILE to the CA certificates to trust".into()));
            }
        };
        let config = rustls::ClientConfig::builder_with_provider(engine::tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name =
            ServerName::try_from(self.target.host.clone()).map_err(|error| failed(error.to_string()))?;
        let mut session = rustls::ClientConnection::new(Arc::new(config), name)
            .map_err(|error| failed(error.to_string()))?;
        let mut socket = self.stream.socket().try_clone().map_err(|error| failed(error.to_string()))?;
        socket.set_read_timeout(Some(ANSWER_TIME_MAX)).map_err(|error| failed(error.to_string()))?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|error| failed(error.to_string()))?;
        }
        self.stream = Stream::Tls(Box::new(rustls::StreamOwned::new(session, socket)));
        Ok(())
    }

    fn hello(&self, name: &str) -> Result<String, ClientError> {
        let mut hello = serde_json::json!({
            "verbose": false,
            "pedantic": false,
            "name": name,
            "lang": "nighttrain",
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": 1,
            "headers": true,
            "no_responders": true,
            "echo": true,
            "tls_required": matches!(self.stream, Stream::Tls(_)),
        });
        let target = &self.target;
        for (key, value) in
            [("user", &target.user), ("pass", &target.password), ("auth_token", &target.token)]
        {
            if let Some(value) = value {
                hello[key] = value.as_str().into();
            }
        }
        if let Some(seed) = &target.seed {
            let pair = nkeys::KeyPair::from_seed(seed.trim()).map_err(|_| ClientError::Seed)?;
            let signature = pair.sign(self.info.nonce.as_bytes()).map_err(|_| ClientError::Seed)?;
            hello["nkey"] = pair.public_key().into();
            hello["sig"] = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(signature).into();
        }
        Ok(hello.to_string())
    }
}

/// Returns the server's URL for error texts, without secrets.
fn named(target: &Target) -> Box<str> {
    target.to_string().into()
}

fn reach(target: &Target) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (target.host.as_str(), target.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER_TIME_MAX) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn roots(path: &Path) -> Result<rustls::RootCertStore, String> {
    let said = |error: String| format!("{}: {error}", path.display());
    let bytes = fs::read(path).map_err(|error| said(error.to_string()))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| said(error.to_string()))?;
        roots.add(certificate).map_err(|error| said(error.to_string()))?;
    }
    if roots.is_empty() { Err(said("no certificate in it".to_owned())) } else { Ok(roots) }
}
