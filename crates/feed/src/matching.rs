//! Who gets a message to a subject, remembered from one message to the next.
//!
//! A feed's traffic is many messages to few subjects, so what the trie found is kept in a small table by subject, until
//! anything in the trie changes. The lists keep their memory: in steady state nothing is allocated.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::trie::{CoreMask, NodeId, SubId, Trie};

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
}

impl Match {
    pub(crate) fn is_empty(&self) -> bool {
        self.subscribers.is_empty() && self.groups.is_empty() && self.cores == 0
    }
}

/// The subjects of late.
#[derive(Debug)]
pub(crate) struct Matches {
    slots: Vec<Match>,
    pub(crate) found: u64,
    pub(crate) made: u64,
}

impl Matches {
    pub(crate) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| Match::default()).collect(), found: 0, made: 0 }
    }

    /// Takes out who gets a message to `subject`, now; [`Self::put_back`] takes it back.
    #[inline]
    pub(crate) fn take(&mut self, trie: &Trie, root: NodeId, subject: &[u8]) -> (usize, Match) {
        let slot = slot_of(root, subject);
        let mut taken = std::mem::take(&mut self.slots[slot]);
        if taken.generation == trie.generation() && taken.root == root && taken.subject[..] == *subject {
            self.found += 1;
            return (slot, taken);
        }
        self.made += 1;
        fill(&mut taken, trie, root, subject);
        (slot, taken)
    }

    #[inline]
    pub(crate) fn put_back(&mut self, slot: usize, mut taken: Match) {
        if taken.subscribers.len() > KEPT_SUBSCRIBERS_MAX {
            taken = Match::default();
        }
        self.slots[slot] = taken;
    }
}

fn fill(into: &mut Match, trie: &Trie, root: NodeId, subject: &[u8]) {
    into.root = root;
    into.subject.clear();
    into.subject.extend_from_slice(subject);
    into.generation = trie.generation();
    into.subscribers.clear();
    into.groups.clear();
    into.cores = 0;
    trie.matches(root, subject, |id| {
        into.subscribers.extend_from_slice(trie.subscribers(id));
        if let Some(more) = trie.more(id) {
            into.cores |= more.remote;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "groups of one pattern: each costs a subscription"
            )]
            into.groups.extend((0..more.groups.len()).map(|group| (id, group as u32)));
        }
    });
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low bits choose the slot")]
fn slot_of(root: NodeId, subject: &[u8]) -> usize {
    xxh3_64_with_seed(subject, u64::from(root)) as usize % SLOTS
}
