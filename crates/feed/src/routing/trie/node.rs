//! A node of the trie: its label, its subscribers, and its queue groups.

use hashbrown::HashTable;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::tokens::first_token;
use crate::routing::small_bytes::Word;

/// Number of a node in a core's trie.
pub(crate) type NodeId = u32;
/// Number of a subscription on its core.
pub(crate) type SubId = u32;
/// Set of cores, one bit each.
pub(crate) type CoreMask = u64;
/// Maximum number of cores, one for each bit of a mask.
pub(crate) const CORES_MAX: usize = CoreMask::BITS as usize;
/// Number of a hub: its index in the configuration at the start; unchanged by reloads.
pub(crate) type HubId = u8;
/// Set of hubs, one bit each.
pub(crate) type HubMask = u16;
/// Maximum number of hubs, one for each bit of a mask.
pub(crate) const HUBS_MAX: usize = HubMask::BITS as usize;

pub(super) const NONE: NodeId = u32::MAX;

/// Memory counted for each trie node in bytes, without a long label: the node, its entry in the table of
/// edges, and the spare capacity of the tables when they grow.
pub(crate) const NODE_BYTES: usize = 64;

/// A node of the trie. Its size is kept at 40 bytes, because there are more nodes than values of any other
/// type.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) parent: NodeId,
    pub(super) star: NodeId,
    pub(super) tail: NodeId,
    pub(super) literal_children: u32,
    /// Label of the node: one or more tokens, separated by dots.
    pub(super) label: Word,
    pub(super) holds: Holds,
}

const _: () = assert!(size_of::<Option<Node>>() == 40, "a node is 40 bytes");

/// Subscribers at a node.
#[derive(Debug)]
pub(super) enum Holds {
    Nobody,
    /// A single local subscriber outside of queue groups, the usual case.
    One(SubId),
    /// Number of the node's [`More`], which holds everything else.
    More(u32),
}

/// Additional data of a node, which few nodes have.
#[derive(Debug, Default)]
pub(crate) struct More {
    /// Local subscribers outside of queue groups.
    pub(super) subscribers: Vec<SubId>,
    /// Queue groups at this node that have members on any core or hub.
    pub(crate) groups: Vec<Group>,
    /// Indices of the groups, by the hash of the name.
    pub(super) by_name: HashTable<u32>,
    /// Free indices in `groups`; some of them may be in use again.
    pub(super) vacant: Vec<u32>,
    /// Number of queue groups that have members at a hub.
    pub(crate) at_hubs: u32,
    /// Other cores with subscribers outside of queue groups.
    pub(crate) remote: CoreMask,
    /// Hubs with subscribers outside of queue groups.
    pub(crate) hubs: HubMask,
}

/// A queue group at one pattern.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) name: Box<[u8]>,
    /// Seeded hash of the group's name.
    pub(crate) hash: u32,
    /// Members on this core.
    pub(crate) members: Vec<SubId>,
    /// Members on other cores: each core, and its number of members.
    pub(crate) remote: SmallVec<[(u16, u32); 2]>,
    /// Members at hubs: each hub, and its number of members.
    pub(crate) hubs: SmallVec<[(HubId, u32); 2]>,
    /// Round-robin counter that selects the next member among the members on all cores.
    pub(crate) turn: u32,
    /// Round-robin counter that selects the next member among the members on this core.
    pub(crate) own_turn: u32,
}

/// A queue group at one of the patterns that match a subject. If a queue name occurs at several of these
/// patterns, its members form one group (nats-server's rule), whose parts are summed up in
/// [`crate::routing::overlap`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) node: NodeId,
    /// Index of the group in the node's list.
    pub(crate) group: u32,
    /// Hash of the group's name, which shows whether another group has taken its index in the meantime.
    pub(crate) hash: u32,
    /// Index of the group in the match's list of groups that are at several patterns, or [`Self::ALONE`].
    pub(crate) overlap: u32,
}

impl Part {
    /// Value of `overlap` for a group that is at one pattern only.
    pub(crate) const ALONE: u32 = u32::MAX;
}

impl Group {
    /// Returns the number of members on all cores.
    pub(crate) fn members_everywhere(&self) -> usize {
        self.members.len() + self.remote.iter().map(|&(_, count)| count as usize).sum::<usize>()
    }

    /// Returns whether the group has no members on any core or hub.
    pub(crate) fn is_empty(&self) -> bool {
        self.members_everywhere() == 0 && self.hubs.is_empty()
    }
}

impl More {
    /// Returns the index of the group with this name and this hash of the name.
    pub(crate) fn place_of(&self, name: &[u8], hash: u32) -> Option<usize> {
        let is_it = |&place: &u32| *self.groups[place as usize].name == *name;
        self.by_name.find(spread(hash), is_it).map(|&place| place as usize)
    }

    /// Returns the index of the group with this name, adding the group if it is missing.
    pub(crate) fn place_or_new(&mut self, name: &[u8], hash: u32) -> usize {
        if let Some(place) = self.place_of(name, hash) {
            return place;
        }
        let new = Group { name: name.into(), hash, ..Group::default() };
        let vacant = std::iter::from_fn(|| self.vacant.pop())
            .find(|&place| self.groups.get(place as usize).is_some_and(|group| group.name.is_empty()));
        let place = vacant.unwrap_or_else(|| {
            self.groups.push(Group::default());
            u32::try_from(self.groups.len() - 1)
                .unwrap_or_else(|_| panic!("four thousand million groups of one pattern"))
        });
        self.groups[place as usize] = new;
        let groups = &self.groups;
        self.by_name.insert_unique(spread(hash), place, |&place| spread(groups[place as usize].hash));
        place as usize
    }

    /// Removes a group. The other groups keep their indices, because a suspended delivery may refer to them.
    /// (The entry at a free index has an empty name, which no queue group can have.)
    pub(crate) fn remove_group(&mut self, place: usize) {
        let hash = self.groups[place].hash;
        if let Ok(entry) = self.by_name.find_entry(spread(hash), |&found| found as usize == place) {
            entry.remove();
        }
        self.groups[place] = Group::default();
        self.vacant.extend(u32::try_from(place));
        while self.groups.pop_if(|last| last.name.is_empty()).is_some() {}
        if self.groups.is_empty() {
            (self.by_name, self.vacant, self.groups) = Default::default();
        }
    }
}

/// Spreads the 32-bit hash of a name over all the bits that the hash table uses.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Node {
    pub(super) fn new(parent: NodeId, label: &[u8]) -> Self {
        Self {
            parent,
            star: NONE,
            tail: NONE,
            literal_children: 0,
            label: label.into(),
            holds: Holds::Nobody,
        }
    }

    pub(super) fn is_needed(&self) -> bool {
        let holds_any = !matches!(self.holds, Holds::Nobody);
        holds_any || self.literal_children > 0 || self.star != NONE || self.tail != NONE
    }
}

pub(super) fn hash_of_node(seed: u64, node: &Node) -> u64 {
    edge_hash(seed, node.parent, first_token(&node.label))
}

#[inline]
pub(super) fn edge_hash(seed: u64, parent: NodeId, token: &[u8]) -> u64 {
    xxh3_64_with_seed(token, seed ^ (u64::from(parent) << 17))
}
