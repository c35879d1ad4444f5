//! The time. The only place that asks the kernel for it.
//!
//! None of these is a system call: the vDSO answers. Measured on a virtual machine (AMD, Linux 6.18):
//!
//! | question | cost | resolution |
//! |---|---|---|
//! | [`unix_s`], [`unix_ms`], [`monotonic_ms`] | 5–8 ns | one tick of the kernel (1–10 ms), always a little in the past |
//! | [`now`], [`now_system`], [`monotonic_ns`] | 40–45 ns | 1 ns |
//!
//! The UNIX time jumps when somebody sets the clock: it is for what peers and files are told (`Date`, `Age`, expiry).
//! Deadlines and durations of our own are taken from the monotonic clock.
//!
//! A loop reads the time once a turn and hands it down, so that all decisions of a turn see one time.
#![allow(clippy::disallowed_methods, reason = "this is the place that the others take the time from")]

use std::time::{Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Seconds since the UNIX epoch, by the coarse clock.
#[must_use]
pub fn unix_s() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}

/// Milliseconds since the UNIX epoch, by the coarse clock (it moves in steps of 1–10 ms).
#[must_use]
pub fn unix_ms() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    // A clock set before 1970 reads as 1970.
    u64::try_from(time.tv_sec).map_or(0, |s| s * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000)
}

/// The UNIX time as the standard library has it, for formatting dates.
#[must_use]
pub fn now_system() -> SystemTime {
    SystemTime::now()
}

/// Milliseconds since some start, by the coarse monotonic clock (it moves in steps of 1–10 ms): the cheap one for
/// deadlines.
#[must_use]
pub fn monotonic_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

/// A point on the clock that never goes back (`CLOCK_MONOTONIC`).
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// The same clock as [`now`], in nanoseconds since some start: for differences that are stored in atomics.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
