//! Queue groups: one member gets each message, whichever core it is on.
//!
//! ```text
//!   producer's core: whose turn is it, of all members on all cores?
//!        ├─ one of ours ─▶ our members take turns
//!        └─ one of core B's ─▶ across ─▶ B: its members take turns
//! ```
//!
//! Each core counts turns for itself, over all members: every member's share is the same, whatever the cores of producers
//! and members, and exactly so for each producer's core. A member that cannot take a message (it was cut off a moment ago,
//! or wrote it itself and wants no echo) passes it on.

use crate::{backpressure::Producer, core::Core, publish::Run, trie::NodeId};

impl Core {
    /// Gives one message to a member of a group; whether there was one.
    pub(crate) fn deliver_to_group(
        &mut self,
        node: NodeId,
        group: usize,
        account: u16,
        producer: Producer,
        run: &Run<'_>,
    ) -> bool {
        let state = self.trie.group_mut(node, group);
        let (own, everywhere) = (state.members.len(), state.members_everywhere());
        if everywhere == 0 {
            return false;
        }
        let turn = state.turn as usize % everywhere;
        state.turn = state.turn.wrapping_add(1);
        if turn < own && self.deliver_to_own_member(node, group, producer, run) {
            return true;
        }
        let mut beyond = turn.saturating_sub(own);
        let state = self.trie.group_mut(node, group);
        let there = state.remote.iter().find_map(|&(core, count)| {
            let is_here = beyond < count as usize;
            beyond = beyond.saturating_sub(count as usize);
            is_here.then_some(usize::from(core))
        });
        match there {
            Some(to) => {
                self.pass_on(to, node, group, account, producer, run);
                true
            }
            None => self.deliver_to_own_member(node, group, producer, run),
        }
    }

    /// The same for a message that another core has sent to one of our members. The last of them may have left while it
    /// was on its way; another core's gets it then. That core was told of the leaving before it sees this, so nothing goes
    /// round in a circle.
    pub(crate) fn deliver_to_own_members(
        &mut self,
        node: NodeId,
        group: usize,
        account: u16,
        producer: Producer,
        run: &Run<'_>,
    ) {
        if self.deliver_to_own_member(node, group, producer, run) {
            return;
        }
        let there = self.trie.group_mut(node, group).remote.first().map(|&(core, _)| usize::from(core));
        if let Some(to) = there {
            self.pass_on(to, node, group, account, producer, run);
        }
    }

    fn deliver_to_own_member(
        &mut self,
        node: NodeId,
        group: usize,
        producer: Producer,
        run: &Run<'_>,
    ) -> bool {
        for _ in 0..self.trie.group_mut(node, group).members.len() {
            let state = self.trie.group_mut(node, group);
            let member = state.members[state.own_turn as usize % state.members.len()];
            state.own_turn = state.own_turn.wrapping_add(1);
            let delivered = self.deliver(member, producer, run);
            if delivered > 0 {
                self.count_out(delivered, run);
                return true;
            }
        }
        false
    }

    fn pass_on(
        &mut self,
        to: usize,
        node: NodeId,
        group: usize,
        account: u16,
        producer: Producer,
        run: &Run<'_>,
    ) {
        let mut words = std::mem::take(&mut self.line);
        words.clear();
        self.trie.append_pattern(node, &mut words);
        let pattern_bytes = words.len();
        words.extend_from_slice(&self.trie.group_mut(node, group).name);
        let (pattern, name) = words.split_at(pattern_bytes);
        self.send_across(producer.conn, to, account, producer, Some((pattern, name)), run);
        self.line = words;
    }
}
