//! One server of an origin, as all cores know it.

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

/// Why what talks to an origin cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// There is no thread to look a name up with.
    #[error("no thread can be started that looks up the origin's name: {0}")]
    Thread(#[from] std::io::Error),
    /// TLS with it cannot be spoken.
    #[error("TLS with the origin: {0}")]
    Tls(#[from] TlsError),
    /// Its name, or the one that it is to be asked for, can be in no certificate.
    #[error("TLS with the origin: `{0}` is no name that a certificate could have; origin-tls-name says one")]
    TlsName(String),
    /// A peer's address is none.
    #[error("{0:?} is no address of a peer; one is such as web2.internal:6080")]
    PeerAddress(String),
    /// One goes with the other.
    #[error("TLS with the origin: origin-tls-cert and origin-tls-key go together")]
    TlsPair,
}

/// TLS with a server, verified for a name.
struct Tls {
    connector: TlsConnector,
    /// What is to speak HTTP/1 alone.
    http1: TlsConnector,
    name: ServerName<'static>,
}

/// What is spoken with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum MemberProtocol {
    /// Whichever it chooses; or nobody knows yet.
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

/// A server.
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(super) server: Server,
    resolver: Arc<Resolver>,
    tls: Option<Tls>,
    protocol: Protocol,
    /// A [`MemberProtocol`]: what it chose the last time that it had the choice.
    spoken: AtomicU8,
    pub(super) probe: Probe,
    /// What it is probed by.
    pub(super) probe_head: Vec<u8>,
    health: Health,
    /// Where the address that answered last stands among those of its name: it is asked first.
    good: AtomicUsize,
    /// Exchanges under way, on all cores.
    busy: Arc<AtomicUsize>,
    requests: AtomicU64,
    failures: AtomicU64,
}

/// An exchange that is under way, while it is.
pub(super) struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What is known of a server, for people.
#[derive(Debug, Clone)]
pub struct MemberSaid {
    /// Where it listens, as it was configured.
    pub server: String,
    /// Whether it can be asked.
    pub standing: HealthState,
    /// What an operator has decided.
    pub by_hand: ByHand,
    /// Exchanges under way.
    pub busy: usize,
    /// Exchanges that were begun, and those that failed before there was an answer.
    pub requests: u64,
    /// See `requests`.
    pub failures: u64,
    /// Good probes, of how many; `None`: it is not probed.
    pub probes: Option<(u32, u32)>,
}

impl Member {
    /// A server of this place; `host` is what a probe is sent as Host where the server's own name is not right.
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

    /// It answered; or it could not be reached, or has ended an exchange without an answer. Whether it is left alone from now
    /// on.
    pub(crate) fn fared(&self, is_well: bool, now_ms: u64) -> bool {
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

    /// Whether it is probed at all.
    pub(crate) fn is_probed(&self) -> bool {
        self.probe.path.is_some()
    }

    /// A probe was good, or was not, because of something.
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

    /// What an operator decides of it.
    pub(crate) fn set(&self, by_hand: ByHand) {
        self.health.set(by_hand);
        tracing::info!(origin = %self.server, ?by_hand, "origin state changed by the operator");
    }

    /// Whether it is what an operator names.
    pub(crate) fn is(&self, name: &str) -> bool {
        name.parse::<Server>().is_ok_and(|server| server == self.server)
    }

    /// What it is called, as it was configured.
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

    /// What it spoke the last time that it had the choice.
    pub(super) fn spoken(&self) -> MemberProtocol {
        match self.spoken.load(Relaxed) {
            spoken if spoken == MemberProtocol::Http1 as u8 => MemberProtocol::Http1,
            spoken if spoken == MemberProtocol::Http2 as u8 => MemberProtocol::Http2,
            _ => MemberProtocol::Any,
        }
    }

    /// Whether a connection may be one that exchanges share.
    pub(super) fn may_speak_http2(&self) -> bool {
        match self.protocol {
            Protocol::Auto => self.tls.is_some() && self.spoken() != MemberProtocol::Http1,
            Protocol::Http1 => false,
            Protocol::Http2 => true,
        }
    }

    /// A new connection to it, and whether HTTP/2 is spoken there; `offered` is [`MemberProtocol::Any`], or HTTP/1 alone.
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
        // Small requests leave at once; a failure to say so costs latency only.
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
                return Err(OriginError::Tls("it does not offer HTTP/2 (ALPN)".to_owned()));
            }
            let spoken = if is_http2 { MemberProtocol::Http2 } else { MemberProtocol::Http1 };
            if self.spoken() != spoken {
                self.spoken.store(spoken as u8, Relaxed);
            }
        }
        Ok((Line::Secured(stream), is_http2))
    }
}
