//! One client, as its core knows it: who it is, what waits for it, what it waits for.

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
        backpressure::{ConsumerBacklog, Due, HoldCredit},
        outbox::{Chunks, Outbox},
        publish::SuspendedDelivery,
    },
    routing::{
        small_bytes::Word,
        trie::{HubId, NodeId, SubId},
    },
};

/// A connection's number on its core.
pub(crate) type ConnId = u32;

/// Why a connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The client left.
    ClientClosed,
    /// The client's side failed while we read.
    ReadError,
    /// The client's side failed while we wrote.
    WriteError,
    /// The client broke the protocol.
    ProtocolViolation,
    /// A message above `max_payload`.
    MaximumPayload,
    /// A line above `max_control_line`.
    MaximumControlLine,
    /// Wrong or missing credentials.
    AuthorizationViolation,
    /// No CONNECT in time.
    AuthenticationTimeout,
    /// More connections than there may be.
    MaximumConnections,
    /// Pings were not answered.
    StaleConnection,
    /// More than `max_pending` waited for it.
    SlowConsumerPending,
    /// It held its producers back for longer than it may.
    SlowConsumerHold,
    /// It did not take within `write_deadline` what waited for it.
    SlowConsumerDeadline,
    /// Of its message so much had come, and not the end, that all clients' together were too much.
    SlowProducer,
    /// It did not go on with an operation that it had begun.
    SlowOperation,
    /// Its subscriptions took more memory than others' left for it.
    SubscriptionMemory,
    /// The server is stopping.
    ServerShutdown,
}

impl CloseReason {
    /// The reason in the words of nats-server's `/connz`.
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

    /// How a connection ends that was told this.
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

    /// Whether it is one of the ways to be too slow.
    #[must_use]
    pub fn is_slow_consumer(self) -> bool {
        matches!(self, Self::SlowConsumerPending | Self::SlowConsumerHold | Self::SlowConsumerDeadline)
    }
}

/// CONNECT as clients send it. What is absent has nats-server's default; in another CONNECT, what it had.
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

/// What the client said about itself.
#[derive(Debug, Default)]
pub(crate) struct ClientInfo {
    pub(crate) name: Box<str>,
    pub(crate) lang: Box<str>,
    pub(crate) version: Box<str>,
}

/// How the bytes get to the client.
#[derive(Debug)]
pub(crate) enum Writer {
    /// Straight into the socket, by whoever has something for the client.
    Socket(OwnedWriteHalf),
    /// By the connection's own task (TLS, WebSocket).
    Task,
}

/// How far CONNECT has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No CONNECT yet, and one is needed.
    CredentialsNeeded,
    /// No CONNECT yet; all may be done without.
    Fresh,
    /// The password is being checked.
    Checking,
    /// Let in.
    Connected,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The number that clients and operators know it by; never used again.
    pub(crate) cid: u64,
    pub(crate) address: SocketAddr,
    /// The client whose account the connection is charged to.
    pub(crate) client: ClientKey,
    pub(crate) transport: Transport,
    pub(crate) writer: Writer,
    pub(crate) waker: Option<Waker>,
    pub(crate) outbox: Outbox,
    /// Memory of an operation that has not come whole.
    pub(crate) unfinished_bytes: usize,
    /// It is in the core's list of those to be flushed at the end of the turn.
    pub(crate) is_dirty: bool,
    /// The socket is full: its task waits until it takes more.
    pub(crate) is_blocked: bool,
    pub(crate) closing: Option<CloseReason>,

    pub(crate) stage: Stage,
    pub(crate) verbose: bool,
    pub(crate) pedantic: bool,
    pub(crate) echo: bool,
    pub(crate) headers: bool,
    pub(crate) no_responders: bool,
    pub(crate) wants_second_info: bool,
    /// The client understands INFO at any time.
    pub(crate) takes_info: bool,
    pub(crate) told: Option<Box<ClientInfo>>,
    pub(crate) identity: Option<Box<Identity>>,
    pub(crate) permissions: Option<Arc<Permissions>>,
    pub(crate) replies: Option<Box<Replies>>,
    pub(crate) nonce: Option<Box<str>>,
    /// What its certificate calls it, where that says who it is.
    pub(crate) certificate: Option<Box<Names>>,
    pub(crate) root: NodeId,
    pub(crate) account: u16,
    /// It counts as one of the account's connections.
    pub(crate) is_in_account: bool,
    /// Bytes of a message, by its account.
    pub(crate) payload_max: usize,
    /// Subscriptions, by its account.
    pub(crate) subscriptions_max: usize,
    /// The account has or takes a service of another.
    pub(crate) deals: bool,
    /// It is no client: we have joined this hub by it.
    pub(crate) hub: Option<HubId>,

    /// The message of it that has not reached everybody yet; nothing that it said later is looked at before.
    pub(crate) begun: Option<Box<SuspendedDelivery>>,
    /// Of what other cores had sent when it was last read from, this is the last: what it asks waits for that.
    pub(crate) behind: u64,
    /// Its reads are paused for that.
    pub(crate) waits_for_inbox: bool,

    /// Subscriptions by sid.
    pub(crate) sids: HashTable<SubId>,
    /// A subscription that is not followed or ended everywhere yet; nothing that the client said later is looked at before.
    pub(crate) under_way: Option<Box<UnderWay>>,
    /// Memory of the subscriptions.
    pub(crate) subscription_memory: Option<Charge>,

    pub(crate) messages_in: u64,
    pub(crate) payload_in_bytes: u64,
    pub(crate) messages_out: u64,
    pub(crate) payload_out_bytes: u64,

    pub(crate) started_unix_ms: u64,
    pub(crate) started_ms: u64,
    /// When bytes last came of it.
    pub(crate) last_in_ms: u64,
    /// When it last took something of what waited for it, or something began to wait.
    pub(crate) last_out_ms: u64,
    /// Bytes that have come of it.
    pub(crate) received: u64,
    /// When the operation began that has not come whole, and what had come of it by then.
    pub(crate) operation_since: (u64, u64),
    /// What the client must take, and since when.
    pub(crate) due: Due,
    pub(crate) ping_sent_ms: u64,
    pub(crate) pings_out: u32,
    pub(crate) rtt_ms: Option<u32>,

    /// Consumers that hold this client's reads back.
    pub(crate) holds: u32,
    /// Its reads are paused until it has taken more of the answers to what it said.
    pub(crate) is_held_for_answers: bool,
    /// Its reads are paused until another core has taken what is under way to it.
    pub(crate) waits_for_core: bool,
    /// Who filled its output, and who is held for it, while much waits.
    pub(crate) backlog: Option<Box<ConsumerBacklog>>,
    /// The credit for holds that its last backlog left. `None`: it had no backlog.
    pub(crate) hold_credit: Option<HoldCredit>,
}

/// What the connection runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transport {
    /// A browser's.
    pub websocket: bool,
    /// The TLS version and cipher suite, as nats-server names them.
    pub tls: Option<(&'static str, &'static str)>,
}

impl Connection {
    /// One that has just come, into the global account until it is known who it is.
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
            // What nats-server takes for granted of who has not said.
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

    /// Whether nothing is to be read from it now.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.holds > 0 || self.waits_for_core || self.is_held_for_answers || self.waits_for_inbox
    }

    /// Takes over what its account's clients may have.
    pub(crate) fn take_limits(&mut self, limits: AccountLimits) {
        self.payload_max = limits.max_payload.unwrap_or(usize::MAX);
        self.subscriptions_max = limits.max_subscriptions.unwrap_or(usize::MAX);
    }

    /// Whether an open request alone may let messages to this subject through (`allow_responses`), so that each is counted.
    #[inline]
    pub(crate) fn answers(&self, subject: &[u8], may_be_mapped: bool) -> bool {
        self.replies.is_some()
            && (may_be_mapped
                || self.permissions.as_ref().is_some_and(|permissions| !permissions.may_publish(subject)))
    }

    /// Whether it is not the client's turn to move: it is not read from, or what it said is not done.
    pub(crate) fn waits_for_us(&self) -> bool {
        self.is_held() || self.begun.is_some() || self.under_way.is_some()
    }

    /// The task looks again.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Writes what waits, as far as the socket takes it, and lets the task wait for the rest. How many writes it took.
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

    /// Writes a control line and a long rest of a message from where they lie, behind what waits already; what the
    /// socket does not take is copied and waits. How many writes it took.
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
                // Its task waits for the socket, or ends it.
                self.wake();
            }
        }
        if self.closing.is_none() {
            self.outbox.append(chunks, &line[taken.min(line.len())..]);
            self.outbox.append(chunks, &rest[taken.saturating_sub(line.len())..]);
        }
        writes
    }

    /// The same on the connection's own task.
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

/// The connection of a subscription that has ended, while a message that is under way may still name it.
pub(crate) const GONE: ConnId = ConnId::MAX - 1;
/// The connection of a subscription that is not a client's own wish: what it stands for, `abroad` knows.
pub(crate) const FOREIGN: ConnId = ConnId::MAX - 2;

/// A client's wish for messages.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) conn: ConnId,
    pub(crate) node: NodeId,
    pub(crate) sid: Word,
    pub(crate) delivered: u64,
    /// Where it stands in the list of its node or of its group.
    pub(crate) place: u32,
    /// It is in one of its node's groups.
    pub(crate) is_member: bool,
    /// The permissions allow only some of what the pattern matches.
    pub(crate) is_filtered: bool,
    /// It ends after a number of messages, which few do: the core knows the number.
    pub(crate) ends: bool,
}

impl Subscription {
    /// One that is at no node yet.
    pub(crate) fn new(conn: ConnId, sid: Word, is_member: bool) -> Self {
        Self { conn, node: 0, sid, delivered: 0, place: 0, is_member, is_filtered: false, ends: false }
    }
}

const _: () = assert!(size_of::<Option<Subscription>>() == 40, "a subscription is 40 bytes");

/// The number of the subscription that a client calls `sid`.
pub(crate) type Sids<'a> = (&'a HashTable<SubId>, &'a crate::routing::slab::Slab<Subscription>);

/// A sid's place in the table of its connection. Seeded: a client that could make its own sids collide would have each
/// of its operations look through all of them.
pub(crate) fn sid_hash(seed: u64, sid: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(sid, seed)
}

/// Finds a client's subscription by its sid.
pub(crate) fn find_sid(seed: u64, (table, subscriptions): Sids<'_>, sid: &[u8]) -> Option<SubId> {
    table.find(sid_hash(seed, sid), |&id| subscriptions[id].sid[..] == *sid).copied()
}
