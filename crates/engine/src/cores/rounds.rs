//! Rounds: what a loop does by the clock beside its clients (deadlines, expiries, room), for as long as there is
//! something to time.
//!
//! ```text
//!            stir: something came up that rounds look after
//!               │
//!   resting ────┴──▶ a period ──▶ round ──▶ stirred since the last one, or due within a period? ── yes ──▶ a period …
//!      ▲  ▲                                   │ no: what is due next?
//!      │  └── nothing: until a stir ◀─────────┤
//!      └───── later: until then or a stir ◀───┘
//! ```
//! So a loop that serves makes its rounds by the period, and one that has nothing to do does not wake. After the last
//! stir there is one round more, which sees what the stir left. *Which core:* all of it is of one loop's thread; the
//! atomic is there because a task must be `Send`. A stir costs a load while rounds are being made.

use std::{
    sync::atomic::{AtomicU8, Ordering::Relaxed},
    time::Duration,
};

use tokio::sync::Notify;

/// Nothing has come up since the last round.
const QUIET: u8 = 0;
/// Something has.
const STIRRED: u8 = 1;
/// No round is made until something comes up, or is due.
const RESTING: u8 = 2;

/// When one loop makes its rounds. The task that makes them calls [`Rounds::pause`] between two.
#[derive(Debug)]
pub struct Rounds {
    every: Duration,
    state: AtomicU8,
    stirred: Notify,
}

impl Rounds {
    /// Rounds that are made by this period while there is something to time.
    #[must_use]
    pub fn new(every: Duration) -> Self {
        // Stirred: the start is looked after like anything else.
        Self { every, state: AtomicU8::new(STIRRED), stirred: Notify::new() }
    }

    /// Something came up that rounds look after. The next round comes within a period, and one more after it.
    #[inline]
    pub fn stir(&self) {
        if self.state.load(Relaxed) != STIRRED && self.state.swap(STIRRED, Relaxed) == RESTING {
            self.stirred.notify_one();
        }
    }

    /// Waits until the next round. `due_in`: after which time at most the round that was made now must be followed by
    /// another, if nothing stirs; `None`: it need not. Whether something has stirred since the last pause began.
    pub async fn pause(&self, due_in: Option<Duration>) -> bool {
        let was_stirred = self.state.swap(QUIET, Relaxed) == STIRRED;
        if was_stirred || due_in.is_some_and(|due_in| due_in <= self.every) {
            tokio::time::sleep(self.every).await;
            return was_stirred;
        }
        self.state.store(RESTING, Relaxed);
        let stirred = match due_in {
            None => {
                self.stirred.notified().await;
                true
            }
            Some(due_in) => tokio::time::timeout(due_in, self.stirred.notified()).await.is_ok(),
        };
        if stirred {
            tokio::time::sleep(self.every).await;
        } else {
            // Unless it was stirred while the timer fired.
            let _ = self.state.compare_exchange(RESTING, QUIET, Relaxed, Relaxed);
        }
        stirred
    }
}

/// The earlier of two times, where `None` is never: for whoever has more than one thing to time.
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

    /// Makes rounds in the background; gives what counts them.
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
        while rounds.state.load(Relaxed) != RESTING {
            tokio::task::yield_now().await;
        }
    }

    /// However long it takes: a loop that rests has made the rounds that the stirs asked for, and no more.
    #[test]
    fn who_is_not_stirred_makes_one_round_more_and_rests() {
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
    fn what_is_due_is_looked_after_without_a_stir() {
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
