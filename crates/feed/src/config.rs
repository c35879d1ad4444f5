//! Configuration of the feed, in nats-server's terms, with defaults and bounds.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use engine::{network::Network, share::ClientBudget, tls::CertificateSource};

use crate::{accounts::identity::Authorization, leaf::Remote};

/// Number of memory kinds that the feed charges to [`Config::client_budget`]: connections, backlogs,
/// subscriptions.
pub const BUDGET_KINDS: usize = 3;

/// Limits on clients. A counter records how often each limit is hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of connections on all cores together; a further connection gets an error and is closed.
    pub max_connections: usize,
    /// Largest number of subscriptions of one connection; a further one is refused. 0: no limit.
    pub max_subscriptions: usize,
    /// Largest number of bytes of memory for all clients' subscriptions, on every core; each subscription is
    /// counted as if no other subscription shared part of its pattern. A connection may use half of this
    /// memory; further subscriptions are refused. If the memory is used up, the client that uses the most is
    /// closed in favour of one that uses less.
    pub max_subscription_memory: usize,
    /// Largest length in bytes of one operation's arguments; a client that sends more is disconnected.
    pub max_control_line: usize,
    /// Largest message in bytes, headers included; a client that sends more is disconnected.
    pub max_payload: usize,
    /// Largest backlog of messages and answers for one client, in bytes; above it, the client is
    /// disconnected. Above three quarters of it, the client's producers are held back. If answers take more
    /// than a sixteenth of it, reads from the client are paused.
    pub max_pending: usize,
    /// Largest memory in bytes for the backlogs and incomplete messages of all clients together; above it,
    /// the client that holds the most is disconnected. Above half of it, producers are held back at a
    /// sixteenth of the usual backlog.
    pub max_pending_total: usize,
    /// Time for which a consumer may hold its producers back before it is cut off.
    pub producer_hold_max: Duration,
    /// Period in which a client must read the backlog that it had at the period's start, up to a sixteenth of
    /// `max_pending`; otherwise it is cut off.
    pub write_deadline: Duration,
    /// Time of silence after which a client is pinged.
    pub ping_interval: Duration,
    /// Pings that may stay unanswered before the connection is closed.
    pub ping_max: u32,
    /// Time limit for a required CONNECT, counted from the start of the connection, and for TLS and WebSocket
    /// handshakes.
    pub auth_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 64 * 1024,
            max_subscriptions: 0,
            max_subscription_memory: 64 << 20,
            max_control_line: 4096,
            max_payload: 1 << 20,
            max_pending: 64 << 20,
            max_pending_total: 128 << 20,
            producer_hold_max: Duration::from_secs(1),
            write_deadline: Duration::from_secs(10),
            ping_interval: Duration::from_secs(120),
            ping_max: 2,
            auth_timeout: Duration::from_secs(2),
        }
    }
}

/// Order of the TLS handshake and INFO at the start of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandshakeFirst {
    /// INFO comes first, then TLS.
    #[default]
    No,
    /// TLS comes first.
    Yes,
    /// TLS comes first if the client begins it within this time; otherwise INFO.
    After(Duration),
}

/// TLS settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Source of the server's certificate and key.
    pub shown: CertificateSource,
    /// CA certificates that sign clients' certificates (PEM); required for `verify`.
    pub ca_file: Option<PathBuf>,
    /// Clients must present a certificate.
    pub verify: bool,
    /// The client's certificate identifies its user, by an alternative name or by the subject. Such a user
    /// needs no password.
    pub map: bool,
    /// Selects whether a connection begins with the TLS handshake or with INFO.
    pub handshake_first: HandshakeFirst,
    /// Time limit for a handshake; `None`: [`Limits::auth_timeout`].
    pub timeout: Option<Duration>,
    /// Clients that do not begin a handshake are served without TLS. (This does not apply to WebSocket.)
    pub optional: bool,
}

/// Settings of the WebSocket listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocket {
    /// Address to listen on; port 0 takes a free port.
    pub listen: SocketAddr,
    /// TLS settings for `wss://`; `None`: `ws://`.
    pub tls: Option<Tls>,
    /// Origins whose pages may connect, in addition to pages served from this IP address; `*`: all origins.
    pub allowed_origins: Vec<String>,
    /// A page may connect only to the host name and port that it came from; if `allowed_origins` lists any,
    /// its origin must be listed, too.
    pub same_origin: bool,
}

/// Configuration of a feed.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Address for clients; port 0 takes a free port.
    pub listen: SocketAddr,
    /// Processors to use, with one event loop on each; empty: every processor that the process may use.
    pub cores: Vec<usize>,
    /// Number of consecutive connections that one core gets before the next core gets as many. Clients that
    /// connect one after the other are likely to talk to each other, and a message that stays on its core
    /// costs about half as much as one that crosses to another core. 1: each connection goes to the core with
    /// the fewest.
    pub gathered: usize,
    /// Name of the server in INFO.
    pub server_name: String,
    /// Tags of the server, by which tools select it.
    pub server_tags: Vec<String>,
    /// Allows messages with headers.
    pub headers: bool,
    /// Users, accounts and permissions.
    pub authorization: Authorization,
    /// Limits on clients.
    pub limits: Limits,
    /// Memory budget for clients, shared by all servers of the process; `None`: each limit applies
    /// separately.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Largest memory in bytes for pending requests to services of other accounts. Above it, requests of a
    /// client that has many pending are answered as if there were no responders.
    pub waiting_requests_bytes_max: usize,
    /// TLS, required of all clients; `None`: without TLS.
    pub tls: Option<Tls>,
    /// WebSocket listener.
    pub websocket: Option<WebSocket>,
    /// Connections to all listeners begin with a PROXY protocol header, version 1 or 2. Any peer that can
    /// connect can then claim any address, so listen only where the proxy alone can connect.
    pub proxy_protocol: bool,
    /// Networks in which each connection counts as a separate client, such as a large NAT, or a proxy that
    /// does not name its clients.
    pub shared_networks: Vec<Network>,
    /// Addresses of other servers, announced to clients in `connect_urls`.
    pub connect_urls: Vec<String>,
    /// Hubs to join as a leaf node, at most [`crate::leaf::REMOTES_MAX`].
    pub hubs: Vec<Remote>,
    /// Time for clients to leave a stopping server before it closes the first connection.
    pub lame_duck_grace_period: Duration,
    /// Time over which the closing of the remaining clients is spread.
    pub lame_duck_duration: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 4222)),
            cores: Vec::new(),
            gathered: 8,
            server_name: "nighttrain".to_owned(),
            server_tags: Vec::new(),
            headers: true,
            authorization: Authorization::default(),
            limits: Limits::default(),
            client_budget: None,
            waiting_requests_bytes_max: 64 << 20,
            tls: None,
            websocket: None,
            proxy_protocol: false,
            shared_networks: Vec::new(),
            connect_urls: Vec::new(),
            hubs: Vec::new(),
            lame_duck_grace_period: Duration::from_secs(1),
            lame_duck_duration: Duration::from_secs(5),
        }
    }
}
