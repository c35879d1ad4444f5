//! Work that comes behind: what is to be stored waits for what is ready to be answered.
//!
//! ```text
//!   one round of the loop:  all that the sockets have: hits, requests, …  │ a few steps of work behind │ the sockets …
//! ```
//! A loop serves its tasks in the order in which they are ready. Where many answers of an origin come at once, a hit that
//! comes after them waits for all of them to be stored. With this it waits for [`STEPS_A_ROUND`] steps: whoever has work
//! that can wait asks for a turn before each step of it. *Memory:* a queue in the tasks that wait. *Who waits:* the
//! oldest has its turn first; nobody is passed over, because each round has some. *Bounds:* steps a round; that each step
//! is short (one answer's head, one read of its body) is up to who takes them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tokio::sync::Semaphore;

/// Steps that a round of the loop has time for. A round costs a look at the sockets, about a microsecond; a step, some ten
/// of them.
pub const STEPS_A_ROUND: u32 = 2;

/// The work behind of one loop.
#[derive(Debug)]
pub struct BackgroundBudget {
    /// Who waits for the next round.
    next: Semaphore,
    /// Steps that this round may still have. Atomic, because tasks that are spawned must be free to move, and never
    /// written by two threads.
    left: AtomicU32,
}

impl Default for BackgroundBudget {
    fn default() -> Self {
        Self { next: Semaphore::new(1), left: AtomicU32::new(STEPS_A_ROUND) }
    }
}

impl BackgroundBudget {
    /// Waits until a step may be made; whether it had to.
    pub async fn turn(&self) -> bool {
        let left = self.left.load(Relaxed);
        // Not before those who wait already.
        if left > 0 && self.next.available_permits() > 0 {
            self.left.store(left - 1, Relaxed);
            return false;
        }
        // It is never closed; and who is dropped while it waits leaves the queue.
        let turn = self.next.acquire().await;
        if self.left.load(Relaxed) == 0 {
            // BackgroundBudget what the sockets have by now.
            tokio::task::yield_now().await;
            self.left.store(STEPS_A_ROUND, Relaxed);
        }
        self.left.store(self.left.load(Relaxed) - 1, Relaxed);
        drop(turn);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        rc::Rc,
    };

    use super::*;

    /// Twenty that always have something to store, one that is asked now and then: each of its rounds has so many steps
    /// of theirs, no more, and all of theirs have their turns in order.
    #[tokio::test(flavor = "current_thread")]
    async fn who_is_ready_waits_for_a_few_steps_and_not_for_all() {
        const STORING: u32 = 20;
        let local = tokio::task::LocalSet::new();
        let behind = Rc::new(BackgroundBudget::default());
        let steps = Rc::new(RefCell::new(Vec::new()));
        let is_over = Rc::new(Cell::new(false));
        for number in 0..STORING {
            let (behind, steps, is_over) = (Rc::clone(&behind), Rc::clone(&steps), Rc::clone(&is_over));
            local.spawn_local(async move {
                while !is_over.get() {
                    behind.turn().await;
                    steps.borrow_mut().push(number);
                    // As one whose origin has answered again.
                    tokio::task::yield_now().await;
                }
            });
        }
        local
            .run_until(async {
                let mut most = 0;
                while steps.borrow().len() < 10 * STORING as usize {
                    let before = steps.borrow().len();
                    tokio::task::yield_now().await;
                    most = most.max(steps.borrow().len() - before);
                }
                assert!(most <= STEPS_A_ROUND as usize, "{most} steps in one round");
                is_over.set(true);
            })
            .await;
        local.await;
        let steps = steps.borrow();
        let mut turns = [0_u32; STORING as usize];
        for number in &steps[..9 * STORING as usize] {
            turns[*number as usize] += 1;
        }
        assert!(turns.iter().all(|turns| (8..=10).contains(turns)), "nobody is passed over: {turns:?}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_leaves_while_it_waits_holds_nobody_up() {
        let behind = BackgroundBudget::default();
        let noop = &mut std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..STEPS_A_ROUND {
            assert!(!behind.turn().await, "a round has room for it");
        }
        let (mut first, mut second) = (Box::pin(behind.turn()), Box::pin(behind.turn()));
        assert!(first.as_mut().poll(noop).is_pending() && second.as_mut().poll(noop).is_pending());
        drop(first);
        assert!(second.await, "it had to wait");
        behind.turn().await;
    }
}
