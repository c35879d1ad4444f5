//! A gate that holds a script back until the test opens it.

use std::sync::{Arc, Condvar, Mutex};

use crate::PATIENCE;

/// Closed until it is opened, once for all waiting threads. A clone is the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Makes a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        let (open, changed) = &*self.0;
        *open.lock().unwrap() = true;
        changed.notify_all();
    }

    /// Returns whether the gate has been opened.
    pub fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Waits until the gate is opened.
    ///
    /// # Panics
    /// When the gate is not opened within [`PATIENCE`].
    pub fn pass(&self) {
        let (open, changed) = &*self.0;
        let open = open.lock().unwrap();
        let (open, _) = changed.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap();
        assert!(*open, "the gate was not opened in {PATIENCE:?}");
    }
}
