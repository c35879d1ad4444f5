//! Background steps of a loop: storing answers yields to connections that are ready to be answered.
//!
//! ```text
//!   one round of the loop:  all ready sockets: hits, requests, … │ a few background steps │ the sockets …
//! ```
//! A loop serves its tasks in the order in which they become ready. When many answers of an origin arrive at
//! once, a hit that arrives after them would wait for all of them to be stored. With this budget, the hit
//! waits for at most [`STEPS_A_ROUND`] steps: a task with deferrable work waits for a permit before each step
//! of that work. *Memory:* a queue of the waiting tasks. *Order:* first come, first served; each round has
//! some steps, so every task eventually runs. *Bounds:* steps per round. The tasks themselves keep each step
//! short (one answer's head, one read of its body).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tokio::sync::Semaphore;

/// Background steps in one round of the loop. A round costs a poll of the sockets (about a microsecond), a
/// step costs about ten microseconds.
pub const STEPS_A_ROUND: u32 = 2;

/// Budget of one loop for background steps.
#[derive(Debug)]
pub struct BackgroundBudget {
    /// Queue of tasks that wait for the next round.
    next: Semaphore,
    /// Steps left in this round. Atomic only because spawned tasks must be `Send`; a single thread writes it.
    left: AtomicU32,
}

impl Default for BackgroundBudget {
    fn default() -> Self {
        Self { next: Semaphore::new(1), left: AtomicU32::new(STEPS_A_ROUND) }
    }
}

impl BackgroundBudget {
    /// Waits until the caller may run a background step; returns whether it had to wait.
    pub async fn turn(&self) -> bool {
        let left = self.left.load(Relaxed);
        // A new task does not overtake tasks that already wait.
        if left > 0 && self.next.available_permits() > 0 {
            self.left.store(left - 1, Relaxed);
            return false;
        }
        // The semaphore is never closed, and a task that is dropped while it waits leaves the queue.
        let turn = self.next.acquire().await;
        if self.left.load(Relaxed) == 0 {
            // Yields, so that the loop serves its sockets first.
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

    /// A task that becomes ready occasionally waits for at most the steps of one round while twenty other
    /// tasks always have something to store, and the twenty get their steps in order.
    #[tokio::test(flavor = "current_thread")]
    async fn a_ready_task_waits_at_most_one_round() {
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
                    // Simulates another answer from the origin.
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
