//! Causes of a loop's lateness, as the kernel counts them for its thread.
//!
//! ```text
//!   /proc/self/task/TID/stat       minflt, majflt: pages that were not mapped, pages that had to be read
//!                                  delayacct_blkio: waiting for the disk itself (write-back, swap), if it is counted
//!   /proc/self/task/TID/schedstat  run delay: the thread was runnable while another one had the core
//! ```
//! The thread that collects the metrics reads these files, never the loop: the kernel keeps the counters
//! anyway. Source: proc(5), the kernel's `scheduler/sched-stats.rst` and `accounting/delay-accounting.rst`.

use std::{fs, sync::atomic::Ordering::Relaxed};

use super::lateness::{Lateness, Latenesses};
use crate::meter::{Family, Point, Unit, Value};

/// Kernel counters for a thread since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Causes {
    /// Minor faults: pages that were in memory but not mapped yet; each takes about a microsecond.
    pub minor_faults: u64,
    /// Major faults: pages that had to be read, so that the loop waited for the disk.
    pub major_faults: u64,
    /// Microseconds of waiting for the disk, in steps of the kernel's tick; 0 unless the kernel counts them
    /// (`kernel.task_delayacct`).
    pub disk_wait_us: u64,
    /// Microseconds in which the thread was runnable but did not run.
    pub run_delay_us: u64,
}

impl Causes {
    /// Reads the counters of thread `number` of this process; `None` if `/proc` does not have them.
    #[must_use]
    pub fn of_thread(number: i32) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/task/{number}/{name}")).ok();
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        let mut causes = parse_stat(&read("stat")?, ticks_per_second)?;
        // A kernel without scheduler statistics does not have this file.
        causes.run_delay_us = read("schedstat").as_deref().and_then(parse_schedstat).unwrap_or(0) / 1000;
        Some(causes)
    }
}

/// Parses fields 10, 12 and 42 of proc(5)'s `stat`; the name before them may contain spaces and brackets.
fn parse_stat(stat: &str, ticks_per_second: u64) -> Option<Causes> {
    // The text after the name begins with field 3.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Causes {
        minor_faults: number(10)?,
        major_faults: number(12)?,
        disk_wait_us: number(42).unwrap_or(0).saturating_mul(1_000_000) / ticks_per_second,
        run_delay_us: 0,
    })
}

/// Parses the time on a run queue, in nanoseconds: the second of three numbers.
fn parse_schedstat(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Name and help text of a metric, and the function that reads its value.
type Row = (&'static str, &'static str, fn(&Causes) -> u64);
const ROWS: [Row; 4] = [
    ("loop_minor_faults", "Minor page faults of the loop's thread.", |causes| causes.minor_faults),
    ("loop_major_faults", "Major page faults of the loop's thread, which waited for the disk.", |causes| {
        causes.major_faults
    }),
    (
        "loop_disk_wait_microseconds",
        "Time that the loop's thread waited for the disk (0 unless the kernel's delay accounting is on).",
        |causes| causes.disk_wait_us,
    ),
    (
        "loop_run_delay_microseconds",
        "Time that the loop's thread was runnable and waited for a processor.",
        |causes| causes.run_delay_us,
    ),
];

/// Appends the kernel counters of all loops to the metrics, as far as they are known.
pub(super) fn collect(latenesses: &Latenesses, families: &mut Vec<Family>) {
    let known: Vec<(usize, Causes)> = latenesses
        .cores
        .iter()
        .map(|lateness| Lateness::thread(lateness).load(Relaxed))
        .enumerate()
        .filter_map(|(core, thread)| Some((core, Causes::of_thread(thread).filter(|_| thread != 0)?)))
        .collect();
    if known.is_empty() {
        return;
    }
    families.extend(ROWS.iter().map(|(name, help, value)| {
        Family {
            name,
            help,
            unit: Unit::None,
            points: known
                .iter()
                .map(|(core, causes)| Point {
                    labels: vec![("server", latenesses.server.to_owned()), ("core", core.to_string())],
                    value: Value::Counter(value(causes)),
                })
                .collect(),
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_behind_the_name() {
        let stat = format!("42 (a) b (c)) S 7 0 0 0 -1 4194560 11 2 33 {} 250 0 0", "0 ".repeat(29));
        assert_eq!(
            parse_stat(&stat, 100),
            Some(Causes { minor_faults: 11, major_faults: 33, disk_wait_us: 2_500_000, run_delay_us: 0 })
        );
        assert_eq!(parse_stat("42 (x) S 1", 100), None);
        assert_eq!(parse_schedstat("123 456789 7\n"), Some(456_789));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn page_faults_are_counted_and_missing_threads_unknown() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let before = Causes::of_thread(own).expect("proc");
        let memory = crate::sys::arena::Words::reserve(1 << 17, false).expect("memory");
        for page in memory.chunks(512) {
            page[0].store(1, Relaxed);
        }
        let after = Causes::of_thread(own).expect("proc");
        assert!(after.minor_faults >= before.minor_faults + 200, "{before:?} {after:?}");
        assert_eq!(Causes::of_thread(-1), None);
    }
}
