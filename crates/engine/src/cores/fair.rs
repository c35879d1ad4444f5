//! Fair scheduling of connections with much to do: one turn per address in each round of the loop.
//!
//! ```text
//!   one round of the loop:  B, which sends a line  A1 │ A2 A3 … A16 wait for a round each
//!                           C1 │ C2 waits          └ sixteen connections from one address that flood: one turn
//! ```
//! A loop serves connections in the order in which they are ready, so a client with more connections gets
//! more of the loop's time: a line from another client waits behind a large turn of each connection. With
//! this scheduler it waits behind one turn of each address. No time of the loop is lost: if only one client
//! has something to do, it gets every round. A connection with little to do never takes a turn, and no
//! connection takes one while all connections are, and have been for a while, from one address. Turns taken
//! without waiting are also bounded for each address ([`Member::has_had_its_part`]): otherwise, if a thousand
//! connections arrived at once and each did work before its first wait, all other connections would wait for
//! them. *Memory:* a fixed number of slots, chosen by a hash; addresses that share a slot share its turns.
//! *Waiting:* a connection that floods waits behind earlier ones from its own address; [`Turn::has_waited`]
//! is for its server's counter. Figures: `docs/decisions/026-siege.md`.

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::VecDeque,
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use super::clock;
use crate::accounts::ClientKey;

/// Time for which fair scheduling stays active after the last connection from another address, so that a
/// client that connects every second does not find a busy loop.
const SHARED_FOR_MS: u64 = 10_000;
/// Number of slots to which addresses are hashed.
const PLACES: usize = 1024;
/// Maximum number of turns that an address may take without waiting in one tick of the coarse clock (1–10
/// ms), in units of the largest such turn.
const UNASKED_TURNS_MAX: u64 = 2;
/// Number of bits that count turns in a slot's word; the other bits hold the tick of the clock.
const TURN_BITS: u32 = 8;

/// Turn scheduler of one loop.
#[derive(Debug)]
pub struct TurnScheduler {
    /// Random seed of the address hash, so that a client cannot choose an address that shares another's slot.
    seed: RandomState,
    inner: RefCell<Inner>,
    /// For each slot, the large turns taken without waiting, and the tick in which they were taken.
    unasked: Box<[Cell<u64>]>,
    /// Number of slots with connections.
    in_use: Cell<usize>,
    /// Time until which fair scheduling stays active even if all connections are from one address, because a
    /// client from another address may come back. 0: there was no other address.
    shared_until_ms: Cell<u64>,
}

#[derive(Debug)]
struct Inner {
    places: Box<[AddressSlot]>,
    number: u64,
}

#[derive(Debug, Default, Clone)]
struct AddressSlot {
    connections: usize,
    /// True while one of the slot's connections has the turn.
    is_taken: bool,
    /// Number of the waiter to which the turn was passed and which has not run yet.
    passed_to: Option<u64>,
    waiting: VecDeque<(u64, Waker)>,
}

/// A connection registered with the scheduler, under the hash of its address.
#[derive(Debug)]
pub struct Member {
    fair: Rc<TurnScheduler>,
    place: usize,
}

/// The right to take a large turn; dropping it passes the turn on.
#[derive(Debug)]
pub struct Turn<'a> {
    /// Connection that has the turn; `None` if all connections are from one address, so that none has to
    /// wait.
    member: Option<&'a Member>,
    has_waited: bool,
}

impl Turn<'_> {
    /// Returns whether the connection had to wait for the turn.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Default for TurnScheduler {
    fn default() -> Self {
        let inner = Inner { places: vec![AddressSlot::default(); PLACES].into(), number: 0 };
        Self {
            seed: RandomState::new(),
            inner: inner.into(),
            unasked: std::iter::repeat_with(Cell::default).take(PLACES).collect(),
            in_use: Cell::new(0),
            shared_until_ms: Cell::new(0),
        }
    }
}

impl TurnScheduler {
    /// Registers a connection from this address (IPv6: from this /64) until the returned member is dropped.
    pub fn join(self: &Rc<Self>, address: IpAddr) -> Member {
        let place = self.place_of(address);
        let connections = &mut self.inner().places[place].connections;
        if *connections == 0 {
            self.in_use.set(self.in_use.get() + 1);
        }
        *connections += 1;
        Member { fair: Rc::clone(self), place }
    }

    fn place_of(&self, address: IpAddr) -> usize {
        let hash = self.seed.hash_one(ClientKey::of(address));
        #[expect(clippy::cast_possible_truncation, reason = "less than the number of places")]
        let place = (hash % PLACES as u64) as usize;
        place
    }

    /// Returns whether all connections are from one address, and have been for a while.
    #[inline]
    fn is_one_address(&self) -> bool {
        self.in_use.get() <= 1 && {
            let until_ms = self.shared_until_ms.get();
            until_ms == 0 || until_ms <= clock::monotonic_ms()
        }
    }

    fn inner(&self) -> RefMut<'_, Inner> {
        self.inner.borrow_mut()
    }
}

impl Member {
    /// Returns whether no other address has a connection now or had one recently. If so, no connection has to
    /// wait, and a turn may be long.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.fair.is_one_address()
    }

    /// Returns whether the connections from this address have used up the large turns that they may take
    /// without waiting in this clock tick. If so, this connection takes a small turn and waits for a larger
    /// one.
    #[inline]
    pub fn has_had_its_part(&self) -> bool {
        let account = self.fair.unasked[self.place].get();
        account >> TURN_BITS == clock::monotonic_ms() && account & ((1 << TURN_BITS) - 1) >= UNASKED_TURNS_MAX
    }

    /// Counts a large turn that was taken without waiting.
    #[inline]
    pub fn note_unqueued_turn(&self) {
        let tick = clock::monotonic_ms();
        let account = &self.fair.unasked[self.place];
        let before = account.get();
        // Turns beyond the bound are not counted, so that the count does not overflow into the tick.
        let turns = if before >> TURN_BITS == tick { before & ((1 << TURN_BITS) - 1) } else { 0 };
        account.set(tick << TURN_BITS | (turns + 1).min((1 << TURN_BITS) - 1));
    }

    /// Waits for a turn, if other connections of the same address also want one and connections of another
    /// address exist.
    pub async fn turn(&self) -> Turn<'_> {
        if self.is_alone() {
            return Turn { member: None, has_waited: false };
        }
        let must_wait = std::mem::replace(&mut self.fair.inner().places[self.place].is_taken, true);
        if must_wait {
            Wait { member: self, number: None }.await;
        }
        // From here on, the turn is passed on however this future ends.
        let turn = Turn { member: Some(self), has_waited: must_wait };
        // The turn starts in the next round, so that requests of this round queue behind it, and the sockets
        // are served before it.
        tokio::task::yield_now().await;
        turn
    }

    /// Waits for a turn and polls once in it. `None` if that is pending. `note_wait` is called if other
    /// connections of the same address had their turns first.
    pub async fn poll_in_turn<T>(
        &self,
        note_wait: impl FnOnce(),
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        let turn = self.turn().await;
        if turn.has_waited() {
            note_wait();
        }
        poll_fn(|cx| match poll(cx) {
            Poll::Ready(polled) => Poll::Ready(Some(polled)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(member) = self.member {
            member.fair.inner().places[member.place].pass();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let place = &mut self.fair.inner().places[self.place];
        place.connections -= 1;
        if place.connections == 0 {
            assert!(!place.is_taken && place.waiting.is_empty(), "somebody who is gone has a turn");
            let in_use = self.fair.in_use.get();
            self.fair.in_use.set(in_use - 1);
            if in_use > 1 {
                self.fair.shared_until_ms.set(clock::monotonic_ms() + SHARED_FOR_MS);
            }
        }
    }
}

impl AddressSlot {
    /// Passes the turn to the next waiter; a connection that arrives later cannot take it in between.
    fn pass(&mut self) {
        match self.waiting.pop_front() {
            Some((number, waker)) => {
                self.passed_to = Some(number);
                waker.wake();
            }
            None => self.is_taken = false,
        }
    }
}

/// A future that waits for a turn.
struct Wait<'a> {
    member: &'a Member,
    number: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let member = self.member;
        let inner = &mut *member.fair.inner();
        let place = &mut inner.places[member.place];
        let Some(number) = self.number else {
            inner.number += 1;
            place.waiting.push_back((inner.number, cx.waker().clone()));
            self.number = Some(inner.number);
            return Poll::Pending;
        };
        if place.passed_to == Some(number) {
            place.passed_to = None;
            self.number = None;
            return Poll::Ready(());
        }
        if let Some((_, waker)) = place.waiting.iter_mut().find(|(one, _)| *one == number) {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

/// A waiter that is dropped leaves the queue; if the turn was already passed to it, the next waiter gets it.
impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let place = &mut self.member.fair.inner().places[self.member.place];
        if place.passed_to == Some(number) {
            place.passed_to = None;
            place.pass();
        } else {
            place.waiting.retain(|(one, _)| *one != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        rc::Rc,
    };

    use super::*;

    const MANY: usize = 16;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Creates a scheduler in which the addresses 1 and 2 do not share a slot, as one pair in 1024 does.
    fn scheduler() -> Rc<TurnScheduler> {
        loop {
            let fair = Rc::new(TurnScheduler::default());
            if fair.place_of(address(1)) != fair.place_of(address(2)) {
                return fair;
            }
        }
    }

    /// A connection that occasionally sends a line waits for one turn in each round, while sixteen
    /// connections from another address always have something to do, and the sixteen get their turns in
    /// order.
    #[tokio::test(flavor = "current_thread")]
    async fn a_quiet_connection_waits_one_turn_per_address() {
        let local = tokio::task::LocalSet::new();
        let fair = scheduler();
        let turns = Rc::new(RefCell::new(Vec::new()));
        let is_over = Rc::new(Cell::new(false));
        let quiet = fair.join(address(1));
        for number in 0..MANY {
            let (member, turns, is_over) = (fair.join(address(2)), Rc::clone(&turns), Rc::clone(&is_over));
            local.spawn_local(async move {
                while !is_over.get() {
                    let turn = member.turn().await;
                    turns.borrow_mut().push(number);
                    drop(turn);
                    // Simulates more data in the socket.
                    tokio::task::yield_now().await;
                }
            });
        }
        local
            .run_until(async {
                let mut most = 0;
                while turns.borrow().len() < 4 * MANY {
                    let before = turns.borrow().len();
                    tokio::task::yield_now().await;
                    most = most.max(turns.borrow().len() - before);
                }
                assert!(most <= 2, "{most} turns in one round");
                is_over.set(true);
            })
            .await;
        local.await;
        let turns = turns.borrow();
        for (before, after) in turns.iter().zip(&turns[MANY..3 * MANY]) {
            assert_eq!(before, after, "in order: {turns:?}");
        }
        drop(quiet);
        assert_eq!(fair.in_use.get(), 0);
    }

    #[test]
    fn two_unqueued_turns_exhaust_a_ticks_share() {
        let fair = scheduler();
        let (one, two, other) = (fair.join(address(1)), fair.join(address(1)), fair.join(address(2)));
        // The clock may tick between two lines; then the test retries.
        let is_seen = (0..1000).any(|_| {
            let tick = clock::monotonic_ms();
            let before = one.has_had_its_part();
            one.note_unqueued_turn();
            two.note_unqueued_turn();
            let after = [one.has_had_its_part(), two.has_had_its_part(), other.has_had_its_part()];
            let is_one_tick = clock::monotonic_ms() == tick;
            let is_right = !before && after == [true, true, false];
            while clock::monotonic_ms() == tick {
                std::hint::spin_loop();
            }
            assert!(!one.has_had_its_part(), "a new tick");
            is_one_tick && is_right
        });
        assert!(is_seen);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_leaving_waiter_passes_its_turn_on() {
        let fair = scheduler();
        let (_other, one, two, three) =
            (fair.join(address(1)), fair.join(address(2)), fair.join(address(2)), fair.join(address(2)));
        let first = one.turn().await;
        let mut second = Box::pin(two.turn());
        let mut third = Box::pin(three.turn());
        let noop = &mut Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(noop).is_pending() && third.as_mut().poll(noop).is_pending());
        drop(first);
        // The turn had already been passed to the second waiter.
        drop(second);
        drop(third.await);
        drop(two.turn().await);
        drop(Box::pin(two.turn()));
        assert!(fair.inner().places.iter().all(|place| !place.is_taken));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn connections_of_one_address_do_not_queue() {
        let fair = scheduler();
        let (one, two) = (fair.join(address(7)), fair.join(address(7)));
        let _first = one.turn().await;
        let _second = two.turn().await;
    }
}
