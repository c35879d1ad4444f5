//! Who wants which subjects: the first of a core's three parts (`core` draws them).
//!
//! ```text
//!   sid of a connection ─▶ subscription ─▶ node of the trie {subscribers, groups, other cores}
//!                                                    ▲ found once, remembered by subject
//!   subject of a message ─▶ matches ─────────────────┘
//! ```
//!
//! Nothing here knows an output or a socket. Of a connection it changes one thing, the table of its sids; and whenever
//! what other cores must know changes, it says so to the links in the same call.

use std::{collections::HashMap, rc::Rc};

use crate::{
    accounts::{identity::AccountId, imports::Imports},
    client::connection::{ConnId, Connection, FOREIGN, GONE, Subscription, find_sid, sid_hash},
    counters::Counter,
    mesh::links::Links,
    routing::{
        matching::Matches,
        number_reuse::{Mark, RetiredNumbers},
        slab::{Slab, take_out},
        trie::{HubId, NODE_BYTES, NodeId, Part, SubId, Trie, tokens_of},
    },
};
use engine::{accounts::Charge, meter::CoreCounters};

/// What a client wants, as it says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) pattern: &'a [u8],
    pub(crate) queue: Option<&'a [u8]>,
    pub(crate) sid: &'a [u8],
    /// The permissions allow only some of what the pattern matches.
    pub(crate) is_filtered: bool,
}

/// What a subscription takes of memory beside its pattern's nodes: itself, its places in the tables of its connection and
/// of its node, and what those have to spare when they grow.
const SUBSCRIPTION_BYTES: usize = 96;
/// What a member of a queue group takes beyond that, on each core, beside the group's name.
const GROUP_BYTES: usize = 256;

/// When a subscription ends.
#[derive(Debug, Clone, Copy)]
struct Ending {
    /// After so many messages.
    max: u64,
    /// Its place in [`Subjects::finished`], once it has had them.
    finished_at: Option<u32>,
}

/// All subscriptions of a core, and what it knows of the other cores'.
pub(crate) struct Subjects {
    cores: usize,
    pub(crate) trie: Trie,
    /// The trie's root of each account.
    roots: Vec<NodeId>,
    /// Asked by name and not through a method here: a [`crate::routing::matching::Match`] is large, and each call that hands it
    /// on copies it (6 ns a message).
    pub(crate) matches: Matches,
    subscriptions: Slab<Subscription>,
    /// The places of groups in their nodes' lists, by their members.
    group_of_member: HashMap<SubId, u32>,
    /// When those end of which [`Subscription::ends`] says that they do.
    ends_after: HashMap<SubId, Ending>,
    /// Subscriptions that have ended and may be in the list of a message that is under way.
    retired: RetiredNumbers,
    /// Those that have had their last message; they end after the run.
    finished: Vec<SubId>,
    /// Entries of that list that were looked at to take one out: for tests.
    #[cfg(test)]
    pub(crate) finished_looked_at: usize,
    /// What goes from account to account.
    pub(crate) abroad: Imports,
    /// For patterns that are put together.
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
            ends_after: HashMap::new(),
            finished: Vec::new(),
            #[cfg(test)]
            finished_looked_at: 0,
            abroad: Imports::for_cores(cores),
            words: Vec::with_capacity(4096),
            counters,
        }
    }

    /// The trie's root of an account.
    pub(crate) fn root_of(&mut self, account: u16) -> NodeId {
        while self.roots.len() <= usize::from(account) {
            self.roots.push(self.trie.add_root());
        }
        self.roots[usize::from(account)]
    }

    /// A subscription.
    #[inline]
    pub(crate) fn subscription(&self, sub: SubId) -> &Subscription {
        &self.subscriptions[sub]
    }

    /// How many there are, those included that have ended and keep their numbers for now.
    #[cfg(test)]
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// Whether anybody on any core wants a pattern, and not for a queue group.
    pub(crate) fn is_wanted(&self, account: u16, pattern: &[u8]) -> bool {
        let root = self.roots.get(usize::from(account));
        let node = root.and_then(|root| self.trie.find(*root, pattern));
        node.is_some_and(|node| self.trie.is_wanted(node))
    }

    /// A subscription, if there is one of this number.
    pub(crate) fn find_subscription(&self, sub: SubId) -> Option<&Subscription> {
        self.subscriptions.find(sub).filter(|subscription| subscription.conn < FOREIGN)
    }

    /// Numbers of subscriptions are below this.
    pub(crate) fn end(&self) -> SubId {
        self.subscriptions.end()
    }

    /// A subscription that messages are for, and how many of `count` it still gets.
    #[inline]
    pub(crate) fn still_gets(&mut self, sub: SubId, count: usize) -> (&mut Subscription, usize) {
        let subscription = &mut self.subscriptions[sub];
        if !subscription.ends {
            return (subscription, count);
        }
        let max = self.ends_after.get(&sub).map_or(u64::MAX, |ending| ending.max);
        let remaining = max.saturating_sub(subscription.delivered);
        (subscription, usize::try_from(remaining).map_or(count, |remaining| count.min(remaining)))
    }

    /// Notes that a subscription which ends after a number of messages has had some: perhaps the last. After the last
    /// it gets no more, so this is not said of it again.
    #[cold]
    pub(crate) fn had_some(&mut self, sub: SubId) {
        let delivered = self.subscriptions[sub].delivered;
        if let Some(ending) = self.ends_after.get_mut(&sub).filter(|ending| delivered >= ending.max) {
            ending.finished_at = Some(place_of_next(self.finished.len()));
            self.finished.push(sub);
        }
    }

    /// One that has had its last message.
    #[inline]
    pub(crate) fn a_finished(&self) -> Option<(SubId, ConnId)> {
        let &sub = self.finished.last()?;
        Some((sub, self.subscriptions[sub].conn))
    }

    /// After how many messages a subscription ends, if it does.
    pub(crate) fn ends_after(&self, sub: SubId) -> Option<u64> {
        self.ends_after.get(&sub).map(|ending| ending.max)
    }

    /// The number of the subscription that a client calls `sid`.
    pub(crate) fn find(&self, connection: &Connection, sid: &[u8]) -> Option<SubId> {
        find_sid(self.trie.seed(), (&connection.sids, &self.subscriptions), sid)
    }

    /// Adds a subscription under a sid that the client does not use yet; in other accounts it is followed later.
    pub(crate) fn subscribe(
        &mut self,
        id: ConnId,
        connection: &mut Connection,
        wish: Wish<'_>,
        links: &mut Links,
    ) -> SubId {
        let Wish { pattern, queue, sid, is_filtered } = wish;
        let subscription = Subscription { is_filtered, ..Subscription::new(id, sid.into(), queue.is_some()) };
        let sub = self.enter((connection.account, connection.root), pattern, queue, subscription, links);
        let (seed, subscriptions) = (self.trie.seed(), &self.subscriptions);
        connection.sids.insert_unique(sid_hash(seed, sid), sub, |&id| sid_hash(seed, &subscriptions[id].sid));
        self.counters.add(Counter::Subscriptions, 1);
        if connection.account == AccountId::SYSTEM.0 {
            self.counters.add(Counter::SystemSubscriptions, 1);
        }
        sub
    }

    /// Puts a subscription at its node, and says so to the other cores.
    pub(crate) fn enter(
        &mut self,
        (account, root): (u16, NodeId),
        pattern: &[u8],
        queue: Option<&[u8]>,
        subscription: Subscription,
        links: &mut Links,
    ) -> SubId {
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
                    links.tellers.members(account, node, (pattern, queue), members);
                }
            }
        }
        sub
    }

    /// Has a subscription end after `max` messages in all; whether it has had them, and is to end now.
    pub(crate) fn end_after(&mut self, sub: SubId, max: u64) -> bool {
        let subscription = &mut self.subscriptions[sub];
        if max == 0 || subscription.delivered >= max {
            return true;
        }
        subscription.ends = true;
        let finished_at = self.ends_after.get(&sub).and_then(|ending| ending.finished_at);
        self.ends_after.insert(sub, Ending { max, finished_at });
        false
    }

    /// Ends a subscription of a client, which stands for nothing in other accounts any more.
    pub(crate) fn unsubscribe(&mut self, sub: SubId, connection: &mut Connection, links: &mut Links) {
        if connection.under_way.as_deref().is_some_and(|under_way| under_way.sub() == sub) {
            connection.under_way = None;
        }
        let (seed, subscriptions) = (self.trie.seed(), &self.subscriptions);
        take_out(&mut connection.sids, sub, |id| sid_hash(seed, &subscriptions[id].sid));
        if self.subscriptions[sub].ends {
            self.forget_ending(sub);
        }
        self.give_back(sub, 0, &mut connection.subscription_memory);
        self.counters.sub(Counter::Subscriptions, 1);
        if connection.account == AccountId::SYSTEM.0 {
            self.counters.sub(Counter::SystemSubscriptions, 1);
        }
        self.depart(sub, connection.account, links);
    }

    /// A subscription with a maximum of messages ends. Where it is in the list of finished ones, the last of those takes its place.
    fn forget_ending(&mut self, sub: SubId) {
        let ending = self.ends_after.remove(&sub);
        let Some(place) = ending.and_then(|ending| ending.finished_at) else { return };
        self.finished.swap_remove(place as usize);
        if let Some(moved) = self.finished.get(place as usize)
            && let Some(ending) = self.ends_after.get_mut(moved)
        {
            ending.finished_at = Some(place);
        }
        #[cfg(test)]
        {
            self.finished_looked_at += 2;
        }
    }

    /// What a subscription to a pattern takes of memory, on all cores: as if nobody else had a part of the pattern.
    pub(crate) fn bytes_of(&self, pattern: &[u8], queue: Option<&[u8]>, sid: &[u8]) -> usize {
        let tokens = tokens_of(pattern);
        let path = tokens * NODE_BYTES + pattern.len() + 1 - tokens;
        self.bytes_beside(path, queue, sid.len())
    }

    fn bytes_beside(&self, path: usize, queue: Option<&[u8]>, sid: usize) -> usize {
        let group = queue.map_or(0, |queue| GROUP_BYTES + queue.len());
        SUBSCRIPTION_BYTES + sid + (path + group) * self.cores
    }

    /// A subscription ends: what it took of memory, and so many bytes more, is its client's again.
    pub(crate) fn give_back(&self, sub: SubId, more: usize, memory: &mut Option<Charge>) {
        let Some(memory) = memory else { return };
        let subscription = &self.subscriptions[sub];
        let path = self.trie.bytes_of_path(subscription.node);
        let bytes = more + self.bytes_beside(path, self.queue_of(sub), subscription.sid.len());
        // Less is never refused, but to one that has been cut: that ends anyway.
        _ = memory.resize(memory.amount().saturating_sub(bytes));
    }

    /// Takes a subscription from its node, and says so to the other cores.
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
                links.tellers.members(account, node, (&pattern, &state.name), state.members_everywhere());
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

    /// Subscriptions, and nodes of their patterns.
    pub(crate) fn entries(&self) -> usize {
        self.subscriptions.len() + self.trie.entries()
    }

    /// Gives back the room behind the last of them, and what was remembered of subjects.
    pub(crate) fn shrink(&mut self) {
        self.subscriptions.shrink();
        self.trie.shrink();
        self.ends_after.shrink_to_fit();
        self.group_of_member.shrink_to_fit();
        self.matches.forget();
    }

    /// A message that needed several turns has come to its end.
    pub(crate) fn came_to_end(&mut self, mark: Mark) {
        self.trie.marks.end(mark);
        self.trie.free_retired();
        while let Some(sub) = self.retired.take_free(&self.trie.marks) {
            self.subscriptions.remove(sub);
        }
    }

    /// Another core has subscribers of a pattern, or no more.
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

    /// Another core has so many members of a queue group.
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
        links.tellers.members(account, node, (pattern, queue), group.members_everywhere());
        self.drop_group_if_empty(node, place);
        self.trie.prune(node);
    }

    /// A hub has subscribers of a pattern that are in no group, or no more.
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

    /// A hub has so many members of a queue group.
    pub(crate) fn apply_hub_members(
        &mut self,
        hub: HubId,
        account: u16,
        (pattern, queue): (&[u8], &[u8]),
        count: u32,
    ) {
        let root = self.root_of(account);
        let node = self.trie.insert(root, pattern);
        let place = self.group_of(node, queue);
        // A group that is made or changed is another match.
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

    /// A group at a pattern, by their words.
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

    /// The pattern of a group's part, and the group's name: of that part, or of another one where that has gone.
    pub(crate) fn words_of_part(&mut self, part: Part, other: Part) -> (&[u8], &[u8]) {
        self.words.clear();
        self.trie.append_pattern(part.node, &mut self.words);
        let group = self.trie.group(part).or_else(|| self.trie.group(other));
        (&self.words, group.map_or(&[][..], |group| &group.name))
    }

    /// The name of the group that a subscription is in, if it is in one.
    pub(crate) fn queue_of(&self, sub: SubId) -> Option<&[u8]> {
        let subscription = &self.subscriptions[sub];
        let group = subscription.is_member.then(|| self.group_with(sub))?;
        self.trie.more(subscription.node).map(|more| &*more.groups[group].name)
    }

    /// Notes whether the permissions allow only some of what the pattern of a subscription matches.
    pub(crate) fn set_filtered(&mut self, sub: SubId, is_filtered: bool) {
        self.subscriptions[sub].is_filtered = is_filtered;
    }

    /// One of the subjects that a client subscribes to, for the log.
    pub(crate) fn a_subject_of(&self, connection: &Connection) -> String {
        let first = connection.sids.iter().next();
        first.map_or_else(String::new, |&sub| {
            String::from_utf8_lossy(&self.trie.pattern_of(self.subscriptions[sub].node)).into_owned()
        })
    }

    /// The place of a queue group in its node; made if it is not there.
    fn group_of(&mut self, node: NodeId, queue: &[u8]) -> usize {
        let hash = self.trie.hash_of_name(queue);
        self.trie.more_mut(node).place_or_new(queue, hash)
    }

    /// The place of the group that a member is in.
    fn group_with(&self, member: SubId) -> usize {
        match self.group_of_member.get(&member) {
            Some(&group) => group as usize,
            None => panic!("a member is in one of its node's groups"),
        }
    }

    /// A group without members anywhere goes.
    fn drop_group_if_empty(&mut self, node: NodeId, group: usize) {
        let more = self.trie.more_mut(node);
        if more.groups[group].is_empty() {
            more.remove_group(group);
            self.trie.let_go_of_more(node);
        }
    }
}

fn place_of_next(len: usize) -> u32 {
    u32::try_from(len).unwrap_or_else(|_| panic!("four thousand million subscribers of one subject"))
}
