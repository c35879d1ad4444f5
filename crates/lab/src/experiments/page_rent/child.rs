//! One queue's measurement: expiries and deliveries in one memory cgroup, in a process of their own.

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

/// The environment variable that makes a process such a child.
pub(super) const TASK: &str = "NIGHTTRAIN_LAB_RENT_TASK";

/// Bytes of an object: four pages.
pub(super) const OBJECT_BYTES: usize = 16 << 10;

/// How unequal the objects are: the object of rank `n` is asked for as often as `n` to minus this.
const SKEW: f64 = 0.9;

/// Parts of a period whose 99th percentiles are taken.
const SLICES: usize = 8;

/// How often the queue's pages are counted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a child has to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The group that it enters.
    pub group: Group,
    /// Which queue.
    pub kind: Kind,
    /// How many keys it holds.
    pub items: usize,
    /// The file of the objects.
    pub objects: PathBuf,
    /// What the group may keep besides what it is charged before there is a queue.
    pub limit_bytes: u64,
    /// Deliveries a second.
    pub deliveries_per_s: f64,
    /// Expiries a second, period by period.
    pub expiries_per_s: Vec<f64>,
    /// Seconds of a period before it counts, and while it does.
    pub seconds: (f64, f64),
    /// Where the queue's file goes, which has no name.
    pub directory: PathBuf,
}

/// What a child found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RentFigures {
    /// Which queue.
    pub kind: Kind,
    /// Pages of memory that objects and queue shared.
    pub limit_pages: u64,
    /// One for each frequency of expiries.
    pub periods: Vec<Period>,
}

/// The counted part of a period.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Period {
    /// Expiries a second that were wanted.
    pub expiries_per_s: f64,
    /// Expiries that were due, each one removal and one insertion.
    pub expiries: u64,
    /// Major faults of the thread that expires.
    pub expiry_faults: u64,
    /// Pages of the queue in the page cache: the mean of many looks.
    pub held_pages: f64,
    /// Deliveries that were due.
    pub deliveries: u64,
    /// Major faults of the thread that delivers.
    pub delivery_faults: u64,
    /// Microseconds from when a delivery was due to its end: the median.
    pub p50_us: f64,
    /// The same, of 99 in a hundred: the median of eight equal parts of the period, because one second in which
    /// the disk serves somebody else would decide it alone.
    pub p99_us: f64,
    /// The 99th percentiles of the eight parts in microseconds, ascending.
    pub p99_parts_us: Vec<f64>,
    /// The longest.
    pub worst_us: f64,
}

impl Period {
    /// Major faults a delivery.
    #[must_use]
    pub fn faults_a_delivery(&self) -> f64 {
        self.delivery_faults as f64 / self.deliveries.max(1) as f64
    }

    /// The 95% interval of the faults a delivery: a count varies by twice its square root.
    #[must_use]
    pub fn faults_interval(&self) -> (f64, f64) {
        let (faults, deliveries) = (self.delivery_faults as f64, self.deliveries.max(1) as f64);
        let spread = 2.0 * faults.max(1.0).sqrt();
        ((faults - spread).max(0.0) / deliveries, (faults + spread) / deliveries)
    }

    /// The 93% interval of the 99th percentile, in microseconds: from the second to the last but one of the eight
    /// parts. (The median is outside of them if seven of eight fall on one side.)
    #[must_use]
    pub fn p99_interval(&self) -> (f64, f64) {
        match &self.p99_parts_us[..] {
            [_, low, .., high, _] => (*low, *high),
            _ => (self.p99_us, self.p99_us),
        }
    }
}

/// If this process is such a child: does its task and ends the process. Returns at once if it is not.
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
    // Clean pages can be taken back when the limit comes; dirty ones would make the kernel refuse it.
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

/// When a period begins to count, and when it ends.
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

    /// Moments within the counted part at which what happens so often a second is due, and those before it.
    fn due(&self, per_s: f64) -> impl Iterator<Item = Duration> + '_ {
        // From the start of the counted part, so that the rarest happens once in it.
        let step = 1.0 / per_s.max(1e-9);
        let before = (self.counts.as_secs_f64() / step).floor() as u32;
        let counts = self.counts.as_secs_f64();
        (0..)
            .map(move |n| Duration::from_secs_f64(counts + (f64::from(n) - f64::from(before)) * step))
            .take_while(|due| *due < self.ends)
    }

    /// Waits until `due`, or not at all if that has passed.
    fn wait(&self, due: Duration) {
        std::thread::sleep(due.saturating_sub(self.start.elapsed()));
    }
}

struct Expiries {
    done: u64,
    faults: u64,
    held_pages: f64,
}

/// Expires on schedule, and looks in between how much of the queue is in memory.
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

/// The objects, and how often each is asked for.
struct Objects {
    words: MappedWords,
    /// For each rank, how often it or a more popular one is asked for; the last is 1.
    popular: Vec<f64>,
    /// Which object has which rank.
    ranks: Vec<usize>,
}

struct DeliveryFigures {
    /// In the order in which they were due.
    latencies_us: Vec<f64>,
    faults: u64,
}

const OBJECT_WORDS: usize = OBJECT_BYTES / 8;

impl Objects {
    fn open(task: &Task) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(&task.objects)?;
        // What the children before have read of it is charged to nobody here.
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

    /// Reads objects on schedule, whether or not those before were late.
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

/// The value that this share of `values` does not exceed; 0 if there are none.
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
    fn what_is_rare_is_due_once_when_counting_begins() {
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
        // Eight parts of 25, whose 99th percentile is their greatest; the fourth of these is the median.
        assert_eq!((period.p50_us, period.p99_us, period.worst_us), (100.0, 100.0, 200.0));
        assert!((period.faults_a_delivery() - 0.25).abs() < 1e-12);
        assert_eq!(period.p99_interval(), (50.0, 175.0));
    }
}
