//! Clocks. Only this module reads the time from the kernel.
//!
//! None of these calls is a system call: the vDSO answers. Measured on a virtual machine (AMD, Linux 6.18):
//!
//! | function | cost | resolution |
//! |---|---|---|
//! | [`unix_s`], [`unix_ms`], [`monotonic_ms`] | 5–8 ns | one tick of the kernel (1–10 ms), always a little in the past |
//! | [`now`], [`now_system`], [`monotonic_ns`], [`unix_ns`], [`boot_ms`] | 40–45 ns | 1 ns |
//!
//! The UNIX time jumps when the clock is set: it is for times given to peers and files (`Date`, `Age`,
//! expiry). Internal deadlines and durations use the monotonic clock.
//!
//! A loop reads the time once per turn and passes it on, so that all decisions of a turn see the same time.
#![allow(clippy::disallowed_methods, reason = "this is the place that the others take the time from")]

use std::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::{Duration, Instant, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};

/// Seconds by which tests have shifted the UNIX time, as if the clock of a running machine had been set.
static STEPPED_S: AtomicI64 = AtomicI64::new(0);

/// Shifts the UNIX time of this process, as if the clock had been set; for tests. The monotonic clock is not
/// affected.
pub fn step_unix_time(by_s: i64) {
    STEPPED_S.fetch_add(by_s, Relaxed);
}

/// Returns seconds since the UNIX epoch, by the coarse clock.
#[must_use]
pub fn unix_s() -> u64 {
    let now_s = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    // A clock set before 1970 reads as 1970.
    u64::try_from(now_s.saturating_add(STEPPED_S.load(Relaxed))).unwrap_or(0)
}

/// Returns milliseconds since the UNIX epoch, by the coarse clock (it moves in steps of 1–10 ms).
#[must_use]
pub fn unix_ms() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    let now_s = time.tv_sec.saturating_add(STEPPED_S.load(Relaxed));
    u64::try_from(now_s).map_or(0, |s| s * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000)
}

/// Returns nanoseconds since the UNIX epoch, for events that must be distinguished within one tick of the
/// coarse clock.
#[must_use]
pub fn unix_ns() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    let now_s = time.tv_sec.saturating_add(STEPPED_S.load(Relaxed));
    u64::try_from(now_s).map_or(0, |s| s * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// Returns the UNIX time as the standard library's type, for formatting dates.
#[must_use]
pub fn now_system() -> SystemTime {
    let (now, stepped_s) = (SystemTime::now(), STEPPED_S.load(Relaxed));
    let step = Duration::from_secs(stepped_s.unsigned_abs());
    let stepped = if stepped_s < 0 { now.checked_sub(step) } else { now.checked_add(step) };
    stepped.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Returns milliseconds since an unspecified start, by the coarse monotonic clock (it moves in steps of 1–10
/// ms): the cheap clock for deadlines.
#[must_use]
pub fn monotonic_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

/// Returns exact milliseconds since the machine was booted, by a clock that also counts while the machine
/// sleeps (`CLOCK_BOOTTIME`). For leases, which must end even while no process runs.
#[must_use]
pub fn boot_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

/// Returns the current time of the clock that never goes back (`CLOCK_MONOTONIC`).
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the processor time of the calling thread (`CLOCK_THREAD_CPUTIME_ID`) in nanoseconds, for budgets
/// that do not depend on the machine's load. A system call, 0.2 µs.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Returns the clock of [`now`] in nanoseconds since an unspecified start, for differences that are stored in
/// atomics.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
