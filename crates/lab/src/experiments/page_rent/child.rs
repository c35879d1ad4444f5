//! Measurement of one queue: expiries and deliveries run in one memory cgroup, in a separate process.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::sys::mapping::{MappedWords, Pattern, Residency};
use serde::{Deserialize, Serialize};

use crate::experiments::again;
use crate::experiments::bheap_paging::group::Group;
use crate::experiments::bheap_paging::queues::{Kind, PagedQueue, filled};
use crate::experiments::bheap_sim::article::PAGE_BYTES;
use crate::experiments::bheap_sim::keys::Random3;
use crate::experiments::counters::Counters;
use crate::experiments::memory_ladder::random::Random;
use crate::experiments::scratch::drop_from_cache;

/// Environment variable that makes a process a measuring child; its value is a [`Task`] as JSON.
pub(super) const TASK: &str = "NIGHTTRAIN_LAB_RENT_TASK";

/// Bytes of an object: four pages.
pub(super) const OBJECT_BYTES: usize = 16 << 10;

/// Skew of the objects' popularity: the object of rank `n` is requested with a frequency proportional to 1 /
/// n^SKEW.
const SKEW: f64 = 0.9;

/// Number of parts into which a period is divided; the 99th percentile is computed for each part.
const SLICES: usize = 8;

/// Interval at which the queue's resident pages are counted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Task of a child.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// Memory cgroup that the child enters.
    pub group: Group,
    /// Kind of queue.
    pub kind: Kind,
    /// Number of keys in the queue.
    pub items: usize,
    /// File of the objects.
    pub objects: PathBuf,
    /// Bytes that the group may hold beyond its usage before the queue exists.
    pub limit_bytes: u64,
    /// Deliveries per second.
    pub deliveries_per_s: f64,
    /// Expiries per second in each period.
    pub expiries_per_s: Vec<f64>,
    /// Seconds at the start of a period that are not counted, and seconds that are.
    pub seconds: (f64, f64),
    /// Directory in which the unnamed file for the queue is created.
    pub directory: PathBuf,
}

/// Figures that a child measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RentFigures {
    /// Kind of queue.
    pub kind: Kind,
    /// Pages of memory that objects and queue share.
    pub limit_pages: u64,
    /// Periods, one for each rate of expiries.
    pub periods: Vec<Period>,
}

/// Figures of the counted part of a period.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Period {
    /// Scheduled expiries per second.
    pub expiries_per_s: f64,
    /// Number of expiries that were due, each a removal and an insertion.
    pub expiries: u64,
    /// Major faults of the expiring thread.
    pub expiry_faults: u64,
    /// Mean number of the queue's pages in the page cache, over many samples.
    pub held_pages: f64,
    /// Number of deliveries that were due.
    pub deliveries: u64,
    /// Major faults of the delivering thread.
    pub delivery_faults: u64,
    /// Median time in microseconds from when a delivery was due until it ended.
    pub p50_us: f64,
    /// 99th percentile of the delivery times in microseconds: the median over eight equal parts of the
    /// period, so that a single second in which the disk serves another process does not decide it.
    pub p99_us: f64,
    /// 99th percentiles of the eight parts in microseconds, ascending.
    pub p99_parts_us: Vec<f64>,
    /// Longest delivery time, in microseconds.
    pub worst_us: f64,
}

impl Period {
    /// Returns the major faults per delivery.
    #[must_use]
    pub fn faults_a_delivery(&self) -> f64 {
        self.delivery_faults as f64 / self.deliveries.max(1) as f64
    }

    /// Returns the 95% interval of the faults per delivery: a count varies by twice its square root.
    #[must_use]
    pub fn faults_interval(&self) -> (f64, f64) {
        let (faults, deliveries) = (self.delivery_faults as f64, self.deliveries.max(1) as f64);
        let spread = 2.0 * faults.max(1.0).sqrt();
        ((faults - spread).max(0.0) / deliveries, (faults + spread) / deliveries)
    }

    /// Returns the 93% interval of the 99th percentile, in microseconds: from the second-lowest to the
    /// second-highest of the eight parts. (The median is outside of it if at least seven of eight are on one
    /// side.)
    #[must_use]
    pub fn p99_interval(&self) -> (f64, f64) {
        match &self.p99_parts_us[..] {
            [_, low, .., high, _] => (*low, *high),
            _ => (self.p99_us, self.p99_us),
        }
    }
}

/// If this process was started as a measuring child, performs its task and ends the process. Otherwise
/// returns at once.
pub(super) fn do_task_and_exit() {
    again::do_task_and_exit(TASK, |task: &Task| {
        task.group.enter()?;
        measured(task)
    });
}

fn measured(task: &Task) -> io::Result<RentFigures> {
    let mut keys = Random3::new(1);
    let mut key = move || keys.next().map_or(0, u64::from);
    let before = task.group.usage_bytes()?;
    let (mut queue, out) = filled(task.kind, &task.directory, task.items, PAGE_BYTES, &mut key)?;
    // Clean pages can be reclaimed when the limit is set; dirty pages would make the kernel refuse it.
    out.now()?;
    let residency = out.residency()?;
    let objects = Objects::open(task)?;
    task.group.limit(before + task.limit_bytes)?;
    let mut periods = Vec::new();
    for (n, &per_s) in task.expiries_per_s.iter().enumerate() {
        let schedule = Schedule::from_now(task.seconds);
        periods.push(std::thread::scope(|scope| {
            let deliveries = scope.spawn(|| objects.deliver(&schedule, task.deliveries_per_s, n as u64));
            let expiries = expire(queue.as_mut(), &schedule, per_s, &residency, &mut key)?;
            let delivered = deliveries.join().map_err(|_| io::Error::other("the deliveries panicked"))??;
            Ok::<Period, io::Error>(delivered.beside(per_s, &expiries))
        })?);
    }
    if queue.held() != task.items {
        return Err(io::Error::other("the queue lost an item"));
    }
    Ok(RentFigures { kind: task.kind, limit_pages: task.limit_bytes / PAGE_BYTES as u64, periods })
}

/// Schedule of a period: its start, and the times after it at which counting begins and ends.
struct Schedule {
    start: Instant,
    counts: Duration,
    ends: Duration,
}

impl Schedule {
    fn from_now((before, counted): (f64, f64)) -> Self {
        let counts = Duration::from_secs_f64(before);
        Self { start: Instant::now(), counts, ends: counts + Duration::from_secs_f64(counted) }
    }

    /// Returns the times at which an event with this rate is due, in the counted part and before it.
    fn due(&self, per_s: f64) -> impl Iterator<Item = Duration> + '_ {
        // The times are aligned to the start of the counted part, so that even the rarest event happens once
        // in it.
        let step = 1.0 / per_s.max(1e-9);
        let before = (self.counts.as_secs_f64() / step).floor() as u32;
        let counts = self.counts.as_secs_f64();
        (0..)
            .map(move |n| Duration::from_secs_f64(counts + (f64::from(n) - f64::from(before)) * step))
            .take_while(|due| *due < self.ends)
    }

    /// Waits until `due`, or not at all if it has passed.
    fn wait(&self, due: Duration) {
        std::thread::sleep(due.saturating_sub(self.start.elapsed()));
    }
}

struct Expiries {
    done: u64,
    faults: u64,
    held_pages: f64,
}

/// Performs the expiries on schedule, and samples in between how many of the queue's pages are in memory.
fn expire(
    queue: &mut dyn PagedQueue,
    schedule: &Schedule,
    per_s: f64,
    residency: &Residency,
    key: &mut dyn FnMut() -> u64,
) -> io::Result<Expiries> {
    let mut due = (per_s > 0.0).then(|| schedule.due(per_s)).into_iter().flatten().peekable();
    let mut look = schedule.counts;
    let (mut done, mut looks, mut held) = (0, 0_u32, 0.0);
    let mut before = None;
    loop {
        let next = due.peek().copied().unwrap_or(Duration::MAX).min(look);
        if next >= schedule.ends {
            break;
        }
        schedule.wait(next);
        if before.is_none() && next >= schedule.counts {
            before = Some(Counters::now()?);
        }
        if due.next_if_eq(&next).is_some() {
            queue.remove_insert(key()).ok_or_else(|| io::Error::other("the queue lost its items"))?;
            done += u64::from(next >= schedule.counts);
        } else {
            held += residency.pages()? as f64;
            looks += 1;
            look += LOOK_EVERY;
        }
    }
    let faults =
        before.map_or(Ok(0), |before| Ok::<u64, io::Error>(Counters::now()?.since(&before).major_faults))?;
    Ok(Expiries { done, faults, held_pages: held / f64::from(looks.max(1)) })
}

/// The objects, and the popularity of each.
struct Objects {
    words: MappedWords,
    /// Cumulative share of requests by rank; the last is 1.
    popular: Vec<f64>,
    /// Object of each rank.
    ranks: Vec<usize>,
}

struct DeliveryFigures {
    /// Latencies in the order in which the deliveries were due.
    latencies_us: Vec<f64>,
    faults: u64,
}

const OBJECT_WORDS: usize = OBJECT_BYTES / 8;

impl Objects {
    fn open(task: &Task) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(&task.objects)?;
        // The file is dropped from the page cache, because pages that earlier children read are not charged
        // to this group.
        drop_from_cache(&file)?;
        let words = MappedWords::map(&file, usize::try_from(file.metadata()?.len() / 8).unwrap_or(0))?;
        words.expect(Pattern::Random)?;
        let count = words.len() / OBJECT_WORDS;
        let mut ranks: Vec<usize> = (0..count).collect();
        Random::new(7).shuffle(&mut ranks);
        let mut sum = 0.0;
        let mut popular: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += (rank as f64).powf(-SKEW);
                sum
            })
            .collect();
        popular.iter_mut().for_each(|share| *share /= sum);
        Ok(Self { words, popular, ranks })
    }

    /// Reads objects on schedule, even if earlier reads were late.
    fn deliver(&self, schedule: &Schedule, per_s: f64, seed: u64) -> io::Result<DeliveryFigures> {
        let mut random = Random::new(seed);
        let mut delivered = DeliveryFigures { latencies_us: Vec::new(), faults: 0 };
        let mut before = None;
        for due in schedule.due(per_s) {
            schedule.wait(due);
            if before.is_none() && due >= schedule.counts {
                before = Some(Counters::now()?);
            }
            let share = random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
            let rank = self.popular.partition_point(|&upto| upto <= share).min(self.ranks.len() - 1);
            let at = self.ranks[rank] * OBJECT_WORDS;
            let sum = self.words[at..at + OBJECT_WORDS]
                .iter()
                .fold(0, |sum: u64, word| sum.wrapping_add(word.load(Relaxed)));
            std::hint::black_box(sum);
            if due >= schedule.counts {
                let late = schedule.start.elapsed().saturating_sub(due);
                delivered.latencies_us.push(late.as_secs_f64() * 1e6);
            }
        }
        if let Some(before) = before {
            delivered.faults = Counters::now()?.since(&before).major_faults;
        }
        Ok(delivered)
    }
}

impl DeliveryFigures {
    fn beside(&self, expiries_per_s: f64, expiries: &Expiries) -> Period {
        let slice = self.latencies_us.len().div_ceil(SLICES).max(1);
        let mut p99s: Vec<f64> = self.latencies_us.chunks(slice).map(|part| quantile(part, 0.99)).collect();
        p99s.sort_by(f64::total_cmp);
        Period {
            expiries_per_s,
            expiries: expiries.done,
            expiry_faults: expiries.faults,
            held_pages: expiries.held_pages,
            deliveries: self.latencies_us.len() as u64,
            delivery_faults: self.faults,
            p50_us: quantile(&self.latencies_us, 0.5),
            p99_us: quantile(&p99s, 0.5),
            p99_parts_us: p99s,
            worst_us: quantile(&self.latencies_us, 1.0),
        }
    }
}

/// Returns the value that this share of `values` does not exceed; 0 if there are none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_events_are_due_when_counting_begins() {
        let schedule = Schedule::from_now((2.0, 3.0));
        let due = |per_s| schedule.due(per_s).map(|due| due.as_secs_f64()).collect::<Vec<f64>>();
        assert_eq!(due(1.0 / 60.0), [2.0]);
        assert_eq!(due(1.0), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(due(100.0).iter().filter(|&&at| at >= 2.0 - 1e-9).count(), 300);
    }

    #[test]
    fn percentiles_are_of_what_was_delivered() {
        let delivered = DeliveryFigures { latencies_us: (1..=200).map(f64::from).collect(), faults: 50 };
        let period = delivered.beside(1.0, &Expiries { done: 3, faults: 2, held_pages: 1.5 });
        // The eight parts have 25 values each, whose 99th percentile is their maximum; the fourth of these is
        // the median.
        assert_eq!((period.p50_us, period.p99_us, period.worst_us), (100.0, 100.0, 200.0));
        assert!((period.faults_a_delivery() - 0.25).abs() < 1e-12);
        assert_eq!(period.p99_interval(), (50.0, 175.0));
    }
}
