//! Format of the records in a batch between two cores, and their parser.

use crate::{
    delivery::{producer::Producer, run::Run},
    routing::trie::{CoreMask, HubId, HubMask},
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) core: usize,
    pub(crate) account: u16,
    /// The messages arrived through a service import.
    pub(crate) is_imported: bool,
    pub(crate) to: To<'a>,
}

/// Recipients on the destination core.
#[derive(Debug, Clone, Copy)]
pub(crate) enum To<'a> {
    /// All subscribers outside of queue groups.
    All,
    /// One member of a queue group.
    Group(GroupOfCore<'a>),
    /// A hub that the destination core has joined, with the names of the queue groups at the hub that get the
    /// messages.
    Hub { hub: HubId, queues: &'a [u8] },
}

/// A queue group. The receiving core must deliver the message to one of the group's members.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupOfCore<'a> {
    /// Pattern whose members are tried first.
    pub(crate) pattern: &'a [u8],
    pub(crate) queue: &'a [u8],
    /// A hub has sent the message, so it does not go to hubs.
    pub(crate) is_from_hub: bool,
    /// Cores whose members have all refused the message; these cores are not tried again.
    pub(crate) tried: CoreMask,
    /// Cores with members, as far as the sender knows. The receiver may not have applied their announcements
    /// yet.
    pub(crate) known: CoreMask,
}

/// Messages that a producer of the sending core has published: for all subscribers outside of queue groups, or
/// each for one member of a group.
#[derive(Debug)]
pub(crate) struct RelayedRun<'a> {
    pub(crate) account: u16,
    /// The messages arrived through a service import.
    pub(crate) is_imported: bool,
    pub(crate) producer: Producer,
    pub(crate) group: Option<GroupOfCore<'a>>,
    pub(crate) run: Run<'a>,
}

/// A record of a batch.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    /// The sender has local subscribers to a pattern, or no longer has any.
    Interest { account: u16, pattern: &'a [u8], has: bool },
    /// The sender has this many members of a queue group.
    Members { account: u16, pattern: &'a [u8], queue: &'a [u8], count: u32 },
    /// Messages for the receiver's subscribers.
    Run(RelayedRun<'a>),
    /// A consumer holds a producer of the receiver.
    Hold(Producer),
    /// A consumer releases a producer of the receiver.
    Release(Producer),
    /// A hub that the sender has joined has subscribers to a pattern, or no longer has any.
    HubInterest { hub: HubId, account: u16, pattern: &'a [u8], has: bool },
    /// A hub that the sender has joined has this many members of a queue group.
    HubMembers { hub: HubId, account: u16, pattern: &'a [u8], queue: &'a [u8], count: u32 },
    /// Connection state of the sender's hubs: those in `mask` are connected if they are also in `up`.
    HubsUp { mask: HubMask, up: HubMask },
    /// Messages loop on a connection to a hub; the receiver closes the connection if it has joined the hub.
    HubLoop { hub: HubId, connection: u64 },
    /// Messages for a hub that the receiver has joined, and for the named queue groups at the hub.
    ToHub { hub: HubId, queues: &'a [u8], producer: Producer, run: Run<'a> },
}

pub(super) const INTEREST: u8 = 1;
pub(super) const MEMBERS: u8 = 2;
pub(super) const RUN: u8 = 3;
pub(super) const HOLD: u8 = 4;
pub(super) const RELEASE: u8 = 5;
pub(super) const IMPORTED_RUN: u8 = 6;
pub(super) const HUB_INTEREST: u8 = 7;
pub(super) const HUB_MEMBERS: u8 = 8;
pub(super) const HUBS_UP: u8 = 9;
pub(super) const HUB_RUN: u8 = 10;
pub(super) const HUB_LOOP: u8 = 11;
pub(super) const NO_HEADER: u32 = u32::MAX;

/// Parser of a batch's records. Batches come only from this process, so an unreadable record is a bug.
pub(crate) struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the number of unread bytes.
    pub(crate) fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take(&mut self, bytes: usize) -> &'a [u8] {
        assert!(bytes <= self.rest.len(), "a batch ends within a record");
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N));
        array
    }

    fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn number(&mut self) -> usize {
        self.u32() as usize
    }

    fn bytes(&mut self) -> &'a [u8] {
        let bytes = self.number();
        self.take(bytes)
    }

    fn producer(&mut self) -> Producer {
        Producer { core: self.u16(), conn: self.u32(), cid: u64::from_le_bytes(self.array()) }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        Some(match self.u8() {
            INTEREST => {
                let has = self.u8() != 0;
                Record::Interest { account: self.u16(), pattern: self.bytes(), has }
            }
            MEMBERS => {
                let (account, count) = (self.u16(), self.u32());
                Record::Members { account, pattern: self.bytes(), queue: self.bytes(), count }
            }
            what @ (RUN | IMPORTED_RUN | HUB_RUN) => {
                let is_imported = what == IMPORTED_RUN;
                let (of, producer) = (self.u16(), self.producer());
                let (pattern, queue) = (self.bytes(), self.bytes());
                let group = (what != HUB_RUN && !queue.is_empty()).then(|| {
                    let is_from_hub = self.u8() != 0;
                    let [tried, known] = [self.array(), self.array()].map(CoreMask::from_le_bytes);
                    GroupOfCore { pattern, queue, is_from_hub, tried, known }
                });
                let (stride, tail_at, body_bytes) = (self.number(), self.number(), self.number());
                let header_bytes =
                    Some(self.u32()).filter(|&bytes| bytes != NO_HEADER).map(|bytes| bytes as usize);
                let (subject, shown) = (self.bytes(), self.bytes());
                let (reply, bytes) = (self.bytes(), self.bytes());
                let shown = (!shown.is_empty()).then_some(shown);
                let run = Run { bytes, stride, tail_at, body_bytes, header_bytes, subject, shown, reply };
                if what == HUB_RUN {
                    let hub = HubId::try_from(of).unwrap_or_else(|_| panic!("invalid hub {of} in a batch"));
                    return Some(Record::ToHub { hub, queues: queue, producer, run });
                }
                Record::Run(RelayedRun { account: of, is_imported, producer, group, run })
            }
            HOLD => Record::Hold(self.producer()),
            RELEASE => Record::Release(self.producer()),
            HUB_INTEREST => {
                let (hub, has) = (self.u8(), self.u8() != 0);
                Record::HubInterest { hub, account: self.u16(), pattern: self.bytes(), has }
            }
            HUB_MEMBERS => {
                let (hub, account, count) = (self.u8(), self.u16(), self.u32());
                Record::HubMembers { hub, account, pattern: self.bytes(), queue: self.bytes(), count }
            }
            HUB_LOOP => Record::HubLoop { hub: self.u8(), connection: u64::from_le_bytes(self.array()) },
            HUBS_UP => Record::HubsUp { mask: self.u16(), up: self.u16() },
            other => panic!("record of unknown kind {other} in a batch"),
        })
    }
}

pub(super) fn number(number: usize) -> u32 {
    match u32::try_from(number) {
        Ok(number) => number,
        Err(_) => panic!("{number} bytes in one record: the read buffer bounds it far below"),
    }
}

pub(super) fn put_number(out: &mut Vec<u8>, of: usize) {
    out.extend_from_slice(&number(of).to_le_bytes());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len());
    out.extend_from_slice(bytes);
}

pub(super) fn put_producer(out: &mut Vec<u8>, producer: Producer) {
    out.extend_from_slice(&producer.core.to_le_bytes());
    out.extend_from_slice(&producer.conn.to_le_bytes());
    out.extend_from_slice(&producer.cid.to_le_bytes());
}
