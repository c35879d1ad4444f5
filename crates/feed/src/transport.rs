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

use std::{fmt, io, path::PathBuf, rc::Rc, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

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

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds nothing of the kind.
    #[error("{}: {why}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The parts do not fit together.
    #[error("{0}")]
    Rustls(#[from] rustls::Error),
    /// The list of those who sign clients' certificates cannot be used.
    #[error("the clients' authority cannot be used: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// Clients are to be verified, and nothing says by whom.
    #[error("`verify` needs `ca_file`: the certificates of those who sign the clients'")]
    NoAuthority,
}

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
    let file = |file: &PathBuf, why: String| TlsError::File { file: file.clone(), why };
    let certificates = |path: &PathBuf| {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        match read {
            Ok(certificates) if certificates.is_empty() => {
                Err(file(path, "holds no certificate (PEM)".to_owned()))
            }
            Ok(certificates) => Ok(certificates),
            Err(error) => Err(file(path, error.to_string())),
        }
    };
    let chain = certificates(&tls.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key_file)
        .map_err(|error| file(&tls.key_file, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = if tls.verify {
        let path = tls.ca_file.as_ref().ok_or(TlsError::NoAuthority)?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots.add(certificate)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    Ok(TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key)?)))
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
    let stream = websocket::accept(stream, &web.allowed_origins, settings.config.limits.max_payload).await?;
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
