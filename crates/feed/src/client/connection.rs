//! State of one client connection on its core: identity, output, and the conditions under which its reads are
//! paused.

use std::{io::IoSlice, net::SocketAddr, sync::Arc, task::Waker};

use engine::{
    accounts::{Charge, ClientKey},
    cores::clock,
};
use hashbrown::HashTable;
use serde::Deserialize;
use tokio::net::tcp::OwnedWriteHalf;
use wire::nats::rejection::Rejection;

use crate::{
    accounts::{
        identity::{AccountLimits, Identity, Permissions, Replies, certificate::Names},
        imports::UnderWay,
    },
    delivery::{
        backlog::{ConsumerBacklog, Due, HoldCredit},
        outbox::{Chunks, Outbox},
        suspended::SuspendedDelivery,
    },
    routing::{
        small_bytes::Word,
        trie::{HubId, NodeId, SubId},
    },
};

pub(crate) use crate::delivery::producer::{ConnId, FOREIGN, GONE};

/// Reason why a connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed the connection.
    ClientClosed,
    /// A read from the socket failed.
    ReadError,
    /// A write to the socket failed.
    WriteError,
    /// The client violated the protocol.
    ProtocolViolation,
    /// A message was longer than `max_payload`.
    MaximumPayload,
    /// A line was longer than `max_control_line`.
    MaximumControlLine,
    /// The credentials were wrong or missing.
    AuthorizationViolation,
    /// The client did not send CONNECT within `auth_timeout`.
    AuthenticationTimeout,
    /// The server had `max_connections` connections, or the account had reached its own limit.
    MaximumConnections,
    /// The client did not answer pings.
    StaleConnection,
    /// The client's backlog exceeded `max_pending`.
    SlowConsumerPending,
    /// The client was a slow consumer and held its producers back for longer than allowed.
    SlowConsumerHold,
    /// The client did not read its backlog within `write_deadline`.
    SlowConsumerDeadline,
    /// Clients held more memory than `max_pending_total`, and this client's unfinished message was dropped to
    /// make room.
    SlowProducer,
    /// The client began an operation and did not complete it in time.
    SlowOperation,
    /// The client's subscriptions took memory that other clients needed.
    SubscriptionMemory,
    /// The server is stopping.
    ServerShutdown,
}

impl CloseReason {
    /// Returns the reason as nats-server's `/connz` words it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::ClientClosed => "Client Closed",
            Self::ReadError => "Read Error",
            Self::WriteError => "Write Error",
            Self::ProtocolViolation => "Protocol Violation",
            Self::MaximumPayload => "Maximum Message Payload Exceeded",
            Self::MaximumControlLine => "Maximum Control Line Exceeded",
            Self::AuthorizationViolation => "Authentication Failure",
            Self::AuthenticationTimeout => "Authentication Timeout",
            Self::MaximumConnections => "Maximum Connections Exceeded",
            Self::StaleConnection => "Stale Connection",
            Self::SlowConsumerPending | Self::SlowConsumerHold => "Slow Consumer (Pending Bytes)",
            Self::SlowConsumerDeadline => "Slow Consumer (Write Deadline)",
            Self::SlowProducer => "Slow Producer (Pending Bytes)",
            Self::SubscriptionMemory => "Maximum Subscriptions Exceeded",
            Self::SlowOperation => "Slow Producer (Operation Deadline)",
            Self::ServerShutdown => "Server Shutdown",
        }
    }

    /// Returns the close reason of a connection that got this error.
    pub(crate) fn of_rejection(rejection: Rejection<'_>) -> Self {
        match rejection {
            Rejection::ControlLineTooLong => Self::MaximumControlLine,
            Rejection::PayloadTooLarge => Self::MaximumPayload,
            Rejection::AuthorizationViolation => Self::AuthorizationViolation,
            Rejection::AuthenticationTimeout => Self::AuthenticationTimeout,
            Rejection::ConnectionsExceeded | Rejection::AccountConnectionsExceeded => {
                Self::MaximumConnections
            }
            Rejection::StaleConnection => Self::StaleConnection,
            Rejection::ServerShutdown => Self::ServerShutdown,
            _ => Self::ProtocolViolation,
        }
    }

    /// Returns whether this is the close reason of a slow consumer.
    #[must_use]
    pub fn is_slow_consumer(self) -> bool {
        matches!(self, Self::SlowConsumerPending | Self::SlowConsumerHold | Self::SlowConsumerDeadline)
    }
}

/// CONNECT as clients send it. A field that is absent from the first CONNECT has nats-server's default; one
/// that is absent from a later CONNECT keeps its value.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectOptions {
    pub(crate) echo: Option<bool>,
    pub(crate) verbose: Option<bool>,
    pub(crate) pedantic: Option<bool>,
    pub(crate) headers: Option<bool>,
    pub(crate) no_responders: Option<bool>,
    pub(crate) protocol: Option<i64>,
    pub(crate) name: Option<String>,
    pub(crate) lang: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) pass: Option<String>,
    pub(crate) auth_token: Option<String>,
    pub(crate) nkey: Option<String>,
    pub(crate) sig: Option<String>,
    pub(crate) jwt: Option<String>,
}

/// Name, language and version that the client sent in CONNECT.
#[derive(Debug, Default)]
pub(crate) struct ClientInfo {
    pub(crate) name: Box<str>,
    pub(crate) lang: Box<str>,
    pub(crate) version: Box<str>,
}

/// Way in which bytes are written to the client.
#[derive(Debug)]
pub(crate) enum Writer {
    /// Any task of the core writes directly to the socket.
    Socket(OwnedWriteHalf),
    /// Only the connection's own task writes (TLS, WebSocket).
    Task,
}

/// Progress of the client's login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// CONNECT has not arrived, and credentials are required.
    CredentialsNeeded,
    /// CONNECT has not arrived, and no credentials are required.
    Fresh,
    /// The password is being checked.
    Checking,
    /// The client is admitted.
    Connected,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Connection number that clients and operators see; never reused.
    pub(crate) cid: u64,
    pub(crate) address: SocketAddr,
    /// The client whose account the connection is charged to.
    pub(crate) client: ClientKey,
    pub(crate) transport: Transport,
    pub(crate) writer: Writer,
    pub(crate) waker: Option<Waker>,
    pub(crate) outbox: Outbox,
    /// Memory, in bytes, of an operation that has not arrived completely.
    pub(crate) unfinished_bytes: usize,
    /// The connection is in the core's list of connections to flush at the end of the turn.
    pub(crate) is_dirty: bool,
    /// The socket's buffer is full; the task waits until the socket is writable.
    pub(crate) is_blocked: bool,
    pub(crate) closing: Option<CloseReason>,

    pub(crate) stage: Stage,
    pub(crate) verbose: bool,
    pub(crate) pedantic: bool,
    pub(crate) echo: bool,
    pub(crate) headers: bool,
    pub(crate) no_responders: bool,
    pub(crate) wants_second_info: bool,
    /// The client accepts INFO at any time.
    pub(crate) takes_info: bool,
    pub(crate) told: Option<Box<ClientInfo>>,
    pub(crate) identity: Option<Box<Identity>>,
    pub(crate) permissions: Option<Arc<Permissions>>,
    pub(crate) replies: Option<Box<Replies>>,
    pub(crate) nonce: Option<Box<str>>,
    /// Names in the client's certificate, if certificates identify users.
    pub(crate) certificate: Option<Box<Names>>,
    pub(crate) root: NodeId,
    pub(crate) account: u16,
    /// The connection is counted in its account's limit.
    pub(crate) is_in_account: bool,
    /// Largest message in bytes that the account allows.
    pub(crate) payload_max: usize,
    /// Largest number of subscriptions of this connection that the account allows.
    pub(crate) subscriptions_max: usize,
    /// The account exports or imports a service.
    pub(crate) deals: bool,
    /// Hub (the remote server of a leaf node) to which this connection leads; `None` for a client's
    /// connection.
    pub(crate) hub: Option<HubId>,

    /// Delivery of the client's last message, if it is not complete. Later operations wait for it.
    pub(crate) begun: Option<Box<SuspendedDelivery>>,
    /// Number of batches from other cores that had been queued when bytes were last read from this
    /// connection. Operations with an answer, such as PING, are answered once all of these batches are
    /// processed.
    pub(crate) behind: u64,
    /// Reads are paused until the batches from other cores that arrived earlier are processed.
    pub(crate) waits_for_inbox: bool,

    /// The client's subscriptions, hashed by sid.
    pub(crate) sids: HashTable<SubId>,
    /// Subscription that is not completely added or removed yet. Later operations wait for it.
    pub(crate) under_way: Option<Box<UnderWay>>,
    /// Memory charged for the subscriptions.
    pub(crate) subscription_memory: Option<Charge>,

    pub(crate) messages_in: u64,
    pub(crate) payload_in_bytes: u64,
    pub(crate) messages_out: u64,
    pub(crate) payload_out_bytes: u64,

    pub(crate) started_unix_ms: u64,
    pub(crate) started_ms: u64,
    /// Time at which bytes last arrived.
    pub(crate) last_in_ms: u64,
    /// Time at which the socket last accepted bytes of the backlog, or at which the backlog began.
    pub(crate) last_out_ms: u64,
    /// Bytes received on the connection.
    pub(crate) received: u64,
    /// Time at which the incomplete operation began, and the bytes received on the connection by then.
    pub(crate) operation_since: (u64, u64),
    /// Bytes that the client must read within the current write deadline.
    pub(crate) due: Due,
    pub(crate) ping_sent_ms: u64,
    pub(crate) pings_out: u32,
    pub(crate) rtt_ms: Option<u32>,

    /// Number of consumers that keep this client's reads paused.
    pub(crate) holds: u32,
    /// Reads are paused until the client has read more of the answers to its operations.
    pub(crate) is_held_for_answers: bool,
    /// Reads are paused until another core has processed the messages that are on their way to it.
    pub(crate) waits_for_core: bool,
    /// State of a large backlog: the producers that filled it, and those that are held back. `None` while the
    /// backlog is small.
    pub(crate) backlog: Option<Box<ConsumerBacklog>>,
    /// Credit for holding back producers, left over from the last backlog; `None` if there was no backlog.
    pub(crate) hold_credit: Option<HoldCredit>,
}

/// Transport of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transport {
    /// The client is connected over WebSocket.
    pub websocket: bool,
    /// TLS version and cipher suite, as nats-server names them.
    pub tls: Option<(&'static str, &'static str)>,
}

impl Connection {
    /// Builds a new connection; it is in the global account until its identity is known.
    pub(crate) fn new(cid: u64, address: SocketAddr, writer: Writer, root: NodeId, now_ms: u64) -> Self {
        Self {
            cid,
            address,
            client: ClientKey::of_connection(address.ip(), cid, &[]),
            transport: Transport::default(),
            writer,
            waker: None,
            outbox: Outbox::default(),
            is_dirty: false,
            is_blocked: false,
            closing: None,
            stage: Stage::Fresh,
            // nats-server's defaults before CONNECT.
            verbose: true,
            pedantic: true,
            echo: true,
            headers: false,
            no_responders: false,
            wants_second_info: false,
            takes_info: false,
            told: None,
            identity: None,
            permissions: None,
            replies: None,
            nonce: None,
            certificate: None,
            root,
            account: 0,
            is_in_account: false,
            payload_max: usize::MAX,
            subscriptions_max: usize::MAX,
            deals: false,
            hub: None,
            begun: None,
            behind: 0,
            waits_for_inbox: false,
            sids: HashTable::new(),
            under_way: None,
            subscription_memory: None,
            messages_in: 0,
            payload_in_bytes: 0,
            messages_out: 0,
            payload_out_bytes: 0,
            started_unix_ms: clock::unix_ms(),
            started_ms: now_ms,
            last_in_ms: now_ms,
            last_out_ms: now_ms,
            received: 0,
            operation_since: (now_ms, 0),
            due: Due::default(),
            ping_sent_ms: 0,
            pings_out: 0,
            rtt_ms: None,
            holds: 0,
            is_held_for_answers: false,
            waits_for_core: false,
            unfinished_bytes: 0,
            backlog: None,
            hold_credit: None,
        }
    }

    /// Returns whether reads from the connection are paused.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.holds > 0 || self.waits_for_core || self.is_held_for_answers || self.waits_for_inbox
    }

    /// Applies the limits of the account.
    pub(crate) fn take_limits(&mut self, limits: AccountLimits) {
        self.payload_max = limits.max_payload.unwrap_or(usize::MAX);
        self.subscriptions_max = limits.max_subscriptions.unwrap_or(usize::MAX);
    }

    /// Returns whether a message to this subject may be allowed only as an answer to an open request
    /// (`allow_responses`). Each such message must be counted.
    #[inline]
    pub(crate) fn answers(&self, subject: &[u8], may_be_mapped: bool) -> bool {
        self.replies.is_some()
            && (may_be_mapped
                || self.permissions.as_ref().is_some_and(|permissions| !permissions.may_publish(subject)))
    }

    /// Returns whether the connection waits for the server, not for the client: reads are paused, or an
    /// operation is not complete.
    pub(crate) fn waits_for_us(&self) -> bool {
        self.is_held() || self.begun.is_some() || self.under_way.is_some()
    }

    /// Wakes the connection's task.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Writes as much of the backlog as the socket accepts; the connection's task writes the rest later.
    /// Returns the number of writes.
    pub(crate) fn flush(&mut self, chunks: &mut Chunks) -> u64 {
        if let Writer::Task = self.writer {
            if !self.outbox.is_empty() {
                self.wake();
            }
            return 0;
        }
        let was_blocked = self.is_blocked;
        let writes = self.flush_socket(chunks);
        if self.is_blocked && !was_blocked {
            self.last_out_ms = clock::monotonic_ms();
        }
        if (self.is_blocked && !was_blocked) || self.closing.is_some() {
            self.wake();
        }
        writes
    }

    /// Writes the backlog, then a control line and the long remainder of a message, without copying the
    /// message. Bytes that the socket does not accept are copied to the backlog. Returns the number of
    /// writes.
    pub(crate) fn lend(&mut self, chunks: &mut Chunks, line: &[u8], rest: &[u8]) -> u64 {
        let mut writes = self.flush(chunks);
        let mut taken = 0;
        if let Writer::Socket(socket) = &self.writer
            && self.outbox.is_empty()
            && !self.is_blocked
            && self.closing.is_none()
        {
            writes += 1;
            match socket.try_write_vectored(&[IoSlice::new(line), IoSlice::new(rest)]) {
                Ok(bytes) => {
                    taken = bytes;
                    self.outbox.passed_by(bytes);
                    self.is_blocked = bytes < line.len() + rest.len();
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.is_blocked = true,
                Err(_) => {
                    self.closing.get_or_insert(CloseReason::WriteError);
                }
            }
            if self.is_blocked {
                self.last_out_ms = clock::monotonic_ms();
            }
            if self.is_blocked || self.closing.is_some() {
                // The connection's task waits until the socket is writable, or closes the connection.
                self.wake();
            }
        }
        if self.closing.is_none() {
            self.outbox.append(chunks, &line[taken.min(line.len())..]);
            self.outbox.append(chunks, &rest[taken.saturating_sub(line.len())..]);
        }
        writes
    }

    /// Writes the backlog to the socket, as [`Connection::flush`] does, but without waking the connection's
    /// own task.
    pub(crate) fn flush_socket(&mut self, chunks: &mut Chunks) -> u64 {
        let Writer::Socket(socket) = &self.writer else { return 0 };
        let mut writes = 0;
        while !self.is_blocked && !self.outbox.is_empty() {
            let front = self.outbox.front();
            let front_bytes = front.len();
            writes += 1;
            match socket.try_write(front) {
                Ok(bytes) => {
                    self.outbox.written(chunks, bytes);
                    self.is_blocked = bytes < front_bytes;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.is_blocked = true,
                Err(_) => {
                    self.closing.get_or_insert(CloseReason::WriteError);
                    self.outbox.clear(chunks);
                }
            }
        }
        writes
    }
}

/// A client's subscription.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) conn: ConnId,
    pub(crate) node: NodeId,
    pub(crate) sid: Word,
    pub(crate) delivered: u64,
    /// Index of this subscription in the list of its trie node or of its queue group.
    pub(crate) place: u32,
    /// The subscription is a member of one of its node's queue groups.
    pub(crate) is_member: bool,
    /// The permissions allow only some of the subjects that the pattern matches.
    pub(crate) is_filtered: bool,
    /// The subscription ends after a number of messages (UNSUB with a maximum). A table of the core holds
    /// that number.
    pub(crate) ends: bool,
}

impl Subscription {
    /// Builds a subscription that is not in the trie yet.
    pub(crate) fn new(conn: ConnId, sid: Word, is_member: bool) -> Self {
        Self { conn, node: 0, sid, delivered: 0, place: 0, is_member, is_filtered: false, ends: false }
    }
}

const _: () = assert!(size_of::<Option<Subscription>>() == 40, "a subscription is 40 bytes");

/// A connection's table of sids, and the slab with the subscriptions that the table refers to.
pub(crate) type Sids<'a> = (&'a HashTable<SubId>, &'a crate::routing::slab::Slab<Subscription>);

/// Returns the hash of a sid in its connection's table. It is seeded; otherwise a client could choose sids
/// that collide, and each of its operations would search through all of them.
pub(crate) fn sid_hash(seed: u64, sid: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(sid, seed)
}

/// Finds a client's subscription by its sid.
pub(crate) fn find_sid(seed: u64, (table, subscriptions): Sids<'_>, sid: &[u8]) -> Option<SubId> {
    table.find(sid_hash(seed, sid), |&id| subscriptions[id].sid[..] == *sid).copied()
}
