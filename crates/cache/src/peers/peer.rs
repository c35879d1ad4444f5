//! A peer: an accelerator that shares keys, as this one sees it.
//!
//! The outcome of our requests decides whether a peer is up. A failed request puts the peer into back-off,
//! for longer each time. Then one request tries it again, while the others ask the origin until that has
//! succeeded.

use std::sync::{
    Arc,
    atomic::{
        AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{Relaxed, Release},
    },
};

use engine::{cores::clock, store::Hash};

use super::{BACK_OFF_MAX, BACK_OFF_MIN, mark::PeerAnswerMark};
use crate::{
    config::{OriginRules, PeerAt, Protocol, Server, ServerRules},
    origin::{Member, Names, SetUpError},
};

/// Milliseconds for which a peer's reported load is used.
const LOAD_BELIEVED_MS: u64 = 1000;

/// An accelerator that shares keys.
pub(crate) struct Peer {
    pub(crate) name: Box<str>,
    pub(crate) address: Box<str>,
    pub(super) is_own: bool,
    /// Seed of the peer for rendezvous hashing.
    pub(super) seed: u64,
    /// The peer as a server to connect to; `None` for this accelerator itself.
    pub(super) member: Option<Arc<Member>>,
    /// Keys that we are asking the peer for now.
    asked: Arc<AtomicUsize>,
    /// Number of keys that the peer was fetching at its last report, and the time of that report.
    told: AtomicUsize,
    told_ms: AtomicU64,
    /// End of the back-off; 0 if there is none.
    out_until_ms: AtomicU64,
    /// Failures in a row.
    streak: AtomicU32,
    /// Epoch of the peer's process at its last answer; 0 before the first.
    pub(super) epoch: AtomicU64,
    asks: AtomicU64,
    hits: AtomicU64,
    failures: AtomicU64,
}

/// Guard that counts a key as being fetched, or asked for.
pub(crate) struct Load(Arc<AtomicUsize>);

impl Load {
    pub(super) fn of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// State of a peer, which decides whether it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerStanding {
    /// This accelerator itself.
    Own,
    /// The peer is up, and is asked.
    Up,
    /// The peer has failed, and is in back-off.
    Out,
}

impl PeerStanding {
    /// Stable name of the state.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Up => "up",
            Self::Out => "out",
        }
    }
}

/// State of a peer for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSeen {
    /// Name of the peer.
    pub name: String,
    /// Address at which the peer is asked.
    pub address: String,
    /// State of the peer.
    pub standing: PeerStanding,
    /// Requests sent to the peer.
    pub asks: u64,
    /// Requests that the peer answered from its store.
    pub hits: u64,
    /// Requests that failed at the peer.
    pub failures: u64,
}

impl Peer {
    /// Creates a peer that has not been asked yet.
    ///
    /// # Errors
    /// [`SetUpError`] if its address is invalid.
    pub(super) fn new(at: &PeerAt, is_own: bool, names: &mut Names) -> Result<Self, SetUpError> {
        let member = if is_own {
            None
        } else {
            let server: Server = format!("http://{}", at.address)
                .parse()
                .map_err(|_| SetUpError::PeerAddress(at.address.clone()))?;
            let rules = ServerRules { protocol: Protocol::Http1, ..OriginRules::default().server };
            Some(Arc::new(Member::new(&server, &rules, None, names)?))
        };
        Ok(Self {
            name: at.name.as_str().into(),
            address: at.address.as_str().into(),
            is_own,
            // Unseeded hash, so the same in every process.
            seed: Hash::seeded(at.name.as_bytes(), 0).word(),
            member,
            asked: Arc::default(),
            told: AtomicUsize::new(0),
            told_ms: AtomicU64::new(0),
            out_until_ms: AtomicU64::new(0),
            streak: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
            asks: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    pub(super) fn is_at(&self, at: &PeerAt) -> bool {
        (&*self.name, &*self.address) == (at.name.as_str(), at.address.as_str())
    }

    /// Returns whether the peer may own keys: it has no back-off, or its back-off is over.
    pub(super) fn is_up(&self, now_ms: u64) -> bool {
        now_ms >= self.out_until_ms.load(Relaxed)
    }

    /// Returns whether a request may go to the peer. After a back-off, one request may try.
    pub(super) fn may_be_asked(&self, now_ms: u64) -> bool {
        let until_ms = self.out_until_ms.load(Relaxed);
        let again_ms = now_ms + self.back_off_ms();
        until_ms == 0
            || until_ms <= now_ms
                && self.out_until_ms.compare_exchange(until_ms, again_ms, Relaxed, Relaxed).is_ok()
    }

    fn back_off_ms(&self) -> u64 {
        let doubled = self.streak.load(Relaxed).saturating_sub(1).min(16);
        let back_off = BACK_OFF_MIN.saturating_mul(1 << doubled).min(BACK_OFF_MAX);
        u64::try_from(back_off.as_millis()).unwrap_or(u64::MAX)
    }

    /// Counts one more key that the peer is asked for, until the guard is dropped.
    pub(super) fn count_fetch(&self) -> Load {
        self.asks.fetch_add(1, Relaxed);
        Load::of(&self.asked)
    }

    /// Returns the number of keys that the peer is fetching, as far as we know.
    pub(super) fn load(&self, now_ms: u64) -> usize {
        let is_believed = now_ms < self.told_ms.load(Relaxed) + LOAD_BELIEVED_MS;
        let told = if is_believed { self.told.load(Relaxed) } else { 0 };
        told.max(self.asked.load(Relaxed))
    }

    /// Records an answer of the peer, which ends its back-off.
    pub(super) fn answered(&self, told: &PeerAnswerMark, is_hit: bool) {
        self.told.store(told.load, Relaxed);
        self.told_ms.store(clock::monotonic_ms(), Relaxed);
        self.epoch.store(told.epoch, Release);
        self.hits.fetch_add(u64::from(is_hit), Relaxed);
        self.streak.store(0, Relaxed);
        if self.out_until_ms.swap(0, Relaxed) != 0 {
            tracing::info!(peer = %self.name, "peer reachable again");
        }
    }

    /// Records a failure of the peer, which starts its back-off.
    pub(crate) fn failed(&self, why: &str) {
        self.failures.fetch_add(1, Relaxed);
        let now_ms = clock::monotonic_ms();
        let is_news = self.streak.fetch_add(1, Relaxed) == 0;
        self.out_until_ms.store(now_ms + self.back_off_ms(), Relaxed);
        if is_news {
            tracing::warn!(peer = %self.name, why, "peer unreachable: requests for its keys go to the origin");
        }
    }

    pub(super) fn seen(&self, now_ms: u64) -> PeerSeen {
        let standing = match (self.is_own, self.is_up(now_ms) && self.streak.load(Relaxed) == 0) {
            (true, _) => PeerStanding::Own,
            (false, true) => PeerStanding::Up,
            (false, false) => PeerStanding::Out,
        };
        PeerSeen {
            name: self.name.to_string(),
            address: self.address.to_string(),
            standing,
            asks: self.asks.load(Relaxed),
            hits: self.hits.load(Relaxed),
            failures: self.failures.load(Relaxed),
        }
    }
}
