//! The kernel's accounting of who waits for the disk (`kernel.task_delayacct`): switched on for a run, and back again.

use std::fs;

const SWITCH: &str = "/proc/sys/kernel/task_delayacct";

/// On while it lives.
pub(crate) struct DelayAccounting {
    was_off: bool,
}

impl DelayAccounting {
    /// `None` where the kernel has none, or we may not: what is waited for the disk is not known then.
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
            // The old value; it was writable before.
            let _ = fs::write(SWITCH, "0");
        }
    }
}
