//! Who gets a message to a subject, remembered from one message to the next.
//!
//! A feed's traffic is many messages to few subjects, so what the trie found is kept in a small table by subject, until
//! anything in the trie changes. The lists keep their memory: in steady state nothing is allocated.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    trie::{CoreMask, HubMask, NodeId, Open, SubId, Trie},
    work::{LISTED, Work},
};

/// Subjects remembered.
const SLOTS: usize = 1024;
/// A list that is longer is not remembered: looking it up again is nothing beside going through it.
const KEPT_SUBSCRIBERS_MAX: usize = 1024;

/// Who gets a message.
#[derive(Debug, Default)]
pub(crate) struct Match {
    root: NodeId,
    subject: SmallVec<[u8; 48]>,
    generation: u64,
    /// Local subscribers in no group.
    pub(crate) subscribers: Vec<SubId>,
    /// Groups, of each of which one member gets it: node and place in its list.
    pub(crate) groups: SmallVec<[(NodeId, u32); 2]>,
    /// Other cores with subscribers in no group.
    pub(crate) cores: CoreMask,
    /// Hubs with such.
    pub(crate) hubs: HubMask,
    /// Some of the groups have members at a hub.
    pub(crate) has_groups_at_hubs: bool,
}

impl Match {
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
        self.cores = 0;
        self.hubs = 0;
        self.has_groups_at_hubs = false;
    }

    /// Adds who is at a node; how many subscribers that are.
    #[inline]
    fn add(&mut self, trie: &Trie, id: NodeId) -> usize {
        let subscribers = trie.subscribers(id);
        self.subscribers.extend_from_slice(subscribers);
        if let Some(more) = trie.more(id) {
            self.cores |= more.remote;
            self.hubs |= more.hubs;
            self.has_groups_at_hubs |= more.groups.iter().any(|group| !group.hubs.is_empty());
            #[expect(
                clippy::cast_possible_truncation,
                reason = "groups of one pattern: each costs a subscription"
            )]
            self.groups.extend((0..more.groups.len()).map(|group| (id, group as u32)));
        }
        subscribers.len()
    }
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
        let slot = slot_of(root, subject);
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
fn slot_of(root: NodeId, subject: &[u8]) -> usize {
    xxh3_64_with_seed(subject, u64::from(root)) as usize % SLOTS
}
