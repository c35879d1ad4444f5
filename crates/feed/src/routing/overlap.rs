//! Queue groups at several of the patterns that match a subject: all of their members form one group
//! (nats-server's rule).
//!
//! ```text
//!   pattern      a.*   *.b   >            member 4 of 6: one binary search in the ends ─▶ `>`, its second
//!   members       2     1    3
//!   ends          2     3    6
//! ```
//! The sums are computed while a subject's patterns are searched, where each pattern is charged. So finding
//! the next member costs a binary search and no walk through the patterns, however many patterns have a
//! member in the group.
//!
//! *What may be stale:* a delivery that takes several turns keeps its sums while clients subscribe and leave.
//! A member that has left in the meantime counts as one that refuses.

use std::cell::Cell;

use smallvec::SmallVec;

use crate::routing::trie::{CoreMask, Group, HubId, NodeId, Part};

/// Members of one group at several patterns: on this core, on each other core, and at each hub.
#[derive(Debug, Default)]
pub(crate) struct OverlapGroup {
    pub(crate) own: MemberSums,
    /// Other cores with members, each listed once.
    pub(crate) cores: Vec<(u16, MemberSums)>,
    /// Hubs with members, each listed once.
    pub(crate) hubs: Vec<(HubId, MemberSums)>,
    /// Last seen [`Group::turn`] of the group's first part; the count continues here if that part is removed.
    pub(crate) turn: Cell<u32>,
    /// Last seen [`Group::own_turn`] of the group's first part; the count continues here if that part is
    /// removed.
    pub(crate) own_turn: Cell<u32>,
}

impl OverlapGroup {
    /// Adds the members at one more pattern. Returns the number of entries that were added.
    pub(crate) fn add(&mut self, part: Part, state: &Group) -> usize {
        self.own.push(part, state.members.len());
        for &(core, count) in &state.remote {
            sums_of(&mut self.cores, core).push(part, count as usize);
        }
        for &(hub, count) in &state.hubs {
            sums_of(&mut self.hubs, hub).push(part, count as usize);
        }
        1 + state.remote.len() + state.hubs.len()
    }

    /// Returns the heap memory of the sums in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let of_cores = self.cores.iter().map(|(_, sums)| sums.heap_bytes()).sum::<usize>();
        let of_hubs = self.hubs.iter().map(|(_, sums)| sums.heap_bytes()).sum::<usize>();
        let lists = self.cores.capacity() * size_of::<(u16, MemberSums)>()
            + self.hubs.capacity() * size_of::<(HubId, MemberSums)>();
        self.own.heap_bytes() + of_cores + of_hubs + lists
    }

    /// Returns the other cores that have members.
    pub(crate) fn core_mask(&self) -> CoreMask {
        self.cores.iter().fold(0, |mask, &(core, _)| mask | 1 << core)
    }

    /// Returns whether a hub has members.
    pub(crate) fn has_hub(&self, hub: HubId) -> bool {
        self.hubs.iter().any(|&(of, _)| of == hub)
    }
}

/// Returns the sums for a core or hub in a list sorted by number, adding an entry if it is missing.
fn sums_of<T: Ord + Copy>(all: &mut Vec<(T, MemberSums)>, of: T) -> &mut MemberSums {
    let place = match all.binary_search_by_key(&of, |&(of, _)| of) {
        Ok(place) => place,
        Err(place) => {
            all.insert(place, (of, MemberSums::default()));
            place
        }
    };
    &mut all[place].1
}

/// Parts of a group at several patterns, each with the cumulative number of members up to its end.
#[derive(Debug, Default)]
pub(crate) struct MemberSums(SmallVec<[MemberSum; 2]>);

#[derive(Debug, Clone, Copy)]
struct MemberSum {
    node: NodeId,
    group: u32,
    hash: u32,
    end: u32,
}

impl MemberSums {
    /// Adds a part of the group, unless it has no members.
    fn push(&mut self, part: Part, members: usize) {
        if members > 0 {
            let end = u32::try_from(self.total().saturating_add(members)).unwrap_or(u32::MAX);
            self.0.push(MemberSum { node: part.node, group: part.group, hash: part.hash, end });
        }
    }

    /// Returns the number of members.
    pub(crate) fn total(&self) -> usize {
        self.0.last().map_or(0, |last| last.end as usize)
    }

    /// Returns the part that contains the member with this number, and the member's index in the part.
    pub(crate) fn at(&self, number: usize) -> Option<(Part, usize)> {
        let place = self.0.partition_point(|sum| sum.end as usize <= number);
        let before = place.checked_sub(1).map_or(0, |before| self.0[before].end as usize);
        let &MemberSum { node, group, hash, .. } = self.0.get(place)?;
        Some((Part { node, group, hash, overlap: Part::ALONE }, number - before))
    }

    fn heap_bytes(&self) -> usize {
        if self.0.spilled() { self.0.capacity() * size_of::<MemberSum>() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comparison with a walk through a list of all members.
    #[test]
    fn each_number_finds_its_member() {
        let part = |node| Part { node, group: 0, hash: 7, overlap: Part::ALONE };
        let members = [2, 0, 1, 3, 0];
        let mut sums = MemberSums::default();
        (0..).zip(members).for_each(|(node, count)| sums.push(part(node), count));
        let walked: Vec<(NodeId, usize)> =
            (0..).zip(members).flat_map(|(node, count)| (0..count).map(move |place| (node, place))).collect();
        let found: Vec<(NodeId, usize)> =
            (0..).map_while(|number| sums.at(number)).map(|(part, place)| (part.node, place)).collect();
        assert_eq!((found, sums.total()), (walked, 6));
    }

    #[test]
    fn cores_are_listed_once_each() {
        let mut group = OverlapGroup::default();
        for node in 0..4 {
            let remote = [(5, 2), (1, 3)].into_iter().collect();
            let state = Group { remote, ..Group::default() };
            group.add(Part { node, group: 0, hash: 7, overlap: Part::ALONE }, &state);
        }
        let totals: Vec<_> = group.cores.iter().map(|(core, sums)| (*core, sums.total())).collect();
        assert_eq!((totals, group.core_mask()), (vec![(1, 12), (5, 8)], 1 << 1 | 1 << 5));
        assert_eq!(group.own.total(), 0);
    }
}
