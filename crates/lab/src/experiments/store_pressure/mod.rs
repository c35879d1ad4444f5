//! `store-pressure`: a store 19 times larger than the memory it may use, served in several modes by one loop.
//!
//! ```text
//! parent: file of objects, out of the page cache ─▶ memory cgroup ─▶ child: one loop, requests that are due at fixed times
//!   map     as in the article: one mapping, read by the loop; the kernel decides what stays in memory
//!   kernel  own memory for frequent objects, then the page cache, then helper threads that read the disk
//!   direct  own memory for everything that stays, then helper threads that bypass the page cache
//! ```
//! Each mode runs in a child process with its own page cache and cgroup, which end with it. Every answer is
//! verified in full. Latency counts from when a request was due, so that a stalled loop is late for every
//! waiting request.

mod child;
mod memory;
mod serving;
mod verdicts;

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

pub use child::ChildCommand;
use child::Task;

use super::{
    bheap_paging::group::{CgroupFault, Group},
    scratch::{Scratch, drop_from_cache},
};
use crate::{
    experiment::{Experiment, Options, Refusal, Report},
    pressure::objects,
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "store-pressure",
    claims: &["C2"],
    title: "a store of 19 times the memory",
    statement: "A 300 GB mapped store on a machine with 16 GB of memory is typical: the kernel's virtual memory decides \
                what stays, and hits stay fast",
    source: "P.-H. Kamp, You're Doing It Wrong, ACM Queue 8(6), June 2010",
    run,
};

/// Ratio of the store to the memory: 300 GB on 16 GB in the article “You're Doing It Wrong”, rounded up.
pub const STORE_TIMES_MEMORY: u64 = 19;
/// Alignment of objects in the file.
const ALIGN_BYTES: u64 = 16;
/// Memory of the process itself, beyond what it may keep of the store.
const PROCESS_BYTES: u64 = 16 << 20;

/// Method of serving objects from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServingMode {
    /// A mapping with the kernel's own readahead, read by the loop.
    Map,
    /// A mapping with `MADV_RANDOM`, read by the loop.
    MapRandom,
    /// The process's own memory, then the page cache if it has the whole object, then a helper thread.
    Kernel,
    /// The process's own memory, then a helper thread that bypasses the page cache.
    Direct,
}

impl ServingMode {
    /// All serving modes, the one that the claim's article describes first.
    pub const ALL: [Self; 4] = [Self::Map, Self::MapRandom, Self::Kernel, Self::Direct];

    /// Returns the name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::MapRandom => "map, MADV_RANDOM",
            Self::Kernel => "kernel",
            Self::Direct => "direct",
        }
    }
}

/// Sizes of the measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// Number of objects in the file: half are requested by popularity, half by scans.
    pub objects: u64,
    /// Requests per second.
    pub rate: u64,
    /// Durations of the warm-up and of the measurement, in seconds.
    pub seconds: (f64, f64),
    /// An existing file with the objects, which is kept; with `None` a file is written and later removed.
    pub file: Option<PathBuf>,
}

impl Sizes {
    /// Returns the sizes for a quick run of under half a minute, or for a full run.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        if quick {
            Self { objects: 200_000, rate: 10_000, seconds: (1.5, 1.5), file: None }
        } else {
            Self { objects: 2_000_000, rate: 10_000, seconds: (10.0, 15.0), file: None }
        }
    }
}

/// Figures of one serving mode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PressureFigures {
    /// Serving mode.
    pub way: ServingMode,
    /// Number of objects in the file.
    pub objects: u64,
    /// Bytes of the file.
    pub store_bytes: u64,
    /// Bytes of the store that the group may keep, including the process's metadata.
    pub memory_bytes: u64,
    /// Number of requests that were due.
    pub due: u64,
    /// Requests answered from the process's own memory or from the page cache.
    pub hits: u64,
    /// Requests answered after a helper thread read the object from the disk.
    pub cold: u64,
    /// Requests refused because a bound was reached.
    pub refused: u64,
    /// Answers whose bytes were wrong; there must be none.
    pub wrong: u64,
    /// Microseconds from due to answered, for hits: median, p99, p99.9, maximum.
    pub hit_us: [f64; 4],
    /// Microseconds from due to answered, for cold requests: median, p99, p99.9, maximum.
    pub cold_us: [f64; 4],
    /// Major faults of the loop's thread.
    pub major_faults: u64,
    /// Longest time between two iterations of the loop, in milliseconds.
    pub longest_ms: f64,
    /// Sum of the times between two iterations of the loop that exceed a millisecond, in milliseconds.
    pub stalled_ms: f64,
    /// Measured seconds.
    pub seconds: f64,
    /// Bytes charged to the group at the end; `None` without a group.
    pub usage_bytes: Option<u64>,
}

fn run(options: &Options) -> Result<Report, Refusal> {
    child::do_task_and_exit();
    let again = ChildCommand { arguments: vec![EXPERIMENT.name.into()] };
    let mut sizes = Sizes::of(options.quick);
    if let Some(items) = options.items {
        sizes.objects = items as u64;
    }
    let found = measured(&sizes, options.directory.as_deref(), &again, &|what| options.say(what))?;
    Ok(verdicts::report(&found))
}

/// Takes all measurements, one child process per serving mode; the file is created below `directory` if it is
/// given.
///
/// # Errors
/// [`Refusal::Missing`] without a usable memory cgroup or a directory on a disk, [`Refusal::Usage`] for a
/// store with too few objects.
pub fn measured(
    sizes: &Sizes,
    directory: Option<&Path>,
    again: &ChildCommand,
    say: &dyn Fn(&str),
) -> Result<Vec<PressureFigures>, Refusal> {
    let failed = |error: io::Error| Refusal::Failed(error.to_string());
    let group = || Group::create().map_err(|error: CgroupFault| Refusal::Missing(error.to_string()));
    // The check for cgroups comes before the file is written, which takes a while.
    drop(group()?);
    if sizes.objects < 20_000 {
        return Err(Refusal::Usage("a store under pressure needs at least 20000 objects (--items)".into()));
    }
    let scratch = Scratch::on_disk(directory).map_err(|error| Refusal::Missing(error.to_string()))?;
    let path = match &sizes.file {
        Some(path) => path.clone(),
        None => {
            say(&format!("writing {} objects", sizes.objects));
            let path = scratch.path().join("store");
            write_objects(&path, sizes.objects).map_err(failed)?;
            path
        }
    };
    let store_bytes = std::fs::metadata(&path).map_err(failed)?.len();
    ServingMode::ALL
        .into_iter()
        .map(|way| {
            say(way.name());
            drop_from_cache(&File::open(&path).map_err(failed)?).map_err(failed)?;
            let task = Task {
                group: Some(group()?),
                way,
                objects: sizes.objects,
                store: path.clone(),
                memory_bytes: store_bytes / STORE_TIMES_MEMORY,
                rate: sizes.rate,
                seconds: sizes.seconds,
                answer: scratch.path().join("answer"),
            };
            child::found_by_child(&task, again).map_err(failed)
        })
        .collect()
}

/// Returns the start of each object in the file, in units of [`ALIGN_BYTES`], and finally the end of the
/// last.
fn places(objects: u64) -> Vec<u32> {
    let mut at = 0;
    let mut places = Vec::with_capacity(objects as usize + 1);
    for id in 0..objects {
        places.push(at);
        // The offsets reach 2^36 bytes, far beyond any size used here.
        at += u64::from(objects::bytes(id)).div_ceil(ALIGN_BYTES) as u32;
    }
    places.push(at);
    places
}

/// Writes all objects, one after the other, and pads the file to whole pages.
fn write_objects(path: &Path, objects: u64) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 20, File::create_new(path)?);
    let mut body = Vec::new();
    let mut at = 0_usize;
    for id in 0..objects {
        let bytes = objects::bytes(id) as usize;
        body.clear();
        body.resize(bytes.next_multiple_of(ALIGN_BYTES as usize), 0);
        objects::fill(id, &mut body[..bytes]);
        out.write_all(&body)?;
        at += body.len();
    }
    out.write_all(&vec![0; at.next_multiple_of(4096) - at])?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    drop_from_cache(&file)
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
    fn every_way_answers_rightly_and_ours_never_fault() {
        let name = "experiments::store_pressure::tests::as_a_child_it_does_its_task";
        let again = ChildCommand { arguments: vec![name.into(), "--exact".into(), "--nocapture".into()] };
        let sizes = Sizes { objects: 20_000, rate: 2_000, seconds: (0.3, 0.5), file: None };
        let found = match measured(&sizes, None, &again, &|_| ()) {
            Ok(found) => found,
            Err(Refusal::Missing(what)) => {
                // A refusal is correct only if groups cannot be created on this machine.
                assert!(Group::create().is_err(), "refused although groups can be made: {what}");
                return;
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found.iter().map(|found| found.way).collect::<Vec<_>>(), ServingMode::ALL);
        for found in &found {
            assert_eq!(found.wrong, 0, "{found:?}");
            assert!(
                found.hits + found.cold > 0 && found.hits + found.cold + found.refused <= found.due,
                "{found:?}"
            );
            assert!(found.store_bytes >= STORE_TIMES_MEMORY * found.memory_bytes, "{found:?}");
            match found.way {
                ServingMode::Map | ServingMode::MapRandom => assert_eq!(found.cold, 0, "{found:?}"),
                // A major fault would be a disk read by the loop itself.
                ServingMode::Direct => assert!(found.cold > 0 && found.major_faults == 0, "{found:?}"),
                ServingMode::Kernel => assert!(found.cold > 0, "{found:?}"),
            }
        }
        let report = verdicts::report(&found);
        assert_eq!((report.tables[0].rows.len(), report.verdicts.len()), (4, 2));
    }

    #[test]
    fn too_small_a_store_is_refused() {
        let again = ChildCommand { arguments: Vec::new() };
        let sizes = Sizes { objects: 100, ..Sizes::of(true) };
        assert!(matches!(
            measured(&sizes, None, &again, &|_| ()),
            Err(Refusal::Usage(_) | Refusal::Missing(_))
        ));
    }
}
