//! Queue groups: one member gets each message, whichever core it is on.
//!
//! ```text
//!   producer's core: whose turn is it, of all members on all cores?
//!        ├─ one of ours ─▶ our members take turns
//!        └─ one of core B's ─▶ across ─▶ B: its members take turns
//! ```
//!
//! Each core counts turns for itself, over all members: every member's share is the same, whatever the cores of
//! producers and members, and exactly so for each producer's core. As in nats-server, members at a hub get what nobody
//! here takes. A member that cannot take a message (it was cut off a moment ago, or wrote it itself and wants no echo)
//! passes it on.

use crate::{
    across::{Destination, To},
    core::Core,
    publish::{Origin, Run, send_across},
    subjects::Subjects,
    trie::{HubId, HubMask, NodeId, SubId},
};

/// Who gets the next message of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A member of this core.
    Own,
    /// A member of another core.
    Core(usize),
    /// There is no member.
    Nobody,
}

impl Subjects {
    /// Whose turn it is, of all members on all cores.
    pub(crate) fn whose_turn(&mut self, node: NodeId, group: usize) -> Turn {
        let Some(state) = self.trie.find_group_mut(node, group) else { return Turn::Nobody };
        let (own, everywhere) = (state.members.len(), state.members_everywhere());
        if everywhere == 0 {
            return Turn::Nobody;
        }
        let turn = state.turn as usize % everywhere;
        state.turn = state.turn.wrapping_add(1);
        if turn < own {
            return Turn::Own;
        }
        let mut beyond = turn - own;
        let there = state.remote.iter().find_map(|&(core, count)| {
            let is_here = beyond < count as usize;
            beyond = beyond.saturating_sub(count as usize);
            is_here.then_some(usize::from(core))
        });
        there.map_or(Turn::Own, Turn::Core)
    }

    /// The member of this core whose turn it is.
    pub(crate) fn next_own_member(&mut self, node: NodeId, group: usize) -> SubId {
        let state = self.trie.group_mut(node, group);
        let member = state.members[state.own_turn as usize % state.members.len()];
        state.own_turn = state.own_turn.wrapping_add(1);
        member
    }

    /// How many members of a group are on this core.
    pub(crate) fn own_members(&mut self, node: NodeId, group: usize) -> usize {
        self.trie.group_mut(node, group).members.len()
    }

    /// The hub that gets a message of a group which nobody of ours takes: they take turns as their members would.
    pub(crate) fn hub_of_group(&mut self, node: NodeId, group: usize, up: HubMask) -> Option<HubId> {
        let state = self.trie.find_group_mut(node, group)?;
        let there = || state.hubs.iter().filter(|&&(hub, _)| up & 1 << hub != 0);
        let members: u32 = there().map(|&(_, count)| count).fold(0, u32::saturating_add);
        let mut turn = state.turn.checked_rem(members)?;
        let hub = there().find_map(|&(hub, count)| {
            let is_its = turn < count;
            turn = turn.saturating_sub(count);
            is_its.then_some(hub)
        });
        state.turn = state.turn.wrapping_add(1);
        hub
    }

    /// Another core that has members of a group.
    pub(crate) fn other_core_with_members(&mut self, node: NodeId, group: usize) -> Option<usize> {
        self.trie.group_mut(node, group).remote.first().map(|&(core, _)| usize::from(core))
    }
}

impl Core {
    /// Gives one message to a member of a group; whether there was one.
    pub(crate) fn deliver_to_group(
        &mut self,
        node: NodeId,
        group: usize,
        of: &Origin,
        run: &Run<'_>,
    ) -> bool {
        let to = match self.subjects.whose_turn(node, group) {
            Turn::Nobody => return false,
            Turn::Core(to) => Some(to),
            Turn::Own if self.deliver_to_own_member(node, group, of, run) => return true,
            Turn::Own => self.subjects.other_core_with_members(node, group),
        };
        to.is_some_and(|to| {
            self.pass_on(to, node, group, of, run);
            true
        })
    }

    /// The same for a message that another core has sent to one of our members. The last of them may have left while it
    /// was on its way; another core's gets it then. That core was told of the leaving before it sees this, so nothing
    /// goes round in a circle.
    pub(crate) fn deliver_to_own_members(&mut self, node: NodeId, group: usize, of: &Origin, run: &Run<'_>) {
        if self.deliver_to_own_member(node, group, of, run) {
            return;
        }
        if let Some(to) = self.subjects.other_core_with_members(node, group) {
            self.pass_on(to, node, group, of, run);
        }
    }

    fn deliver_to_own_member(&mut self, node: NodeId, group: usize, of: &Origin, run: &Run<'_>) -> bool {
        for _ in 0..self.subjects.own_members(node, group) {
            let member = self.subjects.next_own_member(node, group);
            let delivered = self.deliver(member, of, run);
            if delivered > 0 {
                self.count_out(delivered, run);
                return true;
            }
        }
        false
    }

    fn pass_on(&mut self, to_core: usize, node: NodeId, group: usize, of: &Origin, run: &Run<'_>) {
        let (pattern, queue) = self.subjects.words_of_group(node, group);
        let to = To::Group { pattern, queue };
        let to = Destination { core: to_core, account: of.account, is_imported: of.is_imported, to };
        send_across(&mut self.outputs, &mut self.links, of.producer.conn, to, of.producer, run);
    }
}
