//! One of the accelerators that share keys, as the others know it.
//!
//! Whether it is up is known by what becomes of our requests: it is left out when one fails, for longer each time; then one
//! request tries it again, and the others wait for what becomes of that.

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

/// For how long what one has said of its load is believed.
const LOAD_BELIEVED_MS: u64 = 1000;

/// One of them.
pub(crate) struct Peer {
    pub(crate) name: Box<str>,
    pub(crate) address: Box<str>,
    pub(super) is_own: bool,
    /// By which keys find it.
    pub(super) seed: u64,
    /// What its connections are of; `None`: it is this one.
    pub(super) member: Option<Arc<Member>>,
    /// Keys that we ask it for, now.
    asked: Arc<AtomicUsize>,
    /// Keys that it has said it fetches, and when.
    told: AtomicUsize,
    told_ms: AtomicU64,
    /// Until when it is left out; 0: it is not.
    out_until_ms: AtomicU64,
    /// How often it has failed, one time after the other.
    streak: AtomicU32,
    /// Which process it was when it answered last; 0: it has not.
    pub(super) epoch: AtomicU64,
    asks: AtomicU64,
    hits: AtomicU64,
    failures: AtomicU64,
}

/// A key that is being fetched, or asked for.
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

/// Whether a peer is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerStanding {
    /// It is this accelerator.
    Own,
    /// It is.
    Up,
    /// It has failed, and is left out for a while.
    Out,
}

impl PeerStanding {
    /// A stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Up => "up",
            Self::Out => "out",
        }
    }
}

/// What is known of a peer, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSeen {
    /// Its name.
    pub name: String,
    /// Where it is asked.
    pub address: String,
    /// Whether it is.
    pub standing: PeerStanding,
    /// Requests that it was sent.
    pub asks: u64,
    /// Those that it answered from its store.
    pub hits: u64,
    /// Those that it failed at.
    pub failures: u64,
}

impl Peer {
    /// One that has not been asked yet.
    ///
    /// # Errors
    /// Its address is none.
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
            // The same in every process.
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

    /// Whether it may have keys: it has not failed, or so long ago that it is to be tried again.
    pub(super) fn is_up(&self, now_ms: u64) -> bool {
        now_ms >= self.out_until_ms.load(Relaxed)
    }

    /// Leave to ask it: of one that is to be tried again, one request has it.
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

    /// It is asked for one more key, for as long as this is held.
    pub(super) fn is_asked(&self) -> Load {
        self.asks.fetch_add(1, Relaxed);
        Load::of(&self.asked)
    }

    /// Keys that it fetches, as far as we know.
    pub(super) fn load(&self, now_ms: u64) -> usize {
        let is_believed = now_ms < self.told_ms.load(Relaxed) + LOAD_BELIEVED_MS;
        let told = if is_believed { self.told.load(Relaxed) } else { 0 };
        told.max(self.asked.load(Relaxed))
    }

    /// It has answered.
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

    /// It is left out from now on.
    pub(crate) fn failed(&self, why: &str) {
        self.failures.fetch_add(1, Relaxed);
        let now_ms = clock::monotonic_ms();
        let is_news = self.streak.fetch_add(1, Relaxed) == 0;
        self.out_until_ms.store(now_ms + self.back_off_ms(), Relaxed);
        if is_news {
            tracing::warn!(peer = %self.name, why, "peer unreachable: its keys are fetched from the origin");
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
