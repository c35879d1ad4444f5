//! The limit on the work spent on a mail. Every loop whose length depends on a mail must observe it.
//!
//! Each step of work is charged before it is done ([`StepLimit::pay`]): a byte that is read or written, a
//! node, an address. A call that cannot be interrupted, such as one into a library, is charged by the number
//! of bytes that it gets. Every [`STEPS_A_LOOK`] steps [`StepLimit::pay`] checks whether the limit has ended.
//! From then on no step is granted, and the worker returns what it has.

use std::cell::Cell;

/// Steps between two checks of the clock and of the client's connection.
pub const STEPS_A_LOOK: u64 = 16 * 1024;

/// A limit that long work checks between its steps. The default never ends.
#[derive(Default)]
pub struct StepLimit {
    enough: Option<Box<dyn Fn() -> bool + Send>>,
    /// Steps charged so far.
    steps: Cell<u64>,
    next_look: Cell<u64>,
    is_over: Cell<bool>,
    /// Calls to `pay` that were refused after the limit ended.
    refusals: Cell<u64>,
}

/// Error returned once a limit has ended: no more steps are granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("rendering takes too long")]
pub struct StepLimitReached;

impl StepLimit {
    /// Returns a limit that ends when `enough` returns true.
    pub fn new(enough: impl Fn() -> bool + Send + 'static) -> Self {
        Self { enough: Some(Box::new(enough)), ..Self::default() }
    }

    /// Checks now and returns whether the limit has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        if !self.is_over.get() && self.enough.as_ref().is_some_and(|enough| enough()) {
            self.is_over.set(true);
        }
        self.is_over.get()
    }

    /// Charges the next steps.
    ///
    /// # Errors
    /// [`StepLimitReached`] when the limit has ended: the steps must not be executed.
    pub fn pay(&self, steps: usize) -> Result<(), StepLimitReached> {
        let steps = steps as u64;
        if self.is_over.get() {
            self.refusals.set(self.refusals.get() + 1);
            return Err(StepLimitReached);
        }
        self.steps.set(self.steps.get().saturating_add(steps));
        if self.steps.get() >= self.next_look.get() {
            self.next_look.set(self.steps.get().saturating_add(STEPS_A_LOOK));
            if self.is_over() {
                return Err(StepLimitReached);
            }
        }
        Ok(())
    }

    /// Returns whether the limit had ended at the last check.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_over.get()
    }

    /// Number of steps charged.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Number of calls to `pay` that were refused after the limit ended. A loop makes at most one such call
    /// and then ends.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.refusals.get()
    }
}

impl std::fmt::Debug for StepLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepLimit").field("steps", &self.steps.get()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_end_nothing_is_granted() {
        let until = StepLimit::new(|| true);
        assert_eq!(until.pay(1), Err(StepLimitReached), "the first step asks");
        assert_eq!(until.pay(7), Err(StepLimitReached));
        assert_eq!((until.steps(), until.refusals()), (1, 1));
        let never = StepLimit::default();
        assert_eq!(never.pay(usize::MAX), Ok(()));
        assert_eq!(never.pay(usize::MAX), Ok(()), "no sum overflows");
    }
}
