//! TLS and WebSocket on client sockets.
//!
//! ```text
//!   nats://  socket ─────────────────────────────────────────────▶ serve (written by any task of the core)
//!   tls://   socket ─ INFO ─ handshake ─▶ TlsStream ─────────────▶ serve (written by its own task)
//!   ws://    socket ─ upgrade ─▶ WebStream ──────────────────────▶ serve
//!   wss://   socket ─ handshake ─ upgrade ─▶ WebStream<TlsStream> ▶ serve
//! ```
//!
//! A handshake must end within `auth_timeout`, and a core has a limited number in progress (`handshakes`).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::{
    accounts::identity::certificate::{self, Names},
    client::{
        connection::{Transport, Writer},
        door::Door,
        handshakes::Handshake,
        serve::{Arrival, serve, serve_plain},
        stream::Stream,
        websocket,
    },
    config::{HandshakeFirst, Tls},
    counters::Counter,
    mesh::{
        core::{Core, Local},
        settings::Settings,
        shared::{InfoOccasion, Reader},
    },
};

/// Serves a connection as one from this client address.
pub(crate) fn begin(local: &Rc<Local>, core: &mut Core, socket: TcpStream, address: SocketAddr, door: Door) {
    let arrival = Arrival::new(core, address, Transport { websocket: door == Door::Web, tls: None });
    if door == Door::Nats && core.settings.config.tls.is_none() {
        tokio::task::spawn_local(serve_plain(Rc::clone(local), socket, arrival));
    } else {
        shake_hands(local, core, socket, arrival);
    }
}

/// Completes TLS and WebSocket handshakes of a client, then serves it.
pub(crate) fn shake_hands(local: &Rc<Local>, core: &mut Core, socket: TcpStream, arrival: Arrival) {
    let handshake = core.begin_handshake(arrival.address.ip());
    let local = Rc::clone(local);
    let settings = Arc::clone(&core.settings);
    let config = &settings.config;
    let tls = if arrival.transport.websocket {
        config.websocket.as_ref().and_then(|web| web.tls.as_ref())
    } else {
        config.tls.as_ref()
    };
    let at_most = tls.and_then(|tls| tls.timeout).unwrap_or(config.limits.auth_timeout);
    let ldm = core.clients.is_lame;
    tokio::task::spawn_local(async move {
        let shaken = tokio::select! {
            biased;
            shaken = tokio::time::timeout(at_most, prepare(&local, &settings, socket, arrival, ldm)) => shaken.ok(),
            () = handshake.cut() => None,
        };
        local.core.borrow_mut().clients.handshakes.end(&handshake);
        match shaken {
            Some(Ok(Ready { stream, writer, arrival, was_informed })) => {
                serve(local, stream, writer, arrival, was_informed).await;
            }
            failed => {
                if let Some(Err(error)) = failed {
                    tracing::debug!(%error, "TLS handshake failed");
                }
                local.core.borrow().count(Counter::HandshakesFailed);
            }
        }
    });
}

impl Core {
    /// Registers a handshake, which may displace another one.
    pub(crate) fn begin_handshake(&mut self, address: IpAddr) -> Handshake {
        let (handshake, has_displaced) =
            self.clients.handshakes.begin(address, &self.settings.config.shared_networks);
        if has_displaced {
            self.count(Counter::HandshakesDisplaced);
        }
        handshake
    }
}

/// A client whose handshakes are complete.
struct Ready {
    stream: Stream,
    writer: Writer,
    arrival: Arrival,
    was_informed: bool,
}

impl Ready {
    fn wrapped(stream: Stream, arrival: Arrival, was_informed: bool) -> Self {
        Self { stream, writer: Writer::Task, arrival, was_informed }
    }
}

async fn prepare(
    local: &Rc<Local>,
    settings: &Settings,
    mut socket: TcpStream,
    mut arrival: Arrival,
    ldm: bool,
) -> io::Result<Ready> {
    if arrival.transport.websocket {
        let Some(web) = &settings.config.websocket else { return Err(io::ErrorKind::Unsupported.into()) };
        let stream: Stream = match &settings.acceptors.web {
            None => upgrade(socket, web, settings).await?,
            Some(acceptor) => {
                let stream = acceptor.accept(socket).await?;
                arrival.transport.tls = Some(what_was_agreed(&stream));
                arrival.certificate = web.tls.as_ref().and_then(|tls| names_of_client(tls, &stream));
                upgrade(stream, web, settings).await?
            }
        };
        return Ok(Ready::wrapped(stream, arrival, false));
    }
    let (Some(acceptor), Some(tls)) = (&settings.acceptors.nats, &settings.config.tls) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let is_tls_first = match tls.handshake_first {
        HandshakeFirst::No => false,
        HandshakeFirst::Yes => true,
        HandshakeFirst::After(wait) => begins_with_tls(&socket, wait).await?,
    };
    if !is_tls_first {
        let reader = Reader {
            cid: arrival.cid,
            address: arrival.address,
            transport: arrival.transport,
            nonce: arrival.nonce.as_deref(),
        };
        let info = local.core.borrow().shared.info(settings, &reader, InfoOccasion::Connection, ldm);
        socket.write_all(&info).await?;
    }
    if tls.optional && !is_tls_first {
        // A client that stays silent for half of the timeout is assumed not to use TLS.
        let wait = tls.timeout.unwrap_or(settings.config.limits.auth_timeout) / 2;
        if !begins_with_tls(&socket, wait).await? {
            let (read, write) = socket.into_split();
            let (stream, writer) = (Stream::Plain(read), Writer::Socket(write));
            return Ok(Ready { stream, writer, arrival, was_informed: true });
        }
    }
    let stream = acceptor.accept(socket).await?;
    arrival.transport.tls = Some(what_was_agreed(&stream));
    arrival.certificate = names_of_client(tls, &stream);
    Ok(Ready::wrapped(Stream::Wrapped(Box::new(stream)), arrival, !is_tls_first))
}

/// Returns whether the client starts a TLS handshake within the time `wait`. A client that waits for INFO, or
/// starts with something else, is served without TLS.
async fn begins_with_tls(socket: &TcpStream, wait: Duration) -> io::Result<bool> {
    /// TLS record type of handshake messages (RFC 8446 §5.1).
    const HANDSHAKE: u8 = 22;
    let mut first = [0];
    match tokio::time::timeout(wait, socket.peek(&mut first)).await {
        Ok(seen) => Ok(seen? == 1 && first[0] == HANDSHAKE),
        Err(_) => Ok(false),
    }
}

/// Returns the names in the client's certificate, if certificates identify users. A certificate without names
/// matches no user.
fn names_of_client(tls: &Tls, stream: &TlsStream<TcpStream>) -> Option<Box<Names>> {
    let (_, session) = stream.get_ref();
    let first = session.peer_certificates().and_then(<[_]>::first);
    tls.map.then(|| Box::new(first.and_then(|one| certificate::names_of(one)).unwrap_or_default()))
}

async fn upgrade<S>(stream: S, web: &crate::config::WebSocket, settings: &Settings) -> io::Result<Stream>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let is_outside = settings.identities.is_required();
    let limits = &settings.config.limits;
    let stream = websocket::accept(stream, web, limits, is_outside).await?;
    Ok(Stream::Wrapped(Box::new(stream)))
}

/// Returns the TLS version and cipher suite as nats-server's `/connz` words them.
fn what_was_agreed(stream: &TlsStream<TcpStream>) -> (&'static str, &'static str) {
    what_was_agreed_by(stream.get_ref().1)
}

/// Returns the TLS version and cipher suite of a session, whether this process is its server or its client.
pub(crate) fn what_was_agreed_by(session: &rustls::CommonState) -> (&'static str, &'static str) {
    let version = match session.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "1.2",
        _ => "",
    };
    let suite =
        session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or_default();
    (version, suite.strip_prefix("TLS13_").unwrap_or(suite))
}
