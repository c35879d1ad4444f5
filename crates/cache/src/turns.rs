//! Turns of a connection that has much to do: a short one as it comes, then a long one in each round of the loop for all of its
//! address ([`engine::cores::fair`]).

use std::{future::poll_fn, task::Poll};

use engine::cores::fair::{Member, Turn};

use crate::{core::with_core, counters::Counter};

/// The turns of one connection, whatever it speaks.
pub(crate) struct Turns<'m> {
    member: &'m Member,
    /// The one that it has waited for.
    own: Option<Turn<'m>>,
}

/// One look at the socket, with which the turn ends.
pub(crate) struct Look<'m> {
    _own: Option<Turn<'m>>,
    /// Nobody waits for it: nobody of another address is here, or it has waited itself.
    pub(crate) is_long: bool,
}

impl<'m> Turns<'m> {
    pub(crate) const fn new(member: &'m Member) -> Self {
        Self { member, own: None }
    }

    /// Begins to look at the socket.
    #[inline]
    pub(crate) fn look(&mut self) -> Look<'m> {
        let own = self.own.take();
        let is_long = own.is_some() || self.member.is_alone();
        Look { _own: own, is_long }
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
