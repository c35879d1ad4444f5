//! Password checks of a core that are queued or running.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Largest number of password checks that run at the same time for a core.
const CHECKS_AT_ONCE: usize = 2;
/// Largest number of password checks of a core that are queued or running. Above it, a client is rejected and
/// may retry.
pub(crate) const CHECKS_WAITING_MAX: usize = 256;

/// Password checks of a core.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(super) at_once: Arc<Semaphore>,
    /// Number of checks that are queued or running.
    pub(super) waiting: usize,
}

impl Default for Checks {
    fn default() -> Self {
        Self { at_once: Arc::new(Semaphore::new(CHECKS_AT_ONCE)), waiting: 0 }
    }
}
