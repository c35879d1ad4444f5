//! Turns of the event loop for a connection with a lot of work ([`engine::cores::fair`]).
//!
//! ```text
//!   no client of another address is active ─▶ long turns, one after the other
//!   another address is active ─▶ a short turn at once ─▶ then one turn per round of the loop for the whole address
//!                                 └ the address has taken two of these in this tick of the clock ─▶ a few requests
//! ```
//! A client that sends one request at a time never waits, however many connections it has.

use std::{future::poll_fn, task::Poll};

use engine::cores::fair::{Member, Turn};

use crate::{core::with_core, counters::Counter};

/// The turns of one connection, for any protocol.
pub(crate) struct Turns<'m> {
    member: &'m Member,
    /// Turn that the connection has waited for.
    own: Option<Turn<'m>>,
}

/// Length of a turn: how many requests a connection may process in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// No client of another address is active.
    Long,
    /// Clients of other addresses are active.
    Short,
    /// Other addresses are active, and this address has used its share of the event loop's round.
    Little,
}

/// A poll of the socket; dropping it ends the turn.
pub(crate) struct Look<'m> {
    member: &'m Member,
    own: Option<Turn<'m>>,
    pub(crate) length: Length,
}

impl Look<'_> {
    /// Records that the turn was a large one: more than a few requests were processed.
    pub(crate) fn note_large_turn(&self) {
        if self.length == Length::Short && self.own.is_none() {
            self.member.note_unqueued_turn();
        }
    }
}

impl<'m> Turns<'m> {
    pub(crate) const fn new(member: &'m Member) -> Self {
        Self { member, own: None }
    }

    /// Begins a poll of the socket.
    #[inline]
    pub(crate) fn look(&mut self) -> Look<'m> {
        let own = self.own.take();
        let length = if self.member.is_alone() {
            Length::Long
        } else if own.is_none() && self.member.has_had_its_part() {
            Length::Little
        } else {
            Length::Short
        };
        Look { member: self.member, own, length }
    }

    /// Waits for a turn because there is more to do: in the next round of the event loop, or in a later round
    /// if other connections of the address also have a lot of work.
    pub(crate) async fn wait(&mut self) {
        if self.member.is_alone() {
            yield_to_ready().await;
        }
        let turn = self.member.turn().await;
        if turn.has_waited() {
            with_core(|core| core.count(Counter::TurnsWaited));
        }
        self.own = Some(turn);
    }
}

/// Lets every task that is ready now run before this one continues. So hits go first, and requests to an
/// origin are sent together, so that a local origin is woken once for several requests. `yield_now` is not
/// used because it would poll the sockets first, at the cost of a system call for each miss.
pub(crate) async fn yield_to_ready() {
    let mut is_queued = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_queued, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
