//! Configuration of the feed, in nats-server's terms, with defaults and bounds.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use engine::{network::Network, share::ClientBudget, tls::CertificateSource};

use crate::{accounts::identity::Authorization, leaf::Remote};

/// Kinds of memory that the feed charges to [`Config::client_budget`]: connections, backlogs, subscriptions.
pub const BUDGET_KINDS: usize = 3;

/// Limits on clients. Each limit has a counter for the times that it is hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections of all cores; one more gets an error and is closed.
    pub max_connections: usize,
    /// Subscriptions of one connection; one more is refused. 0: no limit.
    pub max_subscriptions: usize,
    /// Bytes of memory for all clients' subscriptions, on every core; each is counted as if no other shared a
    /// part of its pattern. A connection may use half of it; further subscriptions are refused. If it is used
    /// up, the client that uses most is closed for one that uses less.
    pub max_subscription_memory: usize,
    /// Bytes of one operation's arguments; a client that sends more is disconnected.
    pub max_control_line: usize,
    /// Bytes of one message, headers included; a client that sends more is disconnected.
    pub max_payload: usize,
    /// Bytes of one client's backlog of messages and answers; above it, the client is cut off. Above three
    /// quarters of it, its producers are held back. Above a sixteenth of it in answers, reads from the client
    /// are paused.
    pub max_pending: usize,
    /// Bytes of memory for the backlogs of all clients together, and their incomplete messages; above it, the
    /// client that holds most is cut off. Above half of it, producers are held back at a sixteenth of the
    /// usual backlog.
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
    /// Time from the connection to its CONNECT, where that is required, and for TLS and WebSocket handshakes.
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

/// First step of a connection: TLS handshake or INFO.
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
    /// Certificate and key of the server.
    pub shown: CertificateSource,
    /// CA certificates that sign clients' certificates (PEM); required for `verify`.
    pub ca_file: Option<PathBuf>,
    /// Clients must present a certificate.
    pub verify: bool,
    /// A client is the user that its certificate names, by an alternative name or by the subject. It needs no
    /// password.
    pub map: bool,
    /// Selects whether a connection begins with the TLS handshake or with INFO.
    pub handshake_first: HandshakeFirst,
    /// Time for a handshake; `None`: [`Limits::auth_timeout`].
    pub timeout: Option<Duration>,
    /// Clients that do not begin a handshake are served without TLS. (Not over WebSocket.)
    pub optional: bool,
}

/// Settings of the WebSocket listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocket {
    /// Address to listen on; port 0 takes a free port.
    pub listen: SocketAddr,
    /// TLS settings for `wss://`; `None`: `ws://`.
    pub tls: Option<Tls>,
    /// Origins whose pages may connect, besides pages of this very address; `*`: all.
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
    /// Processors, each of which runs one loop; empty: every one that the process may use.
    pub cores: Vec<usize>,
    /// Connections assigned to one core before the next core gets as many, because clients that connect one
    /// after the other are likely to talk to each other. A message that stays on its core costs about half of
    /// one that crosses. 1: each connection goes to the core with fewest.
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
    /// Memory budget for clients, shared by all servers of the process; `None`: each limit stands by itself.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Bytes of memory for pending requests to services of other accounts. Above it, requests of a client
    /// that has many pending are answered as if there were no responders.
    pub waiting_requests_bytes_max: usize,
    /// TLS, required of all clients; `None`: without TLS.
    pub tls: Option<Tls>,
    /// WebSocket listener.
    pub websocket: Option<WebSocket>,
    /// Connections to all listeners begin with a PROXY protocol header, version 1 or 2. Any peer that can
    /// connect can then claim any address, so listen only where the proxy alone can connect.
    pub proxy_protocol: bool,
    /// Networks in which each connection counts as a separate client: a large NAT, or a proxy that does not
    /// name its clients.
    pub shared_networks: Vec<Network>,
    /// Addresses of other servers, announced to clients in `connect_urls`.
    pub connect_urls: Vec<String>,
    /// Hubs to join as a leaf node, at most [`crate::leaf::REMOTES_MAX`].
    pub hubs: Vec<Remote>,
    /// Time that clients have to leave a stopping server before it closes the first.
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
