//! Protection against abusive senders: rates, ban lists, and detection of mail campaigns. Rates are off by
//! default; the lists are always consulted, but are empty by default.
//!
//! Each kind of refusal has its own reply here and its own counter.

mod campaign;
mod lists;
mod rates;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use wire::smtp::reply::Reply;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use lists::{ListFault, Lists};
pub use rates::Rates;
use rates::{RateTable, RateVerdict};

use crate::{counters::Counter, mailbox::mailboxes::Inbox};

/// 554 to a connection from a banned address.
pub(crate) const ADDRESS_BANNED: Reply = Reply::new(554, "5.7.1", "Your address is banned here");
/// 550 to a MAIL command with a banned sender.
pub(crate) const SENDER_BANNED: Reply = Reply::new(550, "5.7.1", "This sender is banned here");
/// 554 to a mail whose subject has a banned word.
pub(crate) const WORD_BANNED: Reply = Reply::new(554, "5.7.1", "The subject has a banned word");
/// 421 when an address opens connections too fast.
pub(crate) const CONNECTIONS: Reply =
    Reply::new(421, "4.7.0", "Too many connections from your address; later");
/// 421 when an address has too many connections open.
pub(crate) const CONNECTIONS_OPEN: Reply =
    Reply::new(421, "4.7.0", "Too many open connections from your address");
/// 450 when an address sends mails too fast.
pub(crate) const MAILS: Reply = Reply::new(450, "4.7.1", "Too many mails from your address; later");
/// 450 when an inbox gets mails too fast.
pub(crate) const INBOX: Reply = Reply::new(450, "4.2.1", "Too many mails to this inbox; later");
/// 450 when mails with one subject come too fast.
pub(crate) const SUBJECT: Reply = Reply::new(450, "4.7.1", "Too many mails with this subject; later");
/// 450 when mails with nearly the same text come too fast.
pub(crate) const CAMPAIGN: Reply = Reply::new(450, "4.7.1", "Too many mails with nearly this text; later");

/// Verdict on a connection, a command, or a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The peer is served normally.
    Fine,
    /// The peer is near a rate limit: its replies are delayed.
    Slow,
    /// The peer gets this reply, and the counter is incremented.
    Refuse(Reply, Counter),
}

/// Open connections of each address and all rates, shared by all cores.
///
/// The tables are lock-free arrays of atomics with a fixed size. A hash chooses the slot; addresses that
/// collide share a slot and its rate, so a collision can only make a limit stricter. A rate has a table only
/// if it is limited. All cores write to the same cache lines here, a cost that is only paid where a limit is
/// set.
#[derive(Debug)]
pub(crate) struct PeerLimits {
    open: Box<[AtomicU32]>,
    open_max: u32,
    /// KiB of mails being received, by address slot.
    receiving: Box<[AtomicU32]>,
    /// Bytes of incomplete mails in the store, by address slot.
    parts: Box<[AtomicU64]>,
    connections: RateTable,
    mails: RateTable,
    inboxes: RateTable,
    subjects: RateTable,
    campaigns: RateTable,
    /// Random seed of the hashes, so that an attacker cannot aim for another address's slot.
    seed: u64,
}

/// Slots of the table of open connections.
const PLACES: usize = 64 * 1024;
/// Slots of the table of incomplete mails in the store: few addresses send large mails at the same time.
const PARTS_PLACES: usize = 2048;

impl PeerLimits {
    pub(crate) fn new(rates: &Rates, open_max: usize, seed: u64) -> Arc<Self> {
        let places = if open_max == 0 { 0 } else { PLACES };
        Arc::new(Self {
            open: (0..places).map(|_| AtomicU32::new(0)).collect(),
            open_max: u32::try_from(open_max).unwrap_or(u32::MAX),
            receiving: (0..PLACES).map(|_| AtomicU32::new(0)).collect(),
            parts: (0..PARTS_PLACES).map(|_| AtomicU64::new(0)).collect(),
            connections: RateTable::new(rates.connections_per_minute),
            mails: RateTable::new(rates.mails_per_minute),
            inboxes: RateTable::new(rates.inbox_mails_per_minute),
            subjects: RateTable::new(rates.subject_mails_per_minute),
            campaigns: RateTable::new(rates.campaign_mails_per_minute),
            seed,
        })
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed)
    }

    fn hash_of(&self, address: IpAddr) -> u64 {
        match address {
            IpAddr::V4(address) => self.hash(&address.octets()),
            // A customer usually has a whole /64.
            IpAddr::V6(address) => self.hash(&address.octets()[..8]),
        }
    }

    /// Counts another connection of an address; `None` if the address has reached its limit.
    pub(crate) fn open(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        if self.open.is_empty() {
            return Some(ConnectionSlot { peers: Arc::clone(self), place: None });
        }
        let place = self.hash_of(address) as usize % PLACES;
        if self.open[place].fetch_add(1, Ordering::Relaxed) >= self.open_max {
            self.open[place].fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(ConnectionSlot { peers: Arc::clone(self), place: Some(place) })
    }

    /// Changes the memory charged for one mail from an address from `before` to `after` bytes. Returns the
    /// address's new total, rounded to KiB.
    pub(crate) fn update_receiving(&self, address: IpAddr, before: usize, after: usize) -> usize {
        let kib = |bytes: usize| u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        let more = kib(after).wrapping_sub(kib(before));
        let held = self.receiving[self.hash_of(address) as usize % PLACES].fetch_add(more, Ordering::Relaxed);
        (held.wrapping_add(more) as usize) << 10
    }

    /// Returns the counter of bytes in the store that belong to incomplete mails from an address.
    pub(crate) fn parts(&self, address: IpAddr) -> &AtomicU64 {
        &self.parts[self.hash_of(address) as usize % PARTS_PLACES]
    }
}

/// A counted connection; dropping it frees its slot.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    peers: Arc<PeerLimits>,
    /// Slot in the table; `None` if connections are not limited.
    place: Option<usize>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.peers.open[place].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A core's access to abuse protection: the current lists, and the tables that all cores share.
#[derive(Debug)]
pub(crate) struct Abuse {
    pub(crate) lists: Arc<Lists>,
    pub(crate) peers: Arc<PeerLimits>,
}

fn judge(pace: RateVerdict, reply: Reply, counter: Counter) -> Judgement {
    match pace {
        RateVerdict::Fine => Judgement::Fine,
        RateVerdict::Near => Judgement::Slow,
        RateVerdict::Over => Judgement::Refuse(reply, counter),
    }
}

impl Abuse {
    /// Judges an address by the ban list alone, for every protocol.
    pub(crate) fn address(&self, address: IpAddr) -> Judgement {
        match self.lists.bans_address(address) {
            true => Judgement::Refuse(ADDRESS_BANNED, Counter::BannedAddresses),
            false => Judgement::Fine,
        }
    }

    /// Judges a new connection from `address`.
    pub(crate) fn connection(&self, address: IpAddr, now_ms: u64) -> Judgement {
        if let refused @ Judgement::Refuse(..) = self.address(address) {
            return refused;
        }
        let peers = &self.peers;
        let pace = peers.connections.charge(|| peers.hash_of(address), now_ms);
        judge(pace, CONNECTIONS, Counter::RateConnections)
    }

    /// Judges a MAIL command by its sender and by the rate of `address`.
    pub(crate) fn sender(&self, sender: &str, address: IpAddr, now_ms: u64) -> Judgement {
        if self.lists.bans_sender(sender) {
            return Judgement::Refuse(SENDER_BANNED, Counter::BannedSenders);
        }
        let peers = &self.peers;
        judge(peers.mails.charge(|| peers.hash_of(address), now_ms), MAILS, Counter::RateMails)
    }

    /// Judges a recipient by the rate of its inbox.
    pub(crate) fn recipient(&self, inbox: &Inbox, now_ms: u64) -> Judgement {
        let peers = &self.peers;
        let hash =
            || peers.hash(inbox.local.as_bytes()) ^ peers.hash(inbox.domain.as_bytes()).rotate_left(32);
        judge(peers.inboxes.charge(hash, now_ms), INBOX, Counter::RateInboxes)
    }

    /// Judges a complete mail by its subject and its text.
    pub(crate) fn mail(&self, subject: &[u8], mail: &[u8], now_ms: u64) -> Judgement {
        if self.lists.bans_subject(subject) {
            return Judgement::Refuse(WORD_BANNED, Counter::BannedWords);
        }
        let peers = &self.peers;
        let pace = peers.subjects.charge(|| peers.hash(&subject.to_ascii_lowercase()), now_ms);
        if pace == RateVerdict::Over {
            return Judgement::Refuse(SUBJECT, Counter::RateSubjects);
        }
        if !peers.campaigns.is_limited() {
            return judge(pace, SUBJECT, Counter::RateSubjects);
        }
        let Some(bands) = campaign::fingerprint(mail, peers.seed) else { return Judgement::Fine };
        let over = bands
            .iter()
            .filter(|band| peers.campaigns.charge(|| **band, now_ms) == RateVerdict::Over)
            .count();
        if over >= campaign::BANDS_ALIKE {
            return Judgement::Refuse(CAMPAIGN, Counter::Campaigns);
        }
        judge(pace, SUBJECT, Counter::RateSubjects)
    }
}
