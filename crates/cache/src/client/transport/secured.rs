//! The socket of a client under TLS.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use engine::{
    cores::{clock, watch::Watch},
    sys::span::Part,
    tls::session::{
        HANDSHAKE_BYTES_MAX, RECORD_BYTES_MAX, RECORD_CONTENT_BYTES_MAX, Session, SessionError, Terms,
        read_bytes_max,
    },
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
};

use super::{Transport, is_over};
use crate::{
    client::limits::client_budget::ClientMemoryGuard,
    core::{READ_BYTES, with_core},
    request::client_auth::ClientAuth,
};

/// Records that are sealed before they are written: few calls, and not more than a socket takes. A page of 64 KiB with its
/// head is one more than four.
const RECORDS_AT_ONCE: usize = 5;
/// So often, before it is others' turn.
const WRITES_AT_ONCE: usize = 2;

/// Buffers of the thread for what is not plain.
pub(crate) struct Scratch {
    /// What came: of a handshake at most [`HANDSHAKE_BYTES_MAX`].
    incoming: Vec<u8>,
    /// Content of one record, put together.
    plain: Vec<u8>,
    /// What was sealed.
    sealed: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            incoming: vec![0; HANDSHAKE_BYTES_MAX],
            plain: Vec::with_capacity(RECORD_CONTENT_BYTES_MAX),
            sealed: Vec::with_capacity(RECORDS_AT_ONCE * RECORD_BYTES_MAX),
        }
    }
}

/// What was sealed and not taken by the socket.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    at: usize,
    held: Option<ClientMemoryGuard>,
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Keeps bytes behind those that wait.
    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
        // What was counted goes before what is counted.
        self.held = None;
        self.held = ClientMemoryGuard::reserve(self.bytes.len());
        // The most that a client may make us hold is reached: it goes.
        if self.held.is_some() { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// Writes what the socket takes; whether nothing is left.
    fn write(&mut self, stream: &TcpStream) -> io::Result<bool> {
        while !self.is_empty() {
            match stream.try_write(&self.bytes[self.at..]) {
                Ok(sent) => self.at += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if self.at > 0 {
            *self = Self::default();
        }
        Ok(true)
    }
}

/// A client's TLS, and what of it waits.
pub(super) struct TlsStream {
    session: Session,
    /// What its client has shown, once the handshake is over.
    came: ClientAuth,
    /// The beginning of a record, or of a message of the handshake.
    incoming: Vec<u8>,
    unsent: Unsent,
    /// The client has said that nothing follows.
    is_closed: bool,
    said_goodbye: bool,
}

impl TlsStream {
    fn new(terms: Arc<dyn Terms>) -> Self {
        let (session, unsent) = (Session::new(terms), Unsent::default());
        let came = ClientAuth::Unasked;
        Self { session, came, incoming: Vec::new(), unsent, is_closed: false, said_goodbye: false }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn came(&self) -> &ClientAuth {
        &self.came
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Reads once, as much as [`read_bytes_max`] allows beside the bytes that are kept, and hands content to `take`.
    /// Returns how many bytes came, and how many bytes of content.
    fn poll_receive(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
        bytes_max: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<(usize, usize)>> {
        with_core(|core| {
            let Scratch { incoming, sealed, .. } = &mut *core.secured.borrow_mut();
            let have = self.incoming.len();
            let most = read_bytes_max(&self.incoming, bytes_max).min(incoming.len());
            let Some(target) = incoming.get_mut(have..most).filter(|target| !target.is_empty()) else {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            };
            let mut buffer = ReadBuf::new(target);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            let read = buffer.filled().len();
            if read == 0 || self.said_goodbye {
                // Nothing that comes after our last words is looked at; who waits for the client's end counts it.
                return Poll::Ready(Ok((read, read)));
            }
            let incoming = &mut incoming[..have + read];
            incoming[..have].copy_from_slice(&self.incoming);
            let mut content = 0;
            sealed.clear();
            let received = self.session.receive(incoming, sealed, |record| {
                content += record.len();
                take(record);
            });
            self.unsent.keep(sealed)?;
            let is_written = self.unsent.write(stream);
            let received = received.map_err(of_broken)?;
            is_written?;
            self.is_closed |= received.is_closed;
            let rest = &incoming[received.consumed..];
            if rest.is_empty() {
                // An idle connection holds no memory for what does not come.
                self.incoming = Vec::new();
            } else {
                self.incoming.clear();
                self.incoming.extend_from_slice(rest);
            }
            Poll::Ready(Ok((read, content)))
        })
    }

    /// Reads content, at most `bytes_max` or one record; 0: nothing follows.
    pub(super) fn poll_read(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
        bytes_max: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.is_closed {
                return Poll::Ready(Ok(0));
            }
            // Answers to new keys wait for the socket, and not for the next answer.
            if let Poll::Ready(flushed) = self.poll_flush(stream, cx) {
                flushed?;
            }
            match ready!(self.poll_receive(stream, cx, bytes_max, take))? {
                (0, _) => return Poll::Ready(Ok(0)),
                (_, 0) => {}
                (_, content) => return Poll::Ready(Ok(content)),
            }
        }
    }

    /// Seals what is next of `parts`, and writes it as far as the socket takes it.
    pub(super) fn try_send(&mut self, stream: &TcpStream, parts: &[Part<'_>]) -> io::Result<usize> {
        if !self.unsent.write(stream)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        with_core(|core| {
            let scratch = &mut *core.secured.borrow_mut();
            let Scratch { plain, sealed, .. } = scratch;
            let mut gathered = FrontParts { parts, at: 0 };
            let mut taken = 0;
            for _ in 0..WRITES_AT_ONCE {
                sealed.clear();
                for _ in 0..RECORDS_AT_ONCE {
                    plain.clear();
                    gathered.append(plain, RECORD_CONTENT_BYTES_MAX);
                    if plain.is_empty() {
                        break;
                    }
                    self.session.seal(&mut self.incoming, plain, sealed).map_err(of_broken)?;
                    taken += plain.len();
                }
                if sealed.is_empty() {
                    break;
                }
                let sent = match stream.try_write(sealed) {
                    Ok(sent) => sent,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(error) => return Err(error),
                };
                // What is sealed has to leave before anything else is.
                self.unsent.keep(&sealed[sent..])?;
                if sent < sealed.len() {
                    break;
                }
            }
            Ok(taken)
        })
    }

    pub(super) fn try_flush(&mut self, stream: &TcpStream) -> io::Result<bool> {
        self.unsent.write(stream)
    }

    pub(super) fn poll_flush(&mut self, stream: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.write(stream)? {
            ready!(stream.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Says once that nothing follows, if the socket takes it at once.
    pub(super) fn say_goodbye(&mut self, stream: &TcpStream) {
        if std::mem::replace(&mut self.said_goodbye, true) || !self.unsent.is_empty() {
            return;
        }
        let mut goodbye = Vec::new();
        self.session.close(&mut self.incoming, &mut goodbye);
        // Bytes that come from here on are not looked at, so no record is put together any more.
        self.incoming = Vec::new();
        // Who does not take it sees the end of the connection.
        let _ = stream.try_write(&goodbye);
    }
}

fn of_broken(broken: SessionError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, broken)
}

/// Parts that are taken from the front.
struct FrontParts<'p, 'b> {
    parts: &'p [Part<'b>],
    /// Bytes taken of the first.
    at: usize,
}

impl FrontParts<'_, '_> {
    /// Appends what is next, so that `out` holds `bytes_max` at most.
    fn append(&mut self, out: &mut Vec<u8>, bytes_max: usize) {
        while let [part, behind @ ..] = self.parts {
            let bytes = (part.len() - self.at).min(bytes_max - out.len());
            let range = self.at..self.at + bytes;
            match part {
                Part::Plain(plain) => out.extend_from_slice(&plain[range]),
                Part::Shared(span) | Part::Lent(span) => span.slice(range).copy_to(out),
            }
            self.at += bytes;
            if self.at < part.len() {
                return;
            }
            (self.parts, self.at) = (behind, 0);
        }
    }
}

/// Agrees with a client on its keys; content that came with the last message is appended to `early`.
///
/// # Errors
/// The client went, broke the protocol, or was too slow.
pub(crate) async fn shake_hands(
    stream: TcpStream,
    terms: Arc<dyn Terms>,
    watch: &Watch,
    early: &mut Vec<u8>,
) -> io::Result<Transport> {
    let mut transport = Transport::plain(stream);
    let mut secured = Box::new(TlsStream::new(terms));
    while secured.session.is_handshaking() || !secured.is_flushed() {
        poll_fn(|cx| {
            if is_over(watch, cx) {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)));
            }
            ready!(secured.poll_flush(&transport.stream, cx))?;
            if !secured.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            let take = &mut |content: &[u8]| early.extend_from_slice(content);
            match ready!(secured.poll_receive(&mut transport.stream, cx, READ_BYTES, take))? {
                (0, _) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                _ => Poll::Ready(Ok(())),
            }
        })
        .await?;
    }
    secured.came = ClientAuth::of(&secured.session, clock::unix_s())
        .map_err(|unusable| io::Error::new(io::ErrorKind::PermissionDenied, unusable))?;
    transport.secured = Some(secured);
    Ok(transport)
}
