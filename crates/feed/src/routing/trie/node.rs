//! A node of the trie: its label, its subscribers, and its queue groups.

use super::{CoreMask, HubId, HubMask, NONE, NodeId, SubId};
use crate::routing::small_bytes::Word;
use hashbrown::HashTable;
use smallvec::SmallVec;

/// What a node takes of memory, beside a long label: itself, its place in the table of edges, and what tables have to
/// spare when they grow.
pub(crate) const NODE_BYTES: usize = 64;

/// One point of the trie: 40 bytes, because there are more of them than of anything else.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) parent: NodeId,
    pub(super) star: NodeId,
    pub(super) tail: NodeId,
    pub(super) literal_children: u32,
    /// Its tokens, with a dot between each two.
    pub(super) label: Word,
    pub(super) holds: Holds,
}

const _: () = assert!(size_of::<Option<Node>>() == 40, "a node is 40 bytes");

/// Who is at a node.
#[derive(Debug)]
pub(super) enum Holds {
    Nobody,
    /// One local subscriber in no group: nearly always.
    One(SubId),
    /// The number of its [`More`], in which there is something that does not fit here.
    More(u32),
}

/// What few nodes have.
#[derive(Debug, Default)]
pub(crate) struct More {
    /// Local subscribers in no group.
    pub(super) subscribers: Vec<SubId>,
    /// Queue groups with a member anywhere.
    pub(crate) groups: Vec<Group>,
    /// Their places by the hashes of their names.
    pub(super) by_name: HashTable<u32>,
    /// Places that are free again, and perhaps some that are not.
    pub(super) vacant: Vec<u32>,
    /// How many of the groups have members at a hub.
    pub(crate) at_hubs: u32,
    /// Other cores that have subscribers in no group.
    pub(crate) remote: CoreMask,
    /// Hubs that have.
    pub(crate) hubs: HubMask,
}

/// A queue group at one pattern.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) name: Box<[u8]>,
    /// Of the name, seeded.
    pub(crate) hash: u32,
    /// Members on this core.
    pub(crate) members: Vec<SubId>,
    /// Members on other cores: core and how many.
    pub(crate) remote: SmallVec<[(u16, u32); 2]>,
    /// Members at hubs: hub and how many.
    pub(crate) hubs: SmallVec<[(HubId, u32); 2]>,
    /// Whose turn it is, of all members: counts up with each message.
    pub(crate) turn: u32,
    /// Whose turn it is, of this core's: counts up with each message that one of them gets.
    pub(crate) own_turn: u32,
}

/// A queue group at one of the patterns that match a subject. A name at several of them is one group (nats-server's
/// rule): its parts are summed up in [`crate::routing::overlap`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) node: NodeId,
    /// The group's place in the node's list.
    pub(crate) group: u32,
    /// Of the group's name: another group that has taken the place since is another part.
    pub(crate) hash: u32,
    /// The group's place in the match's list of groups at several patterns, or [`Self::ALONE`].
    pub(crate) overlap: u32,
}

impl Part {
    /// The group is at this pattern alone.
    pub(crate) const ALONE: u32 = u32::MAX;
}

impl Group {
    /// Members on all cores.
    pub(crate) fn members_everywhere(&self) -> usize {
        self.members.len() + self.remote.iter().map(|&(_, count)| count as usize).sum::<usize>()
    }

    /// Whether there is a member nowhere, at no hub either.
    pub(crate) fn is_empty(&self) -> bool {
        self.members_everywhere() == 0 && self.hubs.is_empty()
    }
}

impl More {
    /// The place of the group of a name, by the name's hash.
    pub(crate) fn place_of(&self, name: &[u8], hash: u32) -> Option<usize> {
        let is_it = |&place: &u32| *self.groups[place as usize].name == *name;
        self.by_name.find(spread(hash), is_it).map(|&place| place as usize)
    }

    /// The place of the group of a name; made if it is not there.
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

    /// Takes a group out. The others keep their places, which a message that is under way may have in its list; a queue's
    /// name is never empty.
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

/// The hash of a name for a table: all bits count there.
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
