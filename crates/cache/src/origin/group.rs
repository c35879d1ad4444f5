//! An origin as a group of servers, and the choice of the server for a request.
//!
//! ```text
//!  1. the server that sent the sliced object, or to which a cookie binds the visitor, if it is up or drained
//!  2. a server that is up, by the group's balance  (a server that is warming up has a part of its weight)
//!  3. a backup server that is up, by balance
//!  4. an ejected server, by balance: better than no answer
//! ```
//! A server whose probes fail, or that an operator has taken down, is never chosen; a drained server is
//! chosen only by rule 1. No server is chosen twice for one answer.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use engine::store::Hash;
use wire::http1::{head::RequestHead, known::KnownHeader};

use super::{
    balance::{Candidate, Candidates, by_hash, least_busy, random, round_robin},
    health::{HealthState, WARMING_STEPS},
    member::Member,
};
use crate::config::{Balance, Origin, OriginRules, Server};

/// Number of a member, unique among all members of all origins in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MemberId(u64);

/// Next free number for members and groups.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl MemberId {
    /// Returns a number that was not used before.
    pub(super) fn next() -> Self {
        Self(NUMBERS.fetch_add(1, Relaxed))
    }
}

/// Members of a group that have already been asked, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TriedMembers {
    members: u64,
    pub(super) count: u32,
}

/// A member with its settings in a group.
struct Place {
    member: Arc<Member>,
    weight: u32,
    is_backup: bool,
    /// Identity of the member for hashing and for sticky cookies: the same in every process, whatever its
    /// position in the list.
    seed: u64,
}

/// State of an origin that all cores share.
pub(crate) struct Group {
    /// Number of the group, never reused.
    pub(super) number: u64,
    places: Box<[Place]>,
    balance: Balance,
    /// Name of the cookie that binds visitors to a member.
    sticky: Option<Box<str>>,
    tries_max: u32,
    /// Time until which the origin counts as failing; 0 if its last exchange succeeded. Written when it
    /// begins to fail, each second while it does, and when it answers again.
    failing_until_ms: AtomicU64,
}

/// Milliseconds for which requests that a stored answer can satisfy are not sent to a failed origin.
const RETRY_MS: u64 = 1000;

/// Preferences of a request for a member.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wish {
    /// Hash of the request's key.
    pub(crate) hash: u64,
    /// Seed of the member that the visitor is bound to.
    pub(crate) stays_with: Option<u64>,
    /// Tag of the member whose version of an object is needed for a slice; 0 for any member.
    pub(crate) block_of: u32,
}

/// Bits of a member's seed that a stored object keeps, to recognize the member that sent it.
const TAG_BITS: u64 = (1 << 24) - 1;

/// Returns the tag for a member's seed; never 0.
fn tag_of(seed: u64) -> u32 {
    (seed & TAG_BITS).max(1) as u32
}

fn seed_of(server: &Server) -> u64 {
    Hash::seeded(server.to_string().as_bytes(), 0).word()
}

impl Group {
    pub(crate) fn new(origin: &Origin, rules: &OriginRules, member: impl Fn(&Server) -> Arc<Member>) -> Self {
        let place = |of: &crate::config::Member| {
            let member = member(&of.server);
            let weight = u32::from(of.weight) * WARMING_STEPS;
            Place { member, weight, is_backup: of.is_backup, seed: seed_of(&of.server) }
        };
        Self {
            number: NUMBERS.fetch_add(1, Relaxed),
            places: origin.members().iter().map(place).collect(),
            balance: rules.balance,
            sticky: rules.sticky.clone(),
            tries_max: rules.tries,
            failing_until_ms: AtomicU64::new(0),
        }
    }

    /// Returns a group without members, for a site without an origin.
    pub(crate) fn of_nobody() -> Self {
        Self {
            number: NUMBERS.fetch_add(1, Relaxed),
            places: Box::new([]),
            balance: Balance::default(),
            sticky: None,
            tries_max: 0,
            failing_until_ms: AtomicU64::new(0),
        }
    }

    /// Returns the initial state of a core's round robin.
    pub(crate) fn turns(&self) -> Box<[i64]> {
        vec![0; self.places.len()].into()
    }

    /// Chooses a member that has not been asked yet. `turns` is this core's round robin state, one number per
    /// member.
    pub(crate) fn choose(
        &self,
        wish: Wish,
        tried: &mut TriedMembers,
        turns: &mut [i64],
        now_ms: u64,
    ) -> Option<MemberId> {
        if tried.count >= self.tries_max {
            return None;
        }
        let at = self.place_of(wish, *tried, turns, now_ms)?;
        tried.members |= 1 << at;
        tried.count += 1;
        Some(self.places[at].member.id)
    }

    /// Returns the member with this number.
    pub(crate) fn member(&self, id: MemberId) -> Option<&Arc<Member>> {
        self.places.iter().map(|place| &place.member).find(|member| member.id == id)
    }

    fn place_of(&self, wish: Wish, tried: TriedMembers, turns: &mut [i64], now_ms: u64) -> Option<usize> {
        let is_left = |at: usize| tried.members >> at & 1 == 0;
        if wish.block_of > 0 || wish.stays_with.is_some() {
            // Another member may have another version, so the slice's member takes precedence over the
            // visitor's member.
            let is_its = |place: &Place| match wish.block_of {
                0 => Some(place.seed) == wish.stays_with,
                tag => tag_of(place.seed) == tag,
            };
            let its = self.places.iter().position(is_its);
            let can = |at: &usize| {
                let standing = self.places[*at].member.standing(now_ms);
                is_left(*at)
                    && matches!(standing, HealthState::Up | HealthState::Warming(_) | HealthState::Drained)
            };
            if let Some(at) = its.filter(can) {
                return Some(at);
            }
        }
        if let [Place { member, .. }] = &*self.places {
            return (is_left(0) && member.standing(now_ms).may_be_asked()).then_some(0);
        }
        let [mut up, mut backups, mut ejected]: [Candidates; 3] = std::array::from_fn(|_| Candidates::new());
        for (at, place) in self.places.iter().enumerate().filter(|(at, _)| is_left(*at)) {
            let Place { member, is_backup, seed, .. } = place;
            let (weight, of) = match (member.standing(now_ms), is_backup) {
                (HealthState::Up, false) => (place.weight, &mut up),
                (HealthState::Warming(steps), false) => (place.weight * steps / WARMING_STEPS, &mut up),
                (HealthState::Up | HealthState::Warming(_), true) => (place.weight, &mut backups),
                (HealthState::Ejected, _) => (place.weight, &mut ejected),
                (HealthState::Sick | HealthState::Drained | HealthState::Down, _) => continue,
            };
            of.push(Candidate { at, weight: weight.max(1), busy: member.busy(), seed: *seed });
        }
        let candidates = [up, backups, ejected].into_iter().find(|candidates| !candidates.is_empty())?;
        if let [only] = candidates[..] {
            return Some(only.at);
        }
        match self.balance {
            Balance::RoundRobin => round_robin(&candidates, turns),
            Balance::Random => random(&candidates, fastrand::u64(..)),
            Balance::LeastBusy => least_busy(&candidates, fastrand::u64(..)),
            Balance::Hash => by_hash(&candidates, wish.hash),
        }
    }

    /// Returns the preferences of a request for a member.
    pub(crate) fn routing_hints(&self, page: &[u8], head: &RequestHead<'_, '_>) -> Wish {
        let hash = if self.balance == Balance::Hash { Hash::seeded(page, 0).word() } else { 0 };
        let stays_with = self.sticky.as_deref().and_then(|name| stays_with(head, name));
        Wish { hash, stays_with, block_of: 0 }
    }

    /// Returns the tag by which a stored object identifies the member that sent it; 0 if the origin has only
    /// one member.
    pub(crate) fn tag(&self, member: MemberId) -> u32 {
        if self.places.len() < 2 {
            return 0;
        }
        self.places.iter().find(|place| place.member.id == member).map_or(0, |place| tag_of(place.seed))
    }

    /// Returns the cookie that binds a visitor to the member that answered, unless the visitor already has
    /// it.
    pub(crate) fn cookie(&self, head: &RequestHead<'_, '_>, member: MemberId) -> Option<String> {
        let name = self.sticky.as_deref()?;
        let seed = self.places.iter().find(|place| place.member.id == member)?.seed;
        (stays_with(head, name) != Some(seed))
            .then(|| format!("{name}={seed:016x}; Path=/; HttpOnly; SameSite=Lax"))
    }

    /// Returns whether the origin failed a moment ago. Stored answers are then served where possible, and the
    /// origin is not asked.
    pub(crate) fn is_failing(&self, now_ms: u64) -> bool {
        now_ms < self.failing_until_ms.load(Relaxed)
    }

    /// Returns whether a request that a stored answer can satisfy may ask the origin. While it fails, one
    /// such request in [`RETRY_MS`] may.
    pub(crate) fn may_try(&self, now_ms: u64) -> bool {
        let failing = &self.failing_until_ms;
        let until_ms = failing.load(Relaxed);
        until_ms == 0
            || until_ms <= now_ms
                && failing.compare_exchange(until_ms, now_ms + RETRY_MS, Relaxed, Relaxed).is_ok()
    }

    /// Records that the origin could not be reached, or failed to answer a request that it had answered
    /// before.
    pub(crate) fn failed(&self, now_ms: u64) {
        self.failing_until_ms.store(now_ms + RETRY_MS, Relaxed);
    }

    /// Records that the origin answered.
    pub(crate) fn answered(&self) {
        if self.failing_until_ms.load(Relaxed) != 0 {
            self.failing_until_ms.store(0, Relaxed);
        }
    }
}

/// Returns the seed of the member that a visitor's cookie names, if any.
fn stays_with(head: &RequestHead<'_, '_>, name: &str) -> Option<u64> {
    let pairs = head.headers.known_all(KnownHeader::Cookie).flat_map(|value| value.split(|&b| b == b';'));
    let mut values = pairs.filter_map(|pair| {
        pair.trim_ascii().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
    });
    u64::from_str_radix(std::str::from_utf8(values.next()?).ok()?, 16).ok()
}
