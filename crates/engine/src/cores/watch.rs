//! Deadlines of connections, without a timer for each wait.
//!
//! A connection records its phase and its deadline in its [`Watch`] (two stores per turn). One sweep
//! per core checks a tenth of the connections ten times a second and wakes those whose deadline has passed;
//! the connection itself then closes. Both run on the core's thread.

use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
    task::Waker,
    time::Duration,
};

/// Phase of a connection: the event it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Waits for the next request: none has begun, and no data is lost if the connection ends.
    Idle,
    /// Waits for the rest of a request's head.
    Head,
    /// Waits for more of a request's body.
    Body,
    /// Waits for the peer to read the data sent to it.
    Send,
    /// Waits for this server or its upstreams, so the peer has no deadline.
    Working,
    /// Serves several requests at once, each with deadlines of its own, which the connection checks at
    /// intervals.
    Streams,
}

/// Phase and deadline of one connection.
#[derive(Debug)]
pub struct Watch {
    phase: Cell<Phase>,
    deadline_ms: Cell<u64>,
    expired: Cell<bool>,
    /// The task's waker. A task always has the same waker, so it is stored only once.
    waker: OnceCell<Waker>,
}

impl Watch {
    /// Creates a watch without a deadline.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            phase: Cell::new(Phase::Working),
            deadline_ms: Cell::new(u64::MAX),
            expired: Cell::new(false),
            waker: OnceCell::new(),
        })
    }

    /// Stores the waker of the connection's task.
    pub fn task(&self, waker: &Waker) {
        if self.waker.get().is_none() {
            // Only this task calls it, so `set` cannot fail.
            let _ = self.waker.set(waker.clone());
        }
    }

    /// Sets the phase and its maximum duration from now on. `now_ms` is the monotonic clock's time, so that
    /// setting the machine's clock does not end any wait.
    pub fn wait(&self, phase: Phase, now_ms: u64, at_most: Duration) {
        self.phase.set(phase);
        let at_most_ms = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        self.deadline_ms.set(now_ms.saturating_add(at_most_ms));
    }

    /// Clears the deadline, because the connection waits for no event that has one.
    pub fn work(&self) {
        self.phase.set(Phase::Working);
        self.deadline_ms.set(u64::MAX);
    }

    /// Returns the current phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Returns whether the deadline was found to have passed, or a drain ended the wait.
    #[must_use]
    pub fn expired(&self) -> bool {
        self.expired.get()
    }

    /// Clears the expired state, so that a last answer can be sent to the peer.
    pub fn renew(&self) {
        self.expired.set(false);
        self.work();
    }

    fn look(&self, now_ms: u64) {
        if now_ms > self.deadline_ms.get() {
            self.end();
        }
    }

    /// Ends the wait at once, as if its deadline had passed.
    pub fn end(&self) {
        self.expired.set(true);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// Watches of one core's connections.
#[derive(Debug, Default)]
pub struct Watches {
    entries: Vec<Option<Rc<Watch>>>,
    vacant: Vec<usize>,
    cursor: usize,
}

impl Watches {
    /// Adds a connection; returns its number for [`Self::remove`].
    pub fn add(&mut self, watch: Rc<Watch>) -> usize {
        if let Some(at) = self.vacant.pop() {
            self.entries[at] = Some(watch);
            at
        } else {
            self.entries.push(Some(watch));
            self.entries.len() - 1
        }
    }

    /// Removes the connection with this number.
    pub fn remove(&mut self, at: usize) {
        self.entries[at] = None;
        self.vacant.push(at);
    }

    /// Checks the deadlines of the next tenth of the connections.
    pub fn sweep(&mut self, now_ms: u64) {
        let share = self.entries.len().div_ceil(10);
        for _ in 0..share {
            self.cursor = (self.cursor + 1) % self.entries.len();
            if let Some(watch) = &self.entries[self.cursor] {
                watch.look(now_ms);
            }
        }
    }

    /// Ends the wait of the connection that has idled longest, among the next `looks` connections. Returns
    /// whether any was idle.
    pub fn end_longest_idle(&mut self, looks: usize) -> bool {
        self.end_earliest(looks, |phase, deadline_ms| (phase == Phase::Idle).then_some(deadline_ms))
    }

    /// Ends the wait with the lowest sort key among the next `looks` connections. `order` maps a phase and a
    /// deadline in milliseconds to a sort key; `None` exempts the wait. Returns whether a wait was ended.
    pub fn end_earliest(&mut self, looks: usize, order: impl Fn(Phase, u64) -> Option<u64>) -> bool {
        let mut earliest: Option<(u64, &Rc<Watch>)> = None;
        for _ in 0..looks.min(self.entries.len()) {
            self.cursor = (self.cursor + 1) % self.entries.len();
            let Some(watch) = self.entries[self.cursor].as_ref().filter(|watch| !watch.expired()) else {
                continue;
            };
            let Some(at) = order(watch.phase(), watch.deadline_ms.get()) else { continue };
            if earliest.is_none_or(|(earliest, _)| at < earliest) {
                earliest = Some((at, watch));
            }
        }
        earliest.inspect(|(_, watch)| watch.end()).is_some()
    }

    /// Ends the waits of idle connections, for a drain: they have no pending request.
    pub fn end_idle(&self) {
        for watch in self.entries.iter().flatten() {
            if watch.phase() == Phase::Idle {
                watch.end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_passed_deadlines_expire_within_ten_sweeps() {
        let mut watches = Watches::default();
        let all: Vec<_> = (0..25u64)
            .map(|i| {
                let watch = Watch::new();
                watch.wait(Phase::Head, i * 100, Duration::from_millis(50));
                watches.add(Rc::clone(&watch));
                watch
            })
            .collect();
        for _ in 0..10 {
            watches.sweep(1000);
        }
        for (i, watch) in all.iter().enumerate() {
            assert_eq!(watch.expired(), i * 100 + 50 < 1000, "watch {i}");
        }
    }

    #[test]
    fn a30_the_connection_that_idles_longest_makes_room() {
        let mut watches = Watches::default();
        let all: Vec<_> = [(Phase::Idle, 300), (Phase::Body, 100), (Phase::Idle, 200), (Phase::Working, 0)]
            .map(|(phase, at)| {
                let watch = Watch::new();
                watch.wait(phase, at, Duration::from_millis(50));
                watches.add(Rc::clone(&watch));
                watch
            })
            .into();
        let ended = || all.iter().map(|watch| watch.expired()).collect::<Vec<_>>();
        assert!(watches.end_longest_idle(64));
        assert_eq!(ended(), [false, false, true, false]);
        assert!(watches.end_longest_idle(64) && !watches.end_longest_idle(64), "nobody else idles");
        assert_eq!(ended(), [true, false, true, false]);
        assert!(!Watches::default().end_longest_idle(64));
    }

    #[test]
    fn numbers_are_reused() {
        let mut watches = Watches::default();
        let a = watches.add(Watch::new());
        let b = watches.add(Watch::new());
        watches.remove(a);
        assert_eq!(watches.add(Watch::new()), a);
        assert_ne!(a, b);
        assert_eq!((watches.entries.len(), watches.vacant.len()), (2, 0));
    }
}
