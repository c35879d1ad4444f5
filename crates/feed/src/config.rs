//! What can be set, in nats-server's words, with its default and its bound.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use engine::{network::Network, share::ClientBudget, tls::CertificateSource};

use crate::{accounts::identity::Authorization, leaf::Remote};

/// Kinds of memory that the feed takes of [`Config::client_budget`]: connections, what waits for clients, subscriptions.
pub const BUDGET_KINDS: usize = 3;

/// Limits on clients. Each has a counter for when it is hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections over all cores; one more is told so and closed.
    pub max_connections: usize,
    /// Subscriptions of one connection; one more is refused. 0: no limit.
    pub max_subscriptions: usize,
    /// Bytes of memory that all clients' subscriptions may take, each counted as if nobody else had a part of its pattern,
    /// on every core. A connection may take half of it; beyond that its subscriptions are refused. When it is used up,
    /// the client that takes most is closed for one that takes less.
    pub max_subscription_memory: usize,
    /// Bytes of one operation's arguments; more, and the connection is closed.
    pub max_control_line: usize,
    /// Bytes of one message, headers included; more, and the connection is closed.
    pub max_payload: usize,
    /// Bytes that may wait for one client, messages and answers; one more, and it is cut off. From three quarters of it
    /// on, its producers are held back; from a sixteenth of it in answers on, it is not read from.
    pub max_pending: usize,
    /// Bytes of memory that what waits for all clients may take, and messages of theirs that have not come whole; beyond,
    /// the client that holds most is cut off. From half of it on, producers are held back for consumers for which a
    /// sixteenth of what else it takes waits.
    pub max_pending_total: usize,
    /// How long a consumer may hold its producers back before it is cut off.
    pub producer_hold_max: Duration,
    /// Within each such time a client must take what waited for it at its beginning, or a sixteenth of `max_pending`;
    /// else it is cut off.
    pub write_deadline: Duration,
    /// A client is asked whether it is there when it was silent for so long.
    pub ping_interval: Duration,
    /// Pings that may stay unanswered; one more, and the connection is closed.
    pub ping_max: u32,
    /// Time from the connection to its CONNECT, where one is needed, and for the handshakes of TLS and WebSocket.
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

/// Whether a connection begins with TLS, or with INFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandshakeFirst {
    /// With INFO; TLS follows.
    #[default]
    No,
    /// With TLS.
    Yes,
    /// With TLS if the client begins it within this time, else with INFO.
    After(Duration),
}

/// TLS on a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// What is shown.
    pub shown: CertificateSource,
    /// Certificates of those who sign clients' certificates, PEM; needed for `verify`.
    pub ca_file: Option<PathBuf>,
    /// Clients must show a certificate.
    pub verify: bool,
    /// A client is the user that its certificate names: by an address or name of the certificate, or by its subject.
    /// It needs no password.
    pub map: bool,
    /// Whether the connection begins with the handshake instead of INFO.
    pub handshake_first: HandshakeFirst,
    /// How long a handshake may take; `None`: [`Limits::auth_timeout`].
    pub timeout: Option<Duration>,
    /// Clients that do not begin a handshake are served in clear. (Not over WebSocket.)
    pub optional: bool,
}

/// A listener for browsers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocket {
    /// Where; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `wss://` with this certificate; `None`: `ws://`.
    pub tls: Option<Tls>,
    /// Pages of these origins may connect, besides those of this very address; `*`: all.
    pub allowed_origins: Vec<String>,
    /// A page may connect only to where it came from, whatever name that has; and if `allowed_origins` lists any, its
    /// origin must be listed, too.
    pub same_origin: bool,
}

/// How a feed is set up.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where clients connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Processors to run one loop on each; empty: every one that the process may use.
    pub cores: Vec<usize>,
    /// Connections that come one after the other are likely to talk to each other: so many of them are gathered on one
    /// core before the next gets as many. What stays on its core costs about half of what crosses. 1: each
    /// connection to the core that has fewest.
    pub gathered: usize,
    /// The server's name in INFO.
    pub server_name: String,
    /// Words about this server, by which tools choose it.
    pub server_tags: Vec<String>,
    /// Whether messages may have headers.
    pub headers: bool,
    /// Who may do what.
    pub authorization: Authorization,
    /// Limits on clients.
    pub limits: Limits,
    /// The memory budget for clients of all servers of the process; `None`: each limit stands by itself.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Bytes of memory that requests to services of other accounts may take while they wait for their answers; beyond, those
    /// of a client that has much are answered as if nobody were there.
    pub waiting_requests_bytes_max: usize,
    /// TLS, required of all clients; `None`: plain.
    pub tls: Option<Tls>,
    /// A listener for browsers.
    pub websocket: Option<WebSocket>,
    /// Connections, by whatever listener, begin with a PROXY protocol header, version 1 or 2. Whoever can connect can
    /// then claim any address: listen where only the proxy reaches.
    pub proxy_protocol: bool,
    /// Networks in which each connection counts as a client of its own: a large NAT, or a proxy that names no clients.
    pub shared_networks: Vec<Network>,
    /// Other servers' addresses, told to clients in `connect_urls`.
    pub connect_urls: Vec<String>,
    /// Hubs that are joined as a leaf node, at most [`crate::leaf::REMOTES_MAX`].
    pub hubs: Vec<Remote>,
    /// A server that is stopping tells its clients, and lets them leave for so long before it closes the first.
    pub lame_duck_grace_period: Duration,
    /// The closing of those that are left is spread over this time.
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
