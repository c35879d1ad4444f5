//! A server of an origin, shared by all cores.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use engine::tls::{
    TlsError,
    client::{ServerName, TlsClientOptions, TlsConnector, connector},
};
use tokio::net::{TcpStream, UnixStream};

use super::{
    OriginError,
    connect::connect_any,
    group::MemberId,
    health::{ByHand, Health, HealthRules, HealthState},
    line::Line,
    resolve::{Names, Resolver},
};
use crate::config::{OriginTls, Probe, Protocol, Server, ServerRules};

/// Error of setting up the client side for an origin.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// The thread that resolves names cannot be started.
    #[error("cannot start the thread that resolves the origin's name: {0}")]
    Thread(#[from] std::io::Error),
    /// TLS with the origin cannot be set up.
    #[error("TLS with the origin: {0}")]
    Tls(#[from] TlsError),
    /// The origin's name, or the configured TLS name, is not valid in a certificate.
    #[error("TLS with the origin: `{0}` is not a valid name in a certificate; set origin-tls-name")]
    TlsName(String),
    /// A peer's address is invalid.
    #[error("invalid peer address {0:?}; expected an address such as web2.internal:6080")]
    PeerAddress(String),
    /// Either the client certificate or its key is missing: they must be configured together.
    #[error("TLS with the origin: origin-tls-cert and origin-tls-key must be set together")]
    TlsPair,
}

/// TLS settings for a server, with the name to verify.
struct Tls {
    connector: TlsConnector,
    /// TLS connector that offers HTTP/1 only.
    http1: TlsConnector,
    name: ServerName<'static>,
}

/// Protocol that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum MemberProtocol {
    /// Either protocol: the server chooses, or its choice is not known yet.
    Any,
    Http1,
    Http2,
}

impl Tls {
    fn of(host: &str, said: &OriginTls, protocol: Protocol) -> Result<Self, SetUpError> {
        if said.certificate.is_some() != said.key.is_some() {
            return Err(SetUpError::TlsPair);
        }
        let shown = |protocols| TlsClientOptions {
            authorities: said.ca.as_deref(),
            pair: said.certificate.as_deref().zip(said.key.as_deref()),
            protocols,
        };
        let http1: &[&[u8]] = &[b"http/1.1"];
        let offered: &[&[u8]] = match protocol {
            Protocol::Auto => &[b"h2", b"http/1.1"],
            Protocol::Http1 => http1,
            Protocol::Http2 => &[b"h2"],
        };
        let name = said.name.as_deref().unwrap_or(host);
        let named = ServerName::try_from(name.to_owned());
        Ok(Self {
            connector: connector(shown(offered))?,
            http1: connector(shown(http1))?,
            name: named.map_err(|_| SetUpError::TlsName(name.to_owned()))?,
        })
    }
}

/// A server of an origin.
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(super) server: Server,
    resolver: Arc<Resolver>,
    tls: Option<Tls>,
    protocol: Protocol,
    /// The server's choice at the last handshake that offered both protocols, as a [`MemberProtocol`].
    spoken: AtomicU8,
    pub(super) probe: Probe,
    /// Head of the probe's request.
    pub(super) probe_head: Vec<u8>,
    health: Health,
    /// Index of the address that accepted last, among those of the name; it is tried first.
    good: AtomicUsize,
    /// Exchanges under way, on all cores.
    busy: Arc<AtomicUsize>,
    requests: AtomicU64,
    failures: AtomicU64,
}

/// Guard that counts an exchange as under way.
pub(super) struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// State of a server for operators.
#[derive(Debug, Clone)]
pub struct MemberSaid {
    /// Address of the server, as configured.
    pub server: String,
    /// Health of the server.
    pub standing: HealthState,
    /// The operator's decision.
    pub by_hand: ByHand,
    /// Exchanges under way.
    pub busy: usize,
    /// Exchanges that were begun. `failures` counts those that failed before an answer.
    pub requests: u64,
    /// Exchanges that failed before an answer.
    pub failures: u64,
    /// Number of good probes, and the number of most recent probes among which they are counted; `None` if
    /// the server is not probed.
    pub probes: Option<(u32, u32)>,
}

impl Member {
    /// Creates a member for a server. `host` is the `Host` that probes send, if it differs from the server's
    /// own name.
    pub(crate) fn new(
        server: &Server,
        rules: &ServerRules,
        host: Option<&str>,
        names: &mut Names,
    ) -> Result<Self, SetUpError> {
        let (resolver, tls) = match server {
            Server::Unix(_) => (Resolver::of_nobody(), None),
            Server::Tcp { host, port, is_secured } => {
                let tls = is_secured.then(|| Tls::of(host, &rules.tls, rules.protocol)).transpose()?;
                (names.resolver(host, *port)?, tls)
            }
        };
        let path = rules.probe.path.as_deref().unwrap_or("/");
        let host = host.map_or_else(|| server.authority(), str::to_owned);
        let probe_head = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: nighttrain-probe\r\nConnection: close\r\n\r\n"
        );
        Ok(Self {
            id: MemberId::next(),
            server: server.clone(),
            resolver,
            tls,
            protocol: rules.protocol,
            spoken: AtomicU8::new(MemberProtocol::Any as u8),
            probe: rules.probe.clone(),
            probe_head: probe_head.into_bytes(),
            health: Health::new(HealthRules::of(rules)),
            good: AtomicUsize::new(0),
            busy: Arc::new(AtomicUsize::new(0)),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    pub(super) fn standing(&self, now_ms: u64) -> HealthState {
        self.health.standing(now_ms)
    }

    pub(super) fn busy(&self) -> usize {
        self.busy.load(Relaxed)
    }

    /// Counts an exchange.
    pub(super) fn begin(&self) -> Busy {
        self.requests.fetch_add(1, Relaxed);
        self.busy.fetch_add(1, Relaxed);
        Busy(Arc::clone(&self.busy))
    }

    /// Records the outcome of an exchange. `is_well` is false if the connect failed, or the exchange ended
    /// without an answer. Returns whether the server is ejected now.
    pub(crate) fn note_outcome(&self, is_well: bool, now_ms: u64) -> bool {
        if is_well {
            self.health.succeeded(now_ms);
            return false;
        }
        self.failures.fetch_add(1, Relaxed);
        let is_ejected = self.health.failed(now_ms);
        if is_ejected {
            tracing::warn!(origin = %self.server, "origin ejected after repeated failures");
        }
        is_ejected
    }

    /// Returns whether the server is probed.
    pub(crate) fn is_probed(&self) -> bool {
        self.probe.path.is_some()
    }

    /// Records the result of a probe, with the reason for a failure.
    pub(super) fn probed(&self, found: Result<(), String>, now_ms: u64) {
        let is_changed = self.health.probed(found.is_ok(), now_ms);
        match found {
            Ok(()) if is_changed => tracing::info!(origin = %self.server, "origin healthy: back in rotation"),
            Err(why) if is_changed => {
                tracing::warn!(origin = %self.server, %why, "origin unhealthy: probes fail, taken out of rotation")
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Sets the operator's decision.
    pub(crate) fn set(&self, by_hand: ByHand) {
        self.health.set(by_hand);
        tracing::info!(origin = %self.server, ?by_hand, "origin state changed by the operator");
    }

    /// Returns whether this server has the given name.
    pub(crate) fn is(&self, name: &str) -> bool {
        name.parse::<Server>().is_ok_and(|server| server == self.server)
    }

    /// Returns the server's name, as configured.
    pub(crate) fn name(&self) -> String {
        self.server.to_string()
    }

    pub(crate) fn said(&self, now_ms: u64) -> MemberSaid {
        MemberSaid {
            server: self.server.to_string(),
            standing: self.standing(now_ms),
            by_hand: self.health.by_hand(),
            busy: self.busy(),
            requests: self.requests.load(Relaxed),
            failures: self.failures.load(Relaxed),
            probes: self.is_probed().then(|| (self.health.good_probes(), self.probe.window)),
        }
    }

    /// Returns the protocol that the server chose at the last handshake that offered both.
    pub(super) fn spoken(&self) -> MemberProtocol {
        match self.spoken.load(Relaxed) {
            spoken if spoken == MemberProtocol::Http1 as u8 => MemberProtocol::Http1,
            spoken if spoken == MemberProtocol::Http2 as u8 => MemberProtocol::Http2,
            _ => MemberProtocol::Any,
        }
    }

    /// Returns whether a connection may be HTTP/2, which exchanges share.
    pub(super) fn may_speak_http2(&self) -> bool {
        match self.protocol {
            Protocol::Auto => self.tls.is_some() && self.spoken() != MemberProtocol::Http1,
            Protocol::Http1 => false,
            Protocol::Http2 => true,
        }
    }

    /// Opens a connection; returns it and whether it speaks HTTP/2. `offered` is [`MemberProtocol::Any`], or
    /// HTTP/1 alone.
    pub(super) async fn connect(
        &self,
        offered: MemberProtocol,
        at_most: Duration,
    ) -> Result<(Line, bool), OriginError> {
        let is_agreed = self.protocol == Protocol::Http2 && offered == MemberProtocol::Any;
        if let Server::Unix(path) = &self.server {
            let connected = UnixStream::connect(path).await;
            let line = connected.map(Line::Unix).map_err(|error| OriginError::of_connect(&error));
            return line.map(|line| (line, is_agreed));
        }
        let addresses = self.resolver.addresses(at_most).await?;
        let good = self.good.load(Relaxed);
        let stream = match addresses.get(good).filter(|_| good > 0) {
            None => connect_any(&addresses).await?,
            Some(first) => {
                let others = addresses.iter().filter(|address| *address != first);
                connect_any(&[first].into_iter().chain(others).copied().collect::<Vec<_>>()).await?
            }
        };
        let answered = stream.peer_addr().ok();
        let answered = addresses.iter().position(|address| Some(*address) == answered).unwrap_or(0);
        if answered != good {
            self.good.store(answered, Relaxed);
        }
        // Small requests are sent immediately; if the option cannot be set, only latency suffers.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            Some(tls) => self.secured(tls, stream, offered).await,
            None => Ok((Line::Tcp(stream), is_agreed)),
        }
    }

    async fn secured(
        &self,
        tls: &Tls,
        stream: TcpStream,
        offered: MemberProtocol,
    ) -> Result<(Line, bool), OriginError> {
        let connector = if offered == MemberProtocol::Http1 { &tls.http1 } else { &tls.connector };
        let stream = connector.connect(tls.name.clone(), stream).await;
        let stream = Box::new(stream.map_err(|error| OriginError::Tls(error.to_string()))?);
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        if offered == MemberProtocol::Any {
            if self.protocol == Protocol::Http2 && !is_http2 {
                return Err(OriginError::Tls("HTTP/2 is not offered (ALPN)".to_owned()));
            }
            let spoken = if is_http2 { MemberProtocol::Http2 } else { MemberProtocol::Http1 };
            if self.spoken() != spoken {
                self.spoken.store(spoken as u8, Relaxed);
            }
        }
        Ok((Line::Secured(stream), is_http2))
    }
}
