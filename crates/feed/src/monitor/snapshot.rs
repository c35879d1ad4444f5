//! Snapshots of the server for monitoring. They are taken from each core in steps
//! (`crate::monitor::inspector`), and assembled outside of the loops.

use std::{net::SocketAddr, time::SystemTime};

use crate::client::connection::{CloseReason, Transport};

/// Snapshot of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionSnapshot {
    /// Pattern of the subscription.
    pub subject: String,
    /// Queue group of the subscription.
    pub queue: Option<String>,
    /// Subscription id chosen by the client.
    pub sid: String,
    /// Messages delivered to the subscription.
    pub messages: u64,
    /// Number of messages after which the subscription ends; 0: it has no maximum.
    pub max: u64,
}

/// Snapshot of a connection, open or closed.
#[derive(Debug, Clone)]
pub struct ConnectionSnapshot {
    /// Number of the connection, never reused.
    pub cid: u64,
    /// Core that serves the connection.
    pub core: usize,
    /// Transport of the connection.
    pub transport: Transport,
    /// Address of the client.
    pub address: SocketAddr,
    /// Time at which the client connected.
    pub started: SystemTime,
    /// Time at which the client last sent something.
    pub last_activity: SystemTime,
    /// Time at which the connection was closed, and the reason; `None` while it is open.
    pub closed: Option<(SystemTime, CloseReason)>,
    /// Round-trip time between a ping and its pong, in milliseconds.
    pub rtt_ms: Option<u32>,
    /// Messages from the client.
    pub messages_in: u64,
    /// Messages to the client.
    pub messages_out: u64,
    /// Payload bytes from the client.
    pub payload_in_bytes: u64,
    /// Payload bytes to the client.
    pub payload_out_bytes: u64,
    /// Size of the client's backlog in bytes.
    pub pending_bytes: usize,
    /// Reads from the client are paused because a consumer, another core or the client itself has fallen
    /// behind.
    pub is_held: bool,
    /// Name that the client gave in CONNECT.
    pub name: String,
    /// Language of the client's library.
    pub lang: String,
    /// Version of the client's library.
    pub version: String,
    /// Name of the account.
    pub account: String,
    /// Name or public key of the user.
    pub user: Option<String>,
    /// Number of subscriptions.
    pub subscriptions: usize,
}

/// Sums of the loops' counters, for the server as a whole.
#[derive(Debug, Clone)]
pub struct Totals {
    /// Id of the server, as in INFO.
    pub server_id: String,
    /// Name of the server.
    pub server_name: String,
    /// Tags of the server, by which tools select it.
    pub server_tags: Vec<String>,
    /// Address of the listener for clients.
    pub address: SocketAddr,
    /// Time at which the server started.
    pub started: SystemTime,
    /// Time at which the sums were read.
    pub now: SystemTime,
    /// Number of loops.
    pub cores: usize,
    /// Number of open connections.
    pub connections: u64,
    /// Number of connections since the start.
    pub total_connections: u64,
    /// Number of messages from producers.
    pub messages_in: u64,
    /// Number of messages to consumers.
    pub messages_out: u64,
    /// Payload bytes from producers.
    pub payload_in_bytes: u64,
    /// Payload bytes to consumers.
    pub payload_out_bytes: u64,
    /// Number of subscriptions.
    pub subscriptions: u64,
    /// Numbers of consumers cut off because their backlog was too large, because they held producers for too
    /// long, and because they read too little.
    pub slow_consumers: [u64; 3],
    /// Number of times that producers were held back because a consumer or a core had fallen behind.
    pub held: u64,
}

/// Snapshot of the server.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Sums of the counters.
    pub totals: Totals,
    /// Open connections.
    pub connections: Vec<ConnectionSnapshot>,
    /// Most recently closed connections, at most [`CLOSED_KEPT_MAX`] for each core.
    pub closed: Vec<ConnectionSnapshot>,
    /// Number of nodes in the tries.
    pub trie_nodes: usize,
    /// Number of subject lookups that found the subscribers in the cache.
    pub matches_found: u64,
    /// Number of subject lookups that searched the trie for the subscribers.
    pub matches_made: u64,
}

/// Largest number of closed connections that a core remembers for monitoring.
pub const CLOSED_KEPT_MAX: usize = 1000;
