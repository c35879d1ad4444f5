//! A client's socket under TLS.

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
    tls::session::{RECORD_CONTENT_BYTES_MAX, Session, SessionError, Terms, read_bytes_max},
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
};

use super::{
    Transport, is_over,
    scratch::{READ_BYTES, RECORDS_AT_ONCE, Scratch},
};
use crate::{
    client::limits::client_budget::ClientMemoryGuard, core::with_core, request::client_auth::ClientAuth,
};

/// Maximum number of writes in one call, before other connections get a turn.
const WRITES_AT_ONCE: usize = 2;

/// Sealed bytes that the socket has not accepted.
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

    /// Appends bytes to the unsent bytes.
    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
        // The old charge is released before the new one is made.
        self.held = None;
        self.held = ClientMemoryGuard::reserve(self.bytes.len());
        // The limit on memory held for clients is reached: the connection is closed.
        if self.held.is_some() { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// Writes as much as the socket accepts. Returns whether nothing is left.
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

/// A client's TLS session with its buffered bytes.
pub(super) struct TlsStream {
    session: Session,
    /// Authentication of the client, known once the handshake is over.
    came: ClientAuth,
    /// Received beginning of a record, or of a handshake message.
    incoming: Vec<u8>,
    unsent: Unsent,
    /// True once the client has sent a `close_notify` alert.
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

    pub(super) fn client_auth(&self) -> &ClientAuth {
        &self.came
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Reads once and passes decrypted content to `take`. [`read_bytes_max`] limits the size of the kept
    /// bytes and the new bytes together. Returns the number of received bytes and the number of content
    /// bytes.
    fn poll_receive(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
        bytes_max: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<(usize, usize)>> {
        with_core(|core| {
            let Scratch { incoming, sealed, .. } = &mut *core.buffers.tls.borrow_mut();
            let have = self.incoming.len();
            let most = read_bytes_max(&self.incoming, bytes_max).min(incoming.len());
            let Some(target) = incoming.get_mut(have..most).filter(|target| !target.is_empty()) else {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            };
            let mut buffer = ReadBuf::new(target);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            let read = buffer.filled().len();
            if read == 0 || self.said_goodbye {
                // Bytes after our `close_notify` are not decrypted; a caller that waits for the client's end
                // counts them.
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
                // An idle connection keeps no buffer for a record.
                self.incoming = Vec::new();
            } else {
                self.incoming.clear();
                self.incoming.extend_from_slice(rest);
            }
            Poll::Ready(Ok((read, content)))
        })
    }

    /// Reads content, at most `bytes_max` bytes or one record; 0 is the end of the stream.
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
            // Handshake messages, such as the reply to a key update, are flushed now and not only with the
            // next answer.
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

    /// Seals the next bytes of `parts`, and writes as much as the socket accepts.
    pub(super) fn try_send(&mut self, stream: &TcpStream, parts: &[Part<'_>]) -> io::Result<usize> {
        if !self.unsent.write(stream)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        with_core(|core| {
            let scratch = &mut *core.buffers.tls.borrow_mut();
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
                // Sealed bytes must be sent before anything else is sealed.
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

    /// Sends `close_notify` once, if the socket accepts it at once.
    pub(super) fn say_goodbye(&mut self, stream: &TcpStream) {
        if std::mem::replace(&mut self.said_goodbye, true) || !self.unsent.is_empty() {
            return;
        }
        let mut goodbye = Vec::new();
        self.session.close(&mut self.incoming, &mut goodbye);
        // Bytes received from here on are not decrypted, so no record is assembled any more.
        self.incoming = Vec::new();
        // If the socket does not accept it, the client only sees the end of the connection.
        let _ = stream.try_write(&goodbye);
    }
}

fn of_broken(broken: SessionError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, broken)
}

/// List of parts whose bytes are consumed from the front.
struct FrontParts<'p, 'b> {
    parts: &'p [Part<'b>],
    /// Number of bytes of the first part that were consumed.
    at: usize,
}

impl FrontParts<'_, '_> {
    /// Appends the next bytes, until `out` holds `bytes_max`.
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

/// Performs the TLS handshake with a client; content that arrives with the last message is appended to
/// `early`.
///
/// # Errors
/// Returns an error if the client left, broke the protocol, or was too slow.
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
