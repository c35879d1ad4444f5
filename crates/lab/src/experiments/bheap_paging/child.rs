//! A measurement in a child process ([`super::super::again`]), which is in a memory cgroup from its start.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::group::Group;
use super::queues::{Kind, filled};
use crate::experiments::again::{self, ChildCommand};
use crate::experiments::bheap_sim::keys::Random3;
use crate::experiments::counters::Counters;

/// Environment variable that makes a process a measuring child; its value is a [`Task`] as JSON.
pub const TASK: &str = "NIGHTTRAIN_LAB_PAGING_TASK";

/// Task of a child.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// Memory cgroup that the child enters, if any.
    pub group: Option<Group>,
    /// Kind of queue to measure.
    pub kind: Kind,
    /// Number of items in the queue.
    pub items: usize,
    /// Percentage of the items' bytes that may stay in memory; 100 and more set no limit.
    pub percent: u64,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Maximum numbers of pairs (one removal and one insertion) in the warm-up and in the measurement.
    pub pairs: (u64, u64),
    /// Time limit in seconds of the warm-up and of the measurement, after which each ends with fewer pairs.
    pub seconds: f64,
    /// Seed of the key generator.
    pub seed: u32,
    /// Directory in which the unnamed file for the items is created.
    pub directory: PathBuf,
}

/// Figures that a child measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PagingFigures {
    /// Kind of queue.
    pub kind: Kind,
    /// Memory limit in percent of the items' bytes.
    pub percent: u64,
    /// Number of items.
    pub items: usize,
    /// Number of measured pairs of one removal and one insertion.
    pub pairs: u64,
    /// Seconds that the pairs took.
    pub seconds: f64,
    /// Kernel counters during the measurement.
    pub counted: Counters,
    /// The longest single pair, in seconds.
    pub worst_seconds: f64,
    /// Memory limit of the group in bytes, and its usage before the queue existed; `None` without a limit.
    pub limit: Option<(u64, u64)>,
    /// Bytes charged to the group at the end.
    pub usage_bytes: Option<u64>,
}

impl PagingFigures {
    /// Returns `total`, a count over the whole measurement, divided by the number of pairs.
    #[must_use]
    pub fn a_pair(&self, total: u64) -> f64 {
        total as f64 / self.pairs as f64
    }

    /// Returns the major faults per pair.
    #[must_use]
    pub fn faults(&self) -> f64 {
        self.a_pair(self.counted.major_faults)
    }

    /// Returns the microseconds per pair.
    #[must_use]
    pub fn us(&self) -> f64 {
        self.seconds * 1e6 / self.pairs as f64
    }
}

/// If this process was started as a measuring child, performs its task and ends the process. Otherwise
/// returns at once.
pub fn do_task_and_exit() {
    again::do_task_and_exit(TASK, |task: &Task| {
        if let Some(group) = &task.group {
            group.enter()?;
        }
        measured(task)
    });
}

/// Starts a child for `task` and waits for its figures; the answer passes through `directory`.
///
/// # Errors
/// Returns the errors of [`again::ask`].
pub fn found_by_child(task: &Task, directory: &Path, again: &ChildCommand) -> io::Result<PagingFigures> {
    again::ask(TASK, task, directory, again)
}

/// Builds the queue, applies the limit, warms up, and measures.
fn measured(task: &Task) -> io::Result<PagingFigures> {
    let mut keys = Random3::new(task.seed);
    let mut key = move || keys.next().map_or(0, u64::from);
    let unfiled = task.group.as_ref().map(Group::usage_bytes).transpose()?;
    let (mut queue, out) = filled(task.kind, &task.directory, task.items, task.page_bytes, &mut key)?;
    // Clean pages can be reclaimed when the limit is set; dirty pages would make the kernel refuse it.
    out.now()?;
    let mut limit = None;
    if let (Some(group), Some(unfiled), true) = (&task.group, unfiled, task.percent < 100) {
        let bytes = unfiled + (task.items * size_of::<u64>()) as u64 * task.percent / 100;
        group.limit(bytes)?;
        limit = Some((bytes, unfiled));
    }

    let mut round = |pairs: u64| -> io::Result<(u64, f64, f64)> {
        let (start, mut done, mut worst) = (Instant::now(), 0, Duration::ZERO);
        let mut last = start;
        while done < pairs && (last - start).as_secs_f64() < task.seconds {
            queue.remove_insert(key()).ok_or_else(|| io::Error::other("the queue lost its items"))?;
            done += 1;
            let now = Instant::now();
            worst = worst.max(now - last);
            last = now;
        }
        Ok((done, start.elapsed().as_secs_f64(), worst.as_secs_f64()))
    };
    round(task.pairs.0)?;
    let before = Counters::now()?;
    let (pairs, seconds, worst_seconds) = round(task.pairs.1)?;
    let counted = Counters::now()?.since(&before);
    if queue.held() != task.items || pairs == 0 {
        return Err(io::Error::other("the queue lost an item, or there was no time for one pair"));
    }
    let usage_bytes = task.group.as_ref().map(Group::usage_bytes).transpose()?;
    Ok(PagingFigures {
        kind: task.kind,
        percent: task.percent,
        items: task.items,
        pairs,
        seconds,
        counted,
        worst_seconds,
        limit,
        usage_bytes,
    })
}
