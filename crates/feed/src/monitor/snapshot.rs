//! What the server looks like now, for monitoring: asked of each core in steps (`crate::monitor::inspector`), put together outside.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use crate::{
    accounts::identity::Identities,
    client::connection::{CloseReason, Connection, Transport},
    routing::{subjects::Subjects, trie::SubId},
};

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionSnapshot {
    /// The pattern.
    pub subject: String,
    /// The queue group.
    pub queue: Option<String>,
    /// The client's name for it.
    pub sid: String,
    /// Messages delivered to it.
    pub messages: u64,
    /// It ends after so many; 0: never.
    pub max: u64,
}

/// A connection, open or closed.
#[derive(Debug, Clone)]
pub struct ConnectionSnapshot {
    /// Its number, never used again.
    pub cid: u64,
    /// Which core serves it.
    pub core: usize,
    /// What it runs over.
    pub transport: Transport,
    /// The client's address.
    pub address: SocketAddr,
    /// When it came.
    pub started: SystemTime,
    /// When it last sent something.
    pub last_activity: SystemTime,
    /// When it was closed and why; for one that is open, none.
    pub closed: Option<(SystemTime, CloseReason)>,
    /// Time between a ping and its answer, milliseconds.
    pub rtt_ms: Option<u32>,
    /// Messages from it.
    pub messages_in: u64,
    /// Messages to it.
    pub messages_out: u64,
    /// Payload from it.
    pub payload_in_bytes: u64,
    /// Payload to it.
    pub payload_out_bytes: u64,
    /// Bytes that wait for it.
    pub pending_bytes: usize,
    /// Its reads are paused because a consumer, a core or the client itself fell behind.
    pub is_held: bool,
    /// Its name.
    pub name: String,
    /// Its library's language.
    pub lang: String,
    /// Its library's version.
    pub version: String,
    /// The account's name.
    pub account: String,
    /// The user's name or public key.
    pub user: Option<String>,
    /// How many subscriptions it has.
    pub subscriptions: usize,
}

/// The server as a whole: what its loops have counted.
#[derive(Debug, Clone)]
pub struct Totals {
    /// The server's number, as in INFO.
    pub server_id: String,
    /// The server's name.
    pub server_name: String,
    /// Words about it, by which tools choose it.
    pub server_tags: Vec<String>,
    /// Where clients connect.
    pub address: SocketAddr,
    /// When it started.
    pub started: SystemTime,
    /// When this was taken.
    pub now: SystemTime,
    /// How many loops there are.
    pub cores: usize,
    /// Open connections.
    pub connections: u64,
    /// Connections since the start.
    pub total_connections: u64,
    /// Messages from producers.
    pub messages_in: u64,
    /// Messages to consumers.
    pub messages_out: u64,
    /// Payload from producers.
    pub payload_in_bytes: u64,
    /// Payload to consumers.
    pub payload_out_bytes: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Consumers cut off: too much pending, held producers for too long, took too little.
    pub slow_consumers: [u64; 3],
    /// Times that producers were held back for consumers and cores that fell behind.
    pub held: u64,
}

/// What the server looks like now.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What was counted.
    pub totals: Totals,
    /// Open connections.
    pub connections: Vec<ConnectionSnapshot>,
    /// Those closed last, at most [`CLOSED_KEPT_MAX`] a core.
    pub closed: Vec<ConnectionSnapshot>,
    /// Nodes of the tries.
    pub trie_nodes: usize,
    /// Subjects whose subscribers were known from the last message.
    pub matches_found: u64,
    /// Subjects whose subscribers were looked up.
    pub matches_made: u64,
}

/// Closed connections that a core remembers for monitoring.
pub const CLOSED_KEPT_MAX: usize = 1000;

/// A connection; its subscriptions are counted.
pub(crate) fn of_connection(
    connection: &Connection,
    core: usize,
    identities: &Identities,
) -> ConnectionSnapshot {
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(connection.started_unix_ms);
    let active_ms = connection.last_in_ms.saturating_sub(connection.started_ms);
    let told = connection.told.as_deref();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    ConnectionSnapshot {
        cid: connection.cid,
        core,
        transport: connection.transport,
        address: connection.address,
        started,
        last_activity: started + Duration::from_millis(active_ms),
        closed: None,
        rtt_ms: connection.rtt_ms,
        messages_in: connection.messages_in,
        messages_out: connection.messages_out,
        payload_in_bytes: connection.payload_in_bytes,
        payload_out_bytes: connection.payload_out_bytes,
        pending_bytes: connection.outbox.bytes(),
        is_held: connection.is_held(),
        name: text(told.map(|told| &*told.name)),
        lang: text(told.map(|told| &*told.lang)),
        version: text(told.map(|told| &*told.version)),
        account: connection
            .identity
            .as_ref()
            .map_or(String::new(), |identity| identities.account_name(identity.account).to_owned()),
        user: connection.identity.as_ref().and_then(|identity| identity.name.as_deref()).map(str::to_owned),
        subscriptions: connection.sids.len(),
    }
}

/// A subscription.
pub(crate) fn of_subscription(subjects: &Subjects, sub: SubId) -> SubscriptionSnapshot {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let subscription = subjects.subscription(sub);
    SubscriptionSnapshot {
        subject: text(&subjects.trie.pattern_of(subscription.node)),
        queue: subjects.queue_of(sub).map(text),
        sid: text(&subscription.sid),
        messages: subscription.delivered,
        max: subjects.ends_after(sub).unwrap_or(0),
    }
}
