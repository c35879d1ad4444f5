//! Queue groups: one member gets each message, whichever core it is on.
//!
//! ```text
//!   producer's core: whose turn is it, of all members on all cores, at all patterns that match?
//!        ├─ one of ours ─▶ our members take turns
//!        └─ one of core B's ─▶ across ─▶ B: its members take turns
//! ```
//!
//! One name is one group, at however many of the matching patterns it has members (nats-server's rule). Each core counts
//! turns for itself, over all members: every member's share is the same, whatever the cores of producers and members,
//! and exactly so for each producer's core. As in nats-server, members at a hub get what nobody here takes.
//!
//! A member may refuse a message: it was cut off a moment ago, wrote the message itself and wants no echo, or is denied
//! the subject. Then the next member gets it; when all members of a core have refused, the next core that has some, and
//! each core once; last of all a hub.

use smallvec::smallvec;

use crate::{
    across::{Destination, GroupOfCore, To},
    core::Core,
    matching::MatchedGroup,
    publish::{Origin, Run, send_across},
    subjects::Subjects,
    trie::{CoreMask, Group, HubId, HubMask, Part, SubId},
    work::Work,
};

/// Who gets the next message of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    /// A member of this core.
    Own,
    /// A member of another core, at a pattern.
    Core(usize, Part),
    /// There is no member on a core that was not tried.
    Nobody,
}

impl Subjects {
    /// Whose turn it is, of all members of a group on all cores but those that were tried. `own` is this core's bit.
    pub(crate) fn whose_turn(&mut self, group: MatchedGroup<'_>, own: CoreMask, tried: CoreMask) -> Turn {
        if tried == 0 && group.is_at_one_pattern() {
            return self.trie.part_mut(group.first).map_or(Turn::Nobody, |state| turn_of(state, group.first));
        }
        let trie = &self.trie;
        let was_tried = |core: u16| tried & 1 << core != 0;
        let (mut here, mut elsewhere) = (0, 0);
        for state in group.parts().filter_map(|part| trie.group(part)) {
            here += if tried & own == 0 { state.members.len() } else { 0 };
            let others = state.remote.iter().filter(|&&(core, _)| !was_tried(core));
            elsewhere += others.map(|&(_, count)| count as usize).sum::<usize>();
        }
        if here + elsewhere == 0 {
            return Turn::Nobody;
        }
        let Some(turn) = self.next(group, |state| &mut state.turn) else { return Turn::Nobody };
        let turn = turn as usize % (here + elsewhere);
        if turn < here {
            return Turn::Own;
        }
        let mut beyond = turn - here;
        let trie = &self.trie;
        for part in group.parts() {
            let remote = trie.group(part).map_or(&[][..], |state| &state.remote);
            for &(core, count) in remote.iter().filter(|&&(core, _)| !was_tried(core)) {
                if beyond < count as usize {
                    return Turn::Core(usize::from(core), part);
                }
                beyond -= count as usize;
            }
        }
        Turn::Nobody
    }

    /// Counts a turn of a group, at the first of its parts that is there.
    fn next(&mut self, group: MatchedGroup<'_>, turn: impl Fn(&mut Group) -> &mut u32) -> Option<u32> {
        let part = group.parts().find(|&part| self.trie.group(part).is_some())?;
        let turn = turn(self.trie.part_mut(part)?);
        let now = *turn;
        *turn = turn.wrapping_add(1);
        Some(now)
    }

    /// The member of this core whose turn it is.
    pub(crate) fn next_own_member(&mut self, group: MatchedGroup<'_>) -> Option<SubId> {
        if group.is_at_one_pattern() {
            let state = self.trie.part_mut(group.first)?;
            let at = (state.own_turn as usize).checked_rem(state.members.len())?;
            state.own_turn = state.own_turn.wrapping_add(1);
            return Some(state.members[at]);
        }
        let turn = self.next(group, |state| &mut state.own_turn)?;
        let mut at = (turn as usize).checked_rem(self.own_members(group))?;
        for state in group.parts().filter_map(|part| self.trie.group(part)) {
            match state.members.get(at) {
                Some(&member) => return Some(member),
                None => at -= state.members.len(),
            }
        }
        None
    }

    /// The other cores that have members of a group.
    fn cores_of_group(&self, group: MatchedGroup<'_>) -> CoreMask {
        let states = group.parts().filter_map(|part| self.trie.group(part));
        states.flat_map(|state| &state.remote).fold(0, |mask, &(core, _)| mask | 1 << core)
    }

    /// How many members of a group are on this core.
    pub(crate) fn own_members(&self, group: MatchedGroup<'_>) -> usize {
        group.parts().filter_map(|part| self.trie.group(part)).map(|state| state.members.len()).sum()
    }

    /// The hub that gets a message of a group which nobody of ours takes, and where the group is: hubs take turns as their
    /// members would.
    pub(crate) fn hub_of_group(&mut self, group: MatchedGroup<'_>, up: HubMask) -> Option<(HubId, Part)> {
        let trie = &self.trie;
        let there = || {
            let parts = group.parts().filter_map(|part| Some((part, trie.group(part)?)));
            let all = parts.flat_map(|(part, state)| state.hubs.iter().map(move |&hub| (part, hub)));
            all.filter(|(_, (hub, _))| up & 1 << hub != 0)
        };
        let members: u32 = there().map(|(_, (_, count))| count).fold(0, u32::saturating_add);
        let turn = self.next(group, |state| &mut state.turn)?;
        let mut turn = turn.checked_rem(members)?;
        let trie = &self.trie;
        let parts = group.parts().filter_map(|part| Some((part, trie.group(part)?)));
        let all = parts.flat_map(|(part, state)| state.hubs.iter().map(move |&hub| (part, hub)));
        for (part, (hub, count)) in all.filter(|(_, (hub, _))| up & 1 << hub != 0) {
            if turn < count {
                return Some((hub, part));
            }
            turn -= count;
        }
        None
    }
}

/// Whose turn it is in a group at one pattern, of the members on all cores.
#[inline]
fn turn_of(state: &mut Group, part: Part) -> Turn {
    let (own, everywhere) = (state.members.len(), state.members_everywhere());
    let Some(turn) = (state.turn as usize).checked_rem(everywhere) else { return Turn::Nobody };
    state.turn = state.turn.wrapping_add(1);
    if turn < own {
        return Turn::Own;
    }
    let mut beyond = turn - own;
    let there = state.remote.iter().find_map(|&(core, count)| {
        let is_there = beyond < count as usize;
        beyond = beyond.saturating_sub(count as usize);
        is_there.then_some(usize::from(core))
    });
    there.map_or(Turn::Own, |core| Turn::Core(core, part))
}

/// Members and cores of a group that have refused a message so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GroupRefusals {
    /// Members of this core, of the pattern or patterns that are looked at.
    members: usize,
    /// Cores of which all members have.
    cores: CoreMask,
    /// On the core that another one has passed the message on to: all members of the pattern whose turn it was have.
    is_beyond_pattern: bool,
}

impl GroupRefusals {
    /// Whether somebody has refused the message.
    pub(crate) fn has_begun(self) -> bool {
        self.members > 0 || self.cores != 0
    }
}

/// Outcome of giving a message to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupDelivery {
    /// A member has it, or another core gives it to one.
    Taken,
    /// No member takes it.
    Refused,
    /// The turn is over before somebody was found who takes it.
    Over,
}

impl Core {
    /// Gives one message to a member of a group, on this core or by another one.
    pub(crate) fn deliver_to_group(
        &mut self,
        group: MatchedGroup<'_>,
        of: &Origin,
        run: &Run<'_>,
        refused: &mut GroupRefusals,
    ) -> GroupDelivery {
        self.deliver_to_untried(group, of, run, refused, 0)
    }

    fn deliver_to_untried(
        &mut self,
        group: MatchedGroup<'_>,
        of: &Origin,
        run: &Run<'_>,
        refused: &mut GroupRefusals,
        known: CoreMask,
    ) -> GroupDelivery {
        let own = 1 << self.index;
        loop {
            // Where some of this core's members have refused, it is still this core's turn.
            let turn = match refused.members {
                0 => self.subjects.whose_turn(group, own, refused.cores),
                _ => Turn::Own,
            };
            match turn {
                Turn::Nobody => return GroupDelivery::Refused,
                Turn::Core(to, part) => {
                    let known = known | self.subjects.cores_of_group(group);
                    let (pattern, queue) = self.subjects.words_of_part(part);
                    let tried = refused.cores;
                    let group = GroupOfCore { pattern, queue, is_from_hub: of.is_from_hub, tried, known };
                    let to = Destination {
                        core: to,
                        account: of.account,
                        is_imported: of.is_imported,
                        to: To::Group(group),
                    };
                    let Self { outputs, links, .. } = self;
                    send_across(outputs, links, of.producer.conn, to, of.producer, run);
                    return GroupDelivery::Taken;
                }
                Turn::Own => match self.deliver_to_own_member(group, of, run, &mut refused.members) {
                    GroupDelivery::Refused => {
                        refused.members = 0;
                        refused.cores |= own;
                    }
                    given => return given,
                },
            }
        }
    }

    /// Gives a message that another core has passed on to one of this core's members: of the pattern whose turn it is, else
    /// of the others that match. When all of them refuse or have left, the next core gets it. Whether that was all before
    /// the turn's work was done.
    pub(crate) fn deliver_to_group_of_core(
        &mut self,
        to: GroupOfCore<'_>,
        of: &Origin,
        run: &Run<'_>,
        refused: &mut GroupRefusals,
    ) -> bool {
        let GroupOfCore { pattern, queue, tried, known, .. } = to;
        if !refused.is_beyond_pattern {
            if let Some(part) = self.subjects.find_group(of.root, pattern, queue) {
                match self.deliver_to_own_member(MatchedGroup::at(part), of, run, &mut refused.members) {
                    GroupDelivery::Taken => return true,
                    GroupDelivery::Over => return false,
                    GroupDelivery::Refused => {}
                }
            }
            *refused = GroupRefusals { is_beyond_pattern: true, members: 0, cores: tried };
        }
        // All of it in one step, after which the turn is over if it was much.
        let mut work = Work::of(u64::MAX);
        let (slot, matched) =
            self.subjects.matches.take(&self.subjects.trie, of.root, run.subject, &mut work);
        self.work.add(work.done());
        let group = matched.group_of_name(&self.subjects.trie, queue);
        let given = group
            .map_or(GroupDelivery::Refused, |group| self.deliver_to_untried(group, of, run, refused, known));
        let tried = tried | 1 << self.index;
        let untried = known & !tried;
        if given != GroupDelivery::Refused {
        } else if untried != 0 {
            // What its members have said to the sender is under way to here.
            let core = untried.trailing_zeros() as usize;
            let group = To::Group(GroupOfCore { tried, ..to });
            let to = Destination { core, account: of.account, is_imported: of.is_imported, to: group };
            send_across(&mut self.outputs, &mut self.links, of.producer.conn, to, of.producer, run);
        } else if let Some(group) = group.filter(|_| !of.is_from_hub)
            && let Some(hub) = self.subjects.hub_of_group(group, self.hubs_up)
        {
            self.send_to_hubs(of, run, 0, &smallvec![hub]);
        }
        self.subjects.matches.put_back(slot, matched);
        given != GroupDelivery::Over
    }

    /// Offers a message to this core's members, of whom so many have refused it.
    fn deliver_to_own_member(
        &mut self,
        group: MatchedGroup<'_>,
        of: &Origin,
        run: &Run<'_>,
        refused: &mut usize,
    ) -> GroupDelivery {
        let members = self.subjects.own_members(group);
        while *refused < members {
            // The first is paid for by whoever hands out.
            if *refused > 0 {
                if self.is_turn_over() {
                    return GroupDelivery::Over;
                }
                self.work.step();
            }
            let Some(member) = self.subjects.next_own_member(group) else { break };
            let delivered = self.deliver(member, of, run);
            if delivered > 0 {
                self.count_out(delivered, run);
                return GroupDelivery::Taken;
            }
            *refused += 1;
        }
        GroupDelivery::Refused
    }
}
