//! Several accelerators that fetch an object only once: which of them owns a key, how the owner is asked
//! before the origin, and how it answers.
//!
//! ```text
//!  a miss ─▶ whose key? ─ ours ─────────────────────────────────────────▶ origin, once for all
//!              │ a peer's, and the peer is up                                ▲       ▲
//!              ▼                                                             │       │ a peer asks us: client::peer_endpoint
//!            ask: signed, over HTTP/1.1 ─ declined, behind, silent, odd ─────┘       │ (it never asks another peer)
//!              │ its answer, and the purge under which it was read
//!              ▼
//!            judged as an origin's; kept if it was asked for a moment ago ── its peer dies ─▶ the rest from the origin
//! ```
//! *Memory:* the table of peers is replaced as a whole; the counts of each peer are atomic words that misses
//! write. A hit reads none of this. *No loops:* a request from a peer is answered from the store, a fetch of
//! ours, or the origin; it does not join a fetch that waits for a peer
//! ([`in_flight`](crate::fetch::in_flight)). *Purges:* see [`PeerQuery`].
//!
//! *Bounds:* [`PEERS_MAX`](crate::config::PEERS_MAX) peers; a core's connections to each of them
//! (`connections_max`), with no queue; requests from peers that are answered at the same time
//! (`requests_max`); processes whose request numbers are remembered ([`mark`]); the back-off of a failed peer
//! ([`BACK_OFF_MIN`] to [`BACK_OFF_MAX`]).

mod ask;
mod choice;
pub mod lease;
pub(crate) mod mark;
mod peer;
pub(crate) mod purge_broadcast;
mod resume;
mod said;

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed},
        },
    },
    time::Duration,
};

use engine::{cold_mutex::ColdMutex, cores::clock, store::Hash};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::{
    ask::{PeerQuery, ask},
    peer::{Load, Peer},
    resume::resume,
};
use self::{
    choice::{Candidate, owner},
    mark::{Ask, Mac, MarkError, Numbers, PeerAnswerMark, SigningInput},
};
pub use self::{peer::PeerSeen, peer::PeerStanding};
use crate::{
    config::{Limits, PEERS_MAX, PeerAt, PeerRules},
    origin::{Names, SetUpError},
};

/// First back-off of a failed peer, during which no requests are sent to it.
pub(crate) const BACK_OFF_MIN: Duration = Duration::from_secs(1);
/// Longest back-off of a failed peer. The back-off doubles with each further failure.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// Time within which a second request to the owner for the same key makes us store the answer, too.
pub(crate) const KEPT_WITHIN: Duration = Duration::from_secs(60);
/// Slots of a core's table of addresses asked for within [`KEPT_WITHIN`], and of its table of addresses that
/// a visitor of ours has changed.
pub(crate) const ASKED_PLACES: usize = 4096;
/// Interval of the interim responses (102) that a peer sends while its answer is not ready, as signs of life.
pub(crate) const SIGN_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of fields that we add to a client's request when it is sent to a peer.
pub(crate) const FIELDS_MORE: usize = 8;
/// Maximum number of bytes that we add to a client's request when it is sent to a peer.
pub(crate) const HEAD_BYTES_MORE: usize = 4 << 10;

/// State of the peers that the cores share.
pub(crate) struct Peers {
    pub(crate) rules: PeerRules,
    signing: SigningInput,
    /// Number that identifies this process to the peers that it asks.
    id: u64,
    numbers: AtomicU64,
    /// Locked on the path of a miss, to copy the reference.
    table: ColdMutex<Arc<Table>>,
    /// Request numbers that other processes have sent us. Locked for a request of a peer, for a lookup.
    heard: ColdMutex<Numbers>,
    /// Epoch of this process: a request signed for another epoch is refused. Changed while `heard` is locked.
    epoch: AtomicU64,
    serving: Arc<Semaphore>,
    /// Keys that we are fetching.
    fetching: Arc<AtomicUsize>,
    /// Limits on exchanges with peers, in the form of an origin's limits.
    pub(crate) limits: Arc<Limits>,
}

/// Table of the peers, replaced as a whole.
#[derive(Default)]
pub(crate) struct Table {
    peers: Box<[Arc<Peer>]>,
}

impl Peers {
    /// Sets up the peers by these rules. Limits that the rules do not set are those for origins.
    ///
    /// # Errors
    /// [`SetUpError`] if no thread can resolve names, or the system has no random numbers.
    pub(crate) fn new(rules: &PeerRules, limits: &Limits, names: &mut Names) -> Result<Self, SetUpError> {
        let limits = Limits {
            origin_connect_time_max: rules.patience,
            origin_first_byte_time_max: rules.patience,
            origin_connections_max: rules.connections_max,
            origin_idle_connections_max: rules.connections_max,
            origin_lasting_max: rules.connections_max,
            // No queue: the origin can be asked without a wait.
            origin_queue_max: 0,
            ..limits.clone()
        };
        let number = || engine::random::number().map_err(SetUpError::Thread);
        let peers = Self {
            signing: SigningInput::new(rules.secret.bytes()),
            id: number()?,
            numbers: AtomicU64::new(0),
            table: ColdMutex::default(),
            heard: ColdMutex::default(),
            epoch: AtomicU64::new(number()?),
            serving: Arc::new(Semaphore::new(rules.requests_max)),
            fetching: Arc::default(),
            limits: Arc::new(limits),
            rules: rules.clone(),
        };
        peers.set_members(&rules.members, names)?;
        Ok(peers)
    }

    /// Replaces the peers. A peer that was known before, at the same address, keeps its state.
    ///
    /// # Errors
    /// [`SetUpError`] if an address is invalid.
    pub(crate) fn set_members(&self, live: &[PeerAt], names: &mut Names) -> Result<(), SetUpError> {
        let before = self.table();
        let known = |at: &PeerAt| before.peers.iter().find(|peer| peer.is_at(at)).cloned();
        let mut peers = Vec::with_capacity(live.len().min(PEERS_MAX));
        for at in live.iter().take(PEERS_MAX) {
            peers.push(match known(at) {
                Some(peer) => peer,
                None => Arc::new(Peer::new(at, at.name == self.rules.name, names)?),
            });
        }
        if live.len() > PEERS_MAX {
            tracing::warn!(
                peers = live.len(),
                "too many peers: only the first {PEERS_MAX} are asked for objects, the others are ignored"
            );
        }
        *self.table.lock() = Arc::new(Table { peers: peers.into() });
        Ok(())
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.lock())
    }

    /// Returns the peer to ask for a primary key; `None` means the origin. A peer at the end of its back-off
    /// is tried by this caller, and by no other for a while.
    pub(crate) fn asked_for(&self, primary: &[u8]) -> Option<Arc<Peer>> {
        let now_ms = clock::monotonic_ms();
        let chosen = self.chosen(primary, now_ms, |peer| peer.may_be_asked(now_ms))?;
        (!chosen.is_own).then_some(chosen)
    }

    /// Returns the owner of a key according to the current loads and back-offs; `None` without peers.
    pub(crate) fn owner(&self, primary: &[u8]) -> Option<Arc<Peer>> {
        self.chosen(primary, clock::monotonic_ms(), |_| true)
    }

    fn chosen(&self, primary: &[u8], now_ms: u64, may_be_asked: impl Fn(&Peer) -> bool) -> Option<Arc<Peer>> {
        let table = self.table();
        let mut up: Vec<&Arc<Peer>> = table.peers.iter().filter(|peer| peer.is_up(now_ms)).collect();
        // Unseeded, so the same in every process, unlike the store's hashes.
        let key = Hash::seeded(primary, 0).word();
        loop {
            let load = |peer: &Peer| if peer.is_own { self.fetching() } else { peer.load(now_ms) };
            let candidates: Vec<Candidate> =
                up.iter().map(|peer| Candidate { seed: peer.seed, load: load(peer) }).collect();
            let at = owner(key, &candidates)?;
            if may_be_asked(up[at]) {
                return Some(Arc::clone(up[at]));
            }
            up.remove(at);
        }
    }

    /// Returns the number of keys that we are fetching now.
    pub(crate) fn fetching(&self) -> usize {
        self.fetching.load(Relaxed)
    }

    /// Counts one more key that we fetch, until the guard is dropped.
    pub(crate) fn fetches(&self) -> Load {
        Load::of(&self.fetching)
    }

    /// Returns a permit to answer a peer's request, if one is free now.
    pub(crate) fn serve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.serving).try_acquire_owned().ok()
    }

    /// Signs the head of a request for a peer; returns the head and its MAC.
    fn marked(&self, head: Vec<u8>, peer: &Peer, sequence: u64, is_anew: bool) -> (Vec<u8>, Mac) {
        let number = self.numbers.fetch_add(1, Relaxed) + 1;
        let epoch = peer.epoch.load(Acquire);
        let ask = Ask { asker: &self.rules.name, id: self.id, number, epoch, sequence, is_anew };
        self.signing.ask(head, &peer.name, &ask)
    }

    /// Reads and accepts the signed field of a request to us.
    ///
    /// # Errors
    /// [`MarkError`] if no peer has sent the request, if it was for another process, or if it was received
    /// before.
    pub(crate) fn verify_request<'h>(&self, head: &'h [u8]) -> Result<(Ask<'h>, Mac), MarkError> {
        // The MAC is compared before the lock is taken, so that a stranger's requests delay no core.
        let (ask, mac) = self.signing.read_request_mark(head, &self.rules.name).ok_or(MarkError::Forged)?;
        let mut numbers = self.heard.lock();
        if numbers.is_full() {
            // Peers that asked before learn the new epoch from our answer, and ask again.
            let next = self.epoch.load(Relaxed).wrapping_add(1);
            self.epoch.store(engine::random::number().unwrap_or(next), Relaxed);
            *numbers = Numbers::default();
        }
        numbers.take(&ask, &mac, self.epoch.load(Relaxed))?;
        Ok((ask, mac))
    }

    /// Returns the lines that sign our answer.
    pub(crate) fn tell(&self, how: mark::How, sequence: u64, of: &Mac) -> String {
        let epoch = self.epoch.load(Relaxed);
        self.signing.tell(&PeerAnswerMark { how, sequence, load: self.fetching(), epoch }, of)
    }

    /// Returns the state of the peers, for operators.
    pub(crate) fn seen(&self) -> Vec<PeerSeen> {
        let now_ms = clock::monotonic_ms();
        self.table().peers.iter().map(|peer| peer.seen(now_ms)).collect()
    }
}

#[cfg(test)]
mod tests;
