//! A steady clock: the UNIX time by which stored objects expire. A forward step of the machine's clock takes
//! effect only once it has lasted for a while.
//!
//! A faulty time server or an operator's typing error may set the clock to tomorrow and back. Expiry by the
//! wall clock would delete everything in between. A [`SteadyClock`] advances by the boot clock instead, and
//! follows a forward step once the boot clock confirms that the step has lasted [`CONFIRM_MS`].
//!
//! ```text
//!   wall clock       ───╮      ╭────────      ───╮         (set forward, and back within ten minutes)
//!                       ╰──────╯
//!   steady clock     ──────────────────▶      goes on at the boot clock's pace
//! ```
//! A steady clock never goes back. After a backward step it advances at half pace until the wall clock has
//! caught up, so that it neither jumps nor stands still.
//!
//! *Memory:* one value per core. *Cost:* two clock reads, no system call (50 ns).

use std::cell::Cell;

use super::clock;

/// Time that a forward step of the wall clock must last before the steady clock follows it.
pub const CONFIRM_MS: u64 = 10 * 60_000;
/// Maximum difference between wall and boot clock that counts as adjustment (NTP's slewing, a leap second),
/// not as a step.
const SLEW_MAX_MS: i64 = 2_000;

/// Steady clock of one core: UNIX time that never goes back and ignores short forward steps of the wall
/// clock.
#[derive(Debug)]
pub struct SteadyClock {
    state: Cell<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// Accepted difference of wall clock minus boot clock.
    offset_ms: i64,
    /// Unconfirmed step: the offset after it, and the boot time at which it was first seen.
    step: Option<(i64, u64)>,
    /// Boot time of the last reading.
    read_at_ms: u64,
    /// Time returned by the last reading.
    shown_ms: u64,
}

impl SteadyClock {
    /// Creates a clock that shows the wall clock's time.
    #[must_use]
    pub fn new() -> Self {
        Self::at(clock::unix_ms(), clock::boot_ms())
    }

    fn at(unix_ms: u64, boot_ms: u64) -> Self {
        let state =
            State { offset_ms: offset(unix_ms, boot_ms), step: None, read_at_ms: boot_ms, shown_ms: unix_ms };
        Self { state: Cell::new(state) }
    }

    /// Returns milliseconds since the UNIX epoch; never less than an earlier reading.
    #[must_use]
    pub fn unix_ms(&self) -> u64 {
        self.read(clock::unix_ms(), clock::boot_ms())
    }

    /// Returns seconds since the UNIX epoch; never less than an earlier reading.
    #[must_use]
    pub fn unix_s(&self) -> u64 {
        self.unix_ms() / 1000
    }

    fn read(&self, unix_ms: u64, boot_ms: u64) -> u64 {
        let mut state = self.state.get();
        let elapsed_ms = boot_ms.saturating_sub(state.read_at_ms);
        let ahead_ms = offset(unix_ms, boot_ms).saturating_sub(state.offset_ms);
        if ahead_ms > SLEW_MAX_MS {
            state.confirm(offset(unix_ms, boot_ms), boot_ms);
        } else {
            state.step = None;
            // Forward adjustments apply at once; backward ones by at most half of the elapsed time.
            let back_max_ms = i64::try_from(elapsed_ms / 2).unwrap_or(i64::MAX);
            state.offset_ms = state.offset_ms.saturating_add(ahead_ms.max(-back_max_ms));
        }
        state.read_at_ms = boot_ms;
        let now_ms = boot_ms.saturating_add_signed(state.offset_ms);
        state.shown_ms = state.shown_ms.max(now_ms);
        self.state.set(state);
        state.shown_ms
    }
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Accepts a forward step that has lasted long enough; otherwise remembers a new step.
    fn confirm(&mut self, offset_ms: i64, boot_ms: u64) {
        match self.step {
            Some((seen_ms, since_ms)) if seen_ms.abs_diff(offset_ms) <= SLEW_MAX_MS.unsigned_abs() => {
                if boot_ms.saturating_sub(since_ms) >= CONFIRM_MS {
                    self.offset_ms = offset_ms;
                    self.step = None;
                }
            }
            _ => self.step = Some((offset_ms, boot_ms)),
        }
    }
}

fn offset(unix_ms: u64, boot_ms: u64) -> i64 {
    // Both values fit: 2^63 ms are 292 million years.
    i64::try_from(unix_ms).unwrap_or(i64::MAX).saturating_sub(i64::try_from(boot_ms).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START_MS: u64 = 1_800_000_000_000;
    const DAY_MS: u64 = 24 * 3_600_000;

    #[test]
    fn a_reverted_clock_step_is_ignored() {
        let clock = SteadyClock::at(START_MS, 0);
        for second in 1..500 {
            let stepped = if second < 400 { DAY_MS } else { 0 };
            assert_eq!(
                clock.read(START_MS + second * 1000 + stepped, second * 1000),
                START_MS + second * 1000
            );
        }
    }

    #[test]
    fn a_step_that_lasts_counts() {
        let clock = SteadyClock::at(START_MS, 0);
        assert_eq!(clock.read(START_MS + DAY_MS, 1000), START_MS + 1000);
        let later = START_MS + DAY_MS + CONFIRM_MS + 1000;
        assert_eq!(clock.read(later, CONFIRM_MS + 1000), later);
    }

    #[test]
    fn small_adjustments_are_followed_at_once() {
        let clock = SteadyClock::at(START_MS, 0);
        assert_eq!(clock.read(START_MS + 11_500, 10_000), START_MS + 11_500);
    }

    #[test]
    fn a_clock_set_back_runs_at_half_speed() {
        let clock = SteadyClock::at(START_MS, 0);
        assert_eq!(clock.read(START_MS - DAY_MS + 10_000, 10_000), START_MS + 5_000);
        assert_eq!(clock.read(START_MS - DAY_MS + 20_000, 20_000), START_MS + 10_000);
        let caught_up_ms = 2 * DAY_MS;
        assert_eq!(clock.read(START_MS - DAY_MS + caught_up_ms, caught_up_ms), START_MS + DAY_MS);
    }

    proptest! {
        #[test]
        fn no_reading_is_less_than_an_earlier_one(
            steps in proptest::collection::vec((-2 * DAY_MS as i64..2 * DAY_MS as i64, 0u64..3_600_000), 1..100),
        ) {
            let clock = SteadyClock::at(START_MS, 0);
            let (mut boot_ms, mut last_ms) = (0, START_MS);
            for (step_ms, passes_ms) in steps {
                boot_ms += passes_ms;
                let shown_ms = clock.read((START_MS + boot_ms).saturating_add_signed(step_ms), boot_ms);
                prop_assert!(shown_ms >= last_ms);
                last_ms = shown_ms;
            }
        }
    }
}
