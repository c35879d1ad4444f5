//! TLS and WebSocket around a client's socket.
//!
//! ```text
//!   nats://  socket ─────────────────────────────────────────────▶ serve (written by whoever has something)
//!   tls://   socket ─ INFO ─ handshake ─▶ TlsStream ─────────────▶ serve (written by its own task)
//!   ws://    socket ─ upgrade ─▶ WebStream ──────────────────────▶ serve
//!   wss://   socket ─ handshake ─ upgrade ─▶ WebStream<TlsStream> ▶ serve
//! ```
//!
//! A handshake has `auth_timeout`, and a core has so many under way at most; what is beyond is closed.

use std::{fmt, io, rc::Rc, sync::Arc};

use engine::tls::{self, Files, TlsAcceptor, TlsError};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::{
    config::{Config, Tls},
    connection::Writer,
    core::{Core, Local, Settings},
    counters::Counter,
    serve::{Arrival, Stream, serve},
    shared::Reader,
    websocket,
};

/// Handshakes that a core has under way at most.
const HANDSHAKES_MAX: usize = 1024;

/// What is needed to accept TLS on each listener.
#[derive(Default)]
pub(crate) struct Acceptors {
    nats: Option<TlsAcceptor>,
    web: Option<TlsAcceptor>,
}

impl fmt::Debug for Acceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptors")
            .field("nats", &self.nats.is_some())
            .field("web", &self.web.is_some())
            .finish()
    }
}

impl Acceptors {
    /// Reads the files.
    pub(crate) fn build(config: &Config) -> Result<Self, TlsError> {
        let web_tls = config.websocket.as_ref().and_then(|web| web.tls.as_ref());
        Ok(Self {
            nats: config.tls.as_ref().map(acceptor).transpose()?,
            web: web_tls.map(acceptor).transpose()?,
        })
    }
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor, TlsError> {
    let clients = match (tls.verify, &tls.ca_file) {
        (false, _) => None,
        (true, Some(file)) => Some(file.as_path()),
        (true, None) => return Err(TlsError::NoAuthority),
    };
    tls::acceptor(Files { certificates: &tls.cert_file, key: &tls.key_file, clients })
}

/// Does what comes before a client's first operation, then serves it.
pub(crate) fn shake_hands(local: &Rc<Local>, core: &mut Core, socket: TcpStream, arrival: Arrival) {
    if core.handshakes >= HANDSHAKES_MAX {
        core.count(Counter::HandshakesFailed);
        return;
    }
    core.handshakes += 1;
    let local = Rc::clone(local);
    let settings = Arc::clone(&core.settings);
    let at_most = settings.config.limits.auth_timeout;
    let ldm = core.is_lame;
    tokio::task::spawn_local(async move {
        let shaken = tokio::time::timeout(at_most, prepare(&local, &settings, socket, arrival, ldm)).await;
        local.core.borrow_mut().handshakes -= 1;
        match shaken {
            Ok(Ok((stream, arrival, was_informed))) => {
                serve(local, stream, Writer::Task, arrival, was_informed).await;
            }
            failed => {
                if let Ok(Err(error)) = failed {
                    tracing::debug!(%error, "a handshake failed");
                }
                local.core.borrow().count(Counter::HandshakesFailed);
            }
        }
    });
}

async fn prepare(
    local: &Rc<Local>,
    settings: &Settings,
    mut socket: TcpStream,
    mut arrival: Arrival,
    ldm: bool,
) -> io::Result<(Stream, Arrival, bool)> {
    if arrival.transport.websocket {
        let Some(web) = &settings.config.websocket else { return Err(io::ErrorKind::Unsupported.into()) };
        let stream: Stream = match &settings.acceptors.web {
            None => upgrade(socket, web, settings).await?,
            Some(acceptor) => {
                let stream = acceptor.accept(socket).await?;
                arrival.transport.tls = Some(what_was_agreed(&stream));
                upgrade(stream, web, settings).await?
            }
        };
        return Ok((stream, arrival, false));
    }
    let (Some(acceptor), Some(tls)) = (&settings.acceptors.nats, &settings.config.tls) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    if !tls.handshake_first {
        let reader = Reader {
            cid: arrival.cid,
            address: arrival.address,
            transport: arrival.transport,
            nonce: arrival.nonce.as_deref(),
        };
        let info = local.core.borrow().shared.info(settings, &reader, false, ldm);
        socket.write_all(&info).await?;
    }
    let stream = acceptor.accept(socket).await?;
    arrival.transport.tls = Some(what_was_agreed(&stream));
    Ok((Stream::Wrapped(Box::new(stream)), arrival, !tls.handshake_first))
}

async fn upgrade<S>(stream: S, web: &crate::config::WebSocket, settings: &Settings) -> io::Result<Stream>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let is_outside = settings.identities.is_required();
    let limits = &settings.config.limits;
    let stream = websocket::accept(stream, &web.allowed_origins, limits, is_outside).await?;
    Ok(Stream::Wrapped(Box::new(stream)))
}

/// Version and cipher suite in the words of nats-server's `/connz`.
fn what_was_agreed(stream: &TlsStream<TcpStream>) -> (&'static str, &'static str) {
    let (_, session) = stream.get_ref();
    let version = match session.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "1.2",
        _ => "",
    };
    let suite =
        session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or_default();
    (version, suite.strip_prefix("TLS13_").unwrap_or(suite))
}
