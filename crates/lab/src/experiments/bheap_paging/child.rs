//! One measurement in a process of its own ([`super::super::again`]), which lives in a memory cgroup from its first
//! moment.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::group::Group;
use super::queues::{Kind, filled};
use crate::experiments::again::{self, ChildCommand};
use crate::experiments::bheap_sim::keys::Random3;
use crate::experiments::counters::Counters;

/// The environment variable that makes a process such a child: a [`Task`] as JSON.
pub const TASK: &str = "NIGHTTRAIN_LAB_PAGING_TASK";

/// What a child has to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The group that it enters, or none.
    pub group: Option<Group>,
    /// Which queue.
    pub kind: Kind,
    /// How many items it holds.
    pub items: usize,
    /// The share of the items' bytes that may stay in memory, in percent; 100 and more set no limit.
    pub percent: u64,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Pairs before the measurement, and in it, at most.
    pub pairs: (u64, u64),
    /// Each of both ends after this many seconds even if fewer pairs were done.
    pub seconds: f64,
    /// Seed of the keys.
    pub seed: u32,
    /// Where the child puts the file of the items, which has no name.
    pub directory: PathBuf,
}

/// What a child found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PagingFigures {
    /// Which queue.
    pub kind: Kind,
    /// The limit in percent of the items' bytes.
    pub percent: u64,
    /// How many items.
    pub items: usize,
    /// Pairs of one removal and one insertion that were measured.
    pub pairs: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// What the kernel counted meanwhile.
    pub counted: Counters,
    /// The longest single pair, in seconds.
    pub worst_seconds: f64,
    /// Bytes that the group may keep, and that it kept before the queue was there; none without a limit.
    pub limit: Option<(u64, u64)>,
    /// Bytes charged to the group at the end.
    pub usage_bytes: Option<u64>,
}

impl PagingFigures {
    /// Of a count of the whole measurement, the part of a pair.
    #[must_use]
    pub fn a_pair(&self, total: u64) -> f64 {
        total as f64 / self.pairs as f64
    }

    /// Major faults a pair.
    #[must_use]
    pub fn faults(&self) -> f64 {
        self.a_pair(self.counted.major_faults)
    }

    /// Microseconds a pair.
    #[must_use]
    pub fn us(&self) -> f64 {
        self.seconds * 1e6 / self.pairs as f64
    }
}

/// If this process is such a child: does its task and ends the process. Returns at once if it is not.
pub fn do_task_and_exit() {
    again::do_task_and_exit(TASK, |task: &Task| {
        if let Some(group) = &task.group {
            group.enter()?;
        }
        measured(task)
    });
}

/// Starts a child for `task` and waits for what it finds; the answer passes through `directory`.
///
/// # Errors
/// As [`again::ask`].
pub fn found_by_child(task: &Task, directory: &Path, again: &ChildCommand) -> io::Result<PagingFigures> {
    again::ask(TASK, task, directory, again)
}

/// Builds the queue, applies the limit, warms up, measures.
fn measured(task: &Task) -> io::Result<PagingFigures> {
    let mut keys = Random3::new(task.seed);
    let mut key = move || keys.next().map_or(0, u64::from);
    let unfiled = task.group.as_ref().map(Group::usage_bytes).transpose()?;
    let (mut queue, out) = filled(task.kind, &task.directory, task.items, task.page_bytes, &mut key)?;
    // Clean pages can be taken back when the limit comes; dirty ones would make the kernel refuse it.
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
