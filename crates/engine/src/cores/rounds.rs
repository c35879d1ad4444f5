//! Rounds: the periodic tasks of a loop that are not caused by clients (deadlines, expiry, freeing memory),
//! run only while such a task is due.
//!
//! ```text
//!           stir: a new task for the rounds exists
//!              │
//!  resting ────┴──▶ a period ──▶ round ──▶ stirred since the last one, or due within a period? ── yes ──▶ a period …
//!     ▲  ▲                                   │ no: what is due next?
//!     │  └── nothing: until a stir ◀─────────┤
//!     └───── later: until then or a stir ◀───┘
//! ```
//! A busy loop runs its rounds periodically, and an idle loop does not wake. After the last stir there is one
//! more round, for tasks that the previous round left unfinished. *Core:* everything belongs to one loop's
//! thread.

use std::{cell::Cell, time::Duration};

use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoundState {
    /// No round was requested ([`Rounds::stir`]) since the last one.
    Quiet,
    /// A round was requested since the last one.
    Stirred,
    /// No round runs until one is requested or due.
    Resting,
}

/// Schedule of one loop's periodic rounds. The task that runs the rounds calls [`Rounds::pause`] after each
/// of them.
#[derive(Debug)]
pub struct Rounds {
    every: Duration,
    state: Cell<RoundState>,
    stirred: Notify,
}

impl Rounds {
    /// Creates a schedule with this period.
    #[must_use]
    pub fn new(every: Duration) -> Self {
        // The state begins as stirred, so that the first round runs like any other.
        Self { every, state: Cell::new(RoundState::Stirred), stirred: Notify::new() }
    }

    /// Requests a round because there is new work for the periodic tasks. The next round runs within one
    /// period, and is followed by one more.
    #[inline]
    pub fn stir(&self) {
        if self.state.replace(RoundState::Stirred) == RoundState::Resting {
            self.stirred.notify_one();
        }
    }

    /// Waits until the next round. `due_in` is the maximum time until the next round if there is no stir;
    /// `None`: no round is needed. Returns whether there was a stir since the last pause began.
    pub async fn pause(&self, due_in: Option<Duration>) -> bool {
        let was_stirred = self.state.replace(RoundState::Quiet) == RoundState::Stirred;
        if was_stirred || due_in.is_some_and(|due_in| due_in <= self.every) {
            tokio::time::sleep(self.every).await;
            return was_stirred;
        }
        self.state.set(RoundState::Resting);
        let stirred = match due_in {
            None => {
                self.stirred.notified().await;
                true
            }
            Some(due_in) => tokio::time::timeout(due_in, self.stirred.notified()).await.is_ok(),
        };
        if stirred {
            tokio::time::sleep(self.every).await;
        } else if self.state.get() == RoundState::Resting {
            // A stir that came while the timer fired is kept.
            self.state.set(RoundState::Quiet);
        }
        stirred
    }
}

/// Returns the earlier of two times, where `None` means never: for a loop that waits for several events.
#[must_use]
pub fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;

    const EVERY: Duration = Duration::from_millis(1);
    const NEVER: Duration = Duration::from_secs(3600);

    /// Spawns a task that runs rounds in the background; returns a counter of the rounds run.
    fn making(rounds: &Rc<Rounds>, due_in: Option<Duration>) -> Rc<Cell<usize>> {
        let (rounds, made) = (Rc::clone(rounds), Rc::new(Cell::new(0)));
        let count = Rc::clone(&made);
        tokio::task::spawn_local(async move {
            loop {
                count.set(count.get() + 1);
                rounds.pause(due_in).await;
            }
        });
        made
    }

    fn on_a_loop(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .expect("a runtime");
        runtime.block_on(test);
    }

    async fn rests(rounds: &Rounds) {
        while rounds.state.get() != RoundState::Resting {
            tokio::task::yield_now().await;
        }
    }

    /// A loop at rest has run exactly the rounds that the stirs requested, however much time has passed.
    #[test]
    fn an_unstirred_loop_rests_after_one_round() {
        on_a_loop(async {
            for due_in in [None, Some(NEVER)] {
                let rounds = Rc::new(Rounds::new(EVERY));
                let made = making(&rounds, due_in);
                for wanted in [2, 4, 6] {
                    rests(&rounds).await;
                    assert_eq!(made.get(), wanted);
                    tokio::time::sleep(EVERY * 10).await;
                    assert_eq!(made.get(), wanted, "rounds that nobody asked for");
                    rounds.stir();
                    rounds.stir();
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    #[test]
    fn due_rounds_run_without_a_stir() {
        on_a_loop(async {
            for due_in in [Duration::ZERO, EVERY, EVERY * 3] {
                let rounds = Rc::new(Rounds::new(EVERY));
                let made = making(&rounds, Some(due_in));
                while made.get() < 10 {
                    tokio::time::sleep(EVERY).await;
                }
            }
        });
    }

    #[test]
    fn never_is_later_than_any_time() {
        let (one, two) = (Some(EVERY), Some(EVERY * 2));
        assert_eq!((sooner(one, two), sooner(two, one)), (one, one));
        assert_eq!((sooner(one, None), sooner(None, one), sooner(None, None)), (one, one, None));
    }
}
