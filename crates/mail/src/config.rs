//! Configuration of the mail service, with defaults and limits.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use engine::{share::ClientBudget, tls::CertificateSource};

use crate::abuse::{Lists, Rates};

/// Storage of mails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// Memory only: mails are lost when the process ends.
    Anonymous,
    /// A file at this path.
    File(PathBuf),
}

/// Durability of a mail when its 250 is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The mail survives any end of the process (kill -9 included): it has been written to the page cache.
    #[default]
    Process,
    /// The mail also survives a power loss: the file was synced, with one sync for all waiting mails.
    Power,
}

/// Number of memory kinds that the mail service charges to [`Config::client_budget`]: SMTP connections, mails
/// being received, web connections, and web requests.
pub const BUDGET_KINDS: usize = 4;

/// Limits on what peers may use. For each limit, a counter shows how often it is hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one mail, announced by SIZE; at most 256 MiB, and a quarter of the store. A larger mail gets
    /// 552.
    pub mail_bytes_max: u64,
    /// Recipients of one mail (RFC 5321, 4.5.3.1.8 requires at least 100). Further recipients get 452, and
    /// the sender submits the mail again for them.
    pub recipients_max: usize,
    /// Connections per core; further ones get 421 and are closed.
    pub connections_max: usize,
    /// Connections from one address (IPv6: one /64) across all cores; further ones get 421 and are closed. 0:
    /// no limit; `None`: a sixteenth of the connections of one core. Loopback is limited like any other
    /// address, because a proxy passes on the client's address.
    pub connections_per_address_max: Option<usize>,
    /// Memory for mails being received, across all cores; when it is used up, a mail gets 452. One address
    /// may use half of it.
    pub receiving_bytes_max: usize,
    /// Time from a reply to the end of the next command, even if its bytes come one at a time (RFC 5321,
    /// 4.5.3.2.7 asks for 5 minutes).
    pub command_time_max: Duration,
    /// Longest silence of a session within a mail (RFC 5321, 4.5.3.2.5: 3 minutes).
    pub data_time_max: Duration,
    /// Time for a whole mail, even if it comes in small pieces: enough for 25 MiB at 350 kbit/s.
    pub mail_time_max: Duration,
    /// Longest duration of a session; a mail being received may still complete.
    pub session_time_max: Duration,
    /// Maximum number of commands in a session.
    pub session_commands_max: usize,
    /// Maximum number of bytes in a session; a mail being received may still complete.
    pub session_bytes_max: usize,
    /// Time that a reply may wait for the peer to read it.
    pub reply_time_max: Duration,
    /// Time for a TLS handshake.
    pub handshake_time_max: Duration,
    /// Time that a mail waits for room in the store before it gets 452.
    pub room_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            mail_bytes_max: 25 << 20,
            recipients_max: 1000,
            connections_max: 20_000,
            connections_per_address_max: None,
            receiving_bytes_max: 96 << 20,
            command_time_max: Duration::from_secs(300),
            data_time_max: Duration::from_secs(180),
            mail_time_max: Duration::from_secs(600),
            session_time_max: Duration::from_secs(60 * 60),
            session_commands_max: 1_000_000,
            session_bytes_max: 4 << 30,
            reply_time_max: Duration::from_secs(60),
            handshake_time_max: Duration::from_secs(30),
            room_time_max: Duration::from_secs(2),
        }
    }
}

/// By default, one address may open 1/`ADDRESS_SHARE` of a core's connections, but at least `ADDRESS_MIN`.
const ADDRESS_SHARE: usize = 16;
const ADDRESS_MIN: usize = 16;

impl Limits {
    /// Returns the maximum number of connections from one address; 0 for no limit.
    #[must_use]
    pub fn address_connections_max(&self) -> usize {
        self.connections_per_address_max.unwrap_or((self.connections_max / ADDRESS_SHARE).max(ADDRESS_MIN))
    }
}

/// Retention of stored mails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Time from a mail's arrival to its expiry.
    pub age: Duration,
    /// Maximum number of mails in one inbox; another arrival drops the oldest of the inbox.
    pub per_inbox_max: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Duration::from_secs(24 * 60 * 60), per_inbox_max: 500 }
    }
}

/// Configuration of the mail service.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Listening address of SMTP.
    pub smtp: SocketAddr,
    /// Listening address of SMTP with implicit TLS (TLS from the first byte).
    pub smtps: Option<SocketAddr>,
    /// Listening address of LMTP (RFC 2033).
    pub lmtp: Option<SocketAddr>,
    /// Certificate for STARTTLS and `smtps`.
    pub tls: Option<CertificateSource>,
    /// Expects a PROXY protocol header, version 1 or 2, at the beginning of connections to `smtp` and `lmtp`.
    /// Any peer that can connect can then claim any address: listen where only the proxy can connect.
    pub proxy_protocol: bool,
    /// Memory budget for clients, shared by all servers of the process; `None`: each limit applies by itself.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Processors to run on, with one event loop each; empty: all processors that the process may use.
    pub cores: Vec<usize>,
    /// Storage of mails.
    pub store: Store,
    /// Size of the store; when it is full, the oldest mails are dropped. At least [`STORE_BYTES_MIN`].
    pub store_bytes: u64,
    /// Memory for the index of mails and inboxes, in bytes, for all cores together; when it is full, the
    /// oldest mails are dropped. 0 means 1/22 of the store, clamped to [`INDEX_BYTES_MIN`] and
    /// [`INDEX_BYTES_DEFAULT_MAX`].
    pub index_bytes_max: u64,
    /// Durability that a 250 promises.
    pub durability: Durability,
    /// Retention of stored mails.
    pub retention: Retention,
    /// Stores a body that many mails share only once per segment of the store; each mail keeps its own head.
    pub share_bodies: bool,
    /// Name of this server in greetings and Received fields.
    pub name: String,
    /// Domain assumed for addresses without one, in lower case.
    pub default_domain: String,
    /// Domains for which mail is accepted, in lower case; empty: all.
    pub domains: Vec<String>,
    /// Limits on what peers may use.
    pub limits: Limits,
    /// Rates beyond which a peer is delayed or refused.
    pub rates: Rates,
    /// Banned addresses, senders and words.
    pub lists: Lists,
}

/// Smallest memory of the index, in bytes.
pub const INDEX_BYTES_MIN: u64 = 16 << 20;
/// Largest default memory of the index: enough for two and a half million mails.
pub const INDEX_BYTES_DEFAULT_MAX: u64 = 256 << 20;
/// Divisor of the store's size that gives the index its default memory: enough for a store full of 2 KB
/// mails.
const INDEX_SHARE: u64 = 22;

/// Smallest store: a few segments of 16 MiB.
pub const STORE_BYTES_MIN: u64 = 128 << 20;

impl Config {
    /// Memory that the index may take, for all cores together.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        match self.index_bytes_max {
            0 => (self.store_bytes / INDEX_SHARE).clamp(INDEX_BYTES_MIN, INDEX_BYTES_DEFAULT_MAX),
            given => given.max(INDEX_BYTES_MIN),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            smtp: SocketAddr::from(([127, 0, 0, 1], 1025)),
            smtps: None,
            lmtp: None,
            tls: None,
            proxy_protocol: false,
            client_budget: None,
            cores: Vec::new(),
            store: Store::Anonymous,
            store_bytes: 1 << 30,
            index_bytes_max: 0,
            durability: Durability::Process,
            retention: Retention::default(),
            share_bodies: true,
            name: "nighttrain".to_owned(),
            default_domain: "localhost".to_owned(),
            domains: Vec::new(),
            limits: Limits::default(),
            rates: Rates::default(),
            lists: Lists::default(),
        }
    }
}
