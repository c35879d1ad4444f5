//! Interest announced to hubs: the subscriptions of all cores together, each pattern once.
//!
//! ```text
//!   SUB on any core ─▶ the core that has joined the hub: is the pattern new on all cores? ─▶ "LS+ a.b" ─▶ its output
//!   a member joins or leaves a group ─▶ how many members are there on all cores? ─▶ "LS+ a.b q 3"
//! ```
//! Like every core, the hub's core knows which patterns have subscribers on the other cores (`subjects`), and
//! that is enough: a pattern is announced when it gets its first subscriber, and withdrawn when it loses its
//! last. After a connection is established, all nodes of the trie are walked in the order of their numbers,
//! some in each turn. A change during the walk is announced at once if the walk has already passed its node;
//! otherwise the walk announces it ([`Teller::told_below`]). So each pattern is announced exactly once,
//! without a record of what was announced.

use wire::nats::leaf;

use super::rules::HubRules;
use crate::routing::trie::{HubId, NodeId};

/// Announcements to the hubs that this core has joined.
#[derive(Default)]
pub(crate) struct Tellers {
    all: Vec<Teller>,
    /// At least one announcement is waiting to be sent.
    pub(crate) is_waiting: bool,
}

/// State of the announcements to one hub.
pub(crate) struct Teller {
    pub(crate) hub: HubId,
    account: u16,
    /// Nodes with numbers below this have been announced.
    pub(crate) told_below: NodeId,
    rules: HubRules,
    /// Subjects that are announced even without subscribers: mapped subjects and imported services, sorted.
    standing: Vec<Box<[u8]>>,
    /// Protocol lines to send to the hub at the end of the turn, or before the next message.
    pub(crate) lines: Vec<u8>,
    /// Number of patterns that were not announced because the hub's permissions forbid it, since the count
    /// was last taken.
    pub(crate) denied: u64,
}

impl Tellers {
    /// Starts the announcements to a hub that has been joined: first interest in the subject `first`, then
    /// all changes.
    pub(crate) fn begin(
        &mut self,
        hub: HubId,
        account: u16,
        rules: HubRules,
        first: &[u8],
        standing: Vec<Box<[u8]>>,
    ) {
        self.end(hub);
        let mut lines = Vec::new();
        leaf::interest_line(&mut lines, first);
        let mut teller =
            Teller { hub, account, told_below: 0, rules, standing: Vec::new(), lines, denied: 0 };
        teller.stand(standing, |_| false);
        self.all.push(teller);
        self.is_waiting = true;
    }

    /// Announces, after a reload, changes in the set of subjects that are announced even without subscribers.
    pub(crate) fn stand(
        &mut self,
        standing: impl Fn(u16) -> Vec<Box<[u8]>>,
        is_wanted: impl Fn(u16, &[u8]) -> bool,
    ) {
        for teller in &mut self.all {
            let account = teller.account;
            teller.stand(standing(account), |pattern| is_wanted(account, pattern));
            self.is_waiting |= !teller.lines.is_empty();
        }
    }

    /// Ends the announcements to a hub.
    pub(crate) fn end(&mut self, hub: HubId) {
        self.all.retain(|teller| teller.hub != hub);
    }

    /// Returns whether any hub receives announcements of subscriptions in an account.
    #[inline]
    pub(crate) fn listen(&self, account: u16) -> bool {
        !self.all.is_empty() && self.all.iter().any(|teller| teller.account == account)
    }

    /// Returns the announcement state of a hub.
    pub(crate) fn of(&mut self, hub: HubId) -> Option<&mut Teller> {
        self.all.iter_mut().find(|teller| teller.hub == hub)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Teller> {
        self.all.iter_mut()
    }

    /// Announces to hubs that a pattern has subscribers outside of queue groups on some core, or no longer
    /// has any.
    pub(crate) fn wanted(&mut self, account: u16, node: NodeId, pattern: &[u8], has: bool) {
        for teller in self.all.iter_mut().filter(|teller| teller.account == account) {
            if node < teller.told_below && teller.wanted(pattern, has) {
                self.is_waiting = true;
            }
        }
    }

    /// Announces to hubs how many members a queue group has on all cores.
    pub(crate) fn members(&mut self, account: u16, node: NodeId, pattern: &[u8], queue: &[u8], count: usize) {
        for teller in self.all.iter_mut().filter(|teller| teller.account == account) {
            if node < teller.told_below && teller.members(pattern, queue, count) {
                self.is_waiting = true;
            }
        }
    }
}

impl Teller {
    /// Replaces the subjects that are announced even without subscribers, and announces the differences.
    fn stand(&mut self, standing: Vec<Box<[u8]>>, is_wanted: impl Fn(&[u8]) -> bool) {
        let before = std::mem::take(&mut self.standing);
        for gone in before.iter().filter(|&one| standing.binary_search(one).is_err() && !is_wanted(one)) {
            self.wanted(gone, false);
        }
        for new in standing.iter().filter(|&one| before.binary_search(one).is_err()) {
            self.wanted(new, true);
        }
        self.standing = standing;
    }

    /// Announces that a pattern has subscribers, or no longer has any. Returns whether a line was added.
    pub(crate) fn wanted(&mut self, pattern: &[u8], has: bool) -> bool {
        // The pattern is always announced, even without subscribers.
        if self.standing.binary_search_by(|one| (**one).cmp(pattern)).is_ok() {
            return false;
        }
        if !self.rules.may_tell(pattern, None) {
            self.denied += u64::from(has);
            return false;
        }
        match has {
            true => leaf::interest_line(&mut self.lines, pattern),
            false => leaf::no_interest_line(&mut self.lines, pattern, None),
        }
        true
    }

    /// Announces the number of members of a queue group. Returns whether a line was added.
    pub(crate) fn members(&mut self, pattern: &[u8], queue: &[u8], count: usize) -> bool {
        if !self.rules.may_tell(pattern, Some(queue)) {
            self.denied += u64::from(count > 0);
            return false;
        }
        match count {
            0 => leaf::no_interest_line(&mut self.lines, pattern, Some(queue)),
            _ => leaf::queue_interest_line(&mut self.lines, pattern, queue, count),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change is announced at once only for nodes that the walk has passed, and only for the hub's own
    /// account.
    #[test]
    fn a_change_is_announced_only_for_visited_nodes() {
        let mut tellers = Tellers::default();
        assert!(!tellers.listen(0));
        tellers.begin(3, 7, HubRules::default(), b"$LDS.x", Vec::new());
        assert!(tellers.listen(7) && !tellers.listen(0));
        tellers.of(3).expect("it is there").told_below = 10;
        tellers.wanted(7, 9, b"a", true);
        tellers.wanted(7, 10, b"later", true);
        tellers.wanted(0, 9, b"another", true);
        tellers.members(7, 1, b"b", b"q", 2);
        tellers.members(7, 1, b"b", b"q", 0);
        tellers.wanted(7, 9, b"$KV.b.k", true);
        tellers.wanted(7, 9, b"a", false);
        let teller = tellers.of(3).expect("it is there");
        assert_eq!(teller.lines, b"LS+ $LDS.x\r\nLS+ a\r\nLS+ b q 2\r\nLS- b q\r\nLS- a\r\n");
        assert_eq!(teller.denied, 1);
        teller.lines.clear();
        // A subject that is announced even without subscribers is withdrawn only when a reload has removed it
        // and it has no subscribers.
        let standing = |names: &[&str]| names.iter().map(|name| name.as_bytes().into()).collect::<Vec<_>>();
        let lines = |tellers: &mut Tellers| {
            let teller = tellers.of(3).expect("it is there");
            String::from_utf8(std::mem::take(&mut teller.lines)).expect("text")
        };
        tellers.stand(|_| standing(&["$KV.x", "m.*", "s"]), |_, _| false);
        assert_eq!(lines(&mut tellers), "LS+ m.*\r\nLS+ s\r\n");
        tellers.wanted(7, 1, b"s", true);
        tellers.wanted(7, 1, b"s", false);
        tellers.stand(|_| standing(&["t"]), |_, pattern| pattern == b"s");
        assert_eq!(lines(&mut tellers), "LS- m.*\r\nLS+ t\r\n");
        tellers.wanted(7, 1, b"s", false);
        assert_eq!(lines(&mut tellers), "LS- s\r\n");
        tellers.end(3);
        assert!(tellers.of(3).is_none() && !tellers.listen(7));
    }
}
