//! Trie of subscriptions, keyed by the tokens of their patterns, one for each core.
//!
//! ```text
//!   root of an account ─"orders"─▶ node ─"eu.created"─▶ node {subscribers, groups, which other cores}
//!                                   ├─ * ─▶ node
//!                                   └─ > ─▶ node
//! ```
//!
//! A node's label is one token, or several if no other pattern branches off between them. When another
//! pattern branches off in the middle of a label, the node is split there, so that a pattern costs at most
//! two nodes, however many tokens it has. (Split nodes are not merged again; each is removed when it is no
//! longer needed, up to the root.) A label has at most [`LABEL_BYTES_MAX`] bytes, because the comparison of a
//! label cannot be interrupted.
//!
//! The nodes of all accounts are in one slab, and one hash table has all edges, by parent and first token. So
//! a node needs no table of its own, and a subject with five tokens costs at most five lookups, however many
//! siblings there are. Data that few nodes have (groups, other cores, several subscribers) is in another
//! slab, so that all other nodes spend only four bytes on it.
//!
//! Local subscribers are listed. For other cores a node knows whether they have subscribers (one bit each),
//! and how many members of each queue group they have: enough to decide locally where a message goes.
//!
//! *Slow twin:* `wire::nats::subject::matches` over a list of patterns, in the tests.

mod node;
#[cfg(test)]
mod tests;
mod tokens;

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
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

pub(crate) use node::{
    CORES_MAX, CoreMask, Group, HUBS_MAX, HubId, HubMask, More, NODE_BYTES, Node, NodeId, Part, SubId,
};
use node::{Holds, NONE, edge_hash, hash_of_node};
pub(crate) use tokens::tokens_of;
use tokens::{begins_with, common_tokens, first_token, has_empty_token, label_of, match_tokens};

/// State of an unfinished search for a subject.
#[derive(Debug, Default)]
pub(crate) struct OpenLookup {
    /// Nodes that match the subject up to an offset. Their number is bounded by the depth of the subject, not
    /// of the trie.
    nodes: Vec<(NodeId, usize)>,
    /// A node whose pattern matches, and the index of its next group to be listed.
    listing: Option<(NodeId, usize)>,
}

impl OpenLookup {
    /// Returns whether the search is complete.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.listing.is_none()
    }

    fn clear(&mut self) {
        self.nodes.clear();
        self.listing = None;
    }
}

/// Number of label tokens whose comparison costs one budget unit.
const TOKENS_A_STEP: usize = 8;

/// Trie of one core, for all accounts.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Slab<Node>,
    /// Child nodes, hashed by their parent and the first token of their label.
    edges: HashTable<NodeId>,
    /// Additional data of the nodes that have more than a single local subscriber.
    mores: Slab<More>,
    seed: u64,
    /// Numbers of the suspended deliveries, which may refer to nodes and subscriptions.
    pub(crate) marks: Marks,
    /// Numbers of removed nodes that a suspended delivery may still refer to.
    retired: RetiredNumbers,
    /// Counter of changes to the trie. A cached match from before a change may be wrong.
    generation: u64,
    /// Number of nodes visited since the counter was last taken, except in lookups for messages; the
    /// operation that caused the visits is charged for them.
    steps: Cell<u64>,
    /// Number of parts of queue groups visited since the counter was last taken, for tests.
    #[cfg(debug_assertions)]
    parts_visited: Cell<u64>,
}

impl Trie {
    pub(crate) fn new() -> Self {
        // The hash table is seeded, so that clients cannot choose tokens that collide.
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

    /// Counts steps that the current operation is charged for.
    #[inline]
    pub(crate) fn walked(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps as u64);
    }

    /// Returns the number of steps counted since the last call, and resets it.
    #[inline]
    pub(crate) fn take_steps(&self) -> u64 {
        self.steps.replace(0)
    }

    /// Counts a visit to a part of a queue group, for tests.
    #[inline]
    fn visited(&self) {
        #[cfg(debug_assertions)]
        self.parts_visited.set(self.parts_visited.get() + 1);
    }

    /// Returns the number of parts visited since the last call, and resets it.
    #[cfg(all(test, debug_assertions))]
    pub(crate) fn take_parts_visited(&self) -> u64 {
        self.parts_visited.replace(0)
    }

    /// Returns the memory that a pattern may take on one core if no other pattern shares a part of it: a node
    /// for each token, because other patterns may split its labels and be removed again.
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

    /// Returns a seed, unknown to clients, for hash tables whose keys clients choose.
    #[inline]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Adds an empty root node for an account.
    pub(crate) fn add_root(&mut self) -> NodeId {
        self.nodes.insert(Node::new(NONE, b""))
    }

    /// Returns the counter of changes, which starts at 1.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of nodes, including roots.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the local subscribers at a node outside of queue groups.
    #[inline]
    pub(crate) fn subscribers(&self, id: NodeId) -> &[SubId] {
        match &self.nodes[id].holds {
            Holds::Nobody => &[],
            Holds::One(sub) => std::slice::from_ref(sub),
            Holds::More(more) => &self.mores[*more].subscribers,
        }
    }

    /// Adds a local subscriber to a node. Returns the subscriber's index there.
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

    /// Removes the subscriber at an index. Returns it, and the subscriber that was moved to this index.
    pub(crate) fn remove_subscriber(&mut self, id: NodeId, place: usize) -> (SubId, Option<SubId>) {
        self.generation += 1;
        match self.nodes[id].holds {
            Holds::Nobody => panic!("trie: the node has no subscribers"),
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

    /// Returns the additional data of a node ([`More`]), if it has any.
    #[inline]
    pub(crate) fn more(&self, id: NodeId) -> Option<&More> {
        if let Holds::More(more) = self.nodes[id].holds { Some(&self.mores[more]) } else { None }
    }

    /// Returns a node's additional data for modification, adding it if it is missing. After a removal from
    /// this data, [`Self::let_go_of_more`] must be called.
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

    /// Frees a node's additional data if what remains fits into the node itself.
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

    /// Returns whether a node's pattern has subscribers outside of queue groups, on any core.
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

    /// Returns an exclusive upper bound on all node numbers.
    pub(crate) fn end(&self) -> NodeId {
        self.nodes.end()
    }

    /// Returns whether a node with this number exists and has subscribers or other data.
    pub(crate) fn is_held(&self, id: NodeId) -> bool {
        self.nodes.find(id).is_some_and(|node| !matches!(node.holds, Holds::Nobody))
    }

    /// Returns the root node of the account that a node belongs to.
    pub(crate) fn root_above(&self, id: NodeId) -> NodeId {
        let mut at = id;
        while self.nodes[at].parent != NONE {
            at = self.nodes[at].parent;
        }
        at
    }

    /// Returns the number of nodes.
    pub(crate) fn entries(&self) -> usize {
        self.nodes.len()
    }

    /// Frees the unused memory behind the last node.
    pub(crate) fn shrink(&mut self) {
        self.nodes.shrink();
        self.mores.shrink();
    }

    /// Frees the removed nodes that no suspended delivery can still refer to.
    pub(crate) fn free_retired(&mut self) {
        while let Some(id) = self.retired.take_free(&self.marks) {
            self.nodes.remove(id);
        }
    }

    /// Returns a mutable reference to a group, for changes that do not affect cached matches, such as to its
    /// round-robin counter.
    pub(crate) fn group_mut(&mut self, id: NodeId, group: usize) -> &mut Group {
        match self.find_group_mut(id, group) {
            Some(group) => group,
            None => panic!("trie: node {id} has no group {group}"),
        }
    }

    /// Returns a mutable reference to a group, for changes that do not affect cached matches; `None` if the
    /// group was removed.
    pub(crate) fn find_group_mut(&mut self, id: NodeId, group: usize) -> Option<&mut Group> {
        let Holds::More(more) = self.nodes[id].holds else { return None };
        self.mores[more].groups.get_mut(group)
    }

    /// Returns the group that a part refers to, unless the group was removed since the match.
    pub(crate) fn group(&self, part: Part) -> Option<&Group> {
        self.visited();
        let group = self.more(part.node)?.groups.get(part.group as usize)?;
        (group.hash == part.hash && !group.name.is_empty()).then_some(group)
    }

    /// Returns a mutable reference to the group that a part refers to, for changes that do not affect cached
    /// matches.
    pub(crate) fn part_mut(&mut self, part: Part) -> Option<&mut Group> {
        self.visited();
        let group = self.find_group_mut(part.node, part.group as usize)?;
        (group.hash == part.hash && !group.name.is_empty()).then_some(group)
    }

    /// Returns the hash of a queue group's name.
    pub(crate) fn hash_of_name(&self, name: &[u8]) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "as many bits as a part has room for")]
        let hash = xxh3_64_with_seed(name, self.seed) as u32;
        hash
    }

    /// Returns the node of a valid pattern, adding it if it is missing.
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

    /// Returns the node of a pattern, if it exists.
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

    /// Removes a node that is no longer needed, and then each of its ancestors that is no longer needed
    /// either.
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

    /// Returns the pattern that leads to a node.
    pub(crate) fn pattern_of(&self, id: NodeId) -> Vec<u8> {
        let mut pattern = Vec::new();
        self.append_pattern(id, &mut pattern);
        pattern
    }

    /// Appends the pattern that leads to a node to `out`.
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

    /// Begins a search for the nodes that match a subject.
    pub(crate) fn look_for(&self, root: NodeId, subject: &[u8], open: &mut OpenLookup) {
        open.clear();
        if !has_empty_token(subject) {
            open.nodes.push((root, 0));
        }
    }

    /// Continues a search, and calls `found` with each node whose pattern matches, until the search is
    /// complete or the turn's budget is used up. `found` is given the index at which to start listing the
    /// node's groups; it charges the budget, and returns the index at which to continue in another turn. The
    /// trie may change between turns if the delivery is registered in `marks`: subscriptions that exist
    /// throughout the search are found; others may or may not be.
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
                let next = self.match_label(node.star, 1, subject, next, work);
                open.nodes.extend(next.map(|next| (node.star, next)));
            }
            if node.literal_children > 0 {
                let child = self.literal(at, &rest[..token_bytes]);
                if child != NONE {
                    let next = self.match_label(child, token_bytes, subject, next, work);
                    open.nodes.extend(next.map(|next| (child, next)));
                }
            }
        }
    }

    /// Compares the tokens of a node's label after its first one with the rest of a subject, starting at an
    /// offset. Returns the offset after the label, which is past the subject's end if the subject has no
    /// further tokens.
    #[inline]
    fn match_label(
        &self,
        id: NodeId,
        first_token_bytes: usize,
        subject: &[u8],
        offset: usize,
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

    /// Links a node to its parent in the table of edges or the parent's wildcards.
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

    /// Inserts a node above another one, and moves the first bytes of that node's label to it. The lower node
    /// keeps its number and subscribers.
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
                None => panic!("trie: the node's edge is missing from the table"),
            }
        }
        self.nodes[lower].label = below;
        self.nodes[lower].parent = upper;
        self.link(lower);
        upper
    }
}
