//! One client's TLS, as functions from bytes to bytes: no socket, no clock, no buffer of its own.
//!
//! ```text
//!   from the socket ─▶ incoming (caller's) ─▶ receive ─┬─▶ plain, record by record, to the caller
//!                                                      └─▶ out (caller's): what the handshake answers ─▶ the socket
//!   plain (caller's) ─▶ seal ─▶ out ─▶ the socket
//! ```
//! By rustls' unbuffered connection, so that an idle one holds its keys and nothing else, and what is read and sealed
//! lies in the scratch of the thread. The client's first message is read twice: before the connection begins it says
//! which site is meant, and with that which configuration there is ([`Terms`]).
//!
//! *Bounds:* what a handshake may leave in the caller's buffer is [`HANDSHAKE_BYTES_MAX`]; afterwards less than a record.
//!
//! The kernel's TLS, where there is one, would take over here, after the handshake: by
//! `UnbufferedServerConnection::dangerous_into_kernel_connection`, which keeps answering what is not content. No kernel
//! that this was built on has it, so nothing of that is here.

use std::{io, sync::Arc};

use rustls::{
    CommonState, ProtocolVersion, ServerConfig,
    pki_types::CertificateDer,
    server::{Acceptor, ClientHello, ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic},
};

use super::authorities::AuthoritiesId;

/// Content of one record at most (RFC 8446 §5.1).
pub const RECORD_CONTENT_BYTES_MAX: usize = 16 * 1024;
/// What a record takes beside its content at most (RFC 8446 §5.2, RFC 5246 §6.2.3).
pub const RECORD_OVERHEAD_BYTES_MAX: usize = 5 + 2048;
/// A record as it goes over the network.
pub const RECORD_BYTES_MAX: usize = RECORD_CONTENT_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX;
/// What a record begins with: type, version and length (RFC 8446 §5.1).
const RECORD_HEADER_BYTES: usize = 5;
/// The longest message of a handshake that is put together: a client's chain of certificates.
pub const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;
/// Room made in `out` before it is known how much is needed.
const OUT_ROOM_BYTES: usize = 4 * 1024;

/// Says how a connection is to be secured, from the first words of its client.
pub trait Terms: Send + Sync {
    /// What is offered to a client that says this.
    fn offer(&self, hello: &ClientHello<'_>) -> Offer;
}

/// How a connection is to be secured.
pub struct Offer {
    /// What rustls is to do.
    pub config: Arc<ServerConfig>,
    /// Who has to have signed the client's certificate, if it is asked for one.
    pub authorities: Option<AuthoritiesId>,
}

/// Why a connection cannot go on. What the client is told of it has been appended to `out`.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The client broke the protocol, or asks for what is not offered.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// A message of the handshake is longer than [`HANDSHAKE_BYTES_MAX`].
    #[error("a message of the handshake is longer than {HANDSHAKE_BYTES_MAX} bytes")]
    TooLong,
    /// The key has sealed as much as it may.
    #[error("the key has sealed as much as it may")]
    Exhausted,
}

/// What bytes of a client came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionProgress {
    /// So many bytes at the front of `incoming` are done with; the others are to be there the next time, unchanged.
    pub consumed: usize,
    /// The client has said that nothing follows.
    pub is_closed: bool,
}

/// One client's TLS.
pub struct Session {
    stage: Stage,
    server_name: Option<Box<str>>,
    authorities: Option<AuthoritiesId>,
}

enum Stage {
    /// The client's first message is not whole.
    Hello {
        acceptor: Box<Acceptor>,
        seen: usize,
        terms: Arc<dyn Terms>,
    },
    Begun(Box<UnbufferedServerConnection>),
    Failed,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Session {
    /// One from which nothing has been read.
    #[must_use]
    pub fn new(terms: Arc<dyn Terms>) -> Self {
        let stage = Stage::Hello { acceptor: Box::default(), seen: 0, terms };
        Self { stage, server_name: None, authorities: None }
    }

    /// Takes what came of the client; content goes to `take`, record by record, and what is to be sent behind `out`.
    ///
    /// # Errors
    /// [`SessionError`]: `out` is to be sent, and the connection to be closed.
    pub fn receive(
        &mut self,
        incoming: &mut [u8],
        out: &mut Vec<u8>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<SessionProgress, SessionError> {
        if let Stage::Hello { .. } = self.stage
            && !self.begin(incoming, out)?
        {
            return Ok(SessionProgress { consumed: 0, is_closed: false });
        }
        let Stage::Begun(connection) = &mut self.stage else { return Err(SessionError::TooLong) };
        let (mut consumed, mut is_closed) = (0, false);
        loop {
            let UnbufferedStatus { discard, state } =
                connection.process_tls_records(&mut incoming[consumed..]);
            consumed += discard;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        take(record?.payload);
                    }
                }
                // No early data is accepted, so none is handed out.
                Ok(ConnectionState::ReadEarlyData(mut early)) => while early.next_record().is_some() {},
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
                Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    is_closed = true;
                    break;
                }
                Ok(_) => break,
                Err(error) => {
                    append_alert(connection, &mut incoming[consumed..], out);
                    self.stage = Stage::Failed;
                    return Err(error.into());
                }
            }
        }
        if connection.is_handshaking() && incoming.len() - consumed >= HANDSHAKE_BYTES_MAX {
            self.stage = Stage::Failed;
            return Err(SessionError::TooLong);
        }
        Ok(SessionProgress { consumed, is_closed })
    }

    /// Begins the connection if the client's first message is there; whether it is.
    fn begin(&mut self, incoming: &[u8], out: &mut Vec<u8>) -> Result<bool, SessionError> {
        let Stage::Hello { acceptor, seen, terms } = &mut self.stage else { return Ok(true) };
        let mut unseen = &incoming[(*seen).min(incoming.len())..];
        let accepted = loop {
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) if unseen.is_empty() => {
                    *seen = incoming.len();
                    if *seen >= HANDSHAKE_BYTES_MAX {
                        self.stage = Stage::Failed;
                        return Err(SessionError::TooLong);
                    }
                    return Ok(false);
                }
                Ok(None) => {}
                Err((error, mut alert)) => {
                    // Writing to a vector cannot fail.
                    let _ = alert.write_all(out);
                    self.stage = Stage::Failed;
                    return Err(error.into());
                }
            }
            match acceptor.read_tls(&mut unseen) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Its buffer is full.
                Err(_) => {
                    self.stage = Stage::Failed;
                    return Err(SessionError::TooLong);
                }
            }
        };
        let hello = accepted.client_hello();
        let Offer { config, authorities } = terms.offer(&hello);
        self.server_name = hello.server_name().map(Into::into);
        self.authorities = authorities;
        self.stage = Stage::Begun(Box::new(UnbufferedServerConnection::new(config)?));
        Ok(true)
    }

    /// Seals `plain` behind `out`. `incoming` is what the last [`Session::receive`] left.
    ///
    /// # Errors
    /// [`SessionError`], where the key is used up. The handshake must be over.
    pub fn seal(&mut self, incoming: &mut [u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError> {
        self.write(incoming, out, |traffic, out| {
            let mut rest = plain;
            while !rest.is_empty() {
                let (record, behind) = rest.split_at(rest.len().min(RECORD_CONTENT_BYTES_MAX));
                let room = record.len() + RECORD_OVERHEAD_BYTES_MAX;
                append(out, room, |room| sealed(traffic.encrypt(record, room)))
                    .ok_or(SessionError::Exhausted)?;
                rest = behind;
            }
            Ok(())
        })
    }

    /// Appends the words that nothing follows (RFC 8446 §6.1). Before the end of the handshake there are none.
    pub fn close(&mut self, incoming: &mut [u8], out: &mut Vec<u8>) {
        if self.is_handshaking() {
            return;
        }
        // Whoever cannot be told is closed all the same.
        let _ = self.write(incoming, out, |traffic, out| {
            append(out, OUT_ROOM_BYTES, |room| sealed(traffic.queue_close_notify(room)));
            Ok(())
        });
    }

    fn write(
        &mut self,
        incoming: &mut [u8],
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Traffic<'_>, &mut Vec<u8>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let Stage::Begun(connection) = &mut self.stage else { return Err(SessionError::Exhausted) };
        // What came has been looked at and holds no whole record, but perhaps parts of a message that rustls refers to.
        loop {
            let UnbufferedStatus { state, .. } = connection.process_tls_records(incoming);
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => return write(&mut traffic, out),
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out),
                ConnectionState::TransmitTlsData(mut sent) => {
                    let written = sent.may_encrypt_app_data().map(|_| ());
                    sent.done();
                    if written.is_none() {
                        return Err(SessionError::Exhausted);
                    }
                }
                // Half-closed by the client: it may still be sent what it asked for.
                ConnectionState::PeerClosed => {}
                _ => return Err(SessionError::Exhausted),
            }
        }
    }

    /// Whether the handshake is under way.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.common().is_none_or(CommonState::is_handshaking)
    }

    /// The version that was agreed upon, as OpenSSL calls it.
    pub fn version(&self) -> Option<&'static str> {
        match self.common()?.protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
            ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
            _ => None,
        }
    }

    /// The protocol that was agreed upon (RFC 7301).
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        self.common().and_then(CommonState::alpn_protocol)
    }

    /// The name that the client asked for (RFC 6066 §3).
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Who has to have signed the client's certificate, if it was asked for one; and that certificate, if it has shown one.
    #[must_use]
    pub fn client(&self) -> (Option<AuthoritiesId>, Option<&CertificateDer<'static>>) {
        let shown = self.common().and_then(CommonState::peer_certificates);
        (self.authorities, shown.and_then(|chain| chain.first()))
    }

    /// What rustls knows of the connection: version, cipher suite, the client's certificates.
    #[must_use]
    pub fn common(&self) -> Option<&CommonState> {
        match &self.stage {
            Stage::Begun(connection) => Some(connection),
            Stage::Hello { .. } | Stage::Failed => None,
        }
    }
}

/// Bytes that `kept`, what [`Session::receive`] has left of those that came, may grow to by one read: `bytes_max`, or a whole
/// record where that is more. A record can only be opened whole, so a bound below its length would end the connection of an
/// honest client.
#[must_use]
pub fn read_bytes_max(kept: &[u8], bytes_max: usize) -> usize {
    let record = match kept {
        [_, _, _, high, low, ..] => RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])),
        _ => RECORD_HEADER_BYTES,
    };
    let most = record.min(RECORD_BYTES_MAX).max(bytes_max);
    // Of a message of the handshake that comes in several records, rustls keeps those that came before.
    if kept.len() < most { most } else { kept.len() + RECORD_BYTES_MAX }
}

/// Appends what rustls wants said of a failure. It looks at what came once more when there is nothing to be said, so it is
/// asked only while there is.
fn append_alert(connection: &mut UnbufferedServerConnection, incoming: &mut [u8], out: &mut Vec<u8>) {
    while connection.wants_write() {
        match connection.process_tls_records(incoming).state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => while traffic.next_record().is_some() {},
            _ => return,
        }
    }
}

fn encode(data: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
    append(out, OUT_ROOM_BYTES, |room| match data.encode(room) {
        Ok(bytes) => Ok(bytes),
        Err(EncodeError::InsufficientSize(needed)) => Err(Some(needed.required_size)),
        Err(EncodeError::AlreadyEncoded) => Err(None),
    });
}

type Traffic<'c> = WriteTraffic<'c, ServerConnectionData>;

fn sealed(written: Result<usize, EncryptError>) -> Result<usize, Option<usize>> {
    written.map_err(|error| match error {
        EncryptError::InsufficientSize(needed) => Some(needed.required_size),
        EncryptError::EncryptExhausted => None,
    })
}

/// Makes room behind `out` and has it written to, once more if that says how much it needs; `None` if it cannot be.
fn append(
    out: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Option<()> {
    let from = out.len();
    let mut room = room;
    loop {
        out.resize(from + room, 0);
        match write(&mut out[from..]) {
            Ok(bytes) => {
                out.truncate(from + bytes);
                return Some(());
            }
            Err(Some(needed)) if needed > room => room = needed,
            Err(_) => {
                out.truncate(from);
                return None;
            }
        }
    }
}
