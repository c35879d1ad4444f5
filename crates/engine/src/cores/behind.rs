//! Background steps of a loop: storing answers yields to connections that are ready to be answered.
//!
//! ```text
//!   one round of the loop:  all ready sockets: hits, requests, … │ a few background steps │ the sockets …
//! ```
//! A loop serves its tasks in the order in which they become ready. When many answers of an origin arrive at
//! once, a hit that arrives after them would wait for all of them to be stored. With this budget, the hit
//! waits for at most [`ROUND_NS`] and a step or two, or [`ROUND_NS_ALONE`] if it is the first in a while: a task with
//! deferrable work asks for a turn before each step of that work. A round ends when the time is up, or when nothing is ready any more and the loop waits for its
//! sockets. *Memory:* a queue of the waiting tasks. *Order:* first come, first served; each round has two steps at
//! least, so every task eventually runs. *Bounds:* time of a round. The tasks themselves keep each step short (one
//! answer's head, one read of its body).

use std::cell::Cell;

use tokio::sync::Semaphore;

use super::clock;

/// Nanoseconds of background steps in one round of the loop: two answers.
pub const ROUND_NS: u64 = 25_000;

/// Nanoseconds of background steps in one round of a loop without hits. A round costs a poll of the sockets
/// and the wake-up of whoever they lead to, so one for each answer or two cost a quarter of a miss.
pub const ROUND_NS_ALONE: u64 = 400_000;

/// Time after the last hit from which nothing but background steps is asked of the loop.
const ALONE_AFTER_NS: u64 = 50_000_000;

/// Steps that a round has even if its time is up by then, because the loop had much else to do.
const STEPS_MIN: u32 = 2;

thread_local! {
    /// Number of times that this thread's loop had nothing to do but to wait for its sockets.
    static PARKS: Cell<u64> = const { Cell::new(0) };
}

/// Notes that the loop of this thread has nothing ready and waits for its sockets.
pub(super) fn note_park() {
    PARKS.set(PARKS.get() + 1);
}

/// Budget of one loop for background steps.
#[derive(Debug)]
pub struct BackgroundBudget {
    /// Queue of tasks that wait for the next round.
    next: Semaphore,
    /// Time at which the round ends.
    until_ns: Cell<u64>,
    /// Number of the loop's waits for its sockets when the round began.
    parks: Cell<u64>,
    /// Number of hits, or of whatever else must not wait, when the round began.
    foreground: Cell<u64>,
    /// Time of the first round that began with that number.
    foreground_since_ns: Cell<u64>,
    /// Number of steps that the round has had.
    steps: Cell<u32>,
    clock_ns: fn() -> u64,
}

impl Default for BackgroundBudget {
    fn default() -> Self {
        Self::by(clock::monotonic_ns)
    }
}

impl BackgroundBudget {
    fn by(clock_ns: fn() -> u64) -> Self {
        Self {
            next: Semaphore::new(1),
            until_ns: Cell::new(0),
            parks: Cell::new(u64::MAX),
            foreground: Cell::new(0),
            foreground_since_ns: Cell::new(0),
            steps: Cell::new(0),
            clock_ns,
        }
    }

    /// Waits until the caller may run a background step; returns whether it had to wait. `foreground` counts
    /// what must not wait: while it grows, rounds are short.
    pub async fn turn(&self, foreground: impl Fn() -> u64) -> bool {
        // A new task does not overtake tasks that already wait.
        if self.next.available_permits() > 0 && self.take_step(&foreground) {
            return false;
        }
        // The semaphore is never closed, and a task that is dropped while it waits leaves the queue.
        let turn = self.next.acquire().await;
        if !self.take_step(&foreground) {
            // Yields, so that the loop serves its sockets first.
            tokio::task::yield_now().await;
            self.begin_round(foreground());
            self.take_step(&foreground);
        }
        drop(turn);
        true
    }

    /// Takes a step of the round if one is left; the first step after a wait for the sockets begins a round.
    fn take_step(&self, foreground: &impl Fn() -> u64) -> bool {
        if self.parks.get() != PARKS.get() {
            self.begin_round(foreground());
        }
        let steps = self.steps.get();
        let is_left = steps < STEPS_MIN || (self.clock_ns)() < self.until_ns.get();
        if is_left {
            self.steps.set(steps + 1);
        }
        is_left
    }

    fn begin_round(&self, foreground: u64) {
        let now_ns = (self.clock_ns)();
        if self.foreground.replace(foreground) != foreground {
            self.foreground_since_ns.set(now_ns);
        }
        let is_alone = now_ns - self.foreground_since_ns.get() > ALONE_AFTER_NS;
        self.steps.set(0);
        self.parks.set(PARKS.get());
        self.until_ns.set(now_ns + if is_alone { ROUND_NS_ALONE } else { ROUND_NS });
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    /// Nanoseconds that a step takes in these tests.
    const STEP_NS: u64 = 10_000;
    /// Steps that fit into a round: the last one begins before its end.
    const STEPS_A_ROUND: u64 = ROUND_NS.div_ceil(STEP_NS);

    thread_local! {
        static NOW_NS: Cell<u64> = const { Cell::new(0) };
    }

    thread_local! {
        static HITS: Cell<u64> = const { Cell::new(1) };
    }

    /// A loop that answers hits all the time.
    fn busy() -> u64 {
        HITS.set(HITS.get() + 1);
        HITS.get()
    }

    fn pass_step() {
        NOW_NS.set(NOW_NS.get() + STEP_NS);
    }

    /// A task that becomes ready occasionally waits for at most the steps of one round while twenty other
    /// tasks always have something to store, and the twenty get their steps in order.
    #[tokio::test(flavor = "current_thread")]
    async fn a_ready_task_waits_at_most_one_round() {
        const STORING: u32 = 20;
        let local = tokio::task::LocalSet::new();
        let behind = Rc::new(BackgroundBudget::by(|| NOW_NS.get()));
        let steps = Rc::new(RefCell::new(Vec::new()));
        let is_over = Rc::new(Cell::new(false));
        for number in 0..STORING {
            let (behind, steps, is_over) = (Rc::clone(&behind), Rc::clone(&steps), Rc::clone(&is_over));
            local.spawn_local(async move {
                while !is_over.get() {
                    behind.turn(busy).await;
                    pass_step();
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
        let behind = BackgroundBudget::by(|| NOW_NS.get());
        let noop = &mut std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..STEPS_A_ROUND {
            assert!(!behind.turn(busy).await, "a round has room for it");
            pass_step();
        }
        let (mut first, mut second) = (Box::pin(behind.turn(busy)), Box::pin(behind.turn(busy)));
        assert!(first.as_mut().poll(noop).is_pending() && second.as_mut().poll(noop).is_pending());
        drop(first);
        assert!(second.await, "it had to wait");
        behind.turn(busy).await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_idle_loop_begins_a_new_round() {
        let behind = BackgroundBudget::by(|| NOW_NS.get());
        for _ in 0..3 {
            for _ in 0..STEPS_A_ROUND {
                assert!(!behind.turn(busy).await);
                pass_step();
            }
            note_park();
        }
        (0..STEPS_A_ROUND).for_each(|_| pass_step());
        for _ in 0..STEPS_MIN {
            assert!(!behind.turn(busy).await, "nothing was ready meanwhile");
            (0..STEPS_A_ROUND).for_each(|_| pass_step());
        }
        assert!(behind.turn(busy).await);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_round_is_longer_without_hits() {
        let behind = BackgroundBudget::by(|| NOW_NS.get());
        let steps_until_wait = async |foreground: fn() -> u64| {
            let mut steps = 0;
            while !behind.turn(foreground).await {
                pass_step();
                steps += 1;
            }
            steps
        };
        steps_until_wait(|| 7).await;
        NOW_NS.set(NOW_NS.get() + ALONE_AFTER_NS);
        steps_until_wait(|| 7).await;
        let alone = steps_until_wait(|| 7).await;
        assert_eq!(alone, ROUND_NS_ALONE.div_ceil(STEP_NS));
        steps_until_wait(|| 8).await;
        assert_eq!(steps_until_wait(busy).await, STEPS_A_ROUND, "a hit shortens the next round");
    }
}
