//! Who gets a message to a subject, remembered from one message to the next.
//!
//! A feed's traffic is many messages to few subjects, so what the trie found is kept in a small table by subject, until
//! anything in the trie changes. The lists keep their memory: in steady state nothing is allocated.

use hashbrown::HashTable;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    overlap::OverlapGroup,
    trie::{CoreMask, Group, HubId, HubMask, NodeId, Open, Part, SubId, Trie},
    work::{LISTED, Work},
};

/// Subjects remembered.
const SLOTS: usize = 1024;
/// A list that is longer is not remembered: looking it up again is nothing beside going through it.
const KEPT_SUBSCRIBERS_MAX: usize = 1024;

/// So many groups of the first pattern are listed for a unit of work. A group of a further one costs a unit and one for each
/// entry of its sums.
const GROUPS_A_STEP: usize = 4;

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

/// Groups that have members at several of the patterns.
#[derive(Debug, Default)]
struct Overlap {
    groups: Vec<OverlapGroup>,
    /// Places in [`Match::groups`] by the names' hashes, of those that are not at the first pattern.
    by_name: HashTable<u32>,
}

/// A queue group of a match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchedGroup<'a> {
    pub(crate) first: Part,
    /// Where it is at several patterns: its members at all of them.
    pub(crate) overlap: Option<&'a OverlapGroup>,
}

impl MatchedGroup<'_> {
    /// A group at one pattern alone.
    pub(crate) fn at(first: Part) -> Self {
        Self { first: Part { overlap: Part::ALONE, ..first }, overlap: None }
    }

    /// Whether it has members at a hub.
    pub(crate) fn is_at_hub(self, trie: &Trie, hub: HubId) -> bool {
        match self.overlap {
            Some(overlap) => overlap.has_hub(hub),
            None => trie.group(self.first).is_some_and(|group| group.hubs.iter().any(|&(of, _)| of == hub)),
        }
    }
}

impl Match {
    /// A group by its place in [`Self::groups`].
    #[inline]
    pub(crate) fn group(&self, place: usize) -> Option<MatchedGroup<'_>> {
        let first = *self.groups.get(place)?;
        let overlap = match first.overlap {
            Part::ALONE => None,
            at => self.overlap.as_ref().map(|overlap| &overlap.groups[at as usize]),
        };
        Some(MatchedGroup { first, overlap })
    }

    /// The group of a name.
    pub(crate) fn group_of_name(&self, trie: &Trie, name: &[u8]) -> Option<MatchedGroup<'_>> {
        let hash = trie.hash_of_name(name);
        let place = self.place_of(trie, name, hash)?;
        self.group(place)
    }

    /// The place of a group in [`Self::groups`]. Those of the first pattern lie in its order: its own table finds them.
    fn place_of(&self, trie: &Trie, name: &[u8], hash: u32) -> Option<usize> {
        let is_it = |&place: &u32| is_group(trie, self.groups[place as usize], name, hash);
        let at_first = trie.more(self.groups.first()?.node).and_then(|more| more.place_of(name, hash));
        let at_first = at_first
            .filter(|&place| self.groups.get(place).is_some_and(|&part| is_group(trie, part, name, hash)));
        let by_name = || self.overlap.as_ref()?.by_name.find(spread(hash), is_it);
        at_first.or_else(|| by_name().map(|&place| place as usize))
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

    /// Adds the subscribers at a node, and its groups from a place on, and pays for them. The place from which it goes on
    /// when the turn's work is done before.
    #[inline]
    fn add(&mut self, trie: &Trie, id: NodeId, from: usize, work: &mut Work) -> Option<usize> {
        if from == 0 {
            let subscribers = trie.subscribers(id);
            self.subscribers.extend_from_slice(subscribers);
            work.add((subscribers.len() / LISTED) as u64);
        }
        let more = trie.more(id)?;
        self.cores |= more.remote;
        self.hubs |= more.hubs;
        self.has_groups_at_hubs |= more.at_hubs > 0;
        if more.groups.is_empty() {
            return None;
        }
        self.add_groups(trie, id, from, work)
    }

    fn add_groups(&mut self, trie: &Trie, id: NodeId, from: usize, work: &mut Work) -> Option<usize> {
        let more = trie.more(id)?;
        let is_first = self.groups.first().is_none_or(|first| first.node == id);
        for (place, group) in more.groups.iter().enumerate().skip(from) {
            if place > from && work.is_over(0) {
                return Some(place);
            }
            let part = Part { node: id, group: number(place), hash: group.hash, overlap: Part::ALONE };
            if is_first {
                self.groups.push(part);
                if place % GROUPS_A_STEP == GROUPS_A_STEP - 1 {
                    work.step();
                }
            } else {
                work.step();
                if !group.name.is_empty() {
                    work.pay(self.add_part(trie, part, group) as u64);
                }
            }
        }
        None
    }

    /// Adds a group of a further pattern: to the one of its name, if there is one. How many entries that made.
    #[cold]
    fn add_part(&mut self, trie: &Trie, part: Part, state: &Group) -> usize {
        let known = self.place_of(trie, &state.name, state.hash);
        let Self { groups, overlap, .. } = self;
        let Overlap { groups: overlapping, by_name } = &mut **overlap.get_or_insert_with(Box::default);
        let Some(place) = known else {
            let place = number(groups.len());
            groups.push(part);
            by_name.insert_unique(spread(part.hash), place, |&place| spread(groups[place as usize].hash));
            return 0;
        };
        let first = &mut groups[place];
        let mut entries = 0;
        if first.overlap == Part::ALONE {
            let mut group = OverlapGroup::default();
            entries += trie.group(*first).map_or(0, |state| group.add(*first, state));
            first.overlap = number(overlapping.len());
            overlapping.push(group);
        }
        entries + overlapping[first.overlap as usize].add(part, state)
    }
}

/// Whether a part is still there, and of the group of a name.
fn is_group(trie: &Trie, part: Part, name: &[u8], hash: u32) -> bool {
    part.hash == hash && trie.group(part).is_some_and(|group| *group.name == *name)
}

/// The hash of a name for a table: all bits count there.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
        Self {
            slots: (0..SLOTS).map(|_| Match::default()).collect(),
            open: Open::default(),
            found: 0,
            made: 0,
        }
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
        self.open = Open::default();
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
    trie.go_on(open, subject, work, |id, from, work| into.add(trie, id, from, work));
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low bits choose the slot")]
fn slot_of(seed: u64, root: NodeId, subject: &[u8]) -> usize {
    xxh3_64_with_seed(subject, seed ^ u64::from(root)) as usize % SLOTS
}
