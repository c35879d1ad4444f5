//! Deadlines of sessions, without a timer for each wait.
//!
//! A session notes until when it waits (one store a turn). A sweep goes over a share of them ten times a second and wakes
//! those whose time is up. All on one core.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::Waker,
    time::Duration,
};

/// What one session waits for.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// By the monotonic clock; 0: nothing that has a deadline.
    deadline_ms: Cell<u64>,
    /// Nothing has begun: it may be ended without loss.
    idle: Cell<bool>,
    expired: Cell<bool>,
    /// A task has one for life.
    waker: RefCell<Option<Waker>>,
}

impl Watch {
    /// Notes who is to be woken.
    pub(crate) fn task(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if known.is_none() {
            *known = Some(waker.clone());
        }
    }

    /// Waits from now on, at most so long.
    pub(crate) fn wait(&self, now_ms: u64, at_most: Duration, idle: bool) {
        let at_most_ms = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        self.deadline_ms.set(now_ms.saturating_add(at_most_ms));
        self.idle.set(idle);
    }

    /// Waits for nothing that has a deadline here.
    pub(crate) fn work(&self) {
        self.deadline_ms.set(0);
        self.idle.set(false);
    }

    /// Whether the time was up, or a drain ended it.
    pub(crate) fn expired(&self) -> bool {
        self.expired.get()
    }

    /// Takes an ended wait back, for the last words.
    pub(crate) fn renew(&self) {
        self.expired.set(false);
        self.work();
    }

    fn end(&self) {
        self.expired.set(true);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// The watches of one core.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    entries: Vec<Option<Rc<Watch>>>,
    vacant: Vec<usize>,
    cursor: usize,
}

impl Watches {
    /// Adds a session; the number is for `remove`.
    pub(crate) fn add(&mut self, watch: Rc<Watch>) -> usize {
        if let Some(at) = self.vacant.pop() {
            self.entries[at] = Some(watch);
            return at;
        }
        self.entries.push(Some(watch));
        self.entries.len() - 1
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.entries[at] = None;
        self.vacant.push(at);
    }

    /// Looks at the next tenth of them.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        for _ in 0..self.entries.len().div_ceil(10) {
            self.cursor = (self.cursor + 1) % self.entries.len();
            if let Some(watch) = &self.entries[self.cursor]
                && (1..now_ms).contains(&watch.deadline_ms.get())
            {
                watch.end();
            }
        }
    }

    /// Ends those in which nothing has begun.
    pub(crate) fn end_idle(&self) {
        self.entries.iter().flatten().filter(|watch| watch.idle.get()).for_each(|watch| watch.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passed_deadline_is_found_within_ten_sweeps_and_no_other() {
        let mut watches = Watches::default();
        let all: Vec<Rc<Watch>> = (0..25u64)
            .map(|i| {
                let watch = Rc::new(Watch::default());
                if i % 5 > 0 {
                    watch.wait(i * 100, Duration::from_millis(50), true);
                }
                watches.add(Rc::clone(&watch));
                watch
            })
            .collect();
        (0..10).for_each(|_| watches.sweep(1000));
        for (i, watch) in (0..).zip(&all) {
            assert_eq!(watch.expired(), i % 5 > 0 && i * 100 + 50 < 1000, "watch {i}");
        }
    }
}
