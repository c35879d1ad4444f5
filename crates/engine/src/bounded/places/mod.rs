//! Connection slots: their holders, the phase of each, and which connection is closed when slots are short.
//! Independent of sockets and clocks.
//!
//! ```text
//!  enter ──▶ Idle ──first byte──▶ Head ──the caller says──▶ Body ──▶ Working ──the caller says──▶ Idle
//!             └── closed when slots are short: first idle    second with a partial head   third sending a body
//! ```
//! Within a kind, the connection that has waited longest is closed first: an honest request is complete after
//! one packet, so the oldest incomplete one is the likeliest to be abandoned. A connection that is being
//! answered is never closed.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    task::Waker,
    time::Duration,
};

use super::{Bounds, Counts, Phase};
use crate::{
    heap::HeapTrimmer,
    share::{CommonPart, Share},
};

/// Approximate memory of one connection: its task, its buffers, its request.
const PLACE_BYTES: usize = 64 << 10;
/// Memory of one connection that is charged to the client budget. Requests and answers are charged where they
/// are read.
const CHARGED_BYTES: usize = 16 << 10;

/// Decision about a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcceptDecision {
    /// The connection gets this slot.
    Taken(SlotId),
    /// The connection must wait until another ends or becomes idle.
    Full,
    /// The address has used all its slots, and all of them are being answered.
    Refused,
}

/// A slot together with the serial number of its connection, because handles outlive a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotId {
    at: usize,
    serial: u64,
}

/// Reasons why a connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The slot is needed or a deadline has passed, and no head is incomplete: the connection is closed
    /// without an answer.
    Silent,
    /// The slot is needed or a deadline has passed while a head is incomplete: the late answer is sent.
    WithWords,
}

#[derive(Debug)]
struct Holder {
    serial: u64,
    /// Client address towards which the slot is counted.
    address: IpAddr,
    /// Peer address of the connection. Between two requests, a proxy's slot is counted towards this address.
    home: IpAddr,
    phase: Phase,
    since_ms: u64,
    /// True once a request on this connection was answered.
    has_asked: bool,
    /// Time since which the peer has accepted no byte of pending data.
    unsent_since_ms: Option<u64>,
    /// Time at which the peer fell behind: since then it has not at any moment accepted all data sent to it.
    behind_since_ms: Option<u64>,
    /// True if the connection must end but has not noticed yet. Its slot already belongs to another
    /// connection.
    is_evicted: bool,
    waker: Option<Waker>,
}

/// All slots of a listener.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    bounds: Bounds,
    holders: Vec<Option<Holder>>,
    vacant: Vec<usize>,
    /// Number of connections that are not evicted; at most `places_max`.
    staying: usize,
    /// Number of connections per address that are not evicted, if that number is bounded.
    of_address: HashMap<IpAddr, usize>,
    serial: u64,
    /// True while a connection waits for a slot.
    pub(super) is_short: bool,
    pub(super) counts: Counts,
    /// Returns heap memory of ended connections to the system.
    pub(super) tide: HeapTrimmer,
    /// This listener's share of the client memory budget.
    memory: Option<Share>,
}

impl ConnectionSlots {
    pub(super) fn new(bounds: Bounds) -> Self {
        let most = bounds.places_max.saturating_mul(CHARGED_BYTES);
        let memory =
            bounds.client_budget.as_ref().map(|budget| Share::new(CommonPart::within(Some(budget)), most, 1));
        Self {
            memory,
            bounds,
            holders: Vec::new(),
            vacant: Vec::new(),
            staying: 0,
            of_address: HashMap::new(),
            serial: 0,
            is_short: false,
            counts: Counts::default(),
            tide: HeapTrimmer::default(),
        }
    }

    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Finds a slot, and frees one if a connection can be closed for it.
    pub(super) fn enter(&mut self, address: IpAddr, now_ms: u64) -> AcceptDecision {
        if !self.has_share(address) {
            return AcceptDecision::Refused;
        }
        if !self.has_room() && !self.evict(None) {
            if !self.is_short {
                self.counts.waited += 1;
            }
            self.is_short = true;
            return AcceptDecision::Full;
        }
        self.is_short = false;
        self.serial += 1;
        self.staying += 1;
        self.come(address);
        self.counts.accepted += 1;
        self.counts.open += 1;
        let holder = Holder {
            serial: self.serial,
            address: network(address),
            home: network(address),
            phase: Phase::Idle,
            since_ms: now_ms,
            has_asked: false,
            unsent_since_ms: None,
            behind_since_ms: None,
            is_evicted: false,
            waker: None,
        };
        let at = self.vacant.pop().unwrap_or(self.holders.len());
        if at == self.holders.len() {
            self.holders.push(Some(holder));
        } else {
            self.holders[at] = Some(holder);
        }
        self.check();
        AcceptDecision::Taken(SlotId { at, serial: self.serial })
    }

    /// Returns the number of slots with a connection, including evicted ones.
    fn places_taken(&self) -> usize {
        self.holders.len() - self.vacant.len()
    }

    fn has_room(&mut self) -> bool {
        let bytes = (self.places_taken() + 1) * CHARGED_BYTES;
        self.staying < self.bounds.places_max
            && self.memory.as_mut().is_none_or(|memory| memory.allows(bytes))
    }

    /// Frees the slot of a connection that has ended.
    pub(super) fn leave(&mut self, ticket: SlotId) {
        if self.holder(ticket).is_none() {
            return;
        }
        if let Some(holder) = self.holders[ticket.at].take() {
            self.vacant.push(ticket.at);
            self.counts.open -= 1;
            if !holder.is_evicted {
                self.gone(holder.address);
            }
        }
        self.check();
    }

    /// Adjusts the memory accounting after slots were taken or freed.
    pub(super) fn note_memory(&mut self, now_ms: u64) {
        let taken = self.places_taken();
        self.tide.uses(taken * PLACE_BYTES, now_ms);
        if let Some(memory) = &mut self.memory {
            memory.allows(taken * CHARGED_BYTES);
        }
    }

    /// Sets the phase of a connection.
    pub(super) fn wait(&mut self, ticket: SlotId, phase: Phase, now_ms: u64) {
        if let Some(holder) = self.holder(ticket) {
            holder.has_asked |= phase == Phase::Idle;
            holder.phase = phase;
            holder.since_ms = now_ms;
            if phase == Phase::Idle {
                let home = holder.home;
                self.move_to(ticket, home);
            }
        }
    }

    /// Counts the slot for the client address behind a proxy until the request is answered. Returns false if
    /// that address has used all its slots.
    pub(super) fn asked_by(&mut self, ticket: SlotId, address: IpAddr) -> bool {
        let address = network(address);
        let Some(holder) = self.holder(ticket) else { return true };
        if holder.is_evicted || holder.address == address {
            return true;
        }
        if !self.has_share(address) {
            return false;
        }
        self.move_to(ticket, address);
        self.check();
        true
    }

    /// Moves the count of a slot to another address.
    fn move_to(&mut self, ticket: SlotId, to: IpAddr) {
        let Some(holder) = self.holder(ticket) else { return };
        if holder.is_evicted || holder.address == to {
            return;
        }
        let from = std::mem::replace(&mut holder.address, to);
        self.go(from);
        self.come(to);
    }

    /// Returns whether an address may have one more slot, evicting one of its own connections if needed. A
    /// refusal is counted.
    fn has_share(&mut self, address: IpAddr) -> bool {
        let Some(address) = self.counted(address) else { return true };
        let most = self.bounds.places_per_address_max;
        if self.of_address.get(&address).is_none_or(|held| *held < most) || self.evict(Some(address)) {
            return true;
        }
        self.counts.refused += 1;
        false
    }

    /// Adds one slot to the count of an address.
    fn come(&mut self, address: IpAddr) {
        if let Some(address) = self.counted(address) {
            *self.of_address.entry(address).or_default() += 1;
        }
    }

    /// Subtracts one slot from the count of an address.
    fn go(&mut self, address: IpAddr) {
        if let Some(counted) = self.counted(address)
            && let Some(held) = self.of_address.get_mut(&counted)
        {
            *held -= 1;
            if *held == 0 {
                self.of_address.remove(&counted);
            }
        }
    }

    pub(super) fn phase(&mut self, ticket: SlotId) -> Option<Phase> {
        self.holder(ticket).map(|holder| holder.phase)
    }

    /// Counts a head that is too long.
    pub(super) fn long_head(&mut self, ticket: SlotId) {
        if self.holder(ticket).is_some() {
            self.counts.long_heads += 1;
        }
    }

    /// Sets or clears the time since which data waits for the peer.
    pub(super) fn unsent(&mut self, ticket: SlotId, since_ms: Option<u64>) {
        if let Some(holder) = self.holder(ticket) {
            holder.unsent_since_ms = match since_ms {
                Some(now_ms) => holder.unsent_since_ms.or(Some(now_ms)),
                None => None,
            };
            holder.behind_since_ms = holder.behind_since_ms.or(since_ms);
        }
    }

    /// Notes that the peer has taken all pending data.
    pub(super) fn taken(&mut self, ticket: SlotId) {
        if let Some(holder) = self.holder(ticket) {
            holder.behind_since_ms = None;
        }
    }

    /// Checks the deadlines of a connection: returns an error if the connection must end now, else the time
    /// of the next check, if any. `waker` is woken if the connection must end earlier.
    pub(super) fn look(
        &mut self,
        ticket: SlotId,
        now_ms: u64,
        waker: &Waker,
    ) -> Result<Option<u64>, CloseReason> {
        let Bounds { idle_time_max, head_time_max, body_time_max, stall_time_max, answer_time_max, .. } =
            self.bounds;
        let Some(holder) = self.holder(ticket) else { return Ok(None) };
        if holder.is_evicted {
            return Err(if holder.phase == Phase::Head {
                CloseReason::WithWords
            } else {
                CloseReason::Silent
            });
        }
        if !holder.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            holder.waker = Some(waker.clone());
        }
        let after = |since_ms: u64, at_most: Duration| {
            since_ms.saturating_add(u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX))
        };
        let stalls_ms = holder.unsent_since_ms.map(|since_ms| after(since_ms, stall_time_max));
        let answered_ms = holder.behind_since_ms.map(|since_ms| after(since_ms, answer_time_max));
        let of_phase = match holder.phase {
            // No idle deadline while sent data is pending: the stall's deadline applies instead.
            Phase::Idle if holder.unsent_since_ms.is_some() => None,
            Phase::Idle if holder.has_asked => Some(idle_time_max),
            Phase::Idle => Some(head_time_max),
            Phase::Head => Some(head_time_max),
            Phase::Body => Some(body_time_max),
            Phase::Send | Phase::Working | Phase::Streams => None,
        };
        let waits_ms = of_phase.map(|at_most| after(holder.since_ms, at_most));
        let phase = holder.phase;
        if stalls_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.counts.stalled += 1;
            return Err(CloseReason::Silent);
        }
        if answered_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.counts.slow_answers += 1;
            return Err(CloseReason::Silent);
        }
        if waits_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            let (counter, end) = match phase {
                Phase::Head => (&mut self.counts.slow_heads, CloseReason::WithWords),
                Phase::Body => (&mut self.counts.slow_bodies, CloseReason::Silent),
                _ => (&mut self.counts.idle_ended, CloseReason::Silent),
            };
            *counter += 1;
            return Err(end);
        }
        Ok([stalls_ms, answered_ms, waits_ms].into_iter().flatten().min())
    }

    /// Evicts one connection, from the given address if there is one; returns whether one could be evicted.
    /// The search visits at most `places_max` slots for each connection that arrives while slots are short,
    /// which takes microseconds.
    fn evict(&mut self, of: Option<IpAddr>) -> bool {
        let rank = |holder: &Holder| match holder.phase {
            _ if holder.is_evicted || holder.unsent_since_ms.is_some() => None,
            _ if of.is_some_and(|of| of != holder.address) => None,
            Phase::Idle => Some((0, holder.since_ms)),
            Phase::Head => Some((1, holder.since_ms)),
            Phase::Body => Some((2, holder.since_ms)),
            Phase::Send | Phase::Working | Phase::Streams => None,
        };
        let ranked = self.holders.iter_mut().flatten().filter_map(|holder| Some((rank(holder)?, holder)));
        let Some((_, holder)) = ranked.min_by_key(|(rank, _)| *rank) else { return false };
        holder.is_evicted = true;
        let (phase, address, waker) = (holder.phase, holder.address, holder.waker.take());
        *match phase {
            Phase::Head => &mut self.counts.heads_evicted,
            Phase::Body => &mut self.counts.bodies_evicted,
            _ => &mut self.counts.idle_evicted,
        } += 1;
        self.gone(address);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    fn gone(&mut self, address: IpAddr) {
        self.staying -= 1;
        self.go(address);
    }

    /// Returns the address under which slots are counted; `None` if they are not counted.
    fn counted(&self, address: IpAddr) -> Option<IpAddr> {
        let address = network(address);
        (self.bounds.places_per_address_max > 0 && !address.is_loopback()).then_some(address)
    }

    fn holder(&mut self, ticket: SlotId) -> Option<&mut Holder> {
        self.holders.get_mut(ticket.at)?.as_mut().filter(|holder| holder.serial == ticket.serial)
    }

    /// Checks that at most `places_max` connections are not evicted, and that the counts are exact.
    fn check(&self) {
        assert!(self.staying <= self.bounds.places_max, "more connections stay than there are places");
        debug_assert_eq!(
            self.staying,
            self.holders.iter().flatten().filter(|holder| !holder.is_evicted).count(),
            "the count of those that stay is not theirs"
        );
    }
}

/// Returns the network of one customer: an IPv4 address or an IPv6 /64; an IPv4-mapped IPv6 address becomes
/// IPv4.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}
