//! The lateness of a loop: the time between when it is due and when it runs.
//!
//! A kernel timer fires every 10 ms while the loop works. When the loop handles it, the difference to its due
//! time is recorded. Firings that were due while the loop was stuck are recorded one by one, each with the
//! time since it was due: a stall of 35 ms records 35, 25, 15 and 5 ms. The histogram is thus weighted by
//! time, not by turns, and shows how long a request that arrives at a random moment waits.
//!
//! ```text
//!   the loop wakes ─▶ the timer is silent? it is set, 10 ms from now ─▶ fires, fires, … ─▶ nothing else has woken the
//!                                                     ▲                                    loop for 2 firings: silent
//!                                                     └── the loop wakes for something else, or never sleeps
//! ```
//! An idle loop delays no request: the timer is silent, and the loop does not wake. (With the timer always
//! on, it woke 100 times a second, with 3 system calls each: `docs/decisions/024-idle.md`.)
//!
//! The timer is a timerfd and not one of tokio's, because tokio rounds its timers up to whole milliseconds,
//! which would hide the lateness to be measured.

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

/// Period of the timer while a loop works.
pub const PERIOD: Duration = Duration::from_millis(10);

/// Minimum lateness that counts as a stall.
pub const STALL_MIN: Duration = Duration::from_millis(1);

/// Number of consecutive firings, with no other wake-up between, after which the timer is silenced: the loop
/// has then been idle for 20 ms. Setting and silencing the timer costs two system calls, fewer than the saved
/// firings would.
const QUIET_FIRINGS: u32 = 2;

const PERIOD_NS: u64 = PERIOD.as_nanos() as u64;
const STALL_MIN_NS: u64 = STALL_MIN.as_nanos() as u64;

/// Lateness of one loop. The loop writes it, any thread may read it.
#[derive(Debug, Default)]
pub struct Lateness {
    /// Histogram of the lateness in nanoseconds.
    histogram: Histogram,
    stalls: AtomicU64,
    stalled_ns: AtomicU64,
    /// Thread ID of the loop; 0 until it runs.
    thread: AtomicI32,
}

impl Lateness {
    /// Creates an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the lateness recorded up to now, in nanoseconds.
    #[must_use]
    pub fn read(&self) -> Distribution {
        self.histogram.read()
    }

    /// Returns how many times the loop was more than [`STALL_MIN`] late.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    /// Returns how long the loop was stuck in total: the sum of the lateness of all stalls.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled_ns.load(Ordering::Relaxed))
    }

    /// Returns the thread ID of the loop; 0 until it runs.
    pub(super) fn thread(&self) -> &AtomicI32 {
        &self.thread
    }

    /// Records the lateness of the calling thread's runtime while it works, for as long as it runs.
    /// [`super::run::Cores`] spawns one such task on each core. If the runtime does not report wake-ups
    /// (`woke`), the timer is always on.
    ///
    /// # Errors
    /// Returns the kernel's error if it refuses a timer, or an error when the runtime shuts down.
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
            // No firings: the read ended in EAGAIN, and the guard waits for the next edge.
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

    /// Records that the loop ran at `now`, for `count` firings of the timer: the first was due at
    /// `first_due`, the others at one period each after that.
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
    /// Timer of this thread's event loop.
    static BELL: Bell = const { Bell {
        timer: OnceCell::new(),
        due_ns: Cell::new(0),
        is_set: Cell::new(false),
        wakes: Cell::new(0),
        quiet: Cell::new(0),
    } };
}

struct Bell {
    /// Timer file descriptor, set once the loop is watched.
    timer: OnceCell<Arc<OwnedFd>>,
    /// Time of the next firing, if the timer is set.
    due_ns: Cell<u64>,
    is_set: Cell<bool>,
    /// Number of times the loop has woken since the timer was set or fired.
    wakes: Cell<u32>,
    /// Number of consecutive firings without any other wake-up of the loop.
    quiet: Cell<u32>,
}

/// Notes that the loop of this thread has woken. A runtime calls this when it returns from waiting.
pub(super) fn woke() {
    BELL.with(|bell| {
        bell.wakes.set(bell.wakes.get() + 1);
        if !bell.is_set.get() && bell.timer.get().is_some() {
            // The kernel refuses only an invalid time, and such an error is reported by the next call.
            let _ = bell.set();
        }
    });
}

impl Bell {
    /// Sets the timer to fire once a period from now on.
    fn set(&self) -> io::Result<()> {
        self.is_set.set(true);
        self.wakes.set(0);
        self.quiet.set(0);
        self.due_ns.set(clock::monotonic_ns() + PERIOD_NS);
        self.fire_from(self.due_ns.get())
    }

    /// Handles `firings` firings of the timer.
    fn fired(&self, firings: u64) -> io::Result<()> {
        self.due_ns.set(self.due_ns.get() + firings * PERIOD_NS);
        // Exactly one wake-up since the last firing is this firing itself; none means that the loop has not
        // slept.
        let is_quiet = self.wakes.replace(0) == 1;
        self.quiet.set(if is_quiet { self.quiet.get() + 1 } else { 0 });
        if self.quiet.get() < QUIET_FIRINGS {
            return Ok(());
        }
        self.is_set.set(false);
        self.fire_from(0)
    }

    /// Sets the timer to fire at this time and once per period from then on; 0 silences it.
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

/// Lateness of all loops of one server, labelled `server` and `core`.
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
                help: "Lateness of the loop: time between being due and running, sampled every 10 ms while the loop \
                       works.",
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
    fn a_stall_counts_for_every_missed_deadline() {
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
