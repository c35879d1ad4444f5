//! Several accelerators, one fetch: whose a key is, how its owner is asked before the origin, and how it answers.
//!
//! ```text
//!  a miss ─▶ whose key? ─ ours ─────────────────────────────────────────▶ origin, once for all
//!              │ another's, and it is up                                     ▲       ▲
//!              ▼                                                             │       │ a peer asks us: http1::peer
//!            ask: marked, over HTTP/1.1 ─ declined, behind, silent, odd ─────┘       │ (it never asks another peer)
//!              │ its answer, and the purge under which it was read
//!              ▼
//!            judged as an origin's; kept if the same was asked a moment ago ── its peer dies ─▶ the rest from the origin
//! ```
//! *Where the data live:* the table of peers is replaced as a whole; what is counted of each is atomic words that misses
//! write. A hit does not look here. *No loops:* a request of a peer is answered from the store, a fetch of ours, or the
//! origin; it does not join a fetch that waits for a peer ([`in_flight`](crate::fetch::in_flight)). *Purges:* see [`PeerQuery`].
//!
//! *Bounds:* [`PEERS_MAX`](crate::config::PEERS_MAX) peers; to each of them a core's connections (`connections_max`), with no
//! queue; requests of theirs that are answered at once (`requests_max`); processes that we remember
//! ([`mark`]); the back-off of one that fails ([`BACK_OFF_MIN`] to [`BACK_OFF_MAX`]).

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
        Arc, PoisonError,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed},
        },
    },
    time::Duration,
};

use engine::{cores::clock, store::Hash};
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

#[expect(clippy::disallowed_types, reason = "a miss's path: held for the time of a few loads")]
type Lock<T> = std::sync::Mutex<T>;

/// How long a peer that has failed is left alone: the first time, and at most.
pub(crate) const BACK_OFF_MIN: Duration = Duration::from_secs(1);
/// See there: it is twice as long each time that it fails again.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// What a peer asked us for again within this is kept by us, too.
pub(crate) const KEPT_WITHIN: Duration = Duration::from_secs(60);
/// Addresses that a core remembers for that; and that a visitor of ours has changed.
pub(crate) const ASKED_PLACES: usize = 4096;
/// How often who is asked says that it has not forgotten.
pub(crate) const SIGN_EVERY: Duration = Duration::from_millis(100);
/// Fields that a request has more when it comes to a peer than its client has sent.
pub(crate) const FIELDS_MORE: usize = 8;
/// … and bytes.
pub(crate) const HEAD_BYTES_MORE: usize = 4 << 10;

/// All that the cores share of their peers.
pub(crate) struct Peers {
    pub(crate) rules: PeerRules,
    signing: SigningInput,
    /// Which process we are, to those whom we ask.
    id: u64,
    numbers: AtomicU64,
    table: Lock<Arc<Table>>,
    /// The numbers of the requests that other processes have sent us.
    heard: Lock<Numbers>,
    /// The number of this process: a request that was signed for another one is refused. Changed while `heard` is
    /// locked.
    epoch: AtomicU64,
    serving: Arc<Semaphore>,
    /// Keys that we fetch.
    fetching: Arc<AtomicUsize>,
    /// Limits on peers, as on an origin.
    pub(crate) limits: Arc<Limits>,
}

/// Who there is. It is replaced as a whole.
#[derive(Default)]
pub(crate) struct Table {
    peers: Box<[Arc<Peer>]>,
}

impl Peers {
    /// By these rules; how the accelerator treats origins decides what they leave open.
    ///
    /// # Errors
    /// A name cannot be looked up, or the system has no random numbers.
    pub(crate) fn new(rules: &PeerRules, limits: &Limits, names: &mut Names) -> Result<Self, SetUpError> {
        let limits = Limits {
            origin_connect_time_max: rules.patience,
            origin_first_byte_time_max: rules.patience,
            origin_connections_max: rules.connections_max,
            origin_idle_connections_max: rules.connections_max,
            origin_lasting_max: rules.connections_max,
            // The origin does not let wait.
            origin_queue_max: 0,
            ..limits.clone()
        };
        let number = || engine::random::number().map_err(SetUpError::Thread);
        let peers = Self {
            signing: SigningInput::new(rules.secret.bytes()),
            id: number()?,
            numbers: AtomicU64::new(0),
            table: Lock::default(),
            heard: Lock::default(),
            epoch: AtomicU64::new(number()?),
            serving: Arc::new(Semaphore::new(rules.requests_max)),
            fetching: Arc::default(),
            limits: Arc::new(limits),
            rules: rules.clone(),
        };
        peers.are(&rules.members, names)?;
        Ok(peers)
    }

    /// From now on these are there. Who was there before, at the same address, is known for what it was.
    ///
    /// # Errors
    /// An address is none.
    pub(crate) fn are(&self, live: &[PeerAt], names: &mut Names) -> Result<(), SetUpError> {
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
            tracing::warn!(peers = live.len(), "only the first {PEERS_MAX} peers share keys");
        }
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(Table { peers: peers.into() });
        Ok(())
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who is asked for what has this primary key; `None`: nobody but its origin. One that is being tried again is asked by
    /// the caller, and by nobody else for a while.
    pub(crate) fn asked_for(&self, primary: &[u8]) -> Option<Arc<Peer>> {
        let now_ms = clock::monotonic_ms();
        let chosen = self.chosen(primary, now_ms, |peer| peer.may_be_asked(now_ms))?;
        (!chosen.is_own).then_some(chosen)
    }

    /// Whose a key is, as long as nothing changes.
    pub(crate) fn owner(&self, primary: &[u8]) -> Option<Arc<Peer>> {
        self.chosen(primary, clock::monotonic_ms(), |_| true)
    }

    fn chosen(&self, primary: &[u8], now_ms: u64, may_be_asked: impl Fn(&Peer) -> bool) -> Option<Arc<Peer>> {
        let table = self.table();
        let mut up: Vec<&Arc<Peer>> = table.peers.iter().filter(|peer| peer.is_up(now_ms)).collect();
        // The same in every process, as the store's hashes are not.
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

    /// Keys that we fetch, now.
    pub(crate) fn fetching(&self) -> usize {
        self.fetching.load(Relaxed)
    }

    /// We fetch one more, for as long as this is held.
    pub(crate) fn fetches(&self) -> Load {
        Load::of(&self.fetching)
    }

    /// Leave to answer a peer's request, now.
    pub(crate) fn serve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.serving).try_acquire_owned().ok()
    }

    /// The head of a request as a peer gets it, and its mac.
    fn marked(&self, head: Vec<u8>, peer: &Peer, sequence: u64, is_anew: bool) -> (Vec<u8>, Mac) {
        let number = self.numbers.fetch_add(1, Relaxed) + 1;
        let epoch = peer.epoch.load(Acquire);
        let ask = Ask { asker: &self.rules.name, id: self.id, number, epoch, sequence, is_anew };
        self.signing.ask(head, &peer.name, &ask)
    }

    /// What a request to us says, if a peer has sent it.
    ///
    /// # Errors
    /// None has.
    pub(crate) fn asked<'h>(&self, head: &'h [u8]) -> Result<(Ask<'h>, Mac), MarkError> {
        // The MAC is compared before the lock is taken, so that a stranger's requests hold no core up.
        let (ask, mac) = self.signing.asked_by(head, &self.rules.name).ok_or(MarkError::Forged)?;
        let mut numbers = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if numbers.is_full() {
            // Who asked before learns of it, and asks again.
            let next = self.epoch.load(Relaxed).wrapping_add(1);
            self.epoch.store(engine::random::number().unwrap_or(next), Relaxed);
            *numbers = Numbers::default();
        }
        numbers.take(&ask, &mac, self.epoch.load(Relaxed))?;
        Ok((ask, mac))
    }

    /// The lines by which a peer knows our answer.
    pub(crate) fn tell(&self, how: mark::How, sequence: u64, of: &Mac) -> String {
        let epoch = self.epoch.load(Relaxed);
        self.signing.tell(&PeerAnswerMark { how, sequence, load: self.fetching(), epoch }, of)
    }

    /// How they are, for people.
    pub(crate) fn seen(&self) -> Vec<PeerSeen> {
        let now_ms = clock::monotonic_ms();
        self.table().peers.iter().map(|peer| peer.seen(now_ms)).collect()
    }
}

#[cfg(test)]
mod tests;
