//! `bheap-paging`: the B-heap article's comparison of heaps, under real paging by the kernel.
//!
//! ```text
//! parent ─▶ a memory cgroup ─▶ child: file ─mmap, MADV_RANDOM─▶ queue of N keys ─▶ limit = 25% or 10% of their bytes
//!                                     pairs of remove and insert: major faults, bytes, time ─▶ answer ─▶ parent
//! ```
//! Each measurement runs in a child process with its own counters, page cache and cgroup, which end with it.

pub mod child;
pub mod group;
pub mod queues;
pub mod storage;
mod verdicts;

use std::path::Path;

use child::{PagingFigures, Task};
use group::{CgroupFault, Group};
use queues::Kind;

use super::again::ChildCommand;
use super::scratch::Scratch;
use crate::experiment::{Experiment, Options, Refusal, Report};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bheap-paging",
    claims: &["C3", "C8"],
    title: "the queues on a kernel that pages",
    statement: "Under memory pressure the B-heap needs far fewer page transfers than the binary heap (in simulation, \
                with 8 to 10 of 1,954 pages resident, a tenth), and there may be smarter ways still",
    source: "P.-H. Kamp, You're Doing It Wrong, ACM Queue 8(6), June 2010",
    run,
};

/// Sizes of the measurement.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Number of 8-byte items in a queue.
    pub items: usize,
    /// Maximum numbers of pairs (one removal and one insertion) in the warm-up and in the measurement;
    /// [`Kind::pairs`] may raise them.
    pub pairs: (u64, u64),
    /// Maximum seconds of the warm-up, and of the measurement.
    pub seconds: f64,
    /// Memory limits in percent of the items' bytes; 100 is no limit.
    pub percents: Vec<u64>,
}

impl Sizes {
    /// Returns the sizes for a quick run of under half a minute, or for a full run.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        if quick {
            Self { items: 4 << 20, pairs: (5_000, 20_000), seconds: 2.0, percents: vec![100, 10] }
        } else {
            // Six measurements under a limit, of at most 2 × 15 s each, take less than five minutes,
            // including the filling of the queues.
            Self { items: 16 << 20, pairs: (20_000, 100_000), seconds: 15.0, percents: vec![100, 25, 10] }
        }
    }
}

fn run(options: &Options) -> Result<Report, Refusal> {
    child::do_task_and_exit();
    let again = ChildCommand { arguments: vec![EXPERIMENT.name.into()] };
    let sizes = Sizes::of(options.quick);
    let page_bytes = options.page_bytes.unwrap_or_else(rustix::param::page_size);
    let found =
        measured(&sizes, page_bytes, options.directory.as_deref(), &again, &|what| options.say(what))?;
    Ok(verdicts::report(&found))
}

/// Takes all measurements, each in a child process; files are created below `directory` if it is given.
///
/// # Errors
/// [`Refusal::Missing`] without a usable memory cgroup or a directory on a disk.
pub fn measured(
    sizes: &Sizes,
    page_bytes: usize,
    directory: Option<&Path>,
    again: &ChildCommand,
    say: &dyn Fn(&str),
) -> Result<Vec<PagingFigures>, Refusal> {
    let scratch = Scratch::on_disk(directory).map_err(|error| Refusal::Missing(error.to_string()))?;
    let mut all = Vec::new();
    for percent in &sizes.percents {
        for kind in Kind::ALL {
            let of = sizes.percents.len() * Kind::ALL.len();
            say(&format!("{} of {of}: {}, {percent}% resident", all.len() + 1, kind.name()));
            let group = Group::create().map_err(|error: CgroupFault| Refusal::Missing(error.to_string()))?;
            let task = Task {
                group: Some(group),
                kind,
                items: sizes.items,
                percent: *percent,
                page_bytes,
                pairs: kind.pairs(sizes.pairs, sizes.items),
                seconds: sizes.seconds,
                seed: 1,
                directory: scratch.path().to_owned(),
            };
            let found = child::found_by_child(&task, scratch.path(), again)
                .map_err(|error| Refusal::Failed(error.to_string()))?;
            all.push(found);
        }
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

    fn again() -> ChildCommand {
        let name = "experiments::bheap_paging::tests::as_a_child_it_does_its_task";
        ChildCommand { arguments: vec![name.into(), "--exact".into(), "--nocapture".into()] }
    }

    #[test]
    fn faults_occur_only_under_a_memory_limit() {
        let _groups = group::ONE_AT_A_TIME.lock();
        let sizes = Sizes { items: 1 << 19, pairs: (200, 500), seconds: 20.0, percents: vec![100, 50] };
        let found = match measured(&sizes, 4096, None, &again(), &|_| ()) {
            Ok(found) => found,
            Err(Refusal::Missing(what)) => {
                // A refusal is correct only if groups cannot be created on this machine.
                assert!(Group::create().is_err(), "refused although groups can be made: {what}");
                return;
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found.len(), 6);
        for found in &found {
            assert!(
                found.pairs == found.kind.pairs(sizes.pairs, sizes.items).1 && found.items == 1 << 19,
                "{found:?}"
            );
            if found.percent == 100 {
                assert_eq!(found.counted.bytes_read, 0, "nothing is taken from it: {found:?}");
                // The page queue allocates fresh pages, for which the kernel counts major faults although it
                // reads nothing.
                assert!(found.counted.major_faults == 0 || found.kind == Kind::PageQueue, "{found:?}");
            } else if found.kind != Kind::PageQueue {
                assert!(found.counted.major_faults > 0, "{found:?}");
                assert!(found.counted.bytes_read >= 4096 * found.counted.major_faults / 2, "{found:?}");
                assert!(found.usage_bytes <= found.limit.map(|(bytes, _)| bytes), "{found:?}");
            }
        }
        let report = verdicts::report(&found);
        assert_eq!(report.tables[0].rows.len(), 6);
        let left = std::fs::read_to_string("/proc/self/mounts").unwrap();
        for mount in
            left.lines().filter(|line| line.contains("cgroup")).filter_map(|line| line.split(' ').nth(1))
        {
            let ours = format!("nighttrain-lab-{}-", std::process::id());
            let names = std::fs::read_dir(mount).into_iter().flatten().flatten();
            assert!(
                names.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with(&ours)),
                "a group was left in {mount}"
            );
        }
    }

    #[test]
    fn a_failed_child_reports_its_error() {
        let scratch = Scratch::on_disk(None).unwrap();
        let task = Task {
            group: None,
            kind: Kind::BHeap,
            items: 1000,
            percent: 100,
            // The page size is not a power of two.
            page_bytes: 3000,
            pairs: (1, 1),
            seconds: 1.0,
            seed: 1,
            directory: scratch.path().to_owned(),
        };
        let error = child::found_by_child(&task, scratch.path(), &again()).unwrap_err().to_string();
        assert!(error.contains("exit status: 1"), "{error}");
        assert!(error.to_lowercase().contains("power of two"), "{error}");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left behind");
    }
}
