//! How late a loop runs: the time between being due and running.
//!
//! A timer of the kernel fires every 10 ms while the loop works. When the loop gets round to it, the difference to when
//! it was due is recorded. What was due while the loop was stuck counts as if it had been waiting since: a stall of
//! 35 ms records 35, 25, 15 and 5 ms. So the histogram is weighted by time, not by turns, and a request that arrives at
//! a random moment of that time waits as long as it says.
//!
//! ```text
//!   the loop wakes ─▶ the timer is silent? it is set, 10 ms from now ─▶ fires, fires, … ─▶ nothing else has woken the
//!                                                     ▲                                    loop for 2 firings: silent
//!                                                     └── the loop wakes for something else, or never sleeps
//! ```
//! A loop that has nothing to do is late for nobody: it is not asked, and does not wake. (Asked always, it woke 100
//! times a second, with 3 system calls each: `docs/decisions/024-idle.md`.)
//!
//! The timer is a timerfd and not one of tokio's, because tokio rounds its timers up to whole milliseconds, and that
//! would drown what is to be seen.

use std::{
    cell::{Cell, OnceCell},
    convert::Infallible,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{causes, clock};
use crate::{
    meter::{Distribution, Family, Histogram, Point, Source, Unit, Value},
    sys::readiness::readable,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// How often a loop that works is asked to show up.
pub const PERIOD: Duration = Duration::from_millis(10);

/// From this lateness on it counts as a stall.
pub const STALL_MIN: Duration = Duration::from_millis(1);

/// So many firings in a row that found the loop asleep, and nothing else that had woken it, are the last ones: it has
/// been idle for 20 ms. To set and silence it costs two system calls, less than the firings that are saved.
const QUIET_FIRINGS: u32 = 2;

const PERIOD_NS: u64 = PERIOD.as_nanos() as u64;
const STALL_MIN_NS: u64 = STALL_MIN.as_nanos() as u64;

/// One loop's lateness. The loop writes it, anybody reads it.
#[derive(Debug, Default)]
pub struct Lateness {
    /// Nanoseconds.
    histogram: Histogram,
    stalls: AtomicU64,
    stalled_ns: AtomicU64,
    /// The loop's thread, as the kernel numbers it; 0 until it runs.
    thread: AtomicI32,
}

impl Lateness {
    /// Nothing recorded.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was recorded up to now, in nanoseconds.
    #[must_use]
    pub fn read(&self) -> Distribution {
        self.histogram.read()
    }

    /// How many times the loop was more than [`STALL_MIN`] late.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    /// For how long the loop was stuck in all: the sum of the lateness of all stalls.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled_ns.load(Ordering::Relaxed))
    }

    /// The loop's thread; 0 until it runs.
    pub(super) fn thread(&self) -> &AtomicI32 {
        &self.thread
    }

    /// Records while the runtime of the caller works, for as long as it runs. [`super::run::Cores`] spawns it on each
    /// core; one task a thread. Where nobody says that the loop wakes (`woke`), it is asked always.
    ///
    /// # Errors
    /// When the kernel gives no timer or the runtime goes down.
    pub async fn watch(self: Arc<Self>) -> io::Result<Infallible> {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        let timer = Arc::new(timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?);
        BELL.with(|bell| {
            let own = bell.timer.set(Arc::clone(&timer));
            assert!(own.is_ok(), "a thread's lateness is watched once");
            bell.set()
        })?;
        let timer = readable(timer)?;
        loop {
            let mut guard = timer.readable().await?;
            // None: the read ends in EAGAIN, and the guard waits for the next edge.
            let Ok(firings) = guard.try_io(|timer| firings(timer.get_ref())) else {
                continue;
            };
            let firings = firings?;
            BELL.with(|bell| {
                self.ran(bell.due_ns.get(), firings, clock::monotonic_ns());
                bell.fired(firings)
            })?;
        }
    }

    /// The loop runs at `now` what was due at `first_due` and every period since, `count` times in all.
    fn ran(&self, first_due: u64, count: u64, now: u64) {
        let late = now.saturating_sub(first_due);
        for missed in 0..count {
            self.histogram.record(late.saturating_sub(missed * PERIOD_NS));
        }
        if late > STALL_MIN_NS {
            self.stalls.store(self.stalls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.stalled_ns.store(self.stalled_ns.load(Ordering::Relaxed) + late, Ordering::Relaxed);
        }
    }
}

thread_local! {
    /// What asks this thread's loop to show up.
    static BELL: Bell = const { Bell {
        timer: OnceCell::new(),
        due_ns: Cell::new(0),
        is_set: Cell::new(false),
        wakes: Cell::new(0),
        quiet: Cell::new(0),
    } };
}

struct Bell {
    /// Once it is watched.
    timer: OnceCell<Arc<OwnedFd>>,
    /// When it fires next, if it is set.
    due_ns: Cell<u64>,
    is_set: Cell<bool>,
    /// Times that the loop has woken since the timer was set or fired.
    wakes: Cell<u32>,
    /// Firings in a row that nothing but themselves had woken the loop for.
    quiet: Cell<u32>,
}

/// The loop of this thread has woken. What a runtime calls when it comes back from waiting.
pub(super) fn woke() {
    BELL.with(|bell| {
        bell.wakes.set(bell.wakes.get() + 1);
        if !bell.is_set.get() && bell.timer.get().is_some() {
            // Only an invalid time is refused, so the error is for whoever asks the next time.
            let _ = bell.set();
        }
    });
}

impl Bell {
    /// From now on it fires once a period.
    fn set(&self) -> io::Result<()> {
        self.is_set.set(true);
        self.wakes.set(0);
        self.quiet.set(0);
        self.due_ns.set(clock::monotonic_ns() + PERIOD_NS);
        self.fire_from(self.due_ns.get())
    }

    /// It has fired so many times; the loop has come round to it.
    fn fired(&self, firings: u64) -> io::Result<()> {
        self.due_ns.set(self.due_ns.get() + firings * PERIOD_NS);
        // Woken once since: by this firing. Not at all: it has not slept.
        let is_quiet = self.wakes.replace(0) == 1;
        self.quiet.set(if is_quiet { self.quiet.get() + 1 } else { 0 });
        if self.quiet.get() < QUIET_FIRINGS {
            return Ok(());
        }
        self.is_set.set(false);
        self.fire_from(0)
    }

    /// At this time and once a period from then on; 0: not at all.
    fn fire_from(&self, due_ns: u64) -> io::Result<()> {
        let Some(timer) = self.timer.get() else { return Ok(()) };
        let times = Itimerspec { it_interval: timespec(PERIOD_NS), it_value: timespec(due_ns) };
        timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &times)?;
        Ok(())
    }
}

fn firings(timer: &OwnedFd) -> io::Result<u64> {
    let mut count = [0; 8];
    rustix::io::read(timer, &mut count)?;
    Ok(u64::from_ne_bytes(count))
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000).cast_signed(), tv_nsec: (ns % 1_000_000_000).cast_signed() }
}

/// The lateness of all loops of one server, labelled `server` and `core`.
#[derive(Debug)]
pub struct Latenesses {
    pub(super) server: &'static str,
    pub(super) cores: Vec<Arc<Lateness>>,
}

impl Source for Latenesses {
    fn collect(&self, families: &mut Vec<Family>) {
        let points = |value: &dyn Fn(&Lateness) -> Value| {
            let labelled = self.cores.iter().enumerate().map(|(core, lateness)| Point {
                labels: vec![("server", self.server.to_owned()), ("core", core.to_string())],
                value: value(lateness),
            });
            labelled.collect()
        };
        families.extend([
            Family {
                name: "loop_lateness_seconds",
                help: "Time between being due and running, asked every 10 ms while the loop works.",
                unit: Unit::Seconds,
                points: points(&|lateness| Value::Histogram(lateness.read())),
            },
            Family {
                name: "loop_stalls",
                help: "Times that the loop was more than 1 ms late.",
                unit: Unit::None,
                points: points(&|lateness| Value::Counter(lateness.stalls())),
            },
            Family {
                name: "loop_stalled_microseconds",
                help: "Sum of the lateness of all stalls, in microseconds.",
                unit: Unit::None,
                points: points(&|lateness| {
                    Value::Counter(u64::try_from(lateness.stalled().as_micros()).unwrap_or(u64::MAX))
                }),
            },
        ]);
        causes::collect(self, families);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_for_everything_that_was_due_in_it() {
        let lateness = Lateness::new();
        lateness.ran(1_000_000_000, 1, 1_000_050_000);
        assert_eq!((lateness.stalls(), lateness.stalled()), (0, Duration::ZERO), "50 µs are no stall");
        // Due at 1.010, 1.020, 1.030 and 1.040 s; ran at 1.045.
        lateness.ran(1_010_000_000, 4, 1_045_000_000);
        let read = lateness.read();
        assert_eq!(read.count(), 5);
        assert_eq!(read.sum(), 50_000 + 35_000_000 + 25_000_000 + 15_000_000 + 5_000_000);
        assert_eq!(read.max(), 35_000_000);
        assert_eq!((lateness.stalls(), lateness.stalled()), (1, Duration::from_millis(35)));
    }
}
