//! Purges by tag, by address, or of everything, hard or soft: each is a number that a hit compares with the
//! answer's own.
//!
//! ```text
//!  a purge ─▶ number ─▶ each core's table                        an answer
//!             greater      tag  ─▶ hard 7, soft 9                  bans 8: the latest number that its owner
//!             than all     tag  ─▶ hard 3                                  knew when its fetch began
//!             before       floors: all, all with tags              tags
//!
//!  bans = the table's latest?  ─ yes ─▶ not purged                     what every hit compares: one load
//!           │ no
//!  judged since the last purge? ─ yes ─▶ the earlier result            a table of fixed size
//!           │ no
//!  a greater number under its tags, its address, the floors? ─▶ hard: a miss · soft: stale since then
//! ```
//! A purge costs the same however many answers it affects: it touches none of them, and each lookup checks its
//! own answer. *Memory:* each core has all of it in plain memory of its own, updated by messages
//! ([`spread`](crate::purging::spread)); nothing here locks, and a hit allocates nothing. *Bound:*
//! [`TAGS_MAX`](table::TAGS_MAX); a full table is emptied, and everything with tags then counts as purged.
//! *Why the numbers are right:* a number is given out after the origin's change and before any core knows it.
//! A fetch that begins with that number begins after the change, so its answer is newer than the change, in
//! whatever order the cores receive two purges.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use engine::{
    cores::clock,
    store::{Hash, Object, Sweep},
};
use wire::http1::head::Headers;

pub(crate) use self::table::{Overflow, TABLE_BYTES_MAX, Table};
pub(crate) use crate::purging::bans::Verdict;
use crate::{
    core::direct_mapped_table::DirectMappedTable,
    head::response_head::{Flags, StoredMeta},
    purging::{
        bans::{Ban, BanSeen, Bans, Subject},
        momentary::MomentaryPurges,
    },
    request::key,
    tags,
};

/// Number of answers for which a core remembers the result of the purge check.
const FOUND: usize = 1024;
/// Largest number: 40 bits are stored.
const NUMBER_MAX: u64 = (1 << 40) - 1;
/// Numbers per second. A number is the time of its purge, so that a later process gives out greater ones.
const NUMBERS_A_SECOND: u64 = 100;

/// Source of the numbers, for all cores.
#[derive(Debug, Default)]
pub(crate) struct Numbers(AtomicU64);

impl Numbers {
    /// Creates a source whose first number is greater than this one.
    pub(crate) fn after(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }

    /// Returns the next number: greater than all before, and at least the current time.
    pub(crate) fn next(&self, now_ms: u64) -> u64 {
        let now = now_ms / (1000 / NUMBERS_A_SECOND);
        let next = |last: u64| (last + 1).max(now).min(NUMBER_MAX);
        // Relaxed is enough for distinct numbers; the message that carries a number orders the rest.
        let before = self.0.fetch_update(Relaxed, Relaxed, |last| Some(next(last)));
        next(before.unwrap_or_else(|last| last))
    }
}

/// Objects that a purge is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// Objects with one of these tags.
    Tags(Box<[u64]>),
    /// The objects under the address with this hash: the hash of a key, or of a host and path ([`key::place`]).
    Address(u64),
    /// All objects.
    All,
    /// Objects with any tag; a full table is replaced by such a purge.
    Tagged,
    /// All objects, softly, and without serving them stale: the purges that this accelerator missed are
    /// unknown to it.
    Doubted,
    /// Objects that match a ban.
    Ban(Arc<Ban>),
}

/// A purge with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalidation {
    pub(crate) number: u64,
    pub(crate) what: What,
    /// The purge makes objects stale, so that they may be served while they are refreshed, or be revalidated.
    pub(crate) is_soft: bool,
}

/// Remembered result of the purge check for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PurgeState {
    place: u64,
    sequence: u64,
    /// Number of purges that the core had applied at the check.
    purges: u64,
    /// Number of the purge that made the answer stale; 0 if none did.
    soft: u64,
}

/// Hashes of the keys under which a stored answer may have been purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHashes {
    /// Hash of the answer's own key, which may be a variant's.
    pub(crate) own: Hash,
    /// Hash of the part of the key that all variants share.
    pub(crate) address: Hash,
}

/// A core's knowledge of purges.
pub(crate) struct Invalidations {
    /// Changes of answers that live for only a few seconds.
    pub(crate) momentary: MomentaryPurges,
    table: RefCell<Table>,
    /// Copy of the table's `youngest`, outside the `RefCell` because every hit reads it.
    youngest: Cell<u64>,
    purges: Cell<u64>,
    /// Copy of the table's `doubted`.
    doubted: Cell<u64>,
    found: DirectMappedTable<PurgeState>,
    /// Numbers of the latest ban, and of the latest ban that names a field of the requesting client; 0 for
    /// none.
    bans: Cell<(u64, u64)>,
    /// Buffers for the key and the head of the object for which bans are evaluated.
    scratch: RefCell<(Vec<u8>, Vec<u8>)>,
    /// Number of fetches under way for each purge number.
    fetches: RefCell<BTreeMap<u64, usize>>,
    /// Position of the lurker during a walk.
    walk: Cell<Option<Sweep>>,
    /// Greatest number of a ban that the lurker has walked for: answers with a lower number are no longer
    /// stored.
    walked: Cell<u64>,
}

impl Invalidations {
    /// Creates the state of a core that starts with this table.
    pub(crate) fn new(table: Table) -> Self {
        Self {
            youngest: Cell::new(table.youngest),
            purges: Cell::new(u64::from(table.youngest > 0)),
            doubted: Cell::new(table.doubted),
            bans: Cell::new((table.bans.youngest(), table.bans.youngest_of_askers())),
            momentary: MomentaryPurges::default(),
            table: RefCell::new(table),
            found: DirectMappedTable::new(FOUND),
            scratch: RefCell::default(),
            fetches: RefCell::default(),
            walk: Cell::default(),
            walked: Cell::default(),
        }
    }

    /// Returns the number for an answer whose fetch begins now.
    #[inline]
    pub(crate) fn youngest(&self) -> u64 {
        self.youngest.get()
    }

    /// Returns the number of tags and addresses in the table.
    pub(crate) fn held(&self) -> usize {
        self.table.borrow().held()
    }

    /// Applies a purge, and returns what had to be widened for it.
    pub(crate) fn apply(&self, invalidation: &Invalidation) -> Overflow {
        let mut table = self.table.borrow_mut();
        let overflow = table.apply(invalidation);
        self.youngest.set(table.youngest);
        self.purges.set(self.purges.get() + 1);
        self.doubted.set(table.doubted);
        self.note_bans(&table.bans);
        overflow
    }

    fn note_bans(&self, bans: &Bans) {
        self.bans.set((bans.youngest(), bans.youngest_of_askers()));
    }

    /// Returns the effect of purges on a stored answer, and ends the lifetime of one that was purged softly.
    /// The stored names of `Vary` are exempt: the variants found through them are judged individually.
    #[inline]
    pub(crate) fn judge(
        &self,
        object: &Object<'_>,
        meta: &mut StoredMeta,
        hashes: KeyHashes,
        asker: Option<&Headers<'_, '_>>,
        now_s: u64,
    ) -> Verdict {
        if meta.flags.has(Flags::VARY_SPEC) {
            return Verdict::Valid;
        }
        let is_momentary = meta.is_momentary();
        let verdict = if meta.bans == self.youngest.get() {
            Verdict::Valid
        } else {
            self.judge_older(object, meta, hashes, asker, now_s)
        };
        if is_momentary { self.judge_momentary(object, meta, verdict, now_s) } else { verdict }
    }

    /// Judges a momentary answer, after purges by number had this effect.
    #[inline(never)]
    fn judge_momentary(
        &self,
        object: &Object<'_>,
        meta: &mut StoredMeta,
        verdict: Verdict,
        now_s: u64,
    ) -> Verdict {
        let fetched_ms = match tags::fetched_ms(object.extra()) {
            Ok(Some(fetched_ms)) => fetched_ms,
            Ok(None) => return verdict,
            Err(tags::TagsError) => return Verdict::Hard,
        };
        let Ok(tags) = tags::stored(object.extra()) else { return Verdict::Hard };
        let changed = self.momentary.judge(tags, fetched_ms, clock::unix_ms());
        if changed == Verdict::Outdated {
            // The time for which the answer may be shown is counted in milliseconds, by the change.
            let used_s = meta.lifetime_s + meta.stale_while_revalidate_s;
            let age_s = u32::try_from(meta.age_s(now_s)).unwrap_or(u32::MAX);
            meta.lifetime_s = meta.lifetime_s.min(age_s);
            meta.stale_while_revalidate_s = used_s - meta.lifetime_s;
        }
        verdict.max(changed)
    }

    /// Judges, as [`judge`](Self::judge) does, an answer whose fetch began before the last purge.
    #[inline(never)]
    fn judge_older(
        &self,
        object: &Object<'_>,
        meta: &mut StoredMeta,
        KeyHashes { own, address }: KeyHashes,
        asker: Option<&Headers<'_, '_>>,
        now_s: u64,
    ) -> Verdict {
        let purges = self.purges.get();
        if purges == 0 {
            return Verdict::Valid;
        }
        let found = PurgeState { place: object.place(), sequence: object.sequence(), purges, soft: 0 };
        let known = self.found.get(own).filter(|known| PurgeState { soft: 0, ..*known } == found);
        let mut soft = if let Some(known) = known {
            known.soft
        } else {
            let verdict = match tags::stored(object.extra()) {
                Ok(tags) => {
                    let table = self.table.borrow();
                    let addresses = table.addresses(meta.bans, address, || self.place_of(object));
                    table.verdict(meta.bans, addresses, tags)
                }
                // The tags are unreadable, so any purge may be about the answer.
                Err(tags::TagsError) => Verdict::Hard,
            };
            let banned = if self.bans.get().0 > meta.bans && verdict != Verdict::Hard {
                self.banned(object, meta, None)
            } else {
                Verdict::Valid
            };
            let soft = match verdict.max(banned) {
                Verdict::Valid | Verdict::Outdated => 0,
                Verdict::Soft(number) => number,
                Verdict::Hard => return Verdict::Hard,
            };
            self.found.set(own, PurgeState { soft, ..found });
            soft
        };
        // Evaluated at each lookup, because each client may differ.
        if self.bans.get().1 > meta.bans && asker.is_some() {
            match self.banned(object, meta, asker) {
                Verdict::Valid | Verdict::Outdated => {}
                Verdict::Soft(number) => soft = soft.max(number),
                Verdict::Hard => return Verdict::Hard,
            }
        }
        if soft == 0 {
            return Verdict::Valid;
        }
        end_lifetime(meta, soft, now_s);
        if self.doubted.get() > meta.bans {
            meta.flags = meta.flags.with(Flags::MUST_REVALIDATE);
            (meta.stale_while_revalidate_s, meta.stale_if_error_s) = (0, 0);
        }
        Verdict::Soft(soft)
    }

    /// Returns the hash of an object's host and path ([`key::place`]).
    fn place_of(&self, object: &Object<'_>) -> Hash {
        let (key, _) = &mut *self.scratch.borrow_mut();
        key.clear();
        object.key().copy_to(key);
        key::place(key)
    }

    /// Returns the effect of bans on an object: with `asker`, of the bans that name a field of the requesting
    /// client, else of the other bans.
    fn banned(&self, object: &Object<'_>, meta: &StoredMeta, asker: Option<&Headers<'_, '_>>) -> Verdict {
        self.with_subject(object, meta, asker, |bans, subject| {
            bans.verdict(meta.bans, subject, asker.is_some())
        })
    }

    fn with_subject<R>(
        &self,
        object: &Object<'_>,
        meta: &StoredMeta,
        asker: Option<&Headers<'_, '_>>,
        with: impl FnOnce(&Bans, &Subject<'_>) -> R,
    ) -> R {
        let mut scratch = self.scratch.borrow_mut();
        let (key, head) = &mut *scratch;
        key.clear();
        head.clear();
        object.key().copy_to(key);
        object.head().copy_to(head);
        with(&self.table.borrow().bans, &Subject { key, head, meta, asker })
    }

    /// Returns whether no purge since an answer's fetch began was about the answer.
    pub(crate) fn are_about_others(
        &self,
        address: Hash,
        tags: &[u64],
        fetched_ms: Option<u64>,
        subject: &Subject<'_>,
    ) -> bool {
        if let Some(fetched_ms) = fetched_ms
            && self.momentary.judge(tags.iter().copied(), fetched_ms, clock::unix_ms()) == Verdict::Hard
        {
            return false;
        }
        let (table, since) = (self.table.borrow(), subject.meta.bans);
        let addresses = table.addresses(since, address, || key::place(subject.key));
        let verdict = table.verdict(since, addresses, tags.iter().copied());
        verdict == Verdict::Valid
            && (self.bans.get().0 <= since
                || [false, true]
                    .iter()
                    .all(|of_askers| table.bans.verdict(since, subject, *of_askers) == Verdict::Valid))
    }

    /// Returns the active bans, for operators.
    pub(crate) fn bans_seen(&self) -> Vec<BanSeen> {
        self.table.borrow().bans.seen()
    }

    /// Returns the number of active bans.
    pub(crate) fn bans_held(&self) -> usize {
        self.table.borrow().bans.len()
    }

    /// Records that a fetch begins, and returns its number.
    pub(crate) fn fetch_begins(&self) -> u64 {
        let number = self.youngest.get();
        *self.fetches.borrow_mut().entry(number).or_default() += 1;
        number
    }

    /// Records that a fetch with this number has ended.
    pub(crate) fn fetch_ends(&self, number: u64) {
        let mut fetches = self.fetches.borrow_mut();
        let left = fetches.get_mut(&number).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            fetches.remove(&number);
        }
    }

    /// Returns whether the lurker has already searched for a ban that may match an answer with this number.
    /// The answer is then no longer stored.
    pub(crate) fn has_walked_past(&self, number: u64) -> bool {
        number < self.walked.get()
    }

    /// Returns the position at which the lurker continues, if it has something to do.
    pub(crate) fn walk(&self, now_ms: u64) -> Option<Sweep> {
        if self.bans.get().0 == 0 {
            return None;
        }
        if self.walk.get().is_none() {
            let oldest_fetch = self.fetches.borrow().keys().next().copied();
            let now = now_ms / (1000 / NUMBERS_A_SECOND);
            let youngest = self.table.borrow_mut().bans.begin_walk(oldest_fetch, now)?;
            self.walked.set(youngest.max(self.walked.get()));
            self.walk.set(Some(Sweep::default()));
        }
        self.walk.get()
    }

    /// Returns whether a ban of the lurker's walk matches an object.
    pub(crate) fn is_walked_down(&self, object: &Object<'_>) -> bool {
        let Some(meta) = StoredMeta::unpack(&object.meta()) else { return false };
        if meta.bans >= self.walked.get() || meta.flags.has(Flags::VARY_SPEC) {
            return false;
        }
        self.with_subject(object, &meta, None, |bans, subject| bans.is_walked_down(meta.bans, subject))
    }

    /// Records the lurker's position. `is_all` means that all objects are in memory.
    pub(crate) fn walked_to(&self, next: Option<Sweep>, is_all: bool) {
        self.walk.set(next);
        if next.is_none() {
            self.table.borrow_mut().bans.end_walk(is_all);
        }
    }

    /// Drops the bans that are done on all `cores`.
    pub(crate) fn drop_done_bans(&self, cores: usize) {
        if self.bans.get().0 == 0 {
            return;
        }
        let mut table = self.table.borrow_mut();
        if table.bans.drop_done(cores) > 0 {
            self.note_bans(&table.bans);
        }
    }

    /// Returns whether there are bans that the lurker can finish.
    pub(crate) fn has_unfinished_bans(&self) -> bool {
        self.bans.get().0 > 0 && self.table.borrow().bans.is_unfinished()
    }
}

/// Makes an answer stale since the purge with this number.
fn end_lifetime(meta: &mut StoredMeta, number: u64, now_s: u64) {
    // Many purges at once can bring the numbers ahead of the clock.
    let purged_s = (number / NUMBERS_A_SECOND).min(now_s);
    let lifetime_s = u32::try_from(purged_s.saturating_sub(meta.born_s)).unwrap_or(u32::MAX);
    meta.lifetime_s = meta.lifetime_s.min(lifetime_s);
}

mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod worlds;
