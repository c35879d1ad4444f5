//! The serving loop: answers due requests from wherever the object is.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use engine::{
    io::{CachedFile, Completions, DirectFile, Extent, ReadPool, ReadPoolConfig, Reads, Source},
    meter::Histogram,
    sys::{
        file_words::{PAGE_BYTES, ReadMapping},
        mapping::Pattern,
    },
};

use super::{ALIGN_BYTES, PROCESS_BYTES, PressureFigures, ServingMode, child::Task, memory::Memory, places};
use crate::{
    experiments::counters::Counters,
    pressure::{objects, requests::Requests},
};

/// Maximum number of requests that one iteration of the loop serves before it handles the helpers' answers.
const TURN_REQUESTS_MAX: usize = 64;
/// Minimum time between two iterations that counts as a stall.
const STALL_MIN: Duration = Duration::from_millis(1);
/// Percentage of the memory limit that the process uses as its own memory for objects: all but what buffers
/// need, or half if the page cache uses the rest.
const OWN_PERCENT_DIRECT: u64 = 90;
const OWN_PERCENT_KERNEL: u64 = 50;

/// Source of the bodies.
enum BodySource {
    Map(ReadMapping),
    Tiers(Box<Tiers>),
}

struct Tiers {
    memory: RefCell<Memory>,
    /// File whose page cache is tried before a helper reads.
    cached: Option<Arc<CachedFile>>,
    reads: Reads,
}

struct ObjectServer {
    place: BodySource,
    /// Start of each object in the file, in units of [`ALIGN_BYTES`].
    places: Vec<u32>,
    seen: RefCell<ServingFigures>,
    /// True once the warm-up is over.
    is_warm: Cell<bool>,
}

/// Measurements, which are reset after the warm-up.
#[derive(Default)]
struct ServingFigures {
    hit_ns: Histogram,
    cold_ns: Histogram,
    refused: Cell<u64>,
    wrong: Cell<u64>,
}

/// Figures of a span of serving.
#[derive(Default)]
struct Round {
    due: u64,
    seconds: f64,
    longest: Duration,
    stalled: Duration,
}

/// Serves requests for the task's duration, and returns the figures.
pub(super) fn measured(task: &Task) -> io::Result<PressureFigures> {
    let places = places(task.objects);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The pool outlives the loop, because dropping it ends the helpers.
    let (place, pool) = open(task, places.len() as u64 * size_of::<u32>() as u64)?;
    let (_pool, completions) = pool.unzip();
    if let Some(group) = &task.group {
        // The process's own memory does not count as the store's; it is equal in all serving modes.
        group.limit(task.memory_bytes + PROCESS_BYTES)?;
    }
    let serving =
        Rc::new(ObjectServer { place, places, seen: RefCell::default(), is_warm: Cell::new(false) });
    tokio::task::LocalSet::new().block_on(&runtime, async {
        if let Some(completions) = completions {
            tokio::task::spawn_local(settle(Rc::clone(&serving), completions));
        }
        let mut requests = Requests::new(task.objects / 2, 1);
        serve(&serving, &mut requests, task.rate, task.seconds.0).await;
        serving.seen.take();
        serving.is_warm.set(true);
        let before = Counters::now()?;
        let round = serve(&serving, &mut requests, task.rate, task.seconds.1).await;
        let major_faults = Counters::now()?.since(&before).major_faults;
        found(task, &serving.seen.borrow(), &round, major_faults)
    })
}

type Pool = (ReadPool, Completions);

fn open(task: &Task, metadata_bytes: u64) -> io::Result<(BodySource, Option<Pool>)> {
    let bytes = std::fs::metadata(&task.store)?.len();
    let mapped = |pattern| -> io::Result<(BodySource, Option<Pool>)> {
        let mapping = ReadMapping::map(&File::options().read(true).write(true).open(&task.store)?, bytes)?;
        mapping.expect(pattern)?;
        Ok((BodySource::Map(mapping), None))
    };
    let (cached, source): (_, Arc<dyn Source>) = match task.way {
        ServingMode::Map => return mapped(Pattern::Normal),
        ServingMode::MapRandom => return mapped(Pattern::Random),
        ServingMode::Kernel => {
            let cached = Arc::new(CachedFile::open(&task.store)?);
            (Some(Arc::clone(&cached)), cached)
        }
        ServingMode::Direct => (None, Arc::new(DirectFile::open(&task.store)?)),
    };
    let percent = if cached.is_some() { OWN_PERCENT_KERNEL } else { OWN_PERCENT_DIRECT };
    // Buffers are small, because bodies are copied or sent at once here.
    let config = ReadPoolConfig { buffer_bytes: 4 << 20, ..ReadPoolConfig::default() };
    let (pool, mut ends) = ReadPool::start(&config, vec![source]).map_err(io::Error::other)?;
    let (reads, completions) = ends.pop().ok_or_else(|| io::Error::other("a pool for no core"))?;
    let own = task.memory_bytes.saturating_sub(metadata_bytes) * percent / 100;
    // A number of bytes in memory always fits into `usize`.
    let memory = RefCell::new(Memory::new(own as usize));
    Ok((BodySource::Tiers(Box::new(Tiers { memory, cached, reads })), Some((pool, completions))))
}

async fn settle(serving: Rc<ObjectServer>, mut completions: Completions) {
    let mut messages = Vec::new();
    loop {
        completions.next(&mut messages).await;
        if let BodySource::Tiers(tiers) = &serving.place {
            tiers.reads.settle(&mut messages);
        }
    }
}

/// Serves the requests that are due at `rate` per second. No request waits for an earlier answer.
async fn serve(serving: &Rc<ObjectServer>, requests: &mut Requests, rate: u64, seconds: f64) -> Round {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let every = Duration::from_secs_f64(1.0 / rate as f64);
    let mut round = Round { due: (seconds * rate as f64) as u64, ..Round::default() };
    let (mut due, mut last) = (start, start);
    let mut scratch = Vec::with_capacity(objects::LARGE_BYTES as usize);
    loop {
        for _ in 0..TURN_REQUESTS_MAX {
            let now = Instant::now();
            let gap = now - last;
            last = now;
            round.longest = round.longest.max(gap);
            if gap > STALL_MIN {
                round.stalled += gap;
            }
            if now >= end {
                round.seconds = (now - start).as_secs_f64();
                return round;
            }
            if due > now {
                break;
            }
            if let Some(id) = requests.next() {
                answer(serving, id, due, &mut scratch);
            }
            due += every;
        }
        tokio::task::yield_now().await;
    }
}

/// Answers from memory at once, or passes the request to a helper.
fn answer(serving: &Rc<ObjectServer>, id: u64, due: Instant, scratch: &mut Vec<u8>) {
    // The offset is an object's number of 16-byte units, far below 2^64.
    let at = u64::from(serving.places[id as usize]) * ALIGN_BYTES;
    let bytes = objects::bytes(id);
    let range = at as usize..at as usize + bytes as usize;
    scratch.clear();
    match &serving.place {
        BodySource::Map(mapping) => {
            mapping.span(range).copy_to(scratch);
            serving.seen.borrow().hit(id, scratch, due);
        }
        BodySource::Tiers(tiers) => {
            let Tiers { memory, cached, reads } = &**tiers;
            if let Some(body) = memory.borrow().body(id) {
                scratch.extend_from_slice(body);
                return serving.seen.borrow().hit(id, scratch, due);
            }
            if let Some(cached) = cached
                && cached.mapping().check_resident(range.clone()).unwrap_or(false)
            {
                cached.mapping().span(range).copy_to(scratch);
                serving.seen.borrow().hit(id, scratch, due);
                return memory.borrow_mut().offer(id, scratch);
            }
            let Ok(pending) = reads.read(Extent { source: 0, at, bytes }) else {
                let seen = serving.seen.borrow();
                return seen.refused.set(seen.refused.get() + 1);
            };
            let serving = Rc::clone(serving);
            let was_warm = serving.is_warm.get();
            tokio::task::spawn_local(async move {
                let block = pending.settled().await;
                let mut body = Vec::new();
                if let Ok(block) = &block {
                    block.span().copy_to(&mut body);
                }
                // Dropping the block returns its buffer to the pool.
                drop(block);
                let seen = serving.seen.borrow();
                seen.verify(id, &body);
                // Requests from before the measured time are not counted.
                if was_warm == serving.is_warm.get() {
                    seen.cold_ns.record(nanoseconds(due.elapsed()));
                }
                if let BodySource::Tiers(tiers) = &serving.place {
                    tiers.memory.borrow_mut().offer(id, &body);
                }
            });
        }
    }
}

impl ServingFigures {
    fn hit(&self, id: u64, body: &[u8], due: Instant) {
        self.verify(id, body);
        self.hit_ns.record(nanoseconds(due.elapsed()));
    }

    fn verify(&self, id: u64, body: &[u8]) {
        if !objects::is_body(id, body) {
            self.wrong.set(self.wrong.get() + 1);
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn found(
    task: &Task,
    seen: &ServingFigures,
    round: &Round,
    major_faults: u64,
) -> io::Result<PressureFigures> {
    let us =
        |histogram: &Histogram| histogram.read().quantiles([0.5, 0.99, 0.999, 1.0]).map(|ns| ns as f64 / 1e3);
    Ok(PressureFigures {
        way: task.way,
        objects: task.objects,
        store_bytes: std::fs::metadata(&task.store)?.len() / PAGE_BYTES as u64 * PAGE_BYTES as u64,
        memory_bytes: task.memory_bytes,
        due: round.due,
        hits: seen.hit_ns.read().count(),
        cold: seen.cold_ns.read().count(),
        refused: seen.refused.get(),
        wrong: seen.wrong.get(),
        hit_us: us(&seen.hit_ns),
        cold_us: us(&seen.cold_ns),
        major_faults,
        longest_ms: round.longest.as_secs_f64() * 1e3,
        stalled_ms: round.stalled.as_secs_f64() * 1e3,
        seconds: round.seconds,
        usage_bytes: task
            .group
            .as_ref()
            .map(super::super::bheap_paging::group::Group::usage_bytes)
            .transpose()?,
    })
}
