//! Links between cores: announcements of subscriptions, and messages for their subscribers.
//!
//! ```text
//!   core A                                   ring                         core B
//!   SUB, first of its pattern ─▶ [interest] ┐
//!   PUB, B has subscribers ────▶ [run]      ├─ one batch per turn ─▶ applied and delivered in this order
//!   a consumer fell behind ────▶ [hold]     ┘                          │
//!                              ◀──────────── the empty buffer ─────────┘
//! ```
//!
//! *Order.* A core applies another core's records in the order in which they were sent: a producer's messages
//! stay in order, and a subscription is known before the messages of its client. A core reads its inbox after
//! each read of a socket and before it parses; batches leave before any answer to a client. So once a client
//! has its PONG, every message published because of it finds the client's subscription, on any core.
//!
//! *Bounds.* A batch counts as under way until its buffer is returned. Above [`UNDER_WAY_BYTES_MAX`], reads
//! from the clients that write to the link are paused; above twice as much, reads from all clients that
//! publish. Batches are never dropped. All links together hold at most [`LINKS_BYTES_MAX`] bytes. An
//! announcement counts as more than its bytes, by the number of tokens in its pattern ([`TOKEN_WEIGHT`]),
//! because the other core has to walk them all. Announcements may take only a part of a link
//! ([`WORDS_SHARE`]), so that there is always room for messages, and messages wait for only a few
//! announcements. At most [`BATCHES_UNDER_WAY_MAX`] batches are in a ring, which has room for these and for
//! the returned buffers.

mod records;

use std::net::SocketAddr;

use engine::cores::mesh;

use crate::{
    client::{connection::ConnId, door::Door},
    delivery::{producer::Producer, run::Run},
    leaf::Tellers,
    mesh::settings::Settings,
    monitor::look::Look,
    routing::trie::{HubId, HubMask, tokens_of},
};

pub(crate) use records::{Destination, GroupOfCore, Record, Records, RelayedRun, To};
use records::{
    HOLD, HUB_INTEREST, HUB_LOOP, HUB_MEMBERS, HUB_RUN, HUBS_UP, IMPORTED_RUN, INTEREST, MEMBERS, NO_HEADER,
    RELEASE, RUN, number, put_bytes, put_number, put_producer,
};

/// Capacity of a ring in messages: batches in one direction, empty buffers in the other, and occasional
/// messages of the server.
pub(crate) const RING_MESSAGES: usize = 1024;
/// Maximum number of batches under way from one core to another.
const BATCHES_UNDER_WAY_MAX: usize = 256;
/// Bytes under way from one core to another above which producers are paused. The bound is at most 1/16 of
/// `max_pending`, so that the bytes under way when a consumer passes its high watermark fit below its bound.
const UNDER_WAY_BYTES_MAX: usize = 4 << 20;
const UNDER_WAY_SHARE_OF_PENDING: usize = 16;
/// Bytes under way between all cores above which all producers are paused. Each pair of cores has at least
/// [`UNDER_WAY_BYTES_MIN`].
const LINKS_BYTES_MAX: usize = 64 << 20;
const UNDER_WAY_BYTES_MIN: usize = 256 << 10;
/// Bytes that a token of an announced pattern counts as; so at most 65,536 tokens are under way to a core,
/// which processes them in a few milliseconds.
const TOKEN_WEIGHT: usize = 64;
/// Divisor of a link's bound. Announced patterns may weigh at most this fraction; above it, clients that
/// subscribe are paused.
const WORDS_SHARE: usize = 4;
/// Largest number of spare batch buffers kept for each destination core.
const SPARE_MAX: usize = 8;
/// Capacity above which a batch buffer is not kept.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// A message from one core to another, or from outside to a core.
pub(crate) enum Message {
    /// A batch of records; see [`Record`].
    Batch { from: usize, records: Vec<u8>, weight: usize },
    /// The buffer of a processed batch, returned to its sender.
    Spent { from: usize, buffer: EmptyBuffer },
    /// A connection that the receiving core is to serve.
    Accept(std::net::TcpStream, SocketAddr, Door),
    /// A request for a part of the monitoring data.
    Look(Look),
    /// Messages that the program itself publishes.
    Publish(crate::delivery::batch::Batch),
    /// New settings.
    Reload(std::sync::Arc<Settings>),
}

/// Buffer of a batch whose records have been processed.
pub(crate) struct EmptyBuffer {
    buffer: Vec<u8>,
    /// Bytes that the batch counted as while it was under way, its weight included.
    bytes: usize,
    /// Part of `bytes` that results from the weight of patterns.
    weight: usize,
}

/// Links from one core to all others.
pub(crate) struct Links {
    index: usize,
    sender: mesh::Sender<Message>,
    links: Vec<Link>,
    /// At least one link has records to send.
    is_waiting: bool,
    /// Connections whose reads are paused until all links have room.
    paused: Vec<ConnId>,
    /// Connections whose reads are paused until fewer announcements are under way.
    paused_subscribers: Vec<ConnId>,
    under_way_bytes_max: usize,
    /// At least one link holds more than twice its bound.
    is_overfull: bool,
    /// Announcements to hubs.
    pub(crate) tellers: Tellers,
}

#[derive(Default)]
struct Link {
    records: Vec<u8>,
    /// Extra weight of the unsent records, counted in addition to their bytes.
    weight: usize,
    batches_under_way: usize,
    bytes_under_way: usize,
    /// Part of `bytes_under_way` that results from the weight of patterns.
    weight_under_way: usize,
    spare: Vec<Vec<u8>>,
    /// Buffers to be returned to the sender.
    returning: Vec<EmptyBuffer>,
}

impl Link {
    fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes_under_way + self.records.len() + self.weight > bytes_max
    }
}

/// Returns the bound on the bytes under way from one core to another. Up to twice as much may be under way,
/// because each producer may add one more read.
fn under_way_bytes_max(cores: usize) -> usize {
    (LINKS_BYTES_MAX / pairs(cores) / 2).clamp(UNDER_WAY_BYTES_MIN, UNDER_WAY_BYTES_MAX)
}

fn pairs(cores: usize) -> usize {
    cores * cores.saturating_sub(1).max(1)
}

/// Returns the bound on the bytes under way between this many cores in total.
#[must_use]
pub fn links_bytes_max(cores: usize) -> usize {
    if cores < 2 { 0 } else { 2 * pairs(cores) * under_way_bytes_max(cores) }
}

impl Links {
    pub(crate) fn new(index: usize, cores: usize, sender: mesh::Sender<Message>, max_pending: usize) -> Self {
        let links = (0..cores).map(|_| Link::default()).collect();
        let at_most = under_way_bytes_max(cores);
        Self {
            index,
            sender,
            links,
            is_waiting: false,
            paused: Vec::new(),
            paused_subscribers: Vec::new(),
            under_way_bytes_max: at_most.min(max_pending / UNDER_WAY_SHARE_OF_PENDING),
            is_overfull: false,
            tellers: Tellers::default(),
        }
    }

    /// Returns whether there are other cores.
    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        self.links.len() > 1
    }

    /// Returns the bytes under way to a core.
    #[cfg(test)]
    pub(crate) fn bytes_to(&self, to: usize) -> usize {
        let link = &self.links[to];
        link.bytes_under_way + link.records.len() + link.weight
    }

    /// Sends a message of the server to a core. Returns the message if that core's ring is full.
    pub(crate) fn give(&self, to: usize, message: Message) -> Result<(), Message> {
        let given = self.sender.send(to, message);
        self.sender.flush();
        given
    }

    pub(crate) fn interest(&mut self, account: u16, pattern: &[u8], has: bool) {
        self.tell_all(weight_of(pattern), |out| {
            out.push(INTEREST);
            out.push(u8::from(has));
            out.extend_from_slice(&account.to_le_bytes());
            put_bytes(out, pattern);
        });
    }

    pub(crate) fn members(&mut self, account: u16, pattern: &[u8], queue: &[u8], count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.tell_all(weight_of(pattern), |out| {
            out.push(MEMBERS);
            out.extend_from_slice(&account.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
            put_bytes(out, pattern);
            put_bytes(out, queue);
        });
    }

    pub(crate) fn hub_interest(&mut self, hub: HubId, account: u16, pattern: &[u8], has: bool) {
        self.tell_all(weight_of(pattern), |out| {
            out.extend_from_slice(&[HUB_INTEREST, hub, u8::from(has)]);
            out.extend_from_slice(&account.to_le_bytes());
            put_bytes(out, pattern);
        });
    }

    pub(crate) fn hub_members(&mut self, hub: HubId, account: u16, pattern: &[u8], queue: &[u8], count: u32) {
        self.tell_all(weight_of(pattern), |out| {
            out.extend_from_slice(&[HUB_MEMBERS, hub]);
            out.extend_from_slice(&account.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
            put_bytes(out, pattern);
            put_bytes(out, queue);
        });
    }

    pub(crate) fn hubs_up(&mut self, mask: HubMask, up: HubMask) {
        self.tell_all(0, |out| {
            out.push(HUBS_UP);
            out.extend_from_slice(&mask.to_le_bytes());
            out.extend_from_slice(&up.to_le_bytes());
        });
    }

    pub(crate) fn hub_loop(&mut self, hub: HubId, connection: u64) {
        self.tell_all(0, |out| {
            out.extend_from_slice(&[HUB_LOOP, hub]);
            out.extend_from_slice(&connection.to_le_bytes());
        });
    }

    /// Appends a record for every other core.
    fn tell_all(&mut self, weight: usize, write: impl Fn(&mut Vec<u8>)) {
        for (to, link) in self.links.iter_mut().enumerate() {
            if to != self.index {
                write(&mut link.records);
                link.weight += weight;
                self.is_waiting = true;
            }
        }
    }

    /// Appends messages to the batch for a core. Returns false if the producer must be paused.
    pub(crate) fn run(&mut self, to: Destination<'_>, producer: Producer, run: &Run<'_>) -> bool {
        let Destination { core, account, is_imported, to } = to;
        self.is_waiting = true;
        let link = &mut self.links[core];
        let out = &mut link.records;
        let (kind, of, pattern, queue): (_, _, &[u8], &[u8]) = match to {
            To::All => (if is_imported { IMPORTED_RUN } else { RUN }, account, b"", b""),
            To::Group(GroupOfCore { pattern, queue, .. }) => {
                (if is_imported { IMPORTED_RUN } else { RUN }, account, pattern, queue)
            }
            To::Hub { hub, queues } => (HUB_RUN, hub.into(), b"", queues),
        };
        out.push(kind);
        out.extend_from_slice(&of.to_le_bytes());
        put_producer(out, producer);
        put_bytes(out, pattern);
        put_bytes(out, queue);
        if let To::Group(group) = to {
            out.push(u8::from(group.is_from_hub));
            out.extend_from_slice(&group.tried.to_le_bytes());
            out.extend_from_slice(&group.known.to_le_bytes());
        }
        put_number(out, run.stride);
        put_number(out, run.tail_at);
        put_number(out, run.body_bytes);
        out.extend_from_slice(&run.header_bytes.map_or(NO_HEADER, number).to_le_bytes());
        put_bytes(out, run.subject);
        put_bytes(out, run.shown.unwrap_or_default());
        put_bytes(out, run.reply);
        put_bytes(out, run.bytes);
        let has_room = !link.is_full(self.under_way_bytes_max);
        if !has_room {
            self.is_overfull |= link.is_full(2 * self.under_way_bytes_max);
        }
        has_room
    }

    /// Returns whether so many bytes are under way to some core that no client may publish. This includes
    /// clients that publish to other cores, because every publish might add messages for that core.
    #[inline]
    pub(crate) fn is_overfull(&self) -> bool {
        self.is_overfull
    }

    pub(crate) fn hold(&mut self, producer: Producer) {
        self.say_to_producer(HOLD, producer);
    }

    pub(crate) fn release(&mut self, producer: Producer) {
        self.say_to_producer(RELEASE, producer);
    }

    fn say_to_producer(&mut self, what: u8, producer: Producer) {
        self.is_waiting = true;
        let out = &mut self.links[usize::from(producer.core)].records;
        out.push(what);
        put_producer(out, producer);
    }

    /// Notes that a connection's reads are paused until all links have room.
    pub(crate) fn pause(&mut self, id: ConnId) {
        self.paused.push(id);
    }

    /// Returns whether any link is full.
    pub(crate) fn is_any_full(&self) -> bool {
        self.links.iter().any(|link| link.is_full(self.under_way_bytes_max))
    }

    /// Returns whether too many bytes are under way to add announcements of subscriptions.
    pub(crate) fn is_full_for_words(&self) -> bool {
        let weight_max = self.under_way_bytes_max / WORDS_SHARE;
        self.is_any_full() || self.links.iter().any(|link| link.weight_under_way + link.weight > weight_max)
    }

    /// Notes that a connection's reads are paused until there is room for more announcements.
    pub(crate) fn pause_subscriber(&mut self, id: ConnId) {
        self.paused_subscribers.push(id);
    }

    /// Sends the collected records: one batch and at most one wake-up for each core.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if self.is_waiting {
            self.is_waiting = false;
            self.send_all();
        }
    }

    fn send_all(&mut self) {
        for to in 0..self.links.len() {
            let link = &mut self.links[to];
            while let Some(buffer) = link.returning.pop() {
                let message = Message::Spent { from: self.index, buffer };
                if let Err(Message::Spent { buffer, .. }) = self.sender.send(to, message) {
                    link.returning.push(buffer);
                    self.is_waiting = true;
                    break;
                }
            }
            if link.records.is_empty() {
                continue;
            }
            if link.batches_under_way >= BATCHES_UNDER_WAY_MAX {
                self.is_waiting = true;
                continue;
            }
            let next = link.spare.pop().unwrap_or_default();
            let records = std::mem::replace(&mut link.records, next);
            let weight = std::mem::take(&mut link.weight);
            let bytes = records.len() + weight;
            match self.sender.send(to, Message::Batch { from: self.index, records, weight }) {
                Ok(()) => {
                    link.batches_under_way += 1;
                    link.bytes_under_way += bytes;
                    link.weight_under_way += weight;
                }
                Err(Message::Batch { records, weight, .. }) => {
                    link.records = records;
                    link.weight = weight;
                    self.is_waiting = true;
                }
                Err(_) => unreachable!("what was not sent comes back"),
            }
        }
        self.sender.flush();
    }

    /// Frees the spare buffers.
    pub(crate) fn shrink(&mut self) {
        self.links.iter_mut().for_each(|link| link.spare = Vec::new());
    }

    /// Returns the buffer of a batch to its sender; `weight` is the weight of its records in addition to
    /// their bytes.
    pub(crate) fn give_back(&mut self, to: usize, mut buffer: Vec<u8>, weight: usize) {
        let bytes = buffer.len() + weight;
        buffer.clear();
        self.links[to].returning.push(EmptyBuffer { buffer, bytes, weight });
        self.is_waiting = true;
    }

    /// Takes back a buffer that another core has returned. Returns the connections whose reads may resume.
    pub(crate) fn came_back(
        &mut self,
        from: usize,
        EmptyBuffer { buffer, bytes, weight }: EmptyBuffer,
    ) -> impl Iterator<Item = ConnId> {
        let link = &mut self.links[from];
        link.batches_under_way -= 1;
        link.bytes_under_way -= bytes;
        link.weight_under_way -= weight;
        if link.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            link.spare.push(buffer);
        }
        self.is_waiting |= !link.records.is_empty();
        if self.is_overfull {
            self.is_overfull = self.links.iter().any(|link| link.is_full(2 * self.under_way_bytes_max));
        }
        let resumed = if self.is_any_full() { 0 } else { self.paused.len() };
        let subscribers = if self.is_full_for_words() { 0 } else { self.paused_subscribers.len() };
        self.paused.drain(..resumed).chain(self.paused_subscribers.drain(..subscribers))
    }
}

/// Returns the weight of an announced pattern in addition to its bytes.
fn weight_of(pattern: &[u8]) -> usize {
    tokens_of(pattern) * TOKEN_WEIGHT
}
