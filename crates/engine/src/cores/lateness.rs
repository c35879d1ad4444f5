//! How late a loop runs: the time between being due and running.
//!
//! A timer of the kernel fires every 10 ms. When the loop gets round to it, the difference to when it was due is
//! recorded. What was due while the loop was stuck counts as if it had been waiting since: a stall of 35 ms records
//! 35, 25, 15 and 5 ms. So the histogram is weighted by time, not by turns, and a request that arrives at a random
//! moment waits as long as it says.
//!
//! The timer is a timerfd and not one of tokio's, because tokio rounds its timers up to whole milliseconds, and that
//! would drown what is to be seen. It costs an idle core 100 wake-ups a second (≈ 0.1% of it).

use std::{
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

/// How often a loop is asked to show up.
pub const PERIOD: Duration = Duration::from_millis(10);

/// From this lateness on it counts as a stall.
pub const STALL_MIN: Duration = Duration::from_millis(1);

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

    /// Records for as long as the runtime of the caller runs. [`super::run::Cores`] spawns it on each core; one task
    /// per `Lateness`.
    ///
    /// # Errors
    /// When the kernel gives no timer or the runtime goes down.
    pub async fn watch(self: Arc<Self>) -> io::Result<Infallible> {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let mut due = clock::monotonic_ns() + PERIOD_NS;
        let times = Itimerspec { it_interval: timespec(PERIOD_NS), it_value: timespec(due) };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &times)?;
        let timer = readable(Arc::new(timer))?;
        loop {
            let mut guard = timer.readable().await?;
            // None: the read ends in EAGAIN, and the guard waits for the next edge.
            let Ok(expirations) = guard.try_io(|timer| expirations(timer.get_ref())) else {
                continue;
            };
            let expirations = expirations?;
            self.ran(due, expirations, clock::monotonic_ns());
            due += expirations * PERIOD_NS;
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

fn expirations(timer: &OwnedFd) -> io::Result<u64> {
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
                help: "Time between being due and running, asked every 10 ms.",
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
