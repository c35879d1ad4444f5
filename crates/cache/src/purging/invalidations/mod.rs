//! What was purged by a tag, softly, or all at once: numbers, which a hit compares with the one that each answer
//! carries.
//!
//! ```text
//!  a purge ─▶ number ─▶ each core's table                        an answer
//!             greater      tag  ─▶ hard 7, soft 9                  bans 8: the youngest number that its owner
//!             than all     tag  ─▶ hard 3                                  knew when its fetch began
//!             before       floors: all, what has tags              tags
//!
//!  bans = the table's youngest? ─ yes ─▶ as it is                      what every hit asks: a load, a comparison
//!           │ no
//!  looked at since the last purge? ─ yes ─▶ as it was found            a table of fixed size
//!           │ no
//!  a greater number under its tags, its address, the floors? ─▶ hard: not there · soft: stale since then
//! ```
//! So a purge costs the same however many answers it is about, and none is touched by it; who is asked for sees it.
//! *Where the data live:* each core has all of it in plain memory of its own, told by messages
//! ([`spread`](crate::purging::spread)); nothing here locks, and a hit allocates nothing. *Bound:* [`TAGS_MAX`]; a table that
//! is full is emptied, and all that has tags counts as purged. *Why numbers do not lie:* one is given out after the
//! origin's change and before any core knows it. Whoever knows it when a fetch begins has it from then; so the answer
//! is younger than the change, in whatever order cores hear of two purges.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use engine::store::{Hash, Object, Sweep};
use wire::http1::head::Headers;

pub(crate) use crate::purging::bans::Verdict;
use crate::{
    core::{direct_mapped_table::DirectMappedTable, identity_hasher::IdentityHasher},
    head::response_head::{Flags, StoredMeta},
    purging::bans::{Ban, BanSeen, Bans, Subject},
    request::key,
    tags,
};

/// Places of a table's map, which takes seven eighths of them without growing.
const PLACES: usize = 1 << 18;
/// Tags and addresses that a table holds.
pub(crate) const TAGS_MAX: usize = PLACES / 8 * 7;
/// What a table may take, in bytes: 6.5 MB. A place has a byte beside what is in it, and the map some more.
pub(crate) const TABLE_BYTES_MAX: u64 = (PLACES * (size_of::<(u64, Marks)>() + 1) + 64) as u64;
/// Answers of which a core remembers what it found.
const FOUND: usize = 1024;
/// A number has 40 bits where it is stored.
const NUMBER_MAX: u64 = (1 << 40) - 1;
/// Numbers in a second: they are times of purges, so that those of a later process are greater.
const NUMBERS_A_SECOND: u64 = 100;

/// Gives out the numbers, for all cores.
#[derive(Debug, Default)]
pub(crate) struct Numbers(AtomicU64);

impl Numbers {
    /// Those after this one.
    pub(crate) fn after(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }

    /// The next: greater than all before, and no less than the time.
    pub(crate) fn next(&self, now_ms: u64) -> u64 {
        let now = now_ms / (1000 / NUMBERS_A_SECOND);
        let next = |last: u64| (last + 1).max(now).min(NUMBER_MAX);
        // Only that each gets another number counts; the message that carries it orders the rest.
        let before = self.0.fetch_update(Relaxed, Relaxed, |last| Some(next(last)));
        next(before.unwrap_or_else(|last| last))
    }
}

/// What is purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// What has one of these tags.
    Tags(Box<[u64]>),
    /// The objects under the address with this hash: the hash of a key, or of a host and path ([`key::place`]).
    Address(u64),
    /// Everything.
    All,
    /// What has any tag: what becomes of a table that is full.
    Tagged,
    /// Everything, softly, and it may not be shown stale: what was purged of it, others know.
    Doubted,
    /// What a condition holds of.
    Ban(Arc<Ban>),
}

/// A purge with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalidation {
    pub(crate) number: u64,
    pub(crate) what: What,
    /// It makes stale, so that what is stored may be shown while it is fetched anew, or validated.
    pub(crate) is_soft: bool,
}

/// The youngest numbers of what was purged, in either way; 0: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Marks {
    hard: u64,
    soft: u64,
}

impl Marks {
    fn mark(&mut self, number: u64, is_soft: bool) {
        let mark = if is_soft { &mut self.soft } else { &mut self.hard };
        *mark = number.max(*mark);
    }
}

/// What had to go for a purge, because there was no room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Overflow {
    /// All that has tags counts as purged.
    pub(crate) is_emptied: bool,
    /// So many bans became purges of everything that is as old.
    pub(crate) bans: usize,
}

/// All that was purged, as far as one answer is concerned.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    marks: HashMap<u64, Marks, BuildHasherDefault<IdentityHasher>>,
    marks_max: usize,
    all: Marks,
    /// What has tags and a lesser number was purged.
    tagged_hard: u64,
    /// What has a lesser number is good only if its origin says so.
    doubted: u64,
    /// The youngest number that an address has here.
    address: Marks,
    youngest: u64,
    bans: Bans,
}

impl Default for Table {
    fn default() -> Self {
        Self::new(TAGS_MAX)
    }
}

impl Table {
    fn new(marks_max: usize) -> Self {
        Self {
            marks: HashMap::default(),
            marks_max,
            all: Marks::default(),
            tagged_hard: 0,
            doubted: 0,
            address: Marks::default(),
            youngest: 0,
            bans: Bans::default(),
        }
    }

    /// The greatest number that was given out.
    pub(crate) fn youngest(&self) -> u64 {
        self.youngest
    }

    /// Purges that come to the same table.
    pub(crate) fn purges(&self) -> impl Iterator<Item = Invalidation> {
        let floors = [
            (What::All, self.all.hard, false),
            (What::All, self.all.soft, true),
            (What::Tagged, self.tagged_hard, false),
            (What::Doubted, self.doubted, true),
            // So that the next number is greater than all.
            (What::Tags([].into()), self.youngest, false),
        ];
        // Whether a hash is that of a tag or of an address matters when the table is full. It may be that of one if an
        // address was purged in this way as late.
        let what = |hash, number, addresses| {
            if number <= addresses { What::Address(hash) } else { What::Tags([hash].into()) }
        };
        let marks = self.marks.iter().flat_map(move |(hash, Marks { hard, soft })| {
            let by_hard = (what(*hash, *hard, self.address.hard), *hard, false);
            [by_hard, (what(*hash, *soft, self.address.soft), *soft, true)]
        });
        let bans =
            self.bans.iter().map(|(number, is_soft, ban)| (What::Ban(Arc::clone(ban)), number, is_soft));
        let all = floors.into_iter().chain(marks).filter(|(_, number, _)| *number > 0).chain(bans);
        all.map(|(what, number, is_soft)| Invalidation { number, what, is_soft })
    }

    /// Tags and addresses that are held.
    pub(crate) fn held(&self) -> usize {
        self.marks.len()
    }

    /// The bans that are kept.
    pub(crate) fn bans(&self) -> &Bans {
        &self.bans
    }

    /// Takes in a purge; what had to go for it.
    pub(crate) fn apply(&mut self, invalidation: &Invalidation) -> Overflow {
        let mut overflow = Overflow::default();
        let Invalidation { number, what, is_soft } = invalidation;
        self.youngest = self.youngest.max(*number);
        match what {
            What::All => self.mark_all(*number, *is_soft),
            What::Tagged => self.tagged_hard = self.tagged_hard.max(*number),
            What::Doubted => self.doubted = self.doubted.max(*number),
            What::Address(hash) => {
                self.address.mark(*number, *is_soft);
                overflow.is_emptied = self.mark(*hash, invalidation);
            }
            What::Tags(tags) => {
                for tag in tags {
                    overflow.is_emptied |= self.mark(*tag, invalidation);
                }
            }
            What::Ban(ban) => {
                for (number, is_soft) in self.bans.enter(*number, *is_soft, ban) {
                    overflow.bans += 1;
                    self.mark_all(number, is_soft);
                }
            }
        }
        overflow
    }

    fn mark_all(&mut self, number: u64, is_soft: bool) {
        self.all.mark(number, is_soft);
        self.bans.forget_until(self.all.hard, self.all.soft);
    }

    fn mark(&mut self, hash: u64, invalidation: &Invalidation) -> bool {
        let is_full = self.marks.len() >= self.marks_max && !self.marks.contains_key(&hash);
        if is_full {
            self.empty();
        }
        if self.marks.is_empty() {
            // All of it at once: to grow later would move what there is, while clients wait.
            self.marks.reserve(self.marks_max);
        }
        self.marks.entry(hash).or_default().mark(invalidation.number, invalidation.is_soft);
        is_full
    }

    /// Forgets which tags were purged: more is purged by that, never less.
    fn empty(&mut self) {
        self.marks.clear();
        self.tagged_hard = self.youngest;
        // What has no tags may have been purged by its address.
        let Marks { hard, soft } = std::mem::take(&mut self.address);
        self.mark_all(hard, false);
        self.mark_all(soft, true);
    }

    /// The hashes by which an answer's address may have been purged: that of its own key, and that of its host and path
    /// under any scheme and port.
    fn addresses(&self, since: u64, address: Hash, key: impl FnOnce() -> Hash) -> [u64; 2] {
        let are_any = self.address.hard.max(self.address.soft) > since;
        [address.word(), if are_any { key().word() } else { address.word() }]
    }

    /// What the purges after `since` made of an answer.
    fn verdict(&self, since: u64, addresses: [u64; 2], tags: impl ExactSizeIterator<Item = u64>) -> Verdict {
        if since >= self.youngest {
            return Verdict::Valid;
        }
        let mut soft = self.all.soft.max(self.doubted);
        if self.all.hard > since || (self.tagged_hard > since && tags.len() > 0) {
            return Verdict::Hard;
        }
        if !self.marks.is_empty() {
            for hash in addresses.into_iter().chain(tags) {
                let Some(marks) = self.marks.get(&hash) else { continue };
                if marks.hard > since {
                    return Verdict::Hard;
                }
                soft = soft.max(marks.soft);
            }
        }
        if soft > since { Verdict::Soft(soft) } else { Verdict::Valid }
    }
}

/// What was found of an answer, since the last purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PurgeState {
    place: u64,
    sequence: u64,
    /// After so many purges.
    purges: u64,
    /// The number by which it is stale; 0: it is not.
    soft: u64,
}

/// What one core knows of purges.
pub(crate) struct Invalidations {
    table: RefCell<Table>,
    /// Of the table; beside it, because every hit reads it.
    youngest: Cell<u64>,
    purges: Cell<u64>,
    /// That of the table.
    doubted: Cell<u64>,
    found: DirectMappedTable<PurgeState>,
    /// The numbers of the youngest ban, and of the youngest about who asks; 0: none.
    bans: Cell<(u64, u64)>,
    /// A key and a head, to be looked at by bans.
    scratch: RefCell<(Vec<u8>, Vec<u8>)>,
    /// How many fetches under way have which number.
    fetches: RefCell<BTreeMap<u64, usize>>,
    /// Where the lurker is, while it walks.
    walk: Cell<Option<Sweep>>,
    /// The greatest number of a ban that it has walked for: what is older is not stored any more.
    walked: Cell<u64>,
}

impl Invalidations {
    /// Of a core that begins with these.
    pub(crate) fn new(table: Table) -> Self {
        Self {
            youngest: Cell::new(table.youngest),
            purges: Cell::new(u64::from(table.youngest > 0)),
            doubted: Cell::new(table.doubted),
            bans: Cell::new((table.bans.youngest(), table.bans.youngest_of_askers())),
            table: RefCell::new(table),
            found: DirectMappedTable::new(FOUND),
            scratch: RefCell::default(),
            fetches: RefCell::default(),
            walk: Cell::default(),
            walked: Cell::default(),
        }
    }

    /// The number that an answer carries whose fetch begins now.
    #[inline]
    pub(crate) fn youngest(&self) -> u64 {
        self.youngest.get()
    }

    /// Tags and addresses that are held.
    pub(crate) fn held(&self) -> usize {
        self.table.borrow().held()
    }

    /// Takes in a purge; what had to go for it.
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

    /// What purges made of a stored answer. One that was purged softly has the lifetime that ended with that. The
    /// names in `Vary` are no answer: what is found by them is asked about by itself.
    #[inline]
    pub(crate) fn judge(
        &self,
        object: &Object<'_>,
        meta: &mut StoredMeta,
        hashes: (Hash, Hash),
        asker: Option<&Headers<'_, '_>>,
        now_s: u64,
    ) -> Verdict {
        if meta.bans == self.youngest.get() || meta.flags.has(Flags::VARY_SPEC) {
            return Verdict::Valid;
        }
        self.judge_older(object, meta, hashes, asker, now_s)
    }

    /// As [`judge`](Self::judge), of an answer whose fetch began before the last purge.
    #[inline(never)]
    fn judge_older(
        &self,
        object: &Object<'_>,
        meta: &mut StoredMeta,
        (hash, address): (Hash, Hash),
        asker: Option<&Headers<'_, '_>>,
        now_s: u64,
    ) -> Verdict {
        let purges = self.purges.get();
        if purges == 0 {
            return Verdict::Valid;
        }
        let found = PurgeState { place: object.place(), sequence: object.sequence(), purges, soft: 0 };
        let known = self.found.get(hash).filter(|known| PurgeState { soft: 0, ..*known } == found);
        let mut soft = if let Some(known) = known {
            known.soft
        } else {
            let verdict = match tags::stored(object.extra()) {
                Ok(tags) => {
                    let table = self.table.borrow();
                    let addresses = table.addresses(meta.bans, address, || self.place_of(object));
                    table.verdict(meta.bans, addresses, tags)
                }
                // Nobody can say what it is about.
                Err(tags::TagsError) => Verdict::Hard,
            };
            let banned = if self.bans.get().0 > meta.bans && verdict != Verdict::Hard {
                self.banned(object, meta, None)
            } else {
                Verdict::Valid
            };
            let soft = match verdict.max(banned) {
                Verdict::Valid => 0,
                Verdict::Soft(number) => number,
                Verdict::Hard => return Verdict::Hard,
            };
            self.found.set(hash, PurgeState { soft, ..found });
            soft
        };
        // Each who asks may be another.
        if self.bans.get().1 > meta.bans && asker.is_some() {
            match self.banned(object, meta, asker) {
                Verdict::Valid => {}
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

    /// The hash of an object's host and path ([`key::place`]).
    fn place_of(&self, object: &Object<'_>) -> Hash {
        let (key, _) = &mut *self.scratch.borrow_mut();
        key.clear();
        object.key().copy_to(key);
        key::place(key)
    }

    /// What bans made of an object: with who asks those about that, without the others.
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

    /// Whether nothing that was purged after an answer's fetch began was about it.
    pub(crate) fn are_about_others(&self, address: Hash, tags: &[u64], subject: &Subject<'_>) -> bool {
        let (table, since) = (self.table.borrow(), subject.meta.bans);
        let addresses = table.addresses(since, address, || key::place(subject.key));
        let verdict = table.verdict(since, addresses, tags.iter().copied());
        verdict == Verdict::Valid
            && (self.bans.get().0 <= since
                || [false, true]
                    .iter()
                    .all(|of_askers| table.bans.verdict(since, subject, *of_askers) == Verdict::Valid))
    }

    /// The bans that are kept.
    pub(crate) fn bans_seen(&self) -> Vec<BanSeen> {
        self.table.borrow().bans.seen()
    }

    /// Bans that are kept.
    pub(crate) fn bans_held(&self) -> usize {
        self.table.borrow().bans.len()
    }

    /// A fetch begins; the answer is its number.
    pub(crate) fn fetch_begins(&self) -> u64 {
        let number = self.youngest.get();
        *self.fetches.borrow_mut().entry(number).or_default() += 1;
        number
    }

    /// A fetch with this number has ended.
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

    /// Whether the lurker has passed for a ban that may be about an answer of this number: it is not stored any more.
    pub(crate) fn has_walked_past(&self, number: u64) -> bool {
        number < self.walked.get()
    }

    /// Where the lurker goes on, if it has something to do.
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

    /// Whether a ban that the lurker walks for holds of an object.
    pub(crate) fn is_walked_down(&self, object: &Object<'_>) -> bool {
        let Some(meta) = StoredMeta::unpack(&object.meta()) else { return false };
        if meta.bans >= self.walked.get() || meta.flags.has(Flags::VARY_SPEC) {
            return false;
        }
        self.with_subject(object, &meta, None, |bans, subject| bans.is_walked_down(meta.bans, subject))
    }

    /// The lurker has come so far. `is_all`: what is in memory is all there is.
    pub(crate) fn walked_to(&self, next: Option<Sweep>, is_all: bool) {
        self.walk.set(next);
        if next.is_none() {
            self.table.borrow_mut().bans.end_walk(is_all);
        }
    }

    /// Drops the bans that are done on all of so many cores.
    pub(crate) fn drop_done_bans(&self, cores: usize) {
        if self.bans.get().0 == 0 {
            return;
        }
        let mut table = self.table.borrow_mut();
        if table.bans.drop_done(cores) > 0 {
            self.note_bans(&table.bans);
        }
    }

    /// Whether there are bans that will be done.
    pub(crate) fn has_unfinished_bans(&self) -> bool {
        self.bans.get().0 > 0 && self.table.borrow().bans.is_unfinished()
    }
}

/// Makes an answer one that is stale since the purge of this number.
fn end_lifetime(meta: &mut StoredMeta, number: u64, now_s: u64) {
    // Many purges at once have numbers ahead of the time.
    let purged_s = (number / NUMBERS_A_SECOND).min(now_s);
    let lifetime_s = u32::try_from(purged_s.saturating_sub(meta.born_s)).unwrap_or(u32::MAX);
    meta.lifetime_s = meta.lifetime_s.min(lifetime_s);
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod worlds;
