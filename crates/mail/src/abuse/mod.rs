//! What keeps one sender from spoiling the service for all: rates, lists, campaigns. Off until it is asked for, but for
//! the lists, which are empty.
//!
//! Each refusal has a reply of its own here and a counter of its own.

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

/// 554 to a connection of a banned address.
pub(crate) const ADDRESS_BANNED: Reply = Reply::new(554, (5, 7, 1), "Your address is banned here");
/// 550 to a banned sender.
pub(crate) const SENDER_BANNED: Reply = Reply::new(550, (5, 7, 1), "This sender is banned here");
/// 554 to a banned word.
pub(crate) const WORD_BANNED: Reply = Reply::new(554, (5, 7, 1), "The subject has a banned word");
/// 421 to too many connections in a time.
pub(crate) const CONNECTIONS: Reply =
    Reply::new(421, (4, 7, 0), "Too many connections from your address; later");
/// 421 to too many connections at a time.
pub(crate) const CONNECTIONS_OPEN: Reply =
    Reply::new(421, (4, 7, 0), "Too many open connections from your address");
/// 450 to too many mails of an address.
pub(crate) const MAILS: Reply = Reply::new(450, (4, 7, 1), "Too many mails from your address; later");
/// 450 to too many mails to an inbox.
pub(crate) const INBOX: Reply = Reply::new(450, (4, 2, 1), "Too many mails to this inbox; later");
/// 450 to too many mails of one subject.
pub(crate) const SUBJECT: Reply = Reply::new(450, (4, 7, 1), "Too many mails with this subject; later");
/// 450 to too many mails of nearly one text.
pub(crate) const CAMPAIGN: Reply = Reply::new(450, (4, 7, 1), "Too many mails with nearly this text; later");

/// What is to be done with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nothing.
    Fine,
    /// It comes near a rate: answer late.
    Slow,
    /// Refuse it, and count that.
    Refuse(Reply, Counter),
}

/// Connections that each address holds, and how fast each thing comes, over all cores.
///
/// Tables of atomics, without a lock and of a fixed size; a hash chooses the place, and who shares one shares its rate,
/// which errs on the safe side. A table is there only if its rate is limited. Cores write to the same lines here: that
/// is the price of a limit, and paid by whoever sets one.
#[derive(Debug)]
pub(crate) struct PeerLimits {
    open: Box<[AtomicU32]>,
    open_max: u32,
    /// KiB of mails being received.
    receiving: Box<[AtomicU32]>,
    /// Bytes of mails that are not whole and in the store.
    parts: Box<[AtomicU64]>,
    connections: RateTable,
    mails: RateTable,
    inboxes: RateTable,
    subjects: RateTable,
    campaigns: RateTable,
    /// So that nobody can aim at another's place.
    seed: u64,
}

/// Places for counts of open connections.
const PLACES: usize = 64 * 1024;
/// Places for what is in the store of mails that are not whole: few addresses send such at a time.
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
            // One customer has a /64 as a rule.
            IpAddr::V6(address) => self.hash(&address.octets()[..8]),
        }
    }

    /// One more connection of an address; nothing if it has its share already.
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

    /// Mails of an address hold `after` bytes and not `before` any more; how many it holds in all, to the KiB.
    pub(crate) fn hold(&self, address: IpAddr, before: usize, after: usize) -> usize {
        let kib = |bytes: usize| u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        let more = kib(after).wrapping_sub(kib(before));
        let held = self.receiving[self.hash_of(address) as usize % PLACES].fetch_add(more, Ordering::Relaxed);
        (held.wrapping_add(more) as usize) << 10
    }

    /// Bytes in the store of an address's mails that are not whole.
    pub(crate) fn parts(&self, address: IpAddr) -> &AtomicU64 {
        &self.parts[self.hash_of(address) as usize % PARTS_PLACES]
    }
}

/// One connection in the books.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    peers: Arc<PeerLimits>,
    /// None: nothing is counted.
    place: Option<usize>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.peers.open[place].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One core's view: the lists as they were last read, and the tables that all share.
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
    /// Whoever comes from `address`, however.
    pub(crate) fn address(&self, address: IpAddr) -> Judgement {
        match self.lists.bans_address(address) {
            true => Judgement::Refuse(ADDRESS_BANNED, Counter::BannedAddresses),
            false => Judgement::Fine,
        }
    }

    /// A connection of `address`.
    pub(crate) fn connection(&self, address: IpAddr, now_ms: u64) -> Judgement {
        if let refused @ Judgement::Refuse(..) = self.address(address) {
            return refused;
        }
        let peers = &self.peers;
        let pace = peers.connections.another(|| peers.hash_of(address), now_ms);
        judge(pace, CONNECTIONS, Counter::RateConnections)
    }

    /// A mail of `sender` from `address` begins.
    pub(crate) fn sender(&self, sender: &str, address: IpAddr, now_ms: u64) -> Judgement {
        if self.lists.bans_sender(sender) {
            return Judgement::Refuse(SENDER_BANNED, Counter::BannedSenders);
        }
        let peers = &self.peers;
        judge(peers.mails.another(|| peers.hash_of(address), now_ms), MAILS, Counter::RateMails)
    }

    /// A mail to an inbox.
    pub(crate) fn recipient(&self, inbox: &Inbox, now_ms: u64) -> Judgement {
        let peers = &self.peers;
        let hash =
            || peers.hash(inbox.local.as_bytes()) ^ peers.hash(inbox.domain.as_bytes()).rotate_left(32);
        judge(peers.inboxes.another(hash, now_ms), INBOX, Counter::RateInboxes)
    }

    /// A whole mail, by its subject and its text.
    pub(crate) fn mail(&self, subject: &[u8], mail: &[u8], now_ms: u64) -> Judgement {
        if self.lists.bans_subject(subject) {
            return Judgement::Refuse(WORD_BANNED, Counter::BannedWords);
        }
        let peers = &self.peers;
        let pace = peers.subjects.another(|| peers.hash(&subject.to_ascii_lowercase()), now_ms);
        if pace == RateVerdict::Over {
            return Judgement::Refuse(SUBJECT, Counter::RateSubjects);
        }
        if !peers.campaigns.is_limited() {
            return judge(pace, SUBJECT, Counter::RateSubjects);
        }
        let Some(bands) = campaign::fingerprint(mail, peers.seed) else { return Judgement::Fine };
        let over = bands
            .iter()
            .filter(|band| peers.campaigns.another(|| **band, now_ms) == RateVerdict::Over)
            .count();
        if over >= campaign::BANDS_ALIKE {
            return Judgement::Refuse(CAMPAIGN, Counter::Campaigns);
        }
        judge(pace, SUBJECT, Counter::RateSubjects)
    }
}
