//! What can be set, with its default and its bound.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use engine::{share::ClientBudget, tls::CertificateSource};

use crate::abuse::{Lists, Rates};

/// Where mails are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// In memory alone: gone with the process.
    Anonymous,
    /// In this file.
    File(PathBuf),
}

/// What a mail has survived when its 250 is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Whatever ends the process (kill -9 included): it has been handed to the system.
    #[default]
    Process,
    /// A loss of power too: the file was synced, once for all mails that wait.
    Power,
}

/// Kinds of memory that mail takes of [`Config::client_budget`]: connections of SMTP, mails that are being received,
/// connections to the pages, what requests there hold.
pub const BUDGET_KINDS: usize = 4;

/// Bounds on what one peer may take. Each has a counter for when it is hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one mail, as SIZE says; at most 256 MiB, and a quarter of the store. More is answered 552.
    pub mail_bytes_max: u64,
    /// Recipients of one mail (RFC 5321, 4.5.3.1.8 asks for 100 at least). More are answered 452, of which clients try
    /// the rest in another mail.
    pub recipients_max: usize,
    /// Connections per core; more are answered 421 and closed.
    pub connections_max: usize,
    /// Connections of one address (of IPv6: one /64) over all cores; more are answered 421 and closed. 0: no limit;
    /// none: a sixteenth of what one core takes. Loopback counts as any other: a proxy says whom it speaks for.
    pub connections_per_address_max: Option<usize>,
    /// Memory of mails that are being received, over all cores; beyond, a mail is answered 452. One address has half.
    pub receiving_bytes_max: usize,
    /// Time from a reply to the end of the next command, however many bytes of it come one at a time (RFC 5321,
    /// 4.5.3.2.7 asks for 5 minutes).
    pub command_time_max: Duration,
    /// Time that a session may be silent within a mail (RFC 5321, 4.5.3.2.5: 3 minutes).
    pub data_time_max: Duration,
    /// Time for a whole mail, however little of it comes at a time: one of 25 MiB at 350 kbit/s.
    pub mail_time_max: Duration,
    /// Time that a session may last in all; no mail is cut for it.
    pub session_time_max: Duration,
    /// Commands of a session in all.
    pub session_commands_max: usize,
    /// Bytes that a session may bring in all; no mail is cut for it.
    pub session_bytes_max: usize,
    /// Time that a reply may wait for its reader.
    pub reply_time_max: Duration,
    /// Time for a TLS handshake.
    pub handshake_time_max: Duration,
    /// Time that a mail waits for room in the store before it is answered 452.
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

/// The part of a core's connections that one address may have, and the fewest that are a part.
const ADDRESS_SHARE: usize = 16;
const ADDRESS_MIN: usize = 16;

impl Limits {
    /// Connections of one address, 0 for no limit.
    #[must_use]
    pub fn address_connections_max(&self) -> usize {
        self.connections_per_address_max.unwrap_or((self.connections_max / ADDRESS_SHARE).max(ADDRESS_MIN))
    }
}

/// What is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// A mail is forgotten so long after its arrival.
    pub age: Duration,
    /// Mails in one inbox; one more drops the oldest there.
    pub per_inbox_max: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Duration::from_secs(24 * 60 * 60), per_inbox_max: 500 }
    }
}

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where SMTP is spoken.
    pub smtp: SocketAddr,
    /// Where SMTP is spoken under TLS from the first byte.
    pub smtps: Option<SocketAddr>,
    /// Where LMTP is spoken (RFC 2033).
    pub lmtp: Option<SocketAddr>,
    /// For STARTTLS, and for `smtps`.
    pub tls: Option<CertificateSource>,
    /// Connections to `smtp` and `lmtp` begin with a PROXY protocol header, version 1 or 2. Whoever can connect can
    /// then claim any address: listen where only the proxy reaches.
    pub proxy_protocol: bool,
    /// The memory budget for clients of all servers of the process; `None`: each limit stands by itself.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Processors, one loop each; empty: all that the process may use.
    pub cores: Vec<usize>,
    /// Where mails are kept.
    pub store: Store,
    /// Bytes of the store: beyond, the oldest mails go. At least [`STORE_BYTES_MIN`].
    pub store_bytes: u64,
    /// Memory for the index of mails and inboxes, of all cores together, in bytes; beyond it the oldest mails go. 0 is
    /// a twenty-second part of the store, within [`INDEX_BYTES_MIN`] and [`INDEX_BYTES_DEFAULT_MAX`].
    pub index_bytes_max: u64,
    /// What 250 promises.
    pub durability: Durability,
    /// For how long.
    pub retention: Retention,
    /// A body that many mails have in common is stored once (once a segment of the store); heads always are in each.
    pub share_bodies: bool,
    /// This server's name in greetings and Received.
    pub name: String,
    /// The domain of names without one, in lower case.
    pub default_domain: String,
    /// Domains whose mail is taken, in lower case; empty: all.
    pub domains: Vec<String>,
    /// Bounds.
    pub limits: Limits,
    /// Rates beyond which a peer is slowed or refused.
    pub rates: Rates,
    /// Who and what is banned.
    pub lists: Lists,
}

/// The smallest memory of an index, in bytes.
pub const INDEX_BYTES_MIN: u64 = 16 << 20;
/// The largest default memory of an index: enough for two and a half million mails.
pub const INDEX_BYTES_DEFAULT_MAX: u64 = 256 << 20;
/// The default memory of an index is the store's size divided by this: of mails of two kilobytes all that there is room for.
const INDEX_SHARE: u64 = 22;

/// The smallest store: a few segments of 16 MiB.
pub const STORE_BYTES_MIN: u64 = 128 << 20;

impl Config {
    /// Bytes of memory that the index may take, of all cores together.
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
