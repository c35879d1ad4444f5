//! The TLS session of one client, as functions from bytes to bytes: no socket, no clock, no buffer of its
//! own.
//!
//! ```text
//!   from the socket ─▶ incoming (caller's) ─▶ receive ─┬─▶ plain, record by record, to the caller
//!                                                      └─▶ out (caller's): the handshake's messages ─▶ the socket
//!   plain (caller's) ─▶ seal ─▶ out ─▶ the socket
//! ```
//! The session uses rustls' unbuffered connection, so that an idle session holds only its keys, and received
//! and sealed bytes are in the thread's scratch buffers. The client's first message is parsed twice: before
//! the connection begins, it tells which site the client wants, and so which configuration applies
//! ([`Terms`]).
//!
//! *Bounds:* a handshake may leave up to [`HANDSHAKE_BYTES_MAX`] in the caller's buffer; after it, less than
//! a record remains.
//!
//! Kernel TLS, where available, would take over here after the handshake, through
//! `UnbufferedServerConnection::dangerous_into_kernel_connection`, which still handles records that are not
//! application data. No kernel used to build this has it, so it is not implemented.

use std::{io, sync::Arc};

use rustls::{
    CommonState, ProtocolVersion, ServerConfig,
    pki_types::CertificateDer,
    server::{Acceptor, ClientHello, ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic},
};

use super::authorities::AuthoritiesId;

/// Maximum content of one TLS record in bytes (RFC 8446 §5.1).
pub const RECORD_CONTENT_BYTES_MAX: usize = 16 * 1024;
/// Maximum overhead of a TLS record in addition to its content (RFC 8446 §5.2, RFC 5246 §6.2.3).
pub const RECORD_OVERHEAD_BYTES_MAX: usize = 5 + 2048;
/// Maximum bytes of a record on the network.
pub const RECORD_BYTES_MAX: usize = RECORD_CONTENT_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX;
/// Size of a record's header in bytes: type, version and length (RFC 8446 §5.1).
const RECORD_HEADER_BYTES: usize = 5;
/// Maximum length of a reassembled handshake message, such as a client's certificate chain.
pub const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of free space that are reserved in `out` at first, before the required size is known.
const OUT_ROOM_BYTES: usize = 4 * 1024;

/// Chooses the TLS configuration of a connection from its client hello.
pub trait Terms: Send + Sync {
    /// Returns the TLS configuration for a client with this hello.
    fn offer(&self, hello: &ClientHello<'_>) -> Offer;
}

/// TLS configuration of a connection.
pub struct Offer {
    /// Configuration for rustls.
    pub config: Arc<ServerConfig>,
    /// Authorities that must have signed the client's certificate, if one is requested.
    pub authorities: Option<AuthoritiesId>,
}

/// Reasons why a connection cannot continue. The alert for the client has been appended to `out`.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The client violated the protocol, or requires a feature that is not offered.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// A message of the handshake is longer than [`HANDSHAKE_BYTES_MAX`].
    #[error("handshake message longer than {HANDSHAKE_BYTES_MAX} bytes")]
    TooLong,
    /// The key has sealed its maximum amount of data.
    #[error("the key has reached its encryption limit")]
    Exhausted,
}

/// Result of processing received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionProgress {
    /// Number of bytes at the front of `incoming` that have been processed; the others must be passed again,
    /// unchanged.
    pub consumed: usize,
    /// True once the client has announced that it sends no more data.
    pub is_closed: bool,
}

/// TLS session of one client.
pub struct Session {
    stage: Stage,
    server_name: Option<Box<str>>,
    authorities: Option<AuthoritiesId>,
}

enum Stage {
    /// Stage before the client's first message is complete.
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
    /// Creates a session that has not received any bytes yet.
    #[must_use]
    pub fn new(terms: Arc<dyn Terms>) -> Self {
        let stage = Stage::Hello { acceptor: Box::default(), seen: 0, terms };
        Self { stage, server_name: None, authorities: None }
    }

    /// Processes received bytes: passes decrypted content to `take`, record by record, and appends bytes to
    /// be sent to `out`.
    ///
    /// # Errors
    /// Returns a [`SessionError`] if the connection must be closed after `out` is sent.
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
                // Early data is not accepted, so it is dropped.
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

    /// Begins the connection if the client's first message is complete; returns whether it was.
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
                // The message does not fit into the acceptor's buffer.
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

    /// Encrypts `plain` and appends it to `out`. `incoming` is the unprocessed rest from the last
    /// [`Session::receive`]. The handshake must be complete.
    ///
    /// # Errors
    /// Returns a [`SessionError`] if the key has reached its encryption limit.
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

    /// Appends the close_notify alert (RFC 8446 §6.1). Before the end of the handshake this does nothing.
    pub fn close(&mut self, incoming: &mut [u8], out: &mut Vec<u8>) {
        if self.is_handshaking() {
            return;
        }
        // If the alert cannot be written, the connection is closed all the same.
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
        // The received bytes have been processed and contain no complete record, but perhaps parts of a
        // message to which rustls refers.
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
                // The client has half-closed the connection: its responses may still be sent.
                ConnectionState::PeerClosed => {}
                _ => return Err(SessionError::Exhausted),
            }
        }
    }

    /// Returns whether the handshake is in progress.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.common().is_none_or(CommonState::is_handshaking)
    }

    /// Returns the negotiated TLS version, in OpenSSL's notation.
    pub fn version(&self) -> Option<&'static str> {
        match self.common()?.protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
            ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
            _ => None,
        }
    }

    /// Returns the application protocol negotiated by ALPN (RFC 7301).
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        self.common().and_then(CommonState::alpn_protocol)
    }

    /// Returns the server name that the client requested (RFC 6066 §3).
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns the authorities that must have signed the client's certificate, if one was requested; and the
    /// certificate itself, if the client presented one.
    #[must_use]
    pub fn client(&self) -> (Option<AuthoritiesId>, Option<&CertificateDer<'static>>) {
        let shown = self.common().and_then(CommonState::peer_certificates);
        (self.authorities, shown.and_then(|chain| chain.first()))
    }

    /// Returns rustls' state of the connection: version, cipher suite, the client's certificates.
    #[must_use]
    pub fn common(&self) -> Option<&CommonState> {
        match &self.stage {
            Stage::Begun(connection) => Some(connection),
            Stage::Hello { .. } | Stage::Failed => None,
        }
    }
}

/// Returns the size up to which one read may fill the buffer that begins with `kept`, the bytes that
/// [`Session::receive`] has left unprocessed: `bytes_max`, or the end of a whole record if that is more. Only
/// a complete record can be decrypted, so a bound below its length would end the connection of an honest
/// client.
#[must_use]
pub fn read_bytes_max(kept: &[u8], bytes_max: usize) -> usize {
    let record = match kept {
        [_, _, _, high, low, ..] => RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])),
        _ => RECORD_HEADER_BYTES,
    };
    let most = record.min(RECORD_BYTES_MAX).max(bytes_max);
    // If a handshake message spans several records, rustls needs the earlier ones to remain in the buffer.
    if kept.len() < most { most } else { kept.len() + RECORD_BYTES_MAX }
}

/// Appends rustls' alert about a failure. rustls is called only while it has data to write, because otherwise
/// it would process the received bytes once more.
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

/// Reserves room at the end of `out` and passes it to `write`; if `write` reports that it needs more room, it
/// is called again with that much. Returns `None` if `write` fails.
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
