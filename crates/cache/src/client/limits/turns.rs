//! Turns of a connection that has much to do ([`engine::cores::fair`]).
//!
//! ```text
//!   nobody of another address is here ─▶ long turns, one after the other
//!   somebody is ─▶ a short one as it comes ─▶ then one in each round of the loop for all of its address
//!                   └ its address has had two of these in this tick of the clock ─▶ a few requests
//! ```
//! Who asks one thing at a time never waits, however many it has connections.

use std::{future::poll_fn, task::Poll};

use engine::cores::fair::{Member, Turn};

use crate::{core::with_core, counters::Counter};

/// The turns of one connection, whatever it speaks.
pub(crate) struct Turns<'m> {
    member: &'m Member,
    /// The one that it has waited for.
    own: Option<Turn<'m>>,
}

/// How much a connection may do in one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// Nobody of another address is here.
    Long,
    /// Others are.
    Short,
    /// Others are, and those of its address have had their part.
    Little,
}

/// One look at the socket, with which the turn ends.
pub(crate) struct Look<'m> {
    member: &'m Member,
    own: Option<Turn<'m>>,
    pub(crate) length: Length,
}

impl Look<'_> {
    /// It was more than a little that was done.
    pub(crate) fn was_much(&self) {
        if self.length == Length::Short && self.own.is_none() {
            self.member.had_unasked();
        }
    }
}

impl<'m> Turns<'m> {
    pub(crate) const fn new(member: &'m Member) -> Self {
        Self { member, own: None }
    }

    /// Begins to look at the socket.
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

    /// Waits for a turn, because there is more to do: in the next round of the loop, or in a later one if others of the address
    /// have much to do as well.
    pub(crate) async fn wait(&mut self) {
        if self.member.is_alone() {
            after_the_others().await;
        }
        let turn = self.member.turn().await;
        if turn.has_waited() {
            with_core(|core| core.count(Counter::TurnsWaited));
        }
        self.own = Some(turn);
    }
}

/// Lets all tasks run that are ready by now. Hits go first, and what goes to the origin leaves in one piece of time: an
/// origin beside us is woken for several requests and not for each. Not `yield_now`: that one looks at the sockets before,
/// a system call for each miss.
pub(crate) async fn after_the_others() {
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
