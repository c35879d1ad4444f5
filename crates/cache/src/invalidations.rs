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
//! ([`spread`](crate::spread)); nothing here locks, and a hit allocates nothing. *Bound:* [`TAGS_MAX`]; a table that
//! is full is emptied, and all that has tags counts as purged. *Why numbers do not lie:* one is given out after the
//! origin's change and before any core knows it. Whoever knows it when a fetch begins has it from then; so the answer
//! is younger than the change, in whatever order cores hear of two purges.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    hash::BuildHasherDefault,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use engine::store::{Hash, Object};

use crate::{
    as_is::AsIs,
    response_head::{Flags, StoredMeta},
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
    /// What is stored under the address with this hash.
    Address(u64),
    /// Everything.
    All,
    /// What has any tag: what becomes of a table that is full.
    Tagged,
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
    fn mark(&mut self, invalidation: &Invalidation) {
        let mark = if invalidation.is_soft { &mut self.soft } else { &mut self.hard };
        *mark = invalidation.number.max(*mark);
    }
}

/// What purges made of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Nothing.
    Valid,
    /// It is stale since the purge of this number.
    Soft(u64),
    /// It is not there.
    Hard,
}

/// All that was purged, as far as one answer is concerned.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    marks: HashMap<u64, Marks, BuildHasherDefault<AsIs>>,
    marks_max: usize,
    all: Marks,
    /// What has tags and a lesser number was purged.
    tagged_hard: u64,
    /// The youngest number that an address has here.
    address: Marks,
    youngest: u64,
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
            address: Marks::default(),
            youngest: 0,
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
        let all = floors.into_iter().chain(marks).filter(|(_, number, _)| *number > 0);
        all.map(|(what, number, is_soft)| Invalidation { number, what, is_soft })
    }

    /// Tags and addresses that are held.
    pub(crate) fn held(&self) -> usize {
        self.marks.len()
    }

    /// Takes in a purge; whether the table had to be emptied for it.
    pub(crate) fn apply(&mut self, invalidation: &Invalidation) -> bool {
        self.youngest = invalidation.number.max(self.youngest);
        match &invalidation.what {
            What::All => {
                self.all.mark(invalidation);
                false
            }
            What::Tagged => {
                self.tagged_hard = invalidation.number.max(self.tagged_hard);
                false
            }
            What::Address(hash) => {
                self.address.mark(invalidation);
                self.mark(*hash, invalidation)
            }
            What::Tags(tags) => {
                let mut emptied = false;
                for tag in tags {
                    emptied |= self.mark(*tag, invalidation);
                }
                emptied
            }
        }
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
        self.marks.entry(hash).or_default().mark(invalidation);
        is_full
    }

    /// Forgets which tags were purged: more is purged by that, never less.
    fn empty(&mut self) {
        self.marks.clear();
        self.tagged_hard = self.youngest;
        // What has no tags may have been purged by its address.
        let Marks { hard, soft } = std::mem::take(&mut self.address);
        self.all = Marks { hard: hard.max(self.all.hard), soft: soft.max(self.all.soft) };
    }

    /// What the purges after `since` made of an answer.
    fn verdict(&self, since: u64, address: u64, tags: impl ExactSizeIterator<Item = u64>) -> Verdict {
        if since >= self.youngest {
            return Verdict::Valid;
        }
        let mut soft = self.all.soft;
        if self.all.hard > since || (self.tagged_hard > since && tags.len() > 0) {
            return Verdict::Hard;
        }
        if !self.marks.is_empty() {
            for hash in std::iter::once(address).chain(tags) {
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
struct Found {
    hash: u64,
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
    found: Box<[Cell<Found>]>,
}

impl Invalidations {
    /// Of a core that begins with these.
    pub(crate) fn new(table: Table) -> Self {
        Self {
            youngest: Cell::new(table.youngest),
            purges: Cell::new(u64::from(table.youngest > 0)),
            table: RefCell::new(table),
            found: (0..FOUND).map(|_| Cell::default()).collect(),
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

    /// Takes in a purge; whether the table had to be emptied for it.
    pub(crate) fn apply(&self, invalidation: &Invalidation) -> bool {
        let mut table = self.table.borrow_mut();
        let emptied = table.apply(invalidation);
        self.youngest.set(table.youngest);
        self.purges.set(self.purges.get() + 1);
        emptied
    }

    /// What purges made of a stored answer. One that was purged softly has the lifetime that ended with that. The
    /// names in `Vary` are no answer: what is found by them is asked about by itself.
    #[inline]
    pub(crate) fn judge(
        &self,
        object: &Object<'_>,
        meta: &mut StoredMeta,
        (hash, address): (Hash, Hash),
        now_s: u64,
    ) -> Verdict {
        if meta.bans == self.youngest.get() || meta.flags.has(Flags::VARY_SPEC) {
            return Verdict::Valid;
        }
        self.judge_older(object, meta, (hash, address), now_s)
    }

    /// As [`judge`](Self::judge), of an answer whose fetch began before the last purge.
    #[inline(never)]
    fn judge_older(
        &self,
        object: &Object<'_>,
        meta: &mut StoredMeta,
        (hash, address): (Hash, Hash),
        now_s: u64,
    ) -> Verdict {
        let purges = self.purges.get();
        if purges == 0 {
            return Verdict::Valid;
        }
        // The low bits chose the core.
        let place = &self.found[(hash.word() >> 32) as usize % FOUND];
        let known = place.get();
        let found = Found {
            hash: hash.word(),
            place: object.place(),
            sequence: object.sequence(),
            purges,
            soft: known.soft,
        };
        let soft = if known == found {
            known.soft
        } else {
            let verdict = match tags::stored(object.extra()) {
                Ok(tags) => self.table.borrow().verdict(meta.bans, address.word(), tags),
                // Nobody can say what it is about.
                Err(tags::Malformed) => Verdict::Hard,
            };
            let soft = match verdict {
                Verdict::Valid => 0,
                Verdict::Soft(number) => number,
                Verdict::Hard => return Verdict::Hard,
            };
            place.set(Found { soft, ..found });
            soft
        };
        if soft == 0 {
            return Verdict::Valid;
        }
        end_lifetime(meta, soft, now_s);
        Verdict::Soft(soft)
    }

    /// Whether nothing that was purged after an answer's fetch began was about it.
    pub(crate) fn are_about_others(&self, since: u64, address: Hash, tags: &[u64]) -> bool {
        let verdict = self.table.borrow().verdict(since, address.word(), tags.iter().copied());
        verdict == Verdict::Valid
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
