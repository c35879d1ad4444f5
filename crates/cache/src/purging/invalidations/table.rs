//! All purges by number, in the form that a lookup needs.

use std::{collections::HashMap, hash::BuildHasherDefault, sync::Arc};

use engine::store::Hash;

use super::{Invalidation, What};
use crate::{
    core::identity_hasher::IdentityHasher,
    purging::bans::{Bans, Verdict},
};

/// Slots of a table's map, of which seven eighths can be used before it grows.
const PLACES: usize = 1 << 18;
/// Maximum number of tags and addresses in a table.
pub(crate) const TAGS_MAX: usize = PLACES / 8 * 7;
/// Maximum size of a table in bytes: 6.5 MB. A slot has one byte besides its entry, and the map a few more.
pub(crate) const TABLE_BYTES_MAX: u64 = (PLACES * (size_of::<(u64, Marks)>() + 1) + 64) as u64;

/// Latest numbers of a hard and of a soft purge; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Marks {
    pub(super) hard: u64,
    pub(super) soft: u64,
}

impl Marks {
    fn mark(&mut self, number: u64, is_soft: bool) {
        let mark = if is_soft { &mut self.soft } else { &mut self.hard };
        *mark = number.max(*mark);
    }
}

/// Purges that were widened to make room for a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Overflow {
    /// The table of tags was emptied, and everything with tags counts as purged.
    pub(crate) is_emptied: bool,
    /// Number of bans that became purges of everything up to their number.
    pub(crate) bans: usize,
}

/// All purges, in the form that a lookup needs.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(super) marks: HashMap<u64, Marks, BuildHasherDefault<IdentityHasher>>,
    marks_max: usize,
    pub(super) all: Marks,
    /// Number of the latest purge of everything with tags.
    pub(super) tagged_hard: u64,
    /// Answers with numbers below this one must be revalidated before they are used.
    pub(super) doubted: u64,
    /// Latest numbers of purges by address.
    address: Marks,
    pub(super) youngest: u64,
    pub(super) bans: Bans,
}

impl Default for Table {
    fn default() -> Self {
        Self::new(TAGS_MAX)
    }
}

impl Table {
    pub(super) fn new(marks_max: usize) -> Self {
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

    /// Returns the greatest number that was given out.
    pub(crate) fn youngest(&self) -> u64 {
        self.youngest
    }

    /// Returns purges that rebuild this table.
    pub(crate) fn purges(&self) -> impl Iterator<Item = Invalidation> {
        let floors = [
            (What::All, self.all.hard, false),
            (What::All, self.all.soft, true),
            (What::Tagged, self.tagged_hard, false),
            (What::Doubted, self.doubted, true),
            // Makes the next number greater than all that were given out.
            (What::Tags([].into()), self.youngest, false),
        ];
        // The kind of a hash, tag or address, matters only when the table is full. A hash may be an address's
        // if an address was purged in the same way at that number or later.
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

    /// Returns the number of tags and addresses in the table.
    pub(crate) fn held(&self) -> usize {
        self.marks.len()
    }

    /// Returns the active bans.
    pub(crate) fn bans(&self) -> &Bans {
        &self.bans
    }

    /// Applies a purge, and returns what had to be widened for it.
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
            // The full size is allocated at once: growing later would move all entries while clients wait.
            self.marks.reserve(self.marks_max);
        }
        self.marks.entry(hash).or_default().mark(invalidation.number, invalidation.is_soft);
        is_full
    }

    /// Forgets which tags were purged, and counts all objects with tags as purged instead.
    fn empty(&mut self) {
        self.marks.clear();
        self.tagged_hard = self.youngest;
        // Objects without tags may have been purged by their address.
        let Marks { hard, soft } = std::mem::take(&mut self.address);
        self.mark_all(hard, false);
        self.mark_all(soft, true);
    }

    /// Returns the hashes by which an answer's address may have been purged: that of its own key, and that of
    /// its host and path under any scheme and port.
    pub(super) fn addresses(&self, since: u64, address: Hash, key: impl FnOnce() -> Hash) -> [u64; 2] {
        let are_any = self.address.hard.max(self.address.soft) > since;
        [address.word(), if are_any { key().word() } else { address.word() }]
    }

    /// Returns the effect of the purges after `since` on an answer.
    pub(super) fn verdict(
        &self,
        since: u64,
        addresses: [u64; 2],
        tags: impl ExactSizeIterator<Item = u64>,
    ) -> Verdict {
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
