//! Subscriptions of a core: the first of the three parts of a core that a message meets (see the diagram in
//! `core`).
//!
//! ```text
//!   sid of a connection ─▶ subscription ─▶ node of the trie {subscribers, groups, other cores}
//!                                                    ▲ found once, cached by subject
//!   subject of a message ─▶ matches ─────────────────┘
//! ```
//!
//! This module knows nothing of outputs or sockets. The only part of a connection that it changes is the
//! table of sids. Whenever something changes that other cores must know, it tells the links in the same call.

use std::{collections::HashMap, rc::Rc};

use crate::{
    accounts::{identity::AccountId, imports::Imports},
    client::connection::{ConnId, Connection, FOREIGN, GONE, Subscription, find_sid, sid_hash},
    counters::Counter,
    mesh::links::Links,
    routing::{
        endings::{Endings, place_of_next},
        matching::Matches,
        number_reuse::{Mark, RetiredNumbers},
        slab::{Slab, take_out},
        trie::{HubId, NODE_BYTES, NodeId, Part, SubId, Trie, tokens_of},
    },
};
use engine::{accounts::Charge, meter::CoreCounters};

/// Arguments of a client's SUB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) pattern: &'a [u8],
    pub(crate) queue: Option<&'a [u8]>,
    pub(crate) sid: &'a [u8],
    /// The permissions allow only some of the subjects that the pattern matches.
    pub(crate) is_filtered: bool,
}

/// Memory counted for each subscription in bytes, in addition to its pattern's nodes: the subscription, its
/// entries in the tables of its connection and its node, and the spare capacity of these tables when they
/// grow.
const SUBSCRIPTION_BYTES: usize = 96;
/// Additional memory counted for each member of a queue group in bytes, on each core, without the group's
/// name.
const GROUP_BYTES: usize = 256;

/// All subscriptions of a core, and what the core knows of the subscriptions on other cores.
pub(crate) struct Subjects {
    cores: usize,
    pub(crate) trie: Trie,
    /// Root node of each account in the trie, by account number.
    roots: Vec<NodeId>,
    /// Cache of matches. It is used directly and not through methods of this type, because a
    /// [`crate::routing::matching::Match`] is large, and each further call that returns it copies it (6 ns
    /// per message).
    pub(crate) matches: Matches,
    subscriptions: Slab<Subscription>,
    /// For each queue group member: index of its group in the list of its node.
    group_of_member: HashMap<SubId, u32>,
    /// Subscriptions with a maximum number of messages ([`Subscription::ends`]).
    endings: Endings,
    /// Numbers of removed subscriptions that a suspended delivery may still refer to.
    retired: RetiredNumbers,
    /// Imports of the accounts.
    pub(crate) abroad: Imports,
    /// Reusable buffer in which patterns are assembled.
    words: Vec<u8>,
    pub(crate) counters: Rc<CoreCounters<Counter>>,
}

impl Subjects {
    pub(crate) fn new(counters: Rc<CoreCounters<Counter>>, cores: usize) -> Self {
        Self {
            cores,
            trie: Trie::new(),
            roots: Vec::new(),
            matches: Matches::new(),
            subscriptions: Slab::default(),
            retired: RetiredNumbers::default(),
            group_of_member: HashMap::new(),
            endings: Endings::default(),
            abroad: Imports::for_cores(cores),
            words: Vec::with_capacity(4096),
            counters,
        }
    }

    /// Returns the root of an account in the trie, adding it if it is missing.
    pub(crate) fn root_of(&mut self, account: u16) -> NodeId {
        while self.roots.len() <= usize::from(account) {
            self.roots.push(self.trie.add_root());
        }
        self.roots[usize::from(account)]
    }

    /// Returns the subscription with this number.
    #[inline]
    pub(crate) fn subscription(&self, sub: SubId) -> &Subscription {
        &self.subscriptions[sub]
    }

    /// Returns the number of subscriptions, including removed ones whose numbers are not free yet.
    #[cfg(test)]
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// Returns whether a pattern has subscribers outside of queue groups, on any core.
    pub(crate) fn is_wanted(&self, account: u16, pattern: &[u8]) -> bool {
        let root = self.roots.get(usize::from(account));
        let node = root.and_then(|root| self.trie.find(*root, pattern));
        node.is_some_and(|node| self.trie.is_wanted(node))
    }

    /// Returns a client's subscription, if there is one with this number.
    pub(crate) fn find_subscription(&self, sub: SubId) -> Option<&Subscription> {
        self.subscriptions.find(sub).filter(|subscription| subscription.conn < FOREIGN)
    }

    /// Returns an exclusive upper bound on all subscription numbers.
    pub(crate) fn end(&self) -> SubId {
        self.subscriptions.end()
    }

    /// Returns a subscription that has matched, and how many of `count` messages it may still receive.
    #[inline]
    pub(crate) fn still_gets(&mut self, sub: SubId, count: usize) -> (&mut Subscription, usize) {
        let subscription = &mut self.subscriptions[sub];
        if !subscription.ends {
            return (subscription, count);
        }
        let max = self.endings.max(sub).unwrap_or(u64::MAX);
        let remaining = max.saturating_sub(subscription.delivered);
        (subscription, usize::try_from(remaining).map_or(count, |remaining| count.min(remaining)))
    }

    /// Notes that a subscription with a maximum number of messages has received some, possibly its last.
    pub(crate) fn note_delivered(&mut self, sub: SubId) {
        self.endings.note_delivered(sub, self.subscriptions[sub].delivered);
    }

    /// Returns one of the subscriptions that have received their last message.
    #[inline]
    pub(crate) fn a_finished(&self) -> Option<(SubId, ConnId)> {
        let sub = self.endings.a_finished()?;
        Some((sub, self.subscriptions[sub].conn))
    }

    /// Number of finished subscriptions that removals have examined.
    #[cfg(test)]
    pub(crate) fn finished_looked_at(&self) -> usize {
        self.endings.finished_looked_at
    }

    /// Returns the number of messages after which a subscription ends, if it has a maximum.
    pub(crate) fn ends_after(&self, sub: SubId) -> Option<u64> {
        self.endings.max(sub)
    }

    /// Returns the number of the subscription with this sid.
    pub(crate) fn find(&self, connection: &Connection, sid: &[u8]) -> Option<SubId> {
        find_sid(self.trie.seed(), (&connection.sids, &self.subscriptions), sid)
    }

    /// Adds a subscription under a sid that the client is not using yet. The caller adds it to imported
    /// streams afterwards.
    pub(crate) fn subscribe(
        &mut self,
        id: ConnId,
        connection: &mut Connection,
        wish: Wish<'_>,
        links: &mut Links,
    ) -> SubId {
        let Wish { pattern, queue, sid, is_filtered } = wish;
        let subscription = Subscription { is_filtered, ..Subscription::new(id, sid.into(), queue.is_some()) };
        let sub = self.enter(connection.account, pattern, queue, subscription, links);
        let (seed, subscriptions) = (self.trie.seed(), &self.subscriptions);
        connection.sids.insert_unique(sid_hash(seed, sid), sub, |&id| sid_hash(seed, &subscriptions[id].sid));
        self.counters.add(Counter::Subscriptions, 1);
        if connection.account == AccountId::SYSTEM.0 {
            self.counters.add(Counter::SystemSubscriptions, 1);
        }
        sub
    }

    /// Adds a subscription to its node, and tells the other cores.
    pub(crate) fn enter(
        &mut self,
        account: u16,
        pattern: &[u8],
        queue: Option<&[u8]>,
        subscription: Subscription,
        links: &mut Links,
    ) -> SubId {
        let root = self.root_of(account);
        let node = self.trie.insert(root, pattern);
        let sub = self.subscriptions.insert(Subscription { node, ..subscription });
        match queue {
            None => {
                let was_wanted = self.trie.is_wanted(node);
                let place = self.trie.add_subscriber(node, sub);
                self.subscriptions[sub].place = place_of_next(place);
                if place == 0 && links.has_others() {
                    links.interest(account, pattern, true);
                }
                if !was_wanted && links.tellers.listen(account) {
                    links.tellers.wanted(account, node, pattern, true);
                }
            }
            Some(queue) => {
                let group = self.group_of(node, queue);
                #[expect(clippy::cast_possible_truncation, reason = "each group costs a subscription")]
                self.group_of_member.insert(sub, group as u32);
                let members = &mut self.trie.group_mut(node, group).members;
                self.subscriptions[sub].place = place_of_next(members.len());
                members.push(sub);
                if links.has_others() {
                    links.members(account, pattern, queue, members.len());
                }
                if links.tellers.listen(account) {
                    let members = self.trie.group_mut(node, group).members_everywhere();
                    links.tellers.members(account, node, pattern, queue, members);
                }
            }
        }
        sub
    }

    /// Sets the maximum number of messages for a subscription. Returns whether it has received that many
    /// already and must end now.
    pub(crate) fn end_after(&mut self, sub: SubId, max: u64) -> bool {
        let subscription = &mut self.subscriptions[sub];
        if max == 0 || subscription.delivered >= max {
            return true;
        }
        subscription.ends = true;
        self.endings.set(sub, max);
        false
    }

    /// Removes a client's subscription whose foreign subscriptions have been removed already.
    pub(crate) fn unsubscribe(&mut self, sub: SubId, connection: &mut Connection, links: &mut Links) {
        if connection.under_way.as_deref().is_some_and(|under_way| under_way.sub() == sub) {
            connection.under_way = None;
        }
        let (seed, subscriptions) = (self.trie.seed(), &self.subscriptions);
        take_out(&mut connection.sids, sub, |id| sid_hash(seed, &subscriptions[id].sid));
        if self.subscriptions[sub].ends {
            self.endings.forget(sub);
        }
        self.give_back(sub, 0, &mut connection.subscription_memory);
        self.counters.sub(Counter::Subscriptions, 1);
        if connection.account == AccountId::SYSTEM.0 {
            self.counters.sub(Counter::SystemSubscriptions, 1);
        }
        self.depart(sub, connection.account, links);
    }

    /// Returns the memory that a subscription to a pattern takes on all cores, counted as if no other
    /// subscription shared a part of the pattern.
    pub(crate) fn bytes_of(&self, pattern: &[u8], queue: Option<&[u8]>, sid: &[u8]) -> usize {
        let tokens = tokens_of(pattern);
        let path = tokens * NODE_BYTES + pattern.len() + 1 - tokens;
        self.bytes_beside(path, queue, sid.len())
    }

    fn bytes_beside(&self, path: usize, queue: Option<&[u8]>, sid: usize) -> usize {
        let group = queue.map_or(0, |queue| GROUP_BYTES + queue.len());
        SUBSCRIPTION_BYTES + sid + (path + group) * self.cores
    }

    /// Returns a subscription's memory, and `more` bytes, to the account of its client.
    pub(crate) fn give_back(&self, sub: SubId, more: usize, memory: &mut Option<Charge>) {
        let Some(memory) = memory else { return };
        let subscription = &self.subscriptions[sub];
        let path = self.trie.bytes_of_path(subscription.node);
        let bytes = more + self.bytes_beside(path, self.queue_of(sub), subscription.sid.len());
        // Reducing a charge fails only if the charge was revoked, and then the client is closed anyway.
        _ = memory.resize(memory.amount().saturating_sub(bytes));
    }

    /// Removes a subscription from its trie node, and tells the other cores.
    pub(crate) fn depart(&mut self, sub: SubId, account: u16, links: &mut Links) {
        let subscription = &mut self.subscriptions[sub];
        let Subscription { node, is_member, place, .. } = *subscription;
        if self.trie.marks.is_idle() {
            self.subscriptions.remove(sub);
        } else {
            subscription.conn = GONE;
            subscription.ends = false;
            self.retired.add(&self.trie.marks, sub);
        }
        if is_member {
            let group = self.group_with(sub);
            self.group_of_member.remove(&sub);
            let state = self.trie.group_mut(node, group);
            state.members.swap_remove(place as usize);
            if let Some(&moved) = state.members.get(place as usize) {
                self.subscriptions[moved].place = place;
            }
            if links.has_others() || links.tellers.listen(account) {
                let pattern = self.trie.pattern_of(node);
                self.trie.walked(tokens_of(&pattern));
                let state = self.trie.group_mut(node, group);
                links.members(account, &pattern, &state.name, state.members.len());
                links.tellers.members(account, node, &pattern, &state.name, state.members_everywhere());
            }
            self.drop_group_if_empty(node, group);
        } else {
            let (removed, moved) = self.trie.remove_subscriber(node, place as usize);
            assert!(removed == sub, "a subscriber stands at its place");
            if let Some(moved) = moved {
                self.subscriptions[moved].place = place;
            }
            if self.trie.subscribers(node).is_empty() && (links.has_others() || links.tellers.listen(account))
            {
                let pattern = self.trie.pattern_of(node);
                self.trie.walked(tokens_of(&pattern));
                links.interest(account, &pattern, false);
                if !self.trie.is_wanted(node) {
                    links.tellers.wanted(account, node, &pattern, false);
                }
            }
        }
        self.trie.prune(node);
    }

    /// Returns the number of subscriptions plus the number of trie nodes.
    pub(crate) fn entries(&self) -> usize {
        self.subscriptions.len() + self.trie.entries()
    }

    /// Frees spare capacity in the tables, and drops the cached matches.
    pub(crate) fn shrink(&mut self) {
        self.subscriptions.shrink();
        self.trie.shrink();
        self.endings.shrink();
        self.group_of_member.shrink_to_fit();
        self.matches.forget();
    }

    /// Ends a suspended delivery, and frees the retired numbers that only this delivery could still refer to.
    pub(crate) fn came_to_end(&mut self, mark: Mark) {
        self.trie.marks.end(mark);
        self.trie.free_retired();
        while let Some(sub) = self.retired.take_free(&self.trie.marks) {
            self.subscriptions.remove(sub);
        }
    }

    /// Applies an announcement that another core has subscribers to a pattern, or no longer has any.
    pub(crate) fn apply_interest(
        &mut self,
        from: usize,
        account: u16,
        pattern: &[u8],
        has: bool,
        links: &mut Links,
    ) {
        let root = self.root_of(account);
        let node = self.trie.insert(root, pattern);
        let was_wanted = self.trie.is_wanted(node);
        let more = self.trie.more_mut(node);
        if has {
            more.remote |= 1 << from;
        } else {
            more.remote &= !(1 << from);
            self.trie.let_go_of_more(node);
        }
        let is_wanted = self.trie.is_wanted(node);
        if is_wanted != was_wanted {
            links.tellers.wanted(account, node, pattern, is_wanted);
        }
        if !has {
            self.trie.prune(node);
        }
    }

    /// Applies an announcement of the number of members that another core has in a queue group.
    pub(crate) fn apply_members(
        &mut self,
        from: usize,
        account: u16,
        pattern: &[u8],
        queue: &[u8],
        count: u32,
        links: &mut Links,
    ) {
        let root = self.root_of(account);
        let node = self.trie.insert(root, pattern);
        let place = self.group_of(node, queue);
        let group = self.trie.group_mut(node, place);
        group.remote.retain(|&mut (core, _)| usize::from(core) != from);
        if count > 0 {
            #[expect(clippy::cast_possible_truncation, reason = "there are at most 64 cores")]
            group.remote.push((from as u16, count));
        }
        links.tellers.members(account, node, pattern, queue, group.members_everywhere());
        self.drop_group_if_empty(node, place);
        self.trie.prune(node);
    }

    /// Applies an announcement that a hub has subscribers to a pattern outside of queue groups, or no longer
    /// has any.
    pub(crate) fn apply_hub_interest(&mut self, hub: HubId, account: u16, pattern: &[u8], has: bool) {
        let root = self.root_of(account);
        let node = self.trie.insert(root, pattern);
        let more = self.trie.more_mut(node);
        if has {
            more.hubs |= 1 << hub;
        } else {
            more.hubs &= !(1 << hub);
            self.trie.let_go_of_more(node);
            self.trie.prune(node);
        }
    }

    /// Applies an announcement of the number of members that a hub has in a queue group.
    pub(crate) fn apply_hub_members(
        &mut self,
        hub: HubId,
        account: u16,
        pattern: &[u8],
        queue: &[u8],
        count: u32,
    ) {
        let root = self.root_of(account);
        let node = self.trie.insert(root, pattern);
        let place = self.group_of(node, queue);
        // Access to the group through `more_mut` invalidates the cached matches, which depend on the group.
        let more = self.trie.more_mut(node);
        let hubs = &mut more.groups[place].hubs;
        more.at_hubs -= u32::from(!hubs.is_empty());
        hubs.retain(|&mut (of, _)| of != hub);
        if count > 0 {
            hubs.push((hub, count));
        }
        more.at_hubs += u32::from(!hubs.is_empty());
        self.drop_group_if_empty(node, place);
        self.trie.prune(node);
    }

    /// Returns the part of a queue group that is at this pattern.
    pub(crate) fn find_group(&self, root: NodeId, pattern: &[u8], queue: &[u8]) -> Option<Part> {
        let node = self.trie.find(root, pattern)?;
        let hash = self.trie.hash_of_name(queue);
        let place = self.trie.more(node)?.place_of(queue, hash)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "groups of one pattern: each costs a subscription"
        )]
        Some(Part { node, group: place as u32, hash, overlap: Part::ALONE })
    }

    /// Returns the pattern of a group's part, and the group's name, which is taken from `other` if `part` is
    /// gone.
    pub(crate) fn words_of_part(&mut self, part: Part, other: Part) -> (&[u8], &[u8]) {
        self.words.clear();
        self.trie.append_pattern(part.node, &mut self.words);
        let group = self.trie.group(part).or_else(|| self.trie.group(other));
        (&self.words, group.map_or(&[][..], |group| &group.name))
    }

    /// Returns the name of the queue group that a subscription is in, if any.
    pub(crate) fn queue_of(&self, sub: SubId) -> Option<&[u8]> {
        let subscription = &self.subscriptions[sub];
        let group = subscription.is_member.then(|| self.group_with(sub))?;
        self.trie.more(subscription.node).map(|more| &*more.groups[group].name)
    }

    /// Sets whether the permissions allow only some of the subjects that a subscription's pattern matches.
    pub(crate) fn set_filtered(&mut self, sub: SubId, is_filtered: bool) {
        self.subscriptions[sub].is_filtered = is_filtered;
    }

    /// Returns one of the patterns that a client subscribes to, for the log.
    pub(crate) fn a_subject_of(&self, connection: &Connection) -> String {
        let first = connection.sids.iter().next();
        first.map_or_else(String::new, |&sub| {
            String::from_utf8_lossy(&self.trie.pattern_of(self.subscriptions[sub].node)).into_owned()
        })
    }

    /// Returns the index of a queue group in its node's list, adding the group if it is missing.
    fn group_of(&mut self, node: NodeId, queue: &[u8]) -> usize {
        let hash = self.trie.hash_of_name(queue);
        self.trie.more_mut(node).place_or_new(queue, hash)
    }

    /// Returns the index, in its node's list, of the group that a member belongs to.
    fn group_with(&self, member: SubId) -> usize {
        match self.group_of_member.get(&member) {
            Some(&group) => group as usize,
            None => panic!("a member is in one of its node's groups"),
        }
    }

    /// Removes a queue group if it has no members on any core or hub.
    fn drop_group_if_empty(&mut self, node: NodeId, group: usize) {
        let more = self.trie.more_mut(node);
        if more.groups[group].is_empty() {
            more.remove_group(group);
            self.trie.let_go_of_more(node);
        }
    }
}
