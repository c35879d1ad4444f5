//! Queue groups: one member gets each message, whichever core it is on.
//!
//! ```text
//!   producer's core: which member is next, among all cores and all matching patterns?
//!        ├─ one on this core ─▶ this core's members take turns
//!        └─ one on core B ────▶ across ─▶ B: its members take turns
//! ```
//!
//! All members with the same queue name form one group, even if they subscribe to different matching patterns
//! (nats-server's rule). Each core counts messages by itself and cycles through all members. So every member
//! has the same share, whichever cores producers and members are on, and exactly the same share of the
//! messages from each producer's core. As in nats-server, members at a hub get the messages that no local
//! member accepts.
//!
//! A member may refuse a message: it has just been disconnected, it published the message itself with echo
//! off, or the subject is denied to it. Then the next member gets the message. When all members on a core
//! have refused, the message goes to the next core with members; each core is tried once, and a hub last.

use std::cell::Cell;

use smallvec::smallvec;

use crate::{
    delivery::{
        publish::{Origin, send_across},
        run::Run,
        work::Work,
    },
    mesh::{
        core::Core,
        links::{Destination, GroupOfCore, To},
    },
    routing::{
        matching::MatchedGroup,
        overlap::OverlapGroup,
        subjects::Subjects,
        trie::{CoreMask, Group, HubId, HubMask, Part, SubId},
    },
};

/// Recipient of the next message of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    /// A member on this core.
    Own,
    /// A member on another core; the part says at which pattern.
    Core(usize, Part),
    /// All cores with members have been tried.
    Nobody,
}

impl Subjects {
    /// Returns the recipient of a group's next message, among the members on all cores that are not in
    /// `tried`. `own` is this core's bit.
    pub(crate) fn choose_member(&mut self, group: MatchedGroup<'_>, own: CoreMask, tried: CoreMask) -> Turn {
        if let Some(overlap) = group.overlap {
            return self.whose_turn_at_several(group.first, overlap, own, tried);
        }
        let Some(state) = self.trie.part_mut(group.first) else { return Turn::Nobody };
        if tried == 0 { turn_of(state, group.first) } else { turn_of_untried(state, group.first, own, tried) }
    }

    #[cold]
    fn whose_turn_at_several(
        &mut self,
        first: Part,
        overlap: &OverlapGroup,
        own: CoreMask,
        tried: CoreMask,
    ) -> Turn {
        let here = if tried & own == 0 { overlap.own.total() } else { 0 };
        let others = || overlap.cores.iter().filter(|&&(core, _)| tried & 1 << core == 0);
        let elsewhere: usize = others().map(|(_, sums)| sums.total()).sum();
        if here + elsewhere == 0 {
            return Turn::Nobody;
        }
        let turn = self.count_turn(first, &overlap.turn, |state| &mut state.turn);
        let turn = turn as usize % (here + elsewhere);
        if turn < here {
            return Turn::Own;
        }
        let mut beyond = turn - here;
        for (core, sums) in others() {
            match sums.at(beyond) {
                Some((part, _)) => return Turn::Core(usize::from(*core), part),
                None => beyond -= sums.total(),
            }
        }
        Turn::Nobody
    }

    /// Advances the round-robin counter of a group at several patterns: the counter of its first part or, if
    /// that part is gone, the copy in `seen`.
    fn count_turn(&mut self, first: Part, seen: &Cell<u32>, turn: impl Fn(&mut Group) -> &mut u32) -> u32 {
        let mut now = seen.get();
        if let Some(state) = self.trie.part_mut(first) {
            let turn = turn(state);
            now = *turn;
            *turn = now.wrapping_add(1);
        }
        seen.set(now.wrapping_add(1));
        now
    }

    /// Returns the next member on this core; `None` if that member has left since the search.
    pub(crate) fn next_own_member(&mut self, group: MatchedGroup<'_>) -> Option<SubId> {
        if let Some(overlap) = group.overlap {
            let turn = self.count_turn(group.first, &overlap.own_turn, |state| &mut state.own_turn);
            let number = (turn as usize).checked_rem(overlap.own.total())?;
            let (part, place) = overlap.own.at(number)?;
            return self.trie.group(part)?.members.get(place).copied();
        }
        let state = self.trie.part_mut(group.first)?;
        let at = (state.own_turn as usize).checked_rem(state.members.len())?;
        state.own_turn = state.own_turn.wrapping_add(1);
        Some(state.members[at])
    }

    /// Returns the other cores that have members of a group.
    fn cores_of_group(&self, group: MatchedGroup<'_>) -> CoreMask {
        if let Some(overlap) = group.overlap {
            return overlap.core_mask();
        }
        let remote = self.trie.group(group.first).map_or(&[][..], |state| &state.remote);
        remote.iter().fold(0, |mask, &(core, _)| mask | 1 << core)
    }

    /// Returns the number of a group's members on this core.
    pub(crate) fn own_members(&self, group: MatchedGroup<'_>) -> usize {
        match group.overlap {
            Some(overlap) => overlap.own.total(),
            None => self.trie.group(group.first).map_or(0, |state| state.members.len()),
        }
    }

    /// Returns the hub that gets a group's message if no local member accepts it, and the part of the group
    /// there. Hubs are chosen in proportion to their members.
    pub(crate) fn hub_of_group(&mut self, group: MatchedGroup<'_>, up: HubMask) -> Option<(HubId, Part)> {
        if let Some(overlap) = group.overlap {
            let there = || overlap.hubs.iter().filter(|&&(hub, _)| up & 1 << hub != 0);
            let members: usize = there().map(|(_, sums)| sums.total()).sum();
            if members == 0 {
                return None;
            }
            let turn = self.count_turn(group.first, &overlap.turn, |state| &mut state.turn);
            let mut turn = turn as usize % members;
            for (hub, sums) in there() {
                match sums.at(turn) {
                    Some((part, _)) => return Some((*hub, part)),
                    None => turn -= sums.total(),
                }
            }
            return None;
        }
        let state = self.trie.part_mut(group.first)?;
        let there = || state.hubs.iter().filter(|&&(hub, _)| up & 1 << hub != 0);
        let members = there().fold(0, |sum: u32, &(_, count)| sum.saturating_add(count));
        let mut turn = state.turn.checked_rem(members)?;
        let found = there().find(|&&(_, count)| {
            let is_there = turn < count;
            turn = turn.saturating_sub(count);
            is_there
        });
        let hub = found.map(|&(hub, _)| hub);
        state.turn = state.turn.wrapping_add(1);
        hub.map(|hub| (hub, group.first))
    }
}

/// Returns the next recipient as [`turn_of`] does, but skips the cores in `tried`.
#[cold]
fn turn_of_untried(state: &mut Group, part: Part, own: CoreMask, tried: CoreMask) -> Turn {
    let here = if tried & own == 0 { state.members.len() } else { 0 };
    let others = || state.remote.iter().filter(|&&(core, _)| tried & 1 << core == 0);
    let elsewhere: usize = others().map(|&(_, count)| count as usize).sum();
    let Some(turn) = (state.turn as usize).checked_rem(here + elsewhere) else { return Turn::Nobody };
    if turn < here {
        state.turn = state.turn.wrapping_add(1);
        return Turn::Own;
    }
    let mut beyond = turn - here;
    let there = others().find_map(|&(core, count)| {
        let is_there = beyond < count as usize;
        beyond = beyond.saturating_sub(count as usize);
        is_there.then_some(usize::from(core))
    });
    state.turn = state.turn.wrapping_add(1);
    there.map_or(Turn::Nobody, |core| Turn::Core(core, part))
}

/// Returns the next recipient in a group that occurs at one pattern, among the members on all cores.
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
    /// Number of refusals by members on this core, at the pattern or patterns that are being tried.
    members: usize,
    /// Cores on which all members have refused.
    cores: CoreMask,
    /// On a core that got the message from another core: all members at the pattern that the sender chose
    /// have refused, so the other matching patterns are tried.
    is_beyond_pattern: bool,
}

impl GroupRefusals {
    /// Returns whether any member has refused the message.
    pub(crate) fn has_begun(self) -> bool {
        self.members > 0 || self.cores != 0
    }
}

/// Result of delivering a message to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupDelivery {
    /// A member has received the message, or another core delivers it to one of its members.
    Taken,
    /// All members of the group have refused the message.
    Refused,
    /// The turn's budget is used up, and no member has accepted so far.
    Over,
}

impl Core {
    /// Delivers one message to a member of a group, on this core or through another core.
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
            // If some of this core's members have refused, its remaining members are tried first.
            let turn = match refused.members {
                0 => self.routing.subjects.choose_member(group, own, refused.cores),
                _ => Turn::Own,
            };
            match turn {
                Turn::Nobody => return GroupDelivery::Refused,
                Turn::Core(to, part) => {
                    let known = known | self.routing.subjects.cores_of_group(group);
                    let (pattern, queue) = self.routing.subjects.words_of_part(part, group.first);
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

    /// Delivers a message from another core to one of this core's members: first at the pattern that the
    /// sender chose, then at the other matching patterns. If all members refuse or have left, the next core
    /// gets the message. Returns whether all was done within the turn's budget.
    pub(crate) fn deliver_to_group_of_core(
        &mut self,
        to: GroupOfCore<'_>,
        of: &Origin,
        run: &Run<'_>,
        refused: &mut GroupRefusals,
    ) -> bool {
        let GroupOfCore { pattern, queue, tried, known, .. } = to;
        if !refused.is_beyond_pattern {
            if let Some(part) = self.routing.subjects.find_group(of.root, pattern, queue) {
                match self.deliver_to_own_member(MatchedGroup::at(part), of, run, &mut refused.members) {
                    GroupDelivery::Taken => return true,
                    GroupDelivery::Over => return false,
                    GroupDelivery::Refused => {}
                }
            }
            *refused = GroupRefusals { is_beyond_pattern: true, members: 0, cores: tried };
        }
        // The search counts as one step; if it is costly, the turn ends after it.
        let mut work = Work::of(u64::MAX);
        let (slot, matched) =
            self.routing.subjects.matches.take(&self.routing.subjects.trie, of.root, run.subject, &mut work);
        self.turn.work.add(work.done());
        let group = matched.group_of_name(&self.routing.subjects.trie, queue);
        let given = group
            .map_or(GroupDelivery::Refused, |group| self.deliver_to_untried(group, of, run, refused, known));
        let tried = tried | 1 << self.index;
        let untried = known & !tried;
        if given != GroupDelivery::Refused {
        } else if untried != 0 {
            // Announcements from that core may not have arrived here yet, but the sender knows them.
            let core = untried.trailing_zeros() as usize;
            let group = To::Group(GroupOfCore { tried, ..to });
            let to = Destination { core, account: of.account, is_imported: of.is_imported, to: group };
            send_across(&mut self.outputs, &mut self.links, of.producer.conn, to, of.producer, run);
        } else if let Some(group) = group.filter(|_| !of.is_from_hub)
            && let Some(hub) = self.routing.subjects.hub_of_group(group, self.hubs.up)
        {
            self.send_to_hubs(of, run, 0, &smallvec![hub]);
        }
        self.routing.subjects.matches.put_back(slot, matched);
        given != GroupDelivery::Over
    }

    /// Offers a message to this core's members; `refused` of them have refused it already.
    fn deliver_to_own_member(
        &mut self,
        group: MatchedGroup<'_>,
        of: &Origin,
        run: &Run<'_>,
        refused: &mut usize,
    ) -> GroupDelivery {
        let members = self.routing.subjects.own_members(group);
        while *refused < members {
            // The caller has charged the budget for the first member.
            if *refused > 0 {
                if self.is_turn_over() {
                    return GroupDelivery::Over;
                }
                self.turn.work.step();
            }
            let member = self.routing.subjects.next_own_member(group);
            let delivered = member.map_or(0, |member| self.deliver(member, of, run));
            if delivered > 0 {
                self.count_out(delivered, run);
                return GroupDelivery::Taken;
            }
            *refused += 1;
        }
        GroupDelivery::Refused
    }
}
