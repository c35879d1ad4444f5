//! What hubs are told of our subscriptions: those of all cores together, once.
//!
//! ```text
//!   SUB on any core ─▶ the core that has joined the hub: is the pattern new, of all cores? ─▶ "LS+ a.b" ─▶ its output
//!   a member of a group joins or leaves ─▶ how many are there, on all cores? ─▶ "LS+ a.b q 3"
//! ```
//! The core of the hub knows of the other cores' subscriptions what each core knows (`subjects`), and that is enough: a
//! pattern is told when nobody was there before, and taken back when nobody is left. After a connection all nodes of the
//! trie are gone through, some a turn, by their numbers; what changes meanwhile is told at once where that walk has come
//! by already, and by the walk where it has not ([`Teller::told_below`]). So each pattern is told exactly once, and
//! nothing is kept of what was told.

use wire::nats::leaf;

use super::rules::HubRules;
use crate::routing::trie::{HubId, NodeId};

/// Those that this core tells.
#[derive(Default)]
pub(crate) struct Tellers {
    all: Vec<Teller>,
    /// Something is to be told.
    pub(crate) is_waiting: bool,
}

/// What one hub is told.
pub(crate) struct Teller {
    pub(crate) hub: HubId,
    account: u16,
    /// Nodes with numbers below this are told.
    pub(crate) told_below: NodeId,
    rules: HubRules,
    /// Subjects that are wanted whoever subscribes: those that stand for others, and services of other accounts. In
    /// their order.
    standing: Vec<Box<[u8]>>,
    /// Lines for the end of the turn, or for the next message if that comes first.
    pub(crate) lines: Vec<u8>,
    /// Patterns that the hub may not be told, since this was asked last.
    pub(crate) denied: u64,
}

impl Tellers {
    /// A hub has been joined: it is told this line, and from now on what changes.
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
        leaf::interest_line(&mut lines, first, None);
        let mut teller =
            Teller { hub, account, told_below: 0, rules, standing: Vec::new(), lines, denied: 0 };
        teller.stand(standing, |_| false);
        self.all.push(teller);
        self.is_waiting = true;
    }

    /// After a reload: what is wanted whoever subscribes may be something else.
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

    /// A hub is gone.
    pub(crate) fn end(&mut self, hub: HubId) {
        self.all.retain(|teller| teller.hub != hub);
    }

    /// Whether some hub is told of subscriptions in an account.
    #[inline]
    pub(crate) fn listen(&self, account: u16) -> bool {
        !self.all.is_empty() && self.all.iter().any(|teller| teller.account == account)
    }

    /// The one of a hub.
    pub(crate) fn of(&mut self, hub: HubId) -> Option<&mut Teller> {
        self.all.iter_mut().find(|teller| teller.hub == hub)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Teller> {
        self.all.iter_mut()
    }

    /// Somebody on some core wants a pattern without a group, or nobody does any more.
    pub(crate) fn wanted(&mut self, account: u16, node: NodeId, pattern: &[u8], has: bool) {
        for teller in self.all.iter_mut().filter(|teller| teller.account == account) {
            if node < teller.told_below && teller.wanted(pattern, has) {
                self.is_waiting = true;
            }
        }
    }

    /// A queue group has so many members, on all cores.
    pub(crate) fn members(
        &mut self,
        account: u16,
        node: NodeId,
        (pattern, queue): (&[u8], &[u8]),
        count: usize,
    ) {
        for teller in self.all.iter_mut().filter(|teller| teller.account == account) {
            if node < teller.told_below && teller.members(pattern, queue, count) {
                self.is_waiting = true;
            }
        }
    }
}

impl Teller {
    /// Notes what is to be told where these subjects are wanted from now on, whoever subscribes.
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

    /// Notes what is to be told of a pattern; whether anything is.
    pub(crate) fn wanted(&mut self, pattern: &[u8], has: bool) -> bool {
        // It was told of it, and that stands.
        if self.standing.binary_search_by(|one| (**one).cmp(pattern)).is_ok() {
            return false;
        }
        if !self.rules.may_tell(pattern, None) {
            self.denied += u64::from(has);
            return false;
        }
        match has {
            true => leaf::interest_line(&mut self.lines, pattern, None),
            false => leaf::no_interest_line(&mut self.lines, pattern, None),
        }
        true
    }

    /// The same of a queue group.
    pub(crate) fn members(&mut self, pattern: &[u8], queue: &[u8], count: usize) -> bool {
        if !self.rules.may_tell(pattern, Some(queue)) {
            self.denied += u64::from(count > 0);
            return false;
        }
        match count {
            0 => leaf::no_interest_line(&mut self.lines, pattern, Some(queue)),
            _ => leaf::interest_line(&mut self.lines, pattern, Some((queue, count))),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told is what is there where the walk has been, and nothing else; of one account alone.
    #[test]
    fn a_change_is_told_where_the_walk_has_been() {
        let mut tellers = Tellers::default();
        assert!(!tellers.listen(0));
        tellers.begin(3, 7, HubRules::default(), b"$LDS.x", Vec::new());
        assert!(tellers.listen(7) && !tellers.listen(0));
        tellers.of(3).expect("it is there").told_below = 10;
        tellers.wanted(7, 9, b"a", true);
        tellers.wanted(7, 10, b"later", true);
        tellers.wanted(0, 9, b"another", true);
        tellers.members(7, 1, (b"b", b"q"), 2);
        tellers.members(7, 1, (b"b", b"q"), 0);
        tellers.wanted(7, 9, b"$KV.b.k", true);
        tellers.wanted(7, 9, b"a", false);
        let teller = tellers.of(3).expect("it is there");
        assert_eq!(teller.lines, b"LS+ $LDS.x\r\nLS+ a\r\nLS+ b q 2\r\nLS- b q\r\nLS- a\r\n");
        assert_eq!(teller.denied, 1);
        teller.lines.clear();
        // What stands is told whoever comes and goes, until it does not stand any more and nobody wants it.
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
