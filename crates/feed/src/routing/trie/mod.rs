//! Who wants which subjects: a trie over tokens, one per core.
//!
//! ```text
//!   root of an account ─"orders"─▶ node ─"eu.created"─▶ node {subscribers, groups, which other cores}
//!                                   ├─ * ─▶ node
//!                                   └─ > ─▶ node
//! ```
//!
//! A node's label is one token or several: all those of a pattern behind which it is alone. Where another pattern parts
//! from it in the middle of a label, the node is split there, so that a pattern costs two nodes at most, however many
//! tokens it has. (Nodes that were split are not joined again; each goes when nobody needs it any more, up to the root.)
//! A label has [`LABEL_BYTES_MAX`] bytes at most, because the comparison of one is a step that nothing interrupts.
//!
//! All nodes of all accounts lie in one slab, and one hash table has all edges, by parent and first token: a node costs
//! no table of its own, and a subject with five tokens costs at most five lookups, however many siblings there are. What
//! few nodes have (groups, other cores, several subscribers)
//! lies in a slab of its own, so that the many others pay four bytes for the possibility.
//!
//! Local subscribers are listed. Of the other cores a node knows whether they have any (one bit each) and how many
//! members of each queue group they have: what it takes to decide here where a message goes.
//!
//! *Slow twin:* `wire::nats::subject::matches` over a list of patterns, in the tests.

mod node;
#[cfg(test)]
mod tests;
mod tokens;

use node::Holds;
pub(crate) use node::{Group, More, NODE_BYTES, Node, Part};
use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
};
pub(crate) use tokens::tokens_of;
use tokens::{
    begins_with, common_tokens, edge_hash, first_token, has_empty_token, hash_of_node, label_of, match_tokens,
};

use hashbrown::HashTable;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    delivery::work::Work,
    routing::{
        number_reuse::{Marks, RetiredNumbers},
        slab::{Slab, take_out},
        small_bytes::Word,
    },
};

/// A node's number.
pub(crate) type NodeId = u32;
/// A subscription's number.
pub(crate) type SubId = u32;
/// The state of a lookup of a subject that goes on later.
#[derive(Debug, Default)]
pub(crate) struct OpenLookup {
    /// Nodes that match what lies before an offset of the subject. The depth of the subject, not of the trie, bounds how
    /// many there are.
    nodes: Vec<(NodeId, usize)>,
    /// A node whose pattern matches and whose groups are listed up to here.
    listing: Option<(NodeId, usize)>,
}

impl OpenLookup {
    /// Returns whether all was looked at.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.listing.is_none()
    }

    fn clear(&mut self) {
        self.nodes.clear();
        self.listing = None;
    }
}

/// Which cores, one bit each.
pub(crate) type CoreMask = u64;
/// As many cores as a mask has bits.
pub(crate) const CORES_MAX: usize = CoreMask::BITS as usize;
/// A hub's number: its place in the configuration.
pub(crate) type HubId = u8;
/// Which hubs, one bit each.
pub(crate) type HubMask = u16;
/// As many hubs as a mask has bits.
pub(crate) const HUBS_MAX: usize = HubMask::BITS as usize;

const NONE: NodeId = u32::MAX;
/// Bytes of a label, unless its first token is longer.
const LABEL_BYTES_MAX: usize = 256;
/// Tokens of a label that are compared for a unit of work.
const TOKENS_A_STEP: usize = 8;

/// The trie of one core, for all accounts.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Slab<Node>,
    /// Nodes by parent and the first token of the label.
    edges: HashTable<NodeId>,
    /// Of the nodes that have more than one subscriber or something else.
    mores: Slab<More>,
    seed: u64,
    /// Which messages have lists of what is here.
    pub(crate) marks: Marks,
    /// Nodes that were pruned and may be in such a list.
    retired: RetiredNumbers,
    /// Counts changes: what was matched before a change may have become wrong.
    generation: u64,
    /// Nodes that were walked since this was last asked, other than for messages: whoever had them walked pays.
    steps: Cell<u64>,
    /// Parts of groups that were looked at since this was last asked: for tests.
    #[cfg(debug_assertions)]
    parts_visited: Cell<u64>,
}

impl Trie {
    pub(crate) fn new() -> Self {
        // Seeded, so that no client can aim at one place of the table.
        let seed = RandomState::new().hash_one(0);
        Self {
            nodes: Slab::default(),
            edges: HashTable::new(),
            mores: Slab::default(),
            seed,
            marks: Marks::default(),
            retired: RetiredNumbers::default(),
            generation: 1,
            steps: Cell::new(0),
            #[cfg(debug_assertions)]
            parts_visited: Cell::new(0),
        }
    }

    /// Counts steps that somebody is to pay.
    #[inline]
    pub(crate) fn walked(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps as u64);
    }

    /// The steps that were counted since this was last asked.
    #[inline]
    pub(crate) fn take_steps(&self) -> u64 {
        self.steps.replace(0)
    }

    /// A part of a group is looked at.
    #[inline]
    fn visited(&self) {
        #[cfg(debug_assertions)]
        self.parts_visited.set(self.parts_visited.get() + 1);
    }

    /// Parts of groups that were looked at since this was last asked.
    #[cfg(all(test, debug_assertions))]
    pub(crate) fn take_parts_visited(&self) -> u64 {
        self.parts_visited.replace(0)
    }

    /// What a pattern may take of memory where nobody else has a part of it, on one core: a node for each token, because
    /// others may split its labels, and go again.
    pub(crate) fn bytes_of_path(&self, id: NodeId) -> usize {
        let (mut at, mut bytes) = (id, 0);
        while self.nodes[at].parent != NONE {
            let label = &self.nodes[at].label;
            let tokens = tokens_of(label);
            bytes += tokens * NODE_BYTES + label.len() + 1 - tokens;
            at = self.nodes[at].parent;
            self.walked(1);
        }
        bytes
    }

    /// A number that no client knows: for tables that clients choose the keys of.
    #[inline]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// A new world, with nothing in it.
    pub(crate) fn add_root(&mut self) -> NodeId {
        self.nodes.insert(Node::new(NONE, b""))
    }

    /// Counts changes, from 1.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// How many nodes there are, roots included.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Local subscribers at a node that are in no queue group.
    #[inline]
    pub(crate) fn subscribers(&self, id: NodeId) -> &[SubId] {
        match &self.nodes[id].holds {
            Holds::Nobody => &[],
            Holds::One(sub) => std::slice::from_ref(sub),
            Holds::More(more) => &self.mores[*more].subscribers,
        }
    }

    /// Adds a local subscriber to a node; its place.
    pub(crate) fn add_subscriber(&mut self, id: NodeId, sub: SubId) -> usize {
        if let Holds::Nobody = self.nodes[id].holds {
            self.nodes[id].holds = Holds::One(sub);
            self.generation += 1;
            return 0;
        }
        let subscribers = &mut self.more_mut(id).subscribers;
        subscribers.push(sub);
        subscribers.len() - 1
    }

    /// Takes the subscriber at a place out: who it was, and who stands there now.
    pub(crate) fn remove_subscriber(&mut self, id: NodeId, place: usize) -> (SubId, Option<SubId>) {
        self.generation += 1;
        match self.nodes[id].holds {
            Holds::Nobody => panic!("trie: nobody is at this node"),
            Holds::One(sub) => {
                self.nodes[id].holds = Holds::Nobody;
                (sub, None)
            }
            Holds::More(more) => {
                let subscribers = &mut self.mores[more].subscribers;
                let removed = subscribers.swap_remove(place);
                let moved = subscribers.get(place).copied();
                self.let_go_of_more(id);
                (removed, moved)
            }
        }
    }

    /// What few nodes have.
    #[inline]
    pub(crate) fn more(&self, id: NodeId) -> Option<&More> {
        if let Holds::More(more) = self.nodes[id].holds { Some(&self.mores[more]) } else { None }
    }

    /// The same for a change; made if it is not there. [`Self::let_go_of_more`] when something was taken out of it.
    pub(crate) fn more_mut(&mut self, id: NodeId) -> &mut More {
        self.generation += 1;
        let more = match self.nodes[id].holds {
            Holds::More(more) => more,
            Holds::Nobody | Holds::One(_) => {
                let subscribers = self.subscribers(id).to_vec();
                let more = self.mores.insert(More { subscribers, ..More::default() });
                self.nodes[id].holds = Holds::More(more);
                more
            }
        };
        &mut self.mores[more]
    }

    /// Gives the memory back if the little that there is fits without.
    pub(crate) fn let_go_of_more(&mut self, id: NodeId) {
        let Holds::More(at) = self.nodes[id].holds else { return };
        let more = &self.mores[at];
        if !more.groups.is_empty() || more.remote != 0 || more.hubs != 0 {
            return;
        }
        self.nodes[id].holds = match more.subscribers[..] {
            [] => Holds::Nobody,
            [one] => Holds::One(one),
            _ => return,
        };
        self.mores.remove(at);
    }

    /// Whether anybody on any core subscribes to a node's pattern and is in no group.
    #[inline]
    pub(crate) fn is_wanted(&self, id: NodeId) -> bool {
        match &self.nodes[id].holds {
            Holds::Nobody => false,
            Holds::One(_) => true,
            Holds::More(more) => {
                let more = &self.mores[*more];
                !more.subscribers.is_empty() || more.remote != 0
            }
        }
    }

    /// Numbers of nodes are below this.
    pub(crate) fn end(&self) -> NodeId {
        self.nodes.end()
    }

    /// Whether there is a node of this number, and something is at it.
    pub(crate) fn is_held(&self, id: NodeId) -> bool {
        self.nodes.find(id).is_some_and(|node| !matches!(node.holds, Holds::Nobody))
    }

    /// The root that a node is below.
    pub(crate) fn root_above(&self, id: NodeId) -> NodeId {
        let mut at = id;
        while self.nodes[at].parent != NONE {
            at = self.nodes[at].parent;
        }
        at
    }

    /// Nodes that something is at.
    pub(crate) fn entries(&self) -> usize {
        self.nodes.len()
    }

    /// Gives back the room behind the last node.
    pub(crate) fn shrink(&mut self) {
        self.nodes.shrink();
        self.mores.shrink();
    }

    /// Frees the nodes that no list names any more.
    pub(crate) fn free_retired(&mut self) {
        while let Some(id) = self.retired.take_free(&self.marks) {
            self.nodes.remove(id);
        }
    }

    /// A group, for what no match depends on (whose turn it is).
    pub(crate) fn group_mut(&mut self, id: NodeId, group: usize) -> &mut Group {
        match self.find_group_mut(id, group) {
            Some(group) => group,
            None => panic!("trie: node {id} has no group {group}"),
        }
    }

    /// The same, where it may have gone since it was listed.
    pub(crate) fn find_group_mut(&mut self, id: NodeId, group: usize) -> Option<&mut Group> {
        let Holds::More(more) = self.nodes[id].holds else { return None };
        self.mores[more].groups.get_mut(group)
    }

    /// The group of a part, unless it has gone since it was listed.
    pub(crate) fn group(&self, part: Part) -> Option<&Group> {
        self.visited();
        let group = self.more(part.node)?.groups.get(part.group as usize)?;
        (group.hash == part.hash && !group.name.is_empty()).then_some(group)
    }

    /// The same for a change that no match depends on.
    pub(crate) fn part_mut(&mut self, part: Part) -> Option<&mut Group> {
        self.visited();
        let group = self.find_group_mut(part.node, part.group as usize)?;
        (group.hash == part.hash && !group.name.is_empty()).then_some(group)
    }

    /// The hash of a queue group's name.
    pub(crate) fn hash_of_name(&self, name: &[u8]) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "as many bits as a part has room for")]
        let hash = xxh3_64_with_seed(name, self.seed) as u32;
        hash
    }

    /// The node of a valid pattern; made if it is not there.
    pub(crate) fn insert(&mut self, root: NodeId, pattern: &[u8]) -> NodeId {
        let (mut at, mut rest) = (root, pattern);
        loop {
            self.walked(1);
            let child = self.child(at, first_token(rest));
            let matched;
            (at, matched) = if child == NONE {
                let label = label_of(rest);
                (self.add_child(at, label), label.len())
            } else {
                let label = &self.nodes[child].label;
                match common_tokens(label, rest) {
                    all if all == label.len() => (child, all),
                    part => (self.split(child, part), part),
                }
            };
            if matched == rest.len() {
                return at;
            }
            rest = &rest[matched + 1..];
        }
    }

    /// The node of a pattern, if it is there.
    pub(crate) fn find(&self, root: NodeId, pattern: &[u8]) -> Option<NodeId> {
        let (mut at, mut rest) = (root, pattern);
        loop {
            at = self.child(at, first_token(rest));
            if at == NONE {
                return None;
            }
            let label = &self.nodes[at].label;
            if common_tokens(label, rest) < label.len() {
                return None;
            }
            if label.len() == rest.len() {
                return Some(at);
            }
            rest = &rest[label.len() + 1..];
        }
    }

    /// Takes a node out if nobody needs it, and its parents likewise.
    pub(crate) fn prune(&mut self, id: NodeId) {
        let mut at = id;
        loop {
            let node = &self.nodes[at];
            if node.parent == NONE || node.is_needed() {
                return;
            }
            self.walked(1);
            let node = &self.nodes[at];
            let parent = node.parent;
            match first_token(&node.label) {
                b"*" => self.nodes[parent].star = NONE,
                b">" => self.nodes[parent].tail = NONE,
                _ => {
                    let Self { edges, nodes, seed, .. } = self;
                    take_out(edges, at, |id| hash_of_node(*seed, &nodes[id]));
                    nodes[parent].literal_children -= 1;
                }
            }
            if self.marks.is_idle() {
                self.nodes.remove(at);
            } else {
                self.retired.add(&self.marks, at);
            }
            self.generation += 1;
            at = parent;
        }
    }

    /// The pattern that leads to a node.
    pub(crate) fn pattern_of(&self, id: NodeId) -> Vec<u8> {
        let mut pattern = Vec::new();
        self.append_pattern(id, &mut pattern);
        pattern
    }

    /// The same, appended.
    pub(crate) fn append_pattern(&self, id: NodeId, out: &mut Vec<u8>) {
        let mut path: SmallVec<[NodeId; 16]> = SmallVec::new();
        let mut at = id;
        while self.nodes[at].parent != NONE {
            path.push(at);
            at = self.nodes[at].parent;
        }
        for (depth, &node) in path.iter().rev().enumerate() {
            if depth > 0 {
                out.push(b'.');
            }
            out.extend_from_slice(&self.nodes[node].label);
        }
    }

    /// Begins to look for a subject.
    pub(crate) fn look_for(&self, root: NodeId, subject: &[u8], open: &mut OpenLookup) {
        open.clear();
        if !has_empty_token(subject) {
            open.nodes.push((root, 0));
        }
    }

    /// Goes on looking for a subject, and calls `found` with each node whose pattern matches: until all are found, and
    /// nothing is open any more, or the turn's work is done. `found` pays for what it lists from a place of the node on, and
    /// returns the place from which it goes on in another turn. The trie may change in between, if that is marked: what is
    /// there all the time is found, what comes or goes may be.
    pub(crate) fn go_on(
        &self,
        open: &mut OpenLookup,
        subject: &[u8],
        work: &mut Work,
        mut found: impl FnMut(NodeId, usize, &mut Work) -> Option<usize>,
    ) {
        while !work.is_over(0) {
            if let Some((id, from)) = open.listing.take() {
                open.listing = found(id, from, work).map(|from| (id, from));
                continue;
            }
            let Some((at, offset)) = open.nodes.pop() else { return };
            work.step();
            let node = &self.nodes[at];
            if offset > subject.len() {
                open.listing = Some((at, 0));
                continue;
            }
            let rest = &subject[offset..];
            let token_bytes = memchr::memchr(b'.', rest).unwrap_or(rest.len());
            let next = offset + token_bytes + 1;
            if node.tail != NONE {
                open.listing = Some((node.tail, 0));
            }
            if node.star != NONE {
                let next = self.match_label(node.star, 1, (subject, next), work);
                open.nodes.extend(next.map(|next| (node.star, next)));
            }
            if node.literal_children > 0 {
                let child = self.literal(at, &rest[..token_bytes]);
                if child != NONE {
                    let next = self.match_label(child, token_bytes, (subject, next), work);
                    open.nodes.extend(next.map(|next| (child, next)));
                }
            }
        }
    }

    /// Compares what a node's label has behind its first token with what a subject has from an offset on. Returns the
    /// offset behind, which is beyond the subject's end where nothing is left of it.
    #[inline]
    fn match_label(
        &self,
        id: NodeId,
        first_token_bytes: usize,
        (subject, offset): (&[u8], usize),
        work: &mut Work,
    ) -> Option<usize> {
        let label = &self.nodes[id].label[..];
        if label.len() == first_token_bytes {
            return Some(offset);
        }
        let (offset, compared) = match_tokens(&label[first_token_bytes + 1..], subject, offset);
        work.pay((compared / TOKENS_A_STEP) as u64);
        offset
    }

    fn child(&self, at: NodeId, token: &[u8]) -> NodeId {
        match token {
            b"*" => self.nodes[at].star,
            b">" => self.nodes[at].tail,
            _ => self.literal(at, token),
        }
    }

    #[inline]
    fn literal(&self, at: NodeId, token: &[u8]) -> NodeId {
        let is_it = |&id: &NodeId| self.nodes[id].parent == at && begins_with(&self.nodes[id].label, token);
        self.edges.find(edge_hash(self.seed, at, token), is_it).copied().unwrap_or(NONE)
    }

    fn add_child(&mut self, at: NodeId, label: &[u8]) -> NodeId {
        let child = self.nodes.insert(Node::new(at, label));
        self.link(child);
        self.generation += 1;
        child
    }

    /// Makes a node be found below its parent.
    fn link(&mut self, child: NodeId) {
        let parent = self.nodes[child].parent;
        match first_token(&self.nodes[child].label) {
            b"*" => self.nodes[parent].star = child,
            b">" => self.nodes[parent].tail = child,
            _ => {
                let Self { edges, nodes, seed, .. } = self;
                let hash_of = |&id: &NodeId| hash_of_node(*seed, &nodes[id]);
                edges.insert_unique(hash_of(&child), child, hash_of);
                nodes[parent].literal_children += 1;
            }
        }
    }

    /// Puts a node above another one, with so many bytes of its label. The lower one keeps its number, and who is at it.
    fn split(&mut self, lower: NodeId, label_bytes: usize) -> NodeId {
        let Node { parent, label, .. } = &self.nodes[lower];
        let parent = *parent;
        let (above, below) =
            (Node::new(parent, &label[..label_bytes]), Word::from(&label[label_bytes + 1..]));
        let upper = self.nodes.insert(above);
        if self.nodes[parent].star == lower {
            self.nodes[parent].star = upper;
        } else {
            let hash = hash_of_node(self.seed, &self.nodes[upper]);
            match self.edges.find_mut(hash, |&id| id == lower) {
                Some(edge) => *edge = upper,
                None => panic!("trie: a node is in the table of edges"),
            }
        }
        self.nodes[lower].label = below;
        self.nodes[lower].parent = upper;
        self.link(lower);
        upper
    }
}
