//! The ledger: the amount of each category that each client holds, and the choice of charges to cut.
//!
//! ```text
//!   parties   192.0.2.1 │ 2001:db8:1:2::/64 ─▶ 2001:db8:1::/48 │ connection 7 …     a slab, found by key
//!   entries   one per party and category: the amounts held and kept, its class, the head of …
//!   charges   … a ring of the party's charges that are not cut                      a slab, never searched completely
//! ```
//! Slabs grow with the number of clients and charges and keep their rows: a charge of a known client
//! allocates nothing. Each search looks at no more than [`LOOKS_MAX`] entries and advances its ring, so that
//! the next search looks at other entries.

use std::{
    collections::{HashMap, hash_map::Entry},
    task::{Context, Poll, Waker},
};

use super::{
    Category, ClientKey, Counts, GROUP_SHARES, Limit, RESERVE_PARTS, Refusal, SHARE_PARTS,
    classes::{Classes, NONE, Rings},
};
use crate::share::Share;

/// Maximum number of entries that one search for the largest entry examines.
const LOOKS_MAX: usize = 16;
/// Maximum number of charges that one admission cuts; the next admission continues.
const CUTS_MAX: usize = 32;

#[derive(Debug)]
struct Party {
    key: ClientKey,
    /// Index of the party for the /48 that contains this client.
    group: u32,
    /// Number of handles and charges of this client, or of the clients of this group. 0: the row is vacant.
    references: usize,
}

/// Amounts that one party holds in one category.
#[derive(Debug, Clone)]
struct Position {
    /// Amount that the party holds, not counting charges that are cut but not yet released.
    kept: usize,
    /// Head of the ring of the party's charges that are not cut.
    charges: u32,
    /// For a group: head of the ring of its clients with a non-zero `kept`.
    members: u32,
}

const NOTHING: Position = Position { kept: 0, charges: NONE, members: NONE };

#[derive(Debug)]
struct Row {
    party: u32,
    category: u8,
    amount: usize,
    is_cut: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Sum {
    share: Share,
    /// Amount up to which a party's charges are never cut.
    share_min: usize,
    used: usize,
    /// Part of `used` that belongs to charges already cut but not yet released.
    leaving: usize,
    classes: Classes,
    refused: u64,
    cut: u64,
}

/// All parties, category sums and charges of a core.
#[derive(Debug)]
pub(super) struct Ledger {
    sums: Vec<Sum>,
    by_key: HashMap<ClientKey, u32>,
    parties: Vec<Party>,
    vacant_parties: Vec<u32>,
    /// Positions ordered by party, then category.
    positions: Vec<Position>,
    by_class: Rings,
    by_group: Rings,
    rows: Vec<Row>,
    vacant_rows: Vec<u32>,
    by_party: Rings,
    /// Tasks to wake once the ledger is no longer borrowed.
    pub(super) woken: Vec<Waker>,
}

impl Ledger {
    pub(super) fn new(limits: Vec<Limit>) -> Self {
        assert!(limits.len() <= usize::from(u8::MAX), "categories have numbers of a byte");
        let sum = |limit: Limit| Sum {
            share_min: limit.share_min(),
            share: Share::new(limit.common, limit.total, limit.cores),
            used: 0,
            leaving: 0,
            classes: Classes::default(),
            refused: 0,
            cut: 0,
        };
        Self {
            sums: limits.into_iter().map(sum).collect(),
            by_key: HashMap::new(),
            parties: Vec::new(),
            vacant_parties: Vec::new(),
            positions: Vec::new(),
            by_class: Rings::default(),
            by_group: Rings::default(),
            rows: Vec::new(),
            vacant_rows: Vec::new(),
            by_party: Rings::default(),
            woken: Vec::new(),
        }
    }

    pub(super) fn resize_sum(&mut self, category: Category, total: usize, cores: usize) {
        let sum = &mut self.sums[category.0];
        sum.share.resize(total, cores);
        sum.share_min = share_min(total, cores);
    }

    // Section: adding and removing clients.

    /// Adds a reference to a client.
    pub(super) fn enter(&mut self, key: ClientKey) -> u32 {
        if let Some(party) = self.by_key.get(&key) {
            self.parties[*party as usize].references += 1;
            return *party;
        }
        let group = key.group().map_or(NONE, |group| self.enter(group));
        let new = Party { key, group, references: 1 };
        let party = if let Some(party) = self.vacant_parties.pop() {
            self.parties[party as usize] = new;
            party
        } else {
            self.parties.push(new);
            self.positions.resize(self.parties.len() * self.sums.len(), NOTHING);
            self.by_class.reserve(self.positions.len());
            self.by_group.reserve(self.positions.len());
            index(self.parties.len() - 1)
        };
        self.by_key.insert(key, party);
        party
    }

    pub(super) fn refer(&mut self, party: u32) {
        self.parties[party as usize].references += 1;
    }

    /// Removes a reference to a client. A client without references is forgotten.
    pub(super) fn leave(&mut self, party: u32) {
        let Party { key, group, references } = &mut self.parties[party as usize];
        *references -= 1;
        if *references > 0 {
            return;
        }
        let (key, group) = (*key, *group);
        if let Entry::Occupied(entry) = self.by_key.entry(key) {
            entry.remove();
        }
        self.vacant_parties.push(party);
        if group != NONE {
            self.leave(group);
        }
    }

    pub(super) fn key(&self, party: u32) -> ClientKey {
        self.parties[party as usize].key
    }

    // Section: creating, resizing and ending charges.

    pub(super) fn charge(&mut self, party: u32, category: Category, amount: usize) -> Result<u32, Refusal> {
        self.admit(party, category, 0, amount)?;
        #[expect(clippy::cast_possible_truncation, reason = "`new` bounds the categories")]
        let row = Row { party, category: category.0 as u8, amount, is_cut: false, waker: None };
        let at = if let Some(at) = self.vacant_rows.pop() {
            self.rows[at as usize] = row;
            at
        } else {
            self.rows.push(row);
            self.by_party.reserve(self.rows.len());
            index(self.rows.len() - 1)
        };
        self.refer(party);
        let position = self.position(party, category.0);
        self.by_party.push(&mut self.positions[position].charges, at);
        Ok(at)
    }

    pub(super) fn resize(&mut self, at: u32, amount: usize) -> Result<(), Refusal> {
        let Row { party, category, amount: before, is_cut, .. } = self.rows[at as usize];
        if amount > before {
            if is_cut {
                return Err(Refusal::Cut);
            }
            self.admit(party, Category(usize::from(category)), before, amount - before)?;
        } else {
            self.give_back(at, before - amount);
        }
        self.rows[at as usize].amount = amount;
        Ok(())
    }

    /// Ends a charge. Returns its waker, which the caller drops once the ledger is no longer borrowed.
    pub(super) fn end(&mut self, at: u32) -> Option<Waker> {
        let Row { party, category, amount, is_cut, .. } = self.rows[at as usize];
        self.give_back(at, amount);
        if !is_cut {
            let position = self.position(party, usize::from(category));
            self.by_party.remove(&mut self.positions[position].charges, at);
        }
        let row = &mut self.rows[at as usize];
        row.amount = 0;
        let waker = row.waker.take();
        self.vacant_rows.push(at);
        self.leave(party);
        waker
    }

    pub(super) fn amount(&self, at: u32) -> usize {
        self.rows[at as usize].amount
    }

    pub(super) fn is_cut(&self, at: u32) -> bool {
        self.rows[at as usize].is_cut
    }

    /// Returns whether the charge is cut; if not, its holder is woken once it is. A previous waker is
    /// returned, to be dropped once the ledger is no longer borrowed.
    pub(super) fn poll_cut(&mut self, at: u32, cx: &Context<'_>) -> (Poll<()>, Option<Waker>) {
        let row = &mut self.rows[at as usize];
        if row.is_cut {
            return (Poll::Ready(()), None);
        }
        if row.waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            return (Poll::Pending, None);
        }
        (Poll::Pending, row.waker.replace(cx.waker().clone()))
    }

    fn give_back(&mut self, at: u32, amount: usize) {
        let Row { party, category, is_cut, .. } = self.rows[at as usize];
        let category = usize::from(category);
        if is_cut {
            self.sums[category].leaving -= amount;
        } else {
            self.shift(party, category, amount, 0);
        }
        let sum = &mut self.sums[category];
        sum.used -= amount;
        // Shrinking is always allowed. This call returns any surplus to the part of the sum that all cores
        // share.
        sum.share.allows(sum.used);
    }

    // Section: admission of new amounts.

    /// Checks whether a party's charge may grow by `more` from `before`, and counts the amount if allowed.
    #[inline]
    fn admit(&mut self, party: u32, category: Category, before: usize, more: usize) -> Result<(), Refusal> {
        let sum = &mut self.sums[category.0];
        let used = sum.used.saturating_add(more);
        // The smallest possible limit is compared first, because the limit itself is in memory that all cores
        // read.
        let has_no_want = used <= sum.share.own() / 2 || used <= sum.share.limit() / 2;
        if !(has_no_want && sum.share.allows(used)) {
            self.admit_under_want(party, category.0, before, more)?;
        }
        self.sums[category.0].used = used;
        self.shift(party, category.0, 0, more);
        Ok(())
    }

    #[cold]
    fn admit_under_want(
        &mut self,
        party: u32,
        category: usize,
        before: usize,
        more: usize,
    ) -> Result<(), Refusal> {
        let would_keep = self.measure_with(party, category, more);
        let sum = &self.sums[category];
        let (limit, used) = (sum.share.limit(), sum.used.saturating_add(more));
        let reserve = limit / RESERVE_PARTS;
        let most = sum.classes.top().map_or(0, |position| self.measure_at(position));
        let (share_min, is_small) = (sum.share_min, would_keep <= sum.share_min);
        // Only clients that hold less than the largest one may use the last sixteenth, until the holders of
        // cut charges have released them.
        let mut bound = if is_small {
            limit
        } else if most > would_keep {
            limit - reserve / 2
        } else {
            limit - reserve
        };
        let short = (used - sum.leaving).saturating_sub(limit - reserve);
        let mut is_making_room = sum.leaving > 0 && (is_small || most > would_keep);
        if short > 0 {
            let mut freed = self.cut_most(category, would_keep.max(share_min), short);
            if freed == 0 && used > bound && most <= would_keep {
                freed = self.cut_own(party, category, before + more);
                if freed > 0 {
                    bound = limit - reserve / 2;
                }
            }
            is_making_room |= freed > 0;
        }
        let sum = &mut self.sums[category];
        if used <= bound && sum.share.allows(used) {
            return Ok(());
        }
        sum.refused += 1;
        Err(if is_making_room || is_small { Refusal::Full } else { Refusal::OverShare })
    }

    /// Cuts charges of the parties that hold the most above `beyond`, until the cut charges amount to
    /// `short`. Returns the amount that was cut.
    fn cut_most(&mut self, category: usize, beyond: usize, short: usize) -> usize {
        let mut freed = 0;
        for _ in 0..CUTS_MAX {
            if freed >= short {
                break;
            }
            let Some(position) = self.sums[category].classes.top() else { break };
            if self.measure_at(position) <= beyond {
                break;
            }
            let party = index(position as usize / self.sums.len());
            let client = if self.parties[party as usize].key.is_group() {
                self.largest_member(party, category)
            } else {
                Some(party)
            };
            let largest = client.and_then(|client| self.largest_charge(client, category));
            let Some(at) = largest else { break };
            freed += self.cut(at);
        }
        freed
    }

    /// Cuts a charge of the requesting party when that party already holds the most: its own largest charge,
    /// or else one of the largest client in its group, provided the charge is at least twice as large as the
    /// request. Returns the amount that was cut.
    fn cut_own(&mut self, party: u32, category: usize, asked: usize) -> usize {
        let group = self.parties[party as usize].group;
        let is_twice = |kept: usize, of: usize| kept / 2 >= of;
        if let Some(at) = self.largest_charge(party, category)
            && is_twice(self.rows[at as usize].amount, asked)
        {
            return self.cut(at);
        }
        if group == NONE {
            return 0;
        }
        let own = self.positions[self.position(party, category)].kept;
        if let Some(largest) = self.largest_member(group, category)
            && is_twice(self.positions[self.position(largest, category)].kept, own + asked)
            && let Some(at) = self.largest_charge(largest, category)
        {
            return self.cut(at);
        }
        0
    }

    /// Returns the client with the largest kept amount among the next few clients in a group's ring.
    fn largest_member(&mut self, group: u32, category: usize) -> Option<u32> {
        let group = self.position(group, category);
        let (positions, rings) = (&mut self.positions, &self.by_group);
        let mut head = positions[group].members;
        let largest = rings.largest(&mut head, LOOKS_MAX, |at| positions[at as usize].kept);
        positions[group].members = head;
        largest.map(|at| index(at as usize / self.sums.len()))
    }

    /// Returns the largest charge among the next few charges in a client's ring.
    fn largest_charge(&mut self, client: u32, category: usize) -> Option<u32> {
        let client = self.position(client, category);
        let (rows, rings) = (&self.rows, &self.by_party);
        rings.largest(&mut self.positions[client].charges, LOOKS_MAX, |at| rows[at as usize].amount)
    }

    /// Marks a charge as cut and wakes its holder. Returns its amount.
    fn cut(&mut self, at: u32) -> usize {
        let row = &mut self.rows[at as usize];
        row.is_cut = true;
        let (party, category, amount) = (row.party, usize::from(row.category), row.amount);
        self.woken.extend(row.waker.take());
        let position = self.position(party, category);
        self.by_party.remove(&mut self.positions[position].charges, at);
        self.shift(party, category, amount, 0);
        self.sums[category].leaving += amount;
        self.sums[category].cut += 1;
        amount
    }

    /// Cuts charges in each category in which other cores want their part of the sum back.
    pub(super) fn give_way(&mut self) {
        for category in 0..self.sums.len() {
            let sum = &mut self.sums[category];
            if !sum.share.has_taken() || sum.share.allows(sum.used) {
                continue;
            }
            let over = (sum.used - sum.leaving).saturating_sub(sum.share.limit());
            let beyond = sum.share_min;
            self.cut_most(category, beyond, over);
        }
    }

    pub(super) fn has_taken(&self) -> bool {
        self.sums.iter().any(|sum| sum.share.has_taken())
    }

    // Section: positions, the amounts per party and category.

    /// Updates the kept amount of a client and its group, after a charge changed from `less` to `more`.
    #[inline]
    fn shift(&mut self, client: u32, category: usize, less: usize, more: usize) {
        if less == more {
            return;
        }
        let (position, group) = (self.position(client, category), self.parties[client as usize].group);
        let (before, after) = self.shift_one(position, category, 1, less, more);
        if group == NONE {
            return;
        }
        let group = self.position(group, category);
        self.shift_one(group, category, GROUP_SHARES, less, more);
        if before == 0 {
            self.by_group.push(&mut self.positions[group].members, index(position));
        } else if after == 0 {
            self.by_group.remove(&mut self.positions[group].members, index(position));
        }
    }

    #[inline]
    fn shift_one(
        &mut self,
        position: usize,
        category: usize,
        shares: usize,
        less: usize,
        more: usize,
    ) -> (usize, usize) {
        let kept = &mut self.positions[position].kept;
        let before = *kept;
        *kept = before + more - less;
        let after = *kept;
        let classes = &mut self.sums[category].classes;
        classes.shift(&mut self.by_class, index(position), before.div_ceil(shares), after.div_ceil(shares));
        (before, after)
    }

    #[inline]
    fn position(&self, party: u32, category: usize) -> usize {
        party as usize * self.sums.len() + category
    }

    /// Returns the measure by which parties are compared: the kept amount, for a /48 divided by
    /// [`GROUP_SHARES`].
    fn measure_at(&self, position: u32) -> usize {
        let kept = self.positions[position as usize].kept;
        let key = self.parties[position as usize / self.sums.len()].key;
        if key.is_group() { kept.div_ceil(GROUP_SHARES) } else { kept }
    }

    /// Returns the measure that a client would have if it kept `more` in addition: its own, or its group's if
    /// that is larger.
    fn measure_with(&self, client: u32, category: usize, more: usize) -> usize {
        let kept_with = |party: u32| self.positions[self.position(party, category)].kept.saturating_add(more);
        let group = self.parties[client as usize].group;
        let of_group = if group == NONE { 0 } else { kept_with(group).div_ceil(GROUP_SHARES) };
        kept_with(client).max(of_group)
    }

    // Section: figures for metrics and tests.

    pub(super) fn most(&self, category: Category) -> Option<(ClientKey, usize)> {
        let position = self.sums[category.0].classes.top()?;
        let party = position as usize / self.sums.len();
        Some((self.parties[party].key, self.positions[position as usize].kept))
    }

    pub(super) fn used(&self, category: Category) -> usize {
        self.sums[category.0].used
    }

    pub(super) fn kept(&self, party: u32, category: Category) -> usize {
        self.positions[self.position(party, category.0)].kept
    }

    pub(super) fn counts(&self, category: Category) -> Counts {
        let sum = &self.sums[category.0];
        Counts { refused: sum.refused, cut: sum.cut }
    }

    #[cfg(test)]
    pub(super) fn parties(&self) -> usize {
        self.parties.len()
    }

    /// Checks that the sums equal the totals of the charges, and that a party that keeps nothing is in no
    /// ring.
    #[cfg(test)]
    pub(super) fn assert_invariants(&self) {
        let vacant: std::collections::HashSet<u32> = self.vacant_rows.iter().copied().collect();
        let rows = || self.rows.iter().enumerate().filter(|(at, _)| !vacant.contains(&index(*at)));
        for (category, sum) in self.sums.iter().enumerate() {
            let of = |is_counted: &dyn Fn(&Row) -> bool| -> usize {
                let here = rows().filter(|(_, row)| usize::from(row.category) == category && is_counted(row));
                here.map(|(_, row)| row.amount).sum()
            };
            assert_eq!(sum.used, of(&|_| true), "the sum is that of the charges");
            assert_eq!(sum.leaving, of(&|row| row.is_cut), "what leaves is cut");
            for (key, party) in &self.by_key {
                let position = &self.positions[self.position(*party, category)];
                let is_of = |row: &Row| {
                    !row.is_cut && (row.party == *party || self.parties[row.party as usize].group == *party)
                };
                assert_eq!(position.kept, of(&is_of), "{key} keeps its charges");
                assert_eq!(position.members != NONE, key.is_group() && position.kept > 0, "{key}");
            }
        }
        assert_eq!(self.by_key.len() + self.vacant_parties.len(), self.parties.len());
    }
}

/// Returns the amount up to which a party's charges are never cut.
pub(super) fn share_min(total: usize, cores: usize) -> usize {
    (total / cores.max(1) / SHARE_PARTS).max(1)
}

#[expect(clippy::cast_possible_truncation, reason = "four thousand million rows do not fit into memory")]
fn index(at: usize) -> u32 {
    at as u32
}
