//! Cache of matches: the subscribers to a subject, remembered from one message to the next.
//!
//! Typical traffic is many messages to few subjects, so the result of a search in the trie is kept in a small
//! table by subject until anything in the trie changes. The lists keep their memory, so that nothing is
//! allocated in steady state. Their memory is counted and bounded, for each subject and in total, because one
//! client may be in tens of thousands of groups at one subject, and publish to thousands of subjects.

use hashbrown::HashTable;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    delivery::work::{LISTED, Work},
    routing::{
        overlap::OverlapGroup,
        trie::{CoreMask, Group, HubId, HubMask, NodeId, OpenLookup, Part, SubId, Trie},
    },
};

/// Number of subjects whose matches can be cached.
const SLOTS: usize = 1024;
/// Maximum memory of a cached match in bytes, without its slot. A larger match is not cached: it has so many
/// groups or subscribers, each of which gets a message, that another search costs little in comparison.
const SUBJECT_BYTES_MAX: usize = 256 << 10;
/// Maximum memory of all cached matches of a core in bytes, without their slots. Above it, all cached matches
/// are dropped.
const BYTES_MAX: usize = 4 << 20;
/// Memory in bytes up to which stale matches (from before a change of the trie) are kept, so that their lists
/// can be reused.
const STALE_BYTES_MAX: usize = BYTES_MAX / 4;

/// Number of groups at the first pattern whose listing costs one budget unit. A group at a further pattern
/// costs one unit, plus one for each entry in its member sums.
const GROUPS_A_STEP: usize = 4;

/// Recipients of messages to one subject: subscribers, queue groups, other cores and hubs.
#[derive(Debug, Default)]
pub(crate) struct Match {
    root: NodeId,
    subject: SmallVec<[u8; 48]>,
    generation: u64,
    /// Heap memory of this match in bytes at the time of the search.
    heap_bytes: usize,
    /// Local subscribers outside of queue groups.
    pub(crate) subscribers: Vec<SubId>,
    /// Queue groups; one member of each gets a message. A group is represented by its part at the first
    /// matching pattern.
    pub(crate) groups: SmallVec<[Part; 2]>,
    /// Queue groups that have members at several matching patterns, if there are any.
    overlap: Option<Box<Overlap>>,
    /// Other cores with subscribers outside of queue groups.
    pub(crate) cores: CoreMask,
    /// Hubs with subscribers outside of queue groups.
    pub(crate) hubs: HubMask,
    /// At least one of the queue groups has members at a hub.
    pub(crate) has_groups_at_hubs: bool,
}

/// Groups with members at several of the matching patterns.
#[derive(Debug, Default)]
struct Overlap {
    groups: Vec<OverlapGroup>,
    /// Indices in [`Match::groups`] by the hash of the name, for groups that are not at the first pattern.
    by_name: HashTable<u32>,
}

/// A queue group in a [`Match`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchedGroup<'a> {
    pub(crate) first: Part,
    /// Members at all matching patterns, if the group is at several.
    pub(crate) overlap: Option<&'a OverlapGroup>,
}

impl MatchedGroup<'_> {
    /// Builds the [`MatchedGroup`] for a queue group that occurs at a single pattern.
    pub(crate) fn at(first: Part) -> Self {
        Self { first: Part { overlap: Part::ALONE, ..first }, overlap: None }
    }

    /// Returns whether the group has members at a hub.
    pub(crate) fn is_at_hub(self, trie: &Trie, hub: HubId) -> bool {
        match self.overlap {
            Some(overlap) => overlap.has_hub(hub),
            None => trie.group(self.first).is_some_and(|group| group.hubs.iter().any(|&(of, _)| of == hub)),
        }
    }
}

impl Match {
    /// Returns a group by its index in [`Self::groups`].
    #[inline]
    pub(crate) fn group(&self, place: usize) -> Option<MatchedGroup<'_>> {
        let first = *self.groups.get(place)?;
        let overlap = match first.overlap {
            Part::ALONE => None,
            at => self.overlap.as_ref().map(|overlap| &overlap.groups[at as usize]),
        };
        Some(MatchedGroup { first, overlap })
    }

    /// Returns the queue group with this name.
    pub(crate) fn group_of_name(&self, trie: &Trie, name: &[u8]) -> Option<MatchedGroup<'_>> {
        let hash = trie.hash_of_name(name);
        let place = self.place_of(trie, name, hash)?;
        self.group(place)
    }

    /// Returns the index of a group in [`Self::groups`]. Groups at the first pattern are in the same order as
    /// in that pattern's node, so the node's own table finds them.
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

    /// Returns the heap memory of the match in bytes, including the spare capacity of the lists.
    fn count_heap_bytes(&self) -> usize {
        let mut bytes = self.subscribers.capacity() * size_of::<SubId>();
        if self.subject.spilled() {
            bytes += self.subject.capacity();
        }
        if self.groups.spilled() {
            bytes += self.groups.capacity() * size_of::<Part>();
        }
        if let Some(overlap) = &self.overlap {
            bytes += size_of::<Overlap>() + overlap.by_name.allocation_size();
            bytes += overlap.groups.capacity() * size_of::<OverlapGroup>();
            // If the match is too large already, the sums of members are not counted, because that would walk
            // all groups.
            if bytes <= SUBJECT_BYTES_MAX {
                bytes += overlap.groups.iter().map(OverlapGroup::heap_bytes).sum::<usize>();
            }
        }
        bytes
    }

    /// Adds the subscribers at a node, and its groups starting at index `from`, and charges the budget for
    /// them. Returns the index at which to continue if the budget is used up first.
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

    /// Adds a group at a further pattern, merging it with the group of the same name if there is one. Returns
    /// the number of entries that were added.
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

/// Returns whether a part still exists and belongs to the group with this name.
fn is_group(trie: &Trie, part: Part, name: &[u8], hash: u32) -> bool {
    part.hash == hash && trie.group(part).is_some_and(|group| *group.name == *name)
}

/// Spreads the 32-bit hash of a name over all bits that the hash table uses.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Converts a count of groups to `u32`. The count always fits, because each group has a subscription, and
/// subscription numbers are also `u32`.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or_else(|_| panic!("four thousand million groups of one subject"))
}

/// Cache of the matches of recent subjects.
#[derive(Debug)]
pub(crate) struct Matches {
    slots: Vec<Match>,
    /// Unfinished part of the last search; empty if the search was complete.
    open: OpenLookup,
    /// Heap memory of all slots' lists, in bytes.
    bytes: usize,
    /// Value of the trie's change counter when stale matches were last dropped.
    swept: u64,
    pub(crate) found: u64,
    pub(crate) made: u64,
    /// Number of matches that were not cached, or were dropped, because of their size.
    pub(crate) dropped: u64,
}

impl Matches {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Match::default()).collect(),
            open: OpenLookup::default(),
            bytes: 0,
            swept: 0,
            found: 0,
            made: 0,
            dropped: 0,
        }
    }

    /// Returns the memory of the cached matches in bytes, without their slots.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the match for `subject` out of the cache, or searches the trie; [`Self::put_back`] returns the
    /// match to the cache. If the turn's budget is used up before the search is complete, [`Self::take_open`]
    /// returns the unfinished part of the search.
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
        self.bytes -= taken.heap_bytes;
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
        if taken.heap_bytes > SUBJECT_BYTES_MAX || self.bytes + taken.heap_bytes > BYTES_MAX {
            self.make_room(&mut taken);
        }
        // A match that was in use for several turns may return to a slot that now has a different subject.
        self.bytes = self.bytes + taken.heap_bytes - self.slots[slot].heap_bytes;
        self.slots[slot] = taken;
    }

    /// Drops the match if it is too large to be cached; otherwise drops all other matches, which are then
    /// searched again when needed.
    #[cold]
    fn make_room(&mut self, taken: &mut Match) {
        self.dropped += 1;
        if taken.heap_bytes > SUBJECT_BYTES_MAX {
            *taken = Match::default();
        } else {
            self.forget_slots(|_| true);
        }
    }

    /// Drops matches from before the last change of the trie, if all matches together take much memory.
    pub(crate) fn forget_stale(&mut self, generation: u64) {
        if self.bytes > STALE_BYTES_MAX && self.swept != generation {
            self.swept = generation;
            self.forget_slots(|of| of.generation != generation);
        }
    }

    /// Drops all matches and frees their memory.
    pub(crate) fn forget(&mut self) {
        self.forget_slots(|_| true);
        self.open = OpenLookup::default();
    }

    fn forget_slots(&mut self, is_forgotten: impl Fn(&Match) -> bool) {
        for slot in self.slots.iter_mut().filter(|slot| is_forgotten(slot)) {
            self.bytes -= slot.heap_bytes;
            *slot = Match::default();
        }
    }

    /// Returns whether the last search is complete.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes the unfinished part of the last search.
    pub(crate) fn take_open(&mut self) -> OpenLookup {
        std::mem::take(&mut self.open)
    }

    fn fill(&mut self, into: &mut Match, trie: &Trie, root: NodeId, subject: &[u8], work: &mut Work) {
        into.begin(trie, root, subject);
        trie.look_for(root, subject, &mut self.open);
        go_on(into, &mut self.open, trie, subject, work);
    }
}

/// Continues a search until it is complete or the turn's budget is used up.
pub(crate) fn go_on(into: &mut Match, open: &mut OpenLookup, trie: &Trie, subject: &[u8], work: &mut Work) {
    trie.go_on(open, subject, work, |id, from, work| into.add(trie, id, from, work));
    into.heap_bytes = into.count_heap_bytes();
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low bits choose the slot")]
fn slot_of(seed: u64, root: NodeId, subject: &[u8]) -> usize {
    xxh3_64_with_seed(subject, seed ^ u64::from(root)) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a trie with the given number of groups at each pattern.
    fn trie_of(patterns: [(&[u8], u32); 3]) -> (Trie, NodeId) {
        let mut trie = Trie::new();
        let root = trie.add_root();
        for (pattern, names) in patterns {
            let node = trie.insert(root, pattern);
            for number in 0..names {
                let name = format!("q{number}").into_bytes();
                let hash = trie.hash_of_name(&name);
                let more = trie.more_mut(node);
                let place = more.place_or_new(&name, hash);
                more.groups[place].members.push(number);
            }
        }
        (trie, root)
    }

    fn exact(matches: &Matches) -> usize {
        matches.slots.iter().map(Match::count_heap_bytes).sum()
    }

    fn publish(matches: &mut Matches, trie: &Trie, root: NodeId, subject: &str) -> usize {
        let (slot, matched) = matches.take(trie, root, subject.as_bytes(), &mut Work::of(u64::MAX));
        let groups = matched.groups.len();
        matches.put_back(slot, matched);
        groups
    }

    /// Matches with thirty thousand groups, for messages to fifty subjects, would take 24 MB; they are not
    /// cached.
    #[test]
    fn what_is_remembered_of_groups_is_bounded() {
        let (trie, root) = trie_of([(b">", 30_000), (b"two.*", 200), (b"*.of", 200)]);
        let mut matches = Matches::new();
        for number in 0..50 {
            assert_eq!(publish(&mut matches, &trie, root, &format!("s{number}")), 30_000);
            assert_eq!(matches.bytes(), exact(&matches));
        }
        assert!(matches.bytes() <= BYTES_MAX && matches.dropped == 50, "{} bytes", matches.bytes());
    }

    #[test]
    fn all_remembered_subjects_have_one_bound() {
        let (mut trie, root) = trie_of([(b"two.>", 100), (b"*.of.>", 100), (b">", 25)]);
        let mut matches = Matches::new();
        for number in 0..SLOTS {
            // The match returns in a later turn, to a slot that then has a different subject.
            let (slot, matched) = matches.take(&trie, root, b"two.of.0", &mut Work::of(u64::MAX));
            publish(&mut matches, &trie, root, "two.of.0");
            publish(&mut matches, &trie, root, &format!("two.of.{number}"));
            matches.put_back(slot, matched);
            assert!(matches.bytes() <= BYTES_MAX, "{} bytes", matches.bytes());
            if number % 64 == 0 {
                assert_eq!(matches.bytes(), exact(&matches));
            }
        }
        let found = matches.found;
        publish(&mut matches, &trie, root, "two.of.0");
        assert_eq!(matches.found, found + 1, "the last one is remembered");
        assert!(matches.dropped > 0, "there is more than is remembered");
        while matches.bytes() <= STALE_BYTES_MAX {
            let subject = format!("two.of.x{}", matches.made);
            publish(&mut matches, &trie, root, &subject);
        }
        trie.insert(root, b"new");
        matches.forget_stale(trie.generation());
        assert_eq!((matches.bytes(), exact(&matches)), (0, 0), "all of it was from before");
    }
}
