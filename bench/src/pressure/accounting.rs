//! The kernel's delay accounting (`kernel.task_delayacct`), which measures waits for the disk: switched on
//! for a run, and off again afterwards.

use std::fs;

const SWITCH: &str = "/proc/sys/kernel/task_delayacct";

/// Guard that keeps delay accounting switched on.
pub(crate) struct DelayAccounting {
    was_off: bool,
}

impl DelayAccounting {
    /// Switches delay accounting on. `None` if the kernel has none or permission is missing: then waits for
    /// the disk are unknown.
    pub(crate) fn on() -> Option<Self> {
        let was_off = fs::read_to_string(SWITCH).ok()?.trim() == "0";
        if was_off {
            fs::write(SWITCH, "1").ok()?;
        }
        Some(Self { was_off })
    }
}

impl Drop for DelayAccounting {
    fn drop(&mut self) {
        if self.was_off {
            // An error is not expected, because the file was writable before.
            let _ = fs::write(SWITCH, "0");
        }
    }
}
