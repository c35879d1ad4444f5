//! A gate that holds a script back until the test has seen what it wanted to see.

use std::sync::{Arc, Condvar, Mutex};

use crate::PATIENCE;

/// Closed until opened, once for all who wait. A clone is the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens it, for good.
    pub fn open(&self) {
        let (open, changed) = &*self.0;
        *open.lock().unwrap() = true;
        changed.notify_all();
    }

    /// Whether it was opened.
    pub fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Waits until it is opened.
    ///
    /// # Panics
    /// When it is not within [`PATIENCE`].
    pub fn pass(&self) {
        let (open, changed) = &*self.0;
        let open = open.lock().unwrap();
        let (open, _) = changed.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap();
        assert!(*open, "the gate was not opened in {PATIENCE:?}");
    }
}
