//! Configuration of the accelerator: options, defaults and bounds.

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

/// Rule for sharing responses when cookies are involved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CookieRule {
    /// A response with `Set-Cookie` is never stored or shared, whatever its other fields say; a response to a
    /// request with `Cookie` is stored only with explicit freshness. Varnish and nginx do roughly the same.
    #[default]
    Safe,
    /// `Safe`, and in addition a response to a request with `Cookie` is stored, and a stored response answers
    /// such a request, only if the response is explicitly shared: by `public`, `s-maxage`, CDN-Cache-Control,
    /// or `Vary: Cookie`.
    Strict,
    /// RFC 9111 to the letter, which allows both kinds of response to be shared.
    Rfc,
}

/// Effect of a client's `Cache-Control` and `Pragma` (RFC 9111 §5.2.1 lets a cache choose).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientRule {
    /// Only `only-if-cached` is obeyed, so that clients cannot turn hits into fetches. Varnish and nginx do
    /// the same.
    #[default]
    Ignore,
    /// All request directives are obeyed.
    Obey,
}

/// Secret that allows its bearer to purge. `Debug` does not show it, and it is never logged or sent.
#[derive(Clone)]
pub struct PurgeToken(Box<[u8]>);

impl PurgeToken {
    /// Creates a token from its bytes.
    pub fn new(token: &[u8]) -> Self {
        Self(token.into())
    }

    /// Compares in constant time, so that the duration does not reveal where a guess goes wrong. The length
    /// is not secret.
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

/// Limits on the resources that one client or one origin may use. Each limit has a counter of how often it is
/// reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of client connections per core; further connections are answered with 503 and closed.
    pub connections_max: usize,
    /// Maximum number of connections from one client address over all cores; further connections are closed.
    /// 0: no limit.
    pub connections_per_client_max: usize,
    /// Maximum number of connections from one client network (24 bits of IPv4, 64 of IPv6) over all cores;
    /// further connections are closed. 0: no limit.
    pub connections_per_network_max: usize,
    /// Maximum number of requests per second from one client address, over all cores; further requests are
    /// answered with 429. 0: no limit.
    pub client_requests_per_second_max: usize,
    /// Number of requests that one client address may send at once before the rate limit applies.
    pub client_requests_burst: usize,
    /// Maximum number of requests per second from all addresses of a network, over all cores; further
    /// requests are answered with 429. 0: no limit.
    pub network_requests_per_second_max: usize,
    /// Number of requests that one network may send at once before the rate limit applies.
    pub network_requests_burst: usize,
    /// Maximum length of a request's head (request line and headers) in bytes; a longer head is answered with
    /// 431.
    pub request_head_bytes_max: usize,
    /// Maximum length of the request line, with the URL, in bytes; a longer line is answered with 414.
    pub request_line_bytes_max: usize,
    /// Maximum number of header fields in a request; a request with more fields is answered with 431. At most
    /// 128.
    pub request_headers_max: usize,
    /// Number of requests after which a connection is closed normally. 0: no limit.
    pub requests_per_connection_max: usize,
    /// Time limit for a TLS handshake, after which the connection is closed.
    pub handshake_time_max: Duration,
    /// Maximum number of TLS handshakes in progress per core; further connections are closed.
    pub handshakes_max: usize,
    /// Maximum length of a request's body in bytes; a longer body is answered with 413.
    pub request_body_bytes_max: u64,
    /// Time limit for a request's head to arrive after its first byte; a slower head is answered with 408.
    pub request_head_time_max: Duration,
    /// Minimum average rate of a request's body, in bytes per second, once its grace is over; a slower body
    /// is answered with 408.
    pub request_body_rate_min: u64,
    /// Time before the minimum rate of a request's body applies.
    pub request_body_time_grace: Duration,
    /// Time that a kept-alive connection may be idle between requests.
    pub idle_time_max: Duration,
    /// Time after which a response is cut if the client reads nothing.
    pub send_stall_max: Duration,
    /// Minimum rate at which a client must read its answers, in bytes per second, once its grace is used up;
    /// a slower client is cut. 0: only `send_stall_max` applies.
    pub send_rate_min: u64,
    /// Time for which a client may be slower than the minimum send rate.
    pub send_rate_grace: Duration,
    /// Time for which a slow reader may pin memory that the store needs back, before the reader is cut.
    pub pin_grace: Duration,
    /// Maximum length of the head of an origin's response in bytes; a longer head is answered with 502.
    pub response_head_bytes_max: usize,
    /// Time limit for connecting to the origin.
    pub origin_connect_time_max: Duration,
    /// Time limit from a request to the origin to the first byte of its answer.
    pub origin_first_byte_time_max: Duration,
    /// Time limit between two reads of an origin's body.
    pub origin_between_bytes_time_max: Duration,
    /// Time limit from a request to the origin to the last byte of its answer. 0: no limit, because some
    /// answers last for as long as the client stays connected.
    pub origin_request_time_max: Duration,
    /// Bytes of an HTTP/2 answer that may wait to be read: the flow-control window of its stream. A larger
    /// window speeds up answers from a distant origin.
    pub origin_stream_bytes_max: usize,
    /// Maximum number of simultaneous exchanges on one HTTP/2 connection to an origin, which may allow fewer;
    /// further exchanges use another connection.
    pub origin_streams_max: usize,
    /// Bytes per core that all HTTP/2 exchanges with origins may buffer, each counted as a whole window;
    /// further requests wait. A quarter is reserved for misses that will be stored.
    pub origin_streams_bytes_max: usize,
    /// Time that a connection to the origin may be idle: many servers close idle connections after a minute
    /// or less.
    pub origin_idle_time_max: Duration,
    /// Maximum number of idle connections to origins that each core keeps.
    pub origin_idle_connections_max: usize,
    /// Maximum number of exchanges with one server of an origin, per core; further requests wait in a queue.
    /// A quarter is reserved for misses that will be stored. While more than half is in use, one client may
    /// use at most a quarter.
    pub origin_connections_max: usize,
    /// Maximum number of requests per core that wait in the queue for an exchange; further requests are
    /// answered with 503.
    pub origin_queue_max: usize,
    /// Maximum number of passed answers per core that continue long after their head (event streams,
    /// downloads of slow clients), in addition to `origin_connections_max`.
    pub origin_lasting_max: usize,
    /// Time without any bytes after which a WebSocket is ended.
    pub pipe_idle_time_max: Duration,
    /// Bytes that all cores may hold for slow clients outside of the store; a client that needs more is cut.
    /// A part of the limit is divided among the cores, and the rest goes to the cores that need it.
    pub client_bytes_max: usize,
    /// Bytes per core for all connections, each counted by its kind, and for handshakes in progress. Close to
    /// the limit the connections that have been idle longest are closed; at the limit new connections are
    /// refused.
    pub connection_bytes_max: usize,
}

/// Kinds of memory charged to [`Config::client_budget`] by the accelerator: connections, unread answers,
/// requests' heads, content being compressed.
pub const BUDGET_KINDS: usize = 4;

/// Default of [`Limits::origin_connections_max`], if the process may open that many files.
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
            // RFC 9112 §3 recommends at least 8,000 bytes.
            request_line_bytes_max: 16 * 1024,
            request_headers_max: HEADERS_MAX,
            requests_per_connection_max: 0,
            handshake_time_max: Duration::from_secs(10),
            handshakes_max: 1024,
            request_body_bytes_max: 1 << 30,
            request_head_time_max: Duration::from_secs(10),
            // Apache's default: half of what a modem of 9,600 baud sends.
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
            // The initial window of every HTTP/2 stream; 64 MB/s at a distance of a millisecond.
            origin_stream_bytes_max: 64 << 10,
            origin_streams_max: 64,
            origin_streams_bytes_max: 64 << 20,
            origin_idle_time_max: Duration::from_secs(20),
            // A kept connection costs a descriptor, a new connection some 50 µs of processor time.
            origin_idle_connections_max: 256,
            // Slow pages cost only descriptors. While other clients need them, one client has at most a
            // quarter.
            origin_connections_max: ORIGIN_CONNECTIONS_MAX,
            origin_queue_max: 1024,
            origin_lasting_max: 1024,
            pipe_idle_time_max: Duration::from_secs(600),
            client_bytes_max: 64 << 20,
            // Ten thousand HTTP/2 connections under TLS, at 24 KiB each, and the buffers of slow connections.
            connection_bytes_max: 512 << 20,
        }
    }
}

/// TLS settings for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Address for TLS connections; port 0 picks a free port.
    pub listen: SocketAddr,
    /// Certificates, chosen by the client's server name, with the first as the default. While there are none,
    /// handshakes fail. The owner of the table may change it while the accelerator runs.
    pub certificates: Arc<Certificates>,
}

/// Configuration of an accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Origin for hosts that no site names; `None`: requests for such hosts are answered with 421.
    pub origin: Option<Origin>,
    /// Rules for hosts that no site names.
    pub rules: SiteRules,
    /// Sites: at most [`SITES_MAX`], no two for the same host.
    pub sites: Vec<Site>,
    /// DNS servers that resolve origins' names; empty: the system's resolver is used.
    pub resolver: Vec<SocketAddr>,
    /// Address for plain HTTP connections; port 0 picks a free port.
    pub listen: SocketAddr,
    /// Unix socket for clients. Its permissions (owner and group) decide which processes may connect.
    pub listen_unix: Option<PathBuf>,
    /// TLS for clients.
    pub tls: Option<Tls>,
    /// ACME challenges, answered before any other request.
    pub challenges: Option<Arc<Challenges>>,
    /// Processors, each of which runs one event loop; empty: all that the process may use.
    pub cores: Vec<usize>,
    /// Bytes of memory for stored objects (segments; metadata is added to this, at most 64 bytes per object).
    pub memory_bytes: u64,
    /// Bytes of memory that the process may use, checked for a file-backed store; `None`: the limit of its
    /// memory cgroup.
    pub memory_limit_bytes: Option<u64>,
    /// Rule for sharing answers when cookies are involved.
    pub cookies: CookieRule,
    /// True if `CDN-Cache-Control` overrides `Cache-Control` and `Expires` (RFC 9213). The field is forwarded
    /// in either case.
    pub cdn_cache_control: bool,
    /// Effect of clients' `Cache-Control`.
    pub client_cache_control: ClientRule,
    /// Time for which a stale answer is kept for revalidation with the origin.
    pub keep: Duration,
    /// Name in `Via` and `Cache-Status`.
    pub name: String,
    /// Networks of the operator's proxies. The fields in which they name the client and its scheme
    /// (`X-Forwarded-For`, `X-Forwarded-Proto`, else `Forwarded`) are trusted. If another client sends these
    /// fields, they are ignored and not passed to origins.
    pub trusted_proxies: Vec<Network>,
    /// Networks in which each connection counts as a client of its own: a large NAT, or a proxy that does not
    /// name its clients.
    pub shared_networks: Vec<Network>,
    /// Networks whose connections begin with a header of the PROXY protocol, version 1 or 2.
    pub proxy_protocol_from: Vec<Network>,
    /// Networks that may send `PURGE` on the client ports. The default is none, not even loopback: behind a
    /// proxy on this machine every client has that address. (Purges on the admin port are independent of
    /// this.)
    pub purge_from: Vec<Network>,
    /// Token that allows a purge from any address.
    pub purge_token: Option<PurgeToken>,
    /// Size in bytes from which answers are fetched and stored in slices, if their origin allows it; `None`:
    /// never.
    pub blocks_from: Option<u64>,
    /// Fields of the origin's answers that carry purge tags. They are not sent to clients.
    pub tags: Vec<Box<str>>,
    /// Rules for compressing answers for clients that accept it.
    pub compress: Compress,
    /// Limits on clients and origins.
    pub limits: Limits,
    /// Memory budget for clients, shared by all servers of the process; `None`: only the individual limits
    /// apply.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Bytes of unstored answers that may wait for their readers. Above half of the limit each answer has at
    /// most two chunks, and new chunks are smaller.
    pub passing_bytes_max: usize,
    /// Crawlers and their budgets.
    pub crawlers: CrawlerRules,
    /// File in which stored objects survive a restart; `None`: memory only.
    pub store: Option<PathBuf>,
    /// Size of the store's file in bytes.
    pub store_bytes: u64,
    /// Mode in which the file is read.
    pub paging: ReadMode,
    /// Rule that selects the objects to write to the file.
    pub admission: Admission,
    /// Maximum time until a stored object is written to the file.
    pub flush: Duration,
    /// Directory for state files; unused while the store is in memory only.
    pub state: Option<PathBuf>,
    /// Query parameters whose values are hidden in the log.
    pub log_secrets: Secrets,
    /// Peers that share keys with this accelerator; `None`: there are none.
    pub peers: Option<PeerRules>,
}

impl Config {
    /// Combines a newly read configuration with the values of this one that only a restart can change.
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

    /// Creates a configuration for an origin, with the defaults for everything else.
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
