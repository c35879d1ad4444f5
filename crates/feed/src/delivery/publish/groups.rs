//! Delivery to queue groups; [`crate::routing::queue_groups`] chooses the members.
//!
//! A member may refuse a message: it has just been disconnected, it published the message itself with echo
//! off, or the subject is denied to it. Then the next member gets the message. When all members on a core
//! have refused, the message goes to the next core with members; each core is tried once, and a hub last.

use smallvec::smallvec;

use crate::{
    delivery::{origin::Origin, outputs::send_across, run::Run, suspended::GroupRefusals, work::Work},
    mesh::{
        core::Core,
        links::{Destination, GroupOfCore, To},
    },
    routing::{matching::MatchedGroup, queue_groups::Recipient, trie::CoreMask},
};

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
            let recipient = match refused.members {
                0 => self.routing.subjects.choose_member(group, own, refused.cores),
                _ => Recipient::Own,
            };
            match recipient {
                Recipient::Nobody => return GroupDelivery::Refused,
                Recipient::Core(to, part) => {
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
                Recipient::Own => match self.deliver_to_own_member(group, of, run, &mut refused.members) {
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
