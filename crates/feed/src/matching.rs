//! Who gets a message to a subject, remembered from one message to the next.
//!
//! A feed's traffic is many messages to few subjects, so what the trie found is kept in a small table by subject, until
//! anything in the trie changes. The lists keep their memory: in steady state nothing is allocated.

use hashbrown::HashTable;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    trie::{CoreMask, HubMask, NodeId, Open, Part, SubId, Trie},
    work::{LISTED, Work},
};

/// Subjects remembered.
const SLOTS: usize = 1024;
/// A list that is longer is not remembered: looking it up again is nothing beside going through it.
const KEPT_SUBSCRIBERS_MAX: usize = 1024;

/// To list a group is as much as to list so many subscribers.
const GROUPS_AS_SUBSCRIBERS: usize = 16;

/// Who gets a message.
#[derive(Debug, Default)]
pub(crate) struct Match {
    root: NodeId,
    subject: SmallVec<[u8; 48]>,
    generation: u64,
    /// Local subscribers in no group.
    pub(crate) subscribers: Vec<SubId>,
    /// Groups, of each of which one member gets it: the first part of each.
    pub(crate) groups: SmallVec<[Part; 2]>,
    /// Where names are at several patterns.
    overlap: Option<Box<Overlap>>,
    /// Other cores with subscribers in no group.
    pub(crate) cores: CoreMask,
    /// Hubs with such.
    pub(crate) hubs: HubMask,
    /// Some of the groups have members at a hub.
    pub(crate) has_groups_at_hubs: bool,
}

/// Of groups that have members at several of the patterns.
#[derive(Debug, Default)]
struct Overlap {
    /// All parts but the first of each group.
    further: Vec<Part>,
    /// Places in [`Match::groups`] by the names' hashes.
    by_name: HashTable<u32>,
}

/// A queue group of a match, with all of its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchedGroup<'a> {
    pub(crate) first: Part,
    further: &'a [Part],
}

impl<'a> MatchedGroup<'a> {
    /// A group at one pattern alone.
    pub(crate) fn at(first: Part) -> Self {
        Self { first: Part { next: Part::NO_NEXT, ..first }, further: &[] }
    }

    #[inline]
    pub(crate) fn is_at_one_pattern(self) -> bool {
        self.first.next == Part::NO_NEXT
    }

    /// Its parts.
    #[inline]
    pub(crate) fn parts(self) -> impl Iterator<Item = Part> + use<'a> {
        std::iter::successors(Some(self.first), move |part| self.further.get(part.next as usize).copied())
    }
}

impl Match {
    /// A group by its place in [`Self::groups`].
    #[inline]
    pub(crate) fn group(&self, place: usize) -> Option<MatchedGroup<'_>> {
        let first = *self.groups.get(place)?;
        Some(MatchedGroup { first, further: self.overlap.as_ref().map_or(&[], |overlap| &overlap.further) })
    }

    /// The group of a name.
    pub(crate) fn group_of_name(&self, trie: &Trie, name: &[u8]) -> Option<MatchedGroup<'_>> {
        let hash = trie.hash_of_name(name);
        let is_it = |part: Part| trie.group(part).is_some_and(|group| *group.name == *name);
        let all = (0..self.groups.len()).filter(|&place| self.groups[place].hash == hash);
        all.filter_map(|place| self.group(place)).find(|group| group.parts().any(is_it))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.subscribers.is_empty() && self.groups.is_empty() && self.cores == 0 && self.hubs == 0
    }

    fn begin(&mut self, trie: &Trie, root: NodeId, subject: &[u8]) {
        self.root = root;
        self.subject.clear();
        self.subject.extend_from_slice(subject);
        self.generation = trie.generation();
        self.subscribers.clear();
        self.groups.clear();
        self.overlap = None;
        self.cores = 0;
        self.hubs = 0;
        self.has_groups_at_hubs = false;
    }

    /// Adds who is at a node; how many subscribers that are.
    #[inline]
    fn add(&mut self, trie: &Trie, id: NodeId) -> usize {
        let subscribers = trie.subscribers(id);
        let groups_before = self.groups.len();
        self.subscribers.extend_from_slice(subscribers);
        if let Some(more) = trie.more(id) {
            self.cores |= more.remote;
            self.hubs |= more.hubs;
            self.has_groups_at_hubs |= more.at_hubs > 0;
            let is_first = self.groups.is_empty();
            for (place, group) in (0..).zip(&more.groups) {
                let part = Part { node: id, group: place, hash: group.hash, next: Part::NO_NEXT };
                if is_first {
                    self.groups.push(part);
                } else if !group.name.is_empty() {
                    self.add_part(trie, part, &group.name);
                }
            }
        }
        subscribers.len() + self.groups.len().saturating_sub(groups_before) * GROUPS_AS_SUBSCRIBERS
    }

    /// Adds a group of a further pattern: to the one of its name, if there is one.
    #[cold]
    fn add_part(&mut self, trie: &Trie, part: Part, name: &[u8]) {
        let Self { groups, overlap, .. } = self;
        let hash_of = |part: &Part| u64::from(part.hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let overlap = overlap.get_or_insert_with(|| {
            let mut by_name = HashTable::with_capacity(groups.len() + 1);
            for (place, first) in (0..).zip(groups.iter()) {
                by_name.insert_unique(hash_of(first), place, |&place: &u32| hash_of(&groups[place as usize]));
            }
            Box::new(Overlap { further: Vec::new(), by_name })
        });
        let Overlap { further, by_name } = &mut **overlap;
        let is_it = |&place: &u32| {
            let first = groups[place as usize];
            first.hash == part.hash && trie.group(first).is_some_and(|group| *group.name == *name)
        };
        if let Some(&place) = by_name.find(hash_of(&part), is_it) {
            let first = &mut groups[place as usize];
            let next = std::mem::replace(&mut first.next, number(further.len()));
            further.push(Part { next, ..part });
        } else {
            let place = number(groups.len());
            groups.push(part);
            by_name.insert_unique(hash_of(&part), place, |&place| hash_of(&groups[place as usize]));
        }
    }
}

/// Parts are groups of patterns that somebody has subscribed to: there are fewer than subscriptions.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or_else(|_| panic!("four thousand million groups of one subject"))
}

/// The subjects of late.
#[derive(Debug)]
pub(crate) struct Matches {
    slots: Vec<Match>,
    /// What is open of the subject that was asked for last: nothing, unless the turn's work was done before.
    open: Open,
    pub(crate) found: u64,
    pub(crate) made: u64,
}

impl Matches {
    pub(crate) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| Match::default()).collect(), open: Open::new(), found: 0, made: 0 }
    }

    /// Takes out who gets a message to `subject`, now; [`Self::put_back`] takes it back. Where the turn's work is done
    /// before all are found, [`Self::take_open`] has the rest.
    #[inline]
    pub(crate) fn take(
        &mut self,
        trie: &Trie,
        root: NodeId,
        subject: &[u8],
        work: &mut Work,
    ) -> (usize, Match) {
        let slot = slot_of(trie.seed(), root, subject);
        let mut taken = std::mem::take(&mut self.slots[slot]);
        if taken.generation == trie.generation() && taken.root == root && taken.subject[..] == *subject {
            self.found += 1;
            return (slot, taken);
        }
        self.made += 1;
        self.fill(&mut taken, trie, root, subject, work);
        (slot, taken)
    }

    #[inline]
    pub(crate) fn put_back(&mut self, slot: usize, mut taken: Match) {
        if taken.subscribers.len() > KEPT_SUBSCRIBERS_MAX {
            taken = Match::default();
        }
        self.slots[slot] = taken;
    }

    /// Forgets who was found, and gives back what that took.
    pub(crate) fn forget(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot = Match::default());
        self.open = Open::new();
    }

    /// Whether all were found of the subject that was asked for last.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.open.is_empty()
    }

    /// What is not looked through yet; nothing is open any more here.
    pub(crate) fn take_open(&mut self) -> Open {
        std::mem::take(&mut self.open)
    }

    fn fill(&mut self, into: &mut Match, trie: &Trie, root: NodeId, subject: &[u8], work: &mut Work) {
        into.begin(trie, root, subject);
        trie.look_for(root, subject, &mut self.open);
        go_on(into, &mut self.open, trie, subject, work);
    }
}

/// Goes on to find who gets a message to `subject`, until nothing is open or the turn's work is done.
pub(crate) fn go_on(into: &mut Match, open: &mut Open, trie: &Trie, subject: &[u8], work: &mut Work) {
    let mut listed = 0;
    trie.go_on(open, subject, work, |id| listed += into.add(trie, id) / LISTED);
    work.add(listed as u64);
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low bits choose the slot")]
fn slot_of(seed: u64, root: NodeId, subject: &[u8]) -> usize {
    xxh3_64_with_seed(subject, seed ^ u64::from(root)) as usize % SLOTS
}
