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

use std::cell::Cell;

use crate::routing::{
    matching::MatchedGroup,
    overlap::OverlapGroup,
    subjects::Subjects,
    trie::{CoreMask, Group, HubId, HubMask, Part, SubId},
};

/// Recipient of the next message of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Recipient {
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
    #[inline]
    pub(crate) fn choose_member(
        &mut self,
        group: MatchedGroup<'_>,
        own: CoreMask,
        tried: CoreMask,
    ) -> Recipient {
        if let Some(overlap) = group.overlap {
            return self.whose_turn_at_several(group.first, overlap, own, tried);
        }
        let Some(state) = self.trie.part_mut(group.first) else { return Recipient::Nobody };
        if tried == 0 { turn_of(state, group.first) } else { turn_of_untried(state, group.first, own, tried) }
    }

    #[cold]
    fn whose_turn_at_several(
        &mut self,
        first: Part,
        overlap: &OverlapGroup,
        own: CoreMask,
        tried: CoreMask,
    ) -> Recipient {
        let here = if tried & own == 0 { overlap.own.total() } else { 0 };
        let others = || overlap.cores.iter().filter(|&&(core, _)| tried & 1 << core == 0);
        let elsewhere: usize = others().map(|(_, sums)| sums.total()).sum();
        if here + elsewhere == 0 {
            return Recipient::Nobody;
        }
        let turn = self.count_turn(first, &overlap.turn, |state| &mut state.turn);
        let turn = turn as usize % (here + elsewhere);
        if turn < here {
            return Recipient::Own;
        }
        let mut beyond = turn - here;
        for (core, sums) in others() {
            match sums.at(beyond) {
                Some((part, _)) => return Recipient::Core(usize::from(*core), part),
                None => beyond -= sums.total(),
            }
        }
        Recipient::Nobody
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
    #[inline]
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
    #[inline]
    pub(crate) fn cores_of_group(&self, group: MatchedGroup<'_>) -> CoreMask {
        if let Some(overlap) = group.overlap {
            return overlap.core_mask();
        }
        let remote = self.trie.group(group.first).map_or(&[][..], |state| &state.remote);
        remote.iter().fold(0, |mask, &(core, _)| mask | 1 << core)
    }

    /// Returns the number of a group's members on this core.
    #[inline]
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
fn turn_of_untried(state: &mut Group, part: Part, own: CoreMask, tried: CoreMask) -> Recipient {
    let here = if tried & own == 0 { state.members.len() } else { 0 };
    let others = || state.remote.iter().filter(|&&(core, _)| tried & 1 << core == 0);
    let elsewhere: usize = others().map(|&(_, count)| count as usize).sum();
    let Some(turn) = (state.turn as usize).checked_rem(here + elsewhere) else { return Recipient::Nobody };
    if turn < here {
        state.turn = state.turn.wrapping_add(1);
        return Recipient::Own;
    }
    let mut beyond = turn - here;
    let there = others().find_map(|&(core, count)| {
        let is_there = beyond < count as usize;
        beyond = beyond.saturating_sub(count as usize);
        is_there.then_some(usize::from(core))
    });
    state.turn = state.turn.wrapping_add(1);
    there.map_or(Recipient::Nobody, |core| Recipient::Core(core, part))
}

/// Returns the next recipient in a group that occurs at one pattern, among the members on all cores.
#[inline]
fn turn_of(state: &mut Group, part: Part) -> Recipient {
    let (own, everywhere) = (state.members.len(), state.members_everywhere());
    let Some(turn) = (state.turn as usize).checked_rem(everywhere) else { return Recipient::Nobody };
    state.turn = state.turn.wrapping_add(1);
    if turn < own {
        return Recipient::Own;
    }
    let mut beyond = turn - own;
    let there = state.remote.iter().find_map(|&(core, count)| {
        let is_there = beyond < count as usize;
        beyond = beyond.saturating_sub(count as usize);
        is_there.then_some(usize::from(core))
    });
    there.map_or(Recipient::Own, |core| Recipient::Core(core, part))
}
