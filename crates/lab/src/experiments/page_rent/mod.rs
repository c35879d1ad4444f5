//! `page-rent`: how the pages that a queue of expiries touches slow down concurrent deliveries (C20, for the
//! queue).
//!
//! ```text
//! memory cgroup ─▶ child ─┬─ expiries, r per second: queue of N keys in a mapped file ─┐ one limit on
//!                         └─ deliveries, on schedule: objects of 16 KiB, mapped ───────┘ the pages of both
//!                              │ time from when each was due, major faults
//! mincore of the queue's file ─┴─▶ pages that the queue holds while it does nothing
//! ```
//! Each queue is measured in a child process. Its expiries become more frequent from period to period; the
//! first period has none.

mod child;
mod verdicts;

use std::path::Path;

pub use child::{Period, RentFigures, Task};

use super::again::ChildCommand;
use super::bheap_paging::group::{CgroupFault, Group};
use super::bheap_paging::queues::Kind;
use super::memory_ladder::random::Random;
use super::scratch::Scratch;
use crate::experiment::{Experiment, Options, Refusal, Report};

/// `nighttrain lab page-rent`
pub const EXPERIMENT: Experiment = Experiment {
    name: "page-rent",
    claims: &["C20"],
    title: "What an expiry queue's pages cost the deliveries beside it",
    statement: "Ten extra pages an operation are not only read: they loiter in RAM, push out objects that were being \
                delivered, and queue on a busy disk.",
    source: "P.-H. Kamp, “You're Doing It Wrong”, ACM Queue 8(6), June 2010, and the discussion of it",
    run,
};

/// Sizes of the measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// Number of 8-byte keys in the queue.
    pub items: usize,
    /// Number of 16 KiB objects that are delivered.
    pub objects: usize,
    /// Bytes of page cache that queue and objects share.
    pub limit_bytes: u64,
    /// Deliveries per second.
    pub deliveries_per_s: f64,
    /// Expiries per second in each period, rising; the first period has none.
    pub expiries_per_s: Vec<f64>,
    /// Seconds at the start of a period that are not counted, and seconds that are.
    pub seconds: (f64, f64),
}

impl Sizes {
    /// Returns the sizes for a quick run of under half a minute, or for a full run.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        let full = Self {
            items: 4 << 20,
            objects: 4096,
            limit_bytes: 16 << 20,
            deliveries_per_s: 400.0,
            expiries_per_s: vec![0.0, 1.0 / 60.0, 1.0, 30.0, 1000.0],
            seconds: (5.0, 12.0),
        };
        if quick {
            let seconds = (0.6, 1.2);
            Self {
                items: 1 << 20,
                objects: 1024,
                limit_bytes: 4 << 20,
                expiries_per_s: vec![0.0, 30.0, 1000.0],
                seconds,
                ..full
            }
        } else {
            full
        }
    }
}

fn run(options: &Options) -> Result<Report, Refusal> {
    child::do_task_and_exit();
    let again = ChildCommand { arguments: vec![EXPERIMENT.name.into()] };
    let sizes = Sizes::of(options.quick);
    let found = measured(&sizes, options.directory.as_deref(), &again, &|what| options.say(what))?;
    Ok(verdicts::report(&sizes, &found))
}

/// Measures deliveries alongside each queue, in one child process per queue; files are created below
/// `directory` if it is given.
///
/// # Errors
/// [`Refusal::Missing`] without a usable memory cgroup or a directory on a disk.
pub fn measured(
    sizes: &Sizes,
    directory: Option<&Path>,
    again: &ChildCommand,
    say: &dyn Fn(&str),
) -> Result<Vec<RentFigures>, Refusal> {
    let scratch = Scratch::on_disk(directory).map_err(|error| Refusal::Missing(error.to_string()))?;
    let failed = |error: std::io::Error| Refusal::Failed(error.to_string());
    say("writing the objects");
    let mut random = Random::new(20);
    scratch.words("objects", sizes.objects * child::OBJECT_BYTES / 8, |_| random.word()).map_err(failed)?;
    let mut all = Vec::new();
    for kind in Kind::ALL {
        say(&format!("deliveries beside a {}", kind.name()));
        let group = Group::create().map_err(|error: CgroupFault| Refusal::Missing(error.to_string()))?;
        let task = Task {
            group,
            kind,
            items: sizes.items,
            objects: scratch.path().join("objects"),
            limit_bytes: sizes.limit_bytes,
            deliveries_per_s: sizes.deliveries_per_s,
            expiries_per_s: sizes.expiries_per_s.clone(),
            seconds: sizes.seconds,
            directory: scratch.path().to_owned(),
        };
        all.push(super::again::ask(child::TASK, &task, scratch.path(), again).map_err(failed)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entry point of a child process of the tests' executable; run as a test it does nothing.
    #[test]
    fn as_a_child_it_does_its_task() {
        child::do_task_and_exit();
        assert!(std::env::var_os(child::TASK).is_none());
    }

    #[test]
    fn deliveries_fault_and_the_queue_holds_pages() {
        let _groups = crate::experiments::bheap_paging::group::ONE_AT_A_TIME.lock();
        let sizes = Sizes {
            items: 1 << 18,
            objects: 256,
            limit_bytes: 2 << 20,
            deliveries_per_s: 400.0,
            expiries_per_s: vec![0.0, 100.0],
            seconds: (0.1, 0.3),
        };
        let name = "experiments::page_rent::tests::as_a_child_it_does_its_task";
        let again = ChildCommand { arguments: vec![name.into(), "--exact".into(), "--nocapture".into()] };
        let found = match measured(&sizes, None, &again, &|_| ()) {
            Ok(found) => found,
            Err(Refusal::Missing(what)) => {
                // A refusal is correct only if groups cannot be created on this machine.
                assert!(Group::create().is_err(), "refused although groups can be made: {what}");
                return;
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found.len(), 3);
        for found in &found {
            let [idle, busy] = found.periods.as_slice() else { panic!("{found:?}") };
            assert_eq!((idle.expiries, busy.expiries), (0, 30), "all that were due: {found:?}");
            for period in [idle, busy] {
                assert_eq!(period.deliveries, 120, "all that were due, however late: {found:?}");
                assert!(period.p50_us <= period.p99_us && period.p99_us <= period.worst_us);
                // 4 MiB of objects in half as much memory: the deliveries cause paging.
                assert!(period.delivery_faults > 0, "{found:?}");
                assert!(period.held_pages <= (2 << 20) as f64 / 4096.0 + 1024.0, "{found:?}");
            }
        }
        let report = verdicts::report(&sizes, &found);
        assert_eq!(report.tables[0].rows.len(), 6);
        assert_eq!(report.verdicts.len(), 1);
    }
}
