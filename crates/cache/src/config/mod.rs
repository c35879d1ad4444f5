//! What can be set, with its default and its bound.

mod client_certificates;
mod crawlers;
mod origin;
mod page;
mod peers;
mod rules;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

pub use self::client_certificates::{ClientCertificates, InvalidField, client_field};
pub(crate) use self::client_certificates::{FINGERPRINT, NAMES};
pub use self::crawlers::{Budget, CrawlerRules, InvalidBudget};
pub use self::origin::{
    Balance, InvalidOrigin, Member, Origin, OriginRules, OriginTls, Probe, Protocol, Server, ServerRules,
    cookie_name,
};
pub use self::page::{InvalidPage, OwnPage, PAGE_BYTES_MAX, Part, Place};
pub use self::peers::{PEERS_MAX, PeerAt, PeerRules, PeerSecret};
pub use self::rules::{
    HostPattern, InvalidRule, LIST_MAX, Methods, PATHS_MAX, PathRule, Pattern, SITES_MAX, Site, SiteRules,
    field, sent_host,
};

pub use engine::store::tier::{Admission, ReadMode};

use engine::{
    network::Network,
    share::ClientBudget,
    tls::{certificates::Certificates, challenges::Challenges},
};
use subtle::ConstantTimeEq;
use wire::{http1::head::HEADERS_MAX, transaction::Secrets};

pub use crate::coding::{Coding, Compress};
use crate::tags::TAG_FIELDS;

/// Which responses may be shared although cookies are in play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CookieRule {
    /// A response with `Set-Cookie` is never stored nor shared, whatever it says; a response to a request with `Cookie`
    /// is stored only on explicit freshness. Varnish and nginx do roughly this.
    #[default]
    Safe,
    /// As `Safe`; and what answers a request with `Cookie` is stored, and what is stored answers one, only if it is said
    /// to be for all: by `public`, `s-maxage`, CDN-Cache-Control, or `Vary: Cookie`.
    Strict,
    /// The letter of RFC 9111, which lets both be shared.
    Rfc,
}

/// Whether a client's `Cache-Control` and `Pragma` decide what it gets (RFC 9111 §5.2.1 lets a cache choose).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientRule {
    /// `only-if-cached` alone does: nobody can turn hits into fetches. What Varnish and nginx do.
    #[default]
    Ignore,
    /// All of them do.
    Obey,
}

/// A secret by which anybody may purge. It has no `Debug` that shows it, and is never logged or sent.
#[derive(Clone)]
pub struct PurgeToken(Box<[u8]>);

impl PurgeToken {
    /// One of these bytes.
    pub fn new(token: &[u8]) -> Self {
        Self(token.into())
    }

    /// Compares without telling by the time taken where a guess goes wrong; its length is no secret.
    pub fn is(&self, guess: &[u8]) -> bool {
        self.0.ct_eq(guess).into()
    }
}

impl std::fmt::Debug for PurgeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PurgeToken(…)")
    }
}

impl PartialEq for PurgeToken {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for PurgeToken {}

/// Limits on what one client or one origin may ask of us. Each has a counter for when it is hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections of clients per core; more are answered 503 and closed.
    pub connections_max: usize,
    /// Connections of one client address over all cores; more are closed. 0: no limit.
    pub connections_per_client_max: usize,
    /// Connections of one client's network (24 bits of IPv4, 64 of IPv6) over all cores; more are closed. 0: no limit.
    pub connections_per_network_max: usize,
    /// Requests that one client's address may make in a second, over all cores; more are answered 429. 0: no limit.
    pub client_requests_per_second_max: usize,
    /// Requests that it may make at once, before that counts.
    pub client_requests_burst: usize,
    /// Likewise, of all addresses of a network.
    pub network_requests_per_second_max: usize,
    /// Requests that they may make at once.
    pub network_requests_burst: usize,
    /// Bytes of one request's head (request line and headers); more is answered 431.
    pub request_head_bytes_max: usize,
    /// Bytes of its line, with the URL; more is answered 414.
    pub request_line_bytes_max: usize,
    /// Header fields of one request; more is answered 431. At most 128.
    pub request_headers_max: usize,
    /// Requests that one connection may bring before it is closed in order. 0: no limit.
    pub requests_per_connection_max: usize,
    /// Time that a handshake of TLS may take; who takes longer is closed.
    pub handshake_time_max: Duration,
    /// Handshakes per core that are under way; more are closed.
    pub handshakes_max: usize,
    /// Bytes of one request's body; more is answered 413.
    pub request_body_bytes_max: u64,
    /// Time for a request's head to arrive once its first byte has; more is answered 408.
    pub request_head_time_max: Duration,
    /// Bytes a second that a request's body must come with on average, once its grace is over; less is answered 408.
    pub request_body_rate_min: u64,
    /// Time that it may take before that counts.
    pub request_body_time_grace: Duration,
    /// Time a kept-alive connection may idle between requests.
    pub idle_time_max: Duration,
    /// Time a response may make no progress (the client reads nothing) before it is cut.
    pub send_stall_max: Duration,
    /// Bytes a second that a client must take of what waits for it, once its grace is used up; a slower one is cut. 0: no
    /// limit but `send_stall_max`.
    pub send_rate_min: u64,
    /// Time that it may be waited for beyond that rate.
    pub send_rate_grace: Duration,
    /// Time that a slow reader may keep memory that the store wants back, before it is cut.
    pub pin_grace: Duration,
    /// Bytes of one response's head from the origin; more is answered 502.
    pub response_head_bytes_max: usize,
    /// Time to connect to the origin.
    pub origin_connect_time_max: Duration,
    /// Time from the request to the origin to the first byte of its answer.
    pub origin_first_byte_time_max: Duration,
    /// Time between two reads of the origin's body.
    pub origin_between_bytes_time_max: Duration,
    /// Time from when an answer is asked for to its last byte; zero: no limit, because some last for as long as their
    /// client likes.
    pub origin_request_time_max: Duration,
    /// Bytes of an answer over HTTP/2 that wait to be read: its stream's window. More makes a distant origin faster.
    pub origin_stream_bytes_max: usize,
    /// Exchanges at once on one connection of HTTP/2 to an origin, which may allow fewer; more take another connection.
    pub origin_streams_max: usize,
    /// Bytes per core that all exchanges over HTTP/2 may keep so, each counted as a whole window; more requests wait. A
    /// quarter is for misses that will be stored.
    pub origin_streams_bytes_max: usize,
    /// Time that a connection to the origin may idle: many servers close them after a minute or less.
    pub origin_idle_time_max: Duration,
    /// Idle connections to the origin kept per core.
    pub origin_idle_connections_max: usize,
    /// Exchanges with one server of an origin, per core; further requests wait in a queue. A quarter is kept for misses
    /// that will be stored. While more than half is in use, one client has a quarter at most.
    pub origin_connections_max: usize,
    /// Requests per core that wait for one of these; more are answered 503.
    pub origin_queue_max: usize,
    /// Passed answers per core whose head has been sent and that last (events, downloads of slow clients), beside
    /// these.
    pub origin_lasting_max: usize,
    /// Time that nothing may move on a WebSocket before it is ended.
    pub pipe_idle_time_max: Duration,
    /// Bytes that slow clients may make all cores hold outside of the store; a client that needs more is cut. A part of it is
    /// divided among the cores, and the rest is for whichever needs it.
    pub client_bytes_max: usize,
    /// Bytes per core that connections may take in all, each by its kind, and handshakes under way. Before that is reached
    /// the connections that idle longest are closed; beyond it new ones are refused.
    pub connection_bytes_max: usize,
}

/// Kinds of memory that the accelerator takes of [`Config::client_budget`]: connections, unread answers,
/// requests' heads, what is being compressed.
pub const BUDGET_KINDS: usize = 4;

/// The default of [`Limits::origin_connections_max`], where the process may open as many files.
pub const ORIGIN_CONNECTIONS_MAX: usize = 4096;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_client_max: 0,
            connections_per_network_max: 0,
            client_requests_per_second_max: 0,
            client_requests_burst: 200,
            network_requests_per_second_max: 0,
            network_requests_burst: 1000,
            request_head_bytes_max: 32 * 1024,
            // RFC 9112 §3 asks for 8,000 bytes at least.
            request_line_bytes_max: 16 * 1024,
            request_headers_max: HEADERS_MAX,
            requests_per_connection_max: 0,
            handshake_time_max: Duration::from_secs(10),
            handshakes_max: 1024,
            request_body_bytes_max: 1 << 30,
            request_head_time_max: Duration::from_secs(10),
            // As Apache's: half of what a modem of 9,600 baud sends.
            request_body_rate_min: 512,
            request_body_time_grace: Duration::from_secs(20),
            idle_time_max: Duration::from_secs(60),
            send_stall_max: Duration::from_secs(60),
            send_rate_min: 512,
            send_rate_grace: Duration::from_secs(30),
            pin_grace: Duration::from_secs(5),
            response_head_bytes_max: 64 * 1024,
            origin_connect_time_max: Duration::from_secs(3),
            origin_first_byte_time_max: Duration::from_secs(60),
            origin_between_bytes_time_max: Duration::from_secs(30),
            origin_request_time_max: Duration::ZERO,
            // What a stream begins with anyway; at a millisecond's distance 64 MB/s.
            origin_stream_bytes_max: 64 << 10,
            origin_streams_max: 64,
            origin_streams_bytes_max: 64 << 20,
            origin_idle_time_max: Duration::from_secs(20),
            // As many as may be busy: a kept connection costs a descriptor, a new one some 50 µs of our processor.
            origin_idle_connections_max: 256,
            // Slow pages cost nothing but descriptors. One client has a quarter at most while others want them.
            origin_connections_max: ORIGIN_CONNECTIONS_MAX,
            origin_queue_max: 1024,
            origin_lasting_max: 1024,
            pipe_idle_time_max: Duration::from_secs(600),
            client_bytes_max: 64 << 20,
            // Ten thousand connections of HTTP/2 under TLS, at 24 KiB each, and what slow ones hold.
            connection_bytes_max: 512 << 20,
        }
    }
}

/// TLS for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Where they connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// A client is shown the one that has the name it asks for, else the first; while there is none, its handshake fails.
    /// Whoever has the table changes it while the accelerator runs.
    pub certificates: Arc<Certificates>,
}

/// How an accelerator is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where misses are fetched for hosts that no site names; `None`: requests for them are answered 421.
    pub origin: Option<Origin>,
    /// The rules for these.
    pub rules: SiteRules,
    /// At most [`SITES_MAX`]; no two for the same host.
    pub sites: Vec<Site>,
    /// Servers of DNS that origins' names are looked up with; none: as the system does.
    pub resolver: Vec<SocketAddr>,
    /// Where clients connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// A socket in the file system where they connect too; who may is what its permissions say (owner and group).
    pub listen_unix: Option<PathBuf>,
    /// Where clients connect under TLS.
    pub tls: Option<Tls>,
    /// What authorities may ask for before they give a certificate; answered before anything else.
    pub challenges: Option<Arc<Challenges>>,
    /// Processors to run one loop on each; empty: every one that the process may use.
    pub cores: Vec<usize>,
    /// Bytes of memory for stored objects (segments; metadata comes on top, at most 64 bytes an object).
    pub memory_bytes: u64,
    /// Bytes of memory that the process may use, for a store on a file; `None`: what its memory cgroup says.
    pub memory_limit_bytes: Option<u64>,
    /// Which answers may be shared although cookies are in play.
    pub cookies: CookieRule,
    /// Whether `CDN-Cache-Control` counts, in the place of `Cache-Control` and `Expires` (RFC 9213). It is passed on in
    /// either case.
    pub cdn_cache_control: bool,
    /// Whether clients' `Cache-Control` counts.
    pub client_cache_control: ClientRule,
    /// For how long a stale answer is kept, so that the origin can be asked whether it is still the same.
    pub keep: Duration,
    /// Name in `Via` and `Cache-Status`.
    pub name: String,
    /// Proxies of the operator's: what they say of who asks, and over which scheme (`X-Forwarded-For`,
    /// `X-Forwarded-Proto`, else `Forwarded`), is believed. What others say is not, and no origin is told it.
    pub trusted_proxies: Vec<Network>,
    /// Networks in which each connection counts as a client of its own: a large NAT, or a proxy that names no clients.
    pub shared_networks: Vec<Network>,
    /// Whose connections begin with a header of the PROXY protocol, version 1 or 2.
    pub proxy_protocol_from: Vec<Network>,
    /// Who may send `PURGE` where clients connect. Nobody by default, not loopback either: behind a proxy on this
    /// machine every stranger comes from there. (The admin port's purge is another door.)
    pub purge_from: Vec<Network>,
    /// Whoever says this may do so from anywhere.
    pub purge_token: Option<PurgeToken>,
    /// Answers from so many bytes on are fetched and stored in blocks, where their origin allows it; `None`: never.
    pub blocks_from: Option<u64>,
    /// Fields of the origin's answers that carry tags to purge by. Clients do not get them.
    pub tags: Vec<Box<str>>,
    /// What is coded for clients that accept it, and how.
    pub compress: Compress,
    /// Limits on clients and origin.
    pub limits: Limits,
    /// The memory budget for clients of all servers of the process; `None`: each limit stands by itself.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Bytes of answers that are only passed on, as they wait for their readers. Beyond half of it each has two pieces on
    /// their way, and beyond that small ones.
    pub passing_bytes_max: usize,
    /// Visitors who are programs, and what they may cost the origins.
    pub crawlers: CrawlerRules,
    /// The file below the memory, in which objects survive a restart; `None`: memory alone.
    pub store: Option<PathBuf>,
    /// Bytes of that file.
    pub store_bytes: u64,
    /// How the file is read.
    pub paging: ReadMode,
    /// Which objects go there.
    pub admission: Admission,
    /// What is stored is on the file after this time at the latest.
    pub flush: Duration,
    /// A directory for files of state; unused while the store is in memory alone.
    pub state: Option<PathBuf>,
    /// Parameters of queries whose values the log does not tell.
    pub log_secrets: Secrets,
    /// Other accelerators that share keys with this one; `None`: there are none.
    pub peers: Option<PeerRules>,
}

impl Config {
    /// This one as another has it that is read while it runs, but for what only a restart changes.
    #[must_use]
    pub(crate) fn reloaded(&self, new: Self) -> Self {
        let Self { limits: before, .. } = self;
        Self {
            listen: self.listen,
            listen_unix: self.listen_unix.clone(),
            tls: self.tls.clone(),
            challenges: self.challenges.clone(),
            resolver: self.resolver.clone(),
            cores: self.cores.clone(),
            memory_bytes: self.memory_bytes,
            memory_limit_bytes: self.memory_limit_bytes,
            name: self.name.clone(),
            compress: self.compress.clone(),
            store: self.store.clone(),
            store_bytes: self.store_bytes,
            paging: self.paging,
            admission: self.admission,
            flush: self.flush,
            state: self.state.clone(),
            peers: self.peers.clone(),
            limits: Limits {
                request_head_bytes_max: before.request_head_bytes_max,
                origin_idle_time_max: before.origin_idle_time_max,
                origin_connections_max: before.origin_connections_max,
                origin_queue_max: before.origin_queue_max,
                origin_lasting_max: before.origin_lasting_max,
                origin_stream_bytes_max: before.origin_stream_bytes_max,
                origin_streams_bytes_max: before.origin_streams_bytes_max,
                client_bytes_max: before.client_bytes_max,
                ..new.limits
            },
            ..new
        }
    }

    /// The defaults for an origin.
    pub fn new(origin: Origin) -> Self {
        Self {
            origin: Some(origin),
            rules: SiteRules::default(),
            sites: Vec::new(),
            resolver: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            listen_unix: None,
            tls: None,
            challenges: None,
            cores: Vec::new(),
            memory_bytes: 256 << 20,
            memory_limit_bytes: None,
            cookies: CookieRule::Safe,
            cdn_cache_control: true,
            client_cache_control: ClientRule::Ignore,
            keep: Duration::from_secs(60 * 60),
            name: "nighttrain".to_owned(),
            trusted_proxies: Vec::new(),
            shared_networks: Vec::new(),
            proxy_protocol_from: Vec::new(),
            purge_from: Vec::new(),
            purge_token: None,
            blocks_from: Some(16 << 20),
            tags: TAG_FIELDS.map(Into::into).to_vec(),
            compress: Compress::default(),
            limits: Limits::default(),
            client_budget: None,
            passing_bytes_max: 64 << 20,
            crawlers: CrawlerRules::default(),
            store: None,
            store_bytes: 1 << 30,
            paging: ReadMode::default(),
            admission: Admission::default(),
            flush: Duration::from_secs(1),
            state: None,
            log_secrets: Secrets::default(),
            peers: None,
        }
    }
}
