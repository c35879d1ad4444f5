//! Races: an algorithm with a worse order of growth that causes no page faults, against a better one that
//! does.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use engine::sys::mapping::{MappedWords, Pattern};
use serde::Serialize;

use super::random::Random;
use crate::experiments::counters::Counters;
use crate::experiments::scratch::drop_from_cache;

/// Figures of a race at one size.
#[derive(Debug, Clone, Serialize)]
pub struct RaceSize {
    /// Number of items.
    pub items: usize,
    /// Median nanoseconds of a binary search in a sorted file that is not in memory.
    pub cold_search_ns: f64,
    /// Median nanoseconds of a binary search with the file in memory and mapped.
    pub warm_search_ns: f64,
    /// Major faults per cold search.
    pub faults_a_search: f64,
    /// Median nanoseconds of a linear search in an array in memory.
    pub scan_ns: f64,
    /// Median nanoseconds to sort a copy of the array by insertion, worst order first, and then search it:
    /// O(n²). `None` if it was not tried because a smaller size had already lost by far.
    pub quadratic_ns: Option<f64>,
}

impl RaceSize {
    /// Returns whether the scan, O(n), is faster than the search that faults, O(log n).
    #[must_use]
    pub fn scan_wins(&self) -> bool {
        self.scan_ns < self.cold_search_ns
    }

    /// Returns whether the sort, O(n²), is faster than the search that faults.
    #[must_use]
    pub fn quadratic_wins(&self) -> bool {
        self.quadratic_ns.is_some_and(|ns| ns < self.cold_search_ns)
    }
}

/// Returns the key of item `at` in a sorted array.
#[must_use]
pub const fn key(at: usize) -> u64 {
    2 * at as u64 + 1
}

/// Maximum number of items for which the quadratic algorithm is tried.
const QUADRATIC_ITEMS_MAX: usize = 1 << 14;

/// Runs a race over the first `items` words of `file`, which hold [`key`]s in order, with `searches` of each
/// kind.
///
/// # Errors
/// Returns the system's error if the file cannot be mapped or dropped from the cache, or if there is no
/// `/proc`.
pub fn heat(file: &File, items: usize, searches: usize, random: &mut Random) -> io::Result<RaceSize> {
    let wanted: Vec<usize> = (0..searches).map(|_| random.below(items)).collect();
    let mut found = Vec::with_capacity(searches);

    let mut faults = 0;
    for at in &wanted {
        // The file is mapped anew each time: mapped pages cannot be dropped from the cache.
        drop_from_cache(file)?;
        let mapped = MappedWords::map(file, items)?;
        mapped.expect(Pattern::Random)?;
        let before = Counters::now()?;
        let start = Instant::now();
        let place = mapped.partition_point(|word| word.load(Relaxed) < key(*at));
        found.push(start.elapsed().as_nanos() as f64);
        faults += Counters::now()?.since(&before).major_faults;
        assert_eq!(place, *at, "the search finds what it looks for");
    }
    let cold_search_ns = median(&mut found);

    let mapped = MappedWords::map(file, items)?;
    let resident: Vec<u64> = mapped.iter().map(|word| word.load(Relaxed)).collect();
    let warm_search_ns = timed(&wanted, |at| mapped.partition_point(|word| word.load(Relaxed) < key(at)));
    let scan_ns = timed(&wanted, |at| scan(&resident, key(at)));
    let quadratic_ns = (items <= QUADRATIC_ITEMS_MAX).then(|| {
        let few = &wanted[..wanted.len().min(5)];
        let mut copy: Vec<u64> = Vec::with_capacity(items);
        timed(few, |at| {
            copy.clear();
            copy.extend(resident.iter().rev());
            insertion_sort(&mut copy);
            copy.partition_point(|found| *found < key(at))
        })
    });
    let faults_a_search = faults as f64 / searches as f64;
    Ok(RaceSize { items, cold_search_ns, warm_search_ns, faults_a_search, scan_ns, quadratic_ns })
}

/// Returns the position of `key`, looking at one item after the other, as in a list.
#[inline(never)]
fn scan(items: &[u64], key: u64) -> usize {
    items.iter().position(|item| *item == key).unwrap_or(items.len())
}

/// Sorts by insertion, the textbook's quadratic sort.
#[inline(never)]
pub(in crate::experiments) fn insertion_sort(items: &mut [u64]) {
    for end in 1..items.len() {
        let item = items[end];
        let mut at = end;
        while at > 0 && items[at - 1] > item {
            items[at] = items[at - 1];
            at -= 1;
        }
        items[at] = item;
    }
}

fn timed(wanted: &[usize], mut find: impl FnMut(usize) -> usize) -> f64 {
    black_box(find(black_box(wanted[0])));
    let mut times: Vec<f64> = wanted
        .iter()
        .map(|at| {
            let start = Instant::now();
            let place = find(black_box(*at));
            let ns = start.elapsed().as_nanos() as f64;
            assert_eq!(place, *at, "found where it is");
            ns
        })
        .collect();
    median(&mut times)
}

pub(super) fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the size at which the worse algorithm starts to lose, interpolated on a logarithmic scale; `None`
/// if it loses at every size, and the largest size if it loses at none.
#[must_use]
pub fn crossing(heats: &[RaceSize], worse: impl Fn(&RaceSize) -> Option<f64>) -> Option<CrossoverSize> {
    let ratio = |heat: &RaceSize| worse(heat).map(|ns| ns / heat.cold_search_ns);
    let last = heats.iter().rposition(|heat| ratio(heat).is_some_and(|ratio| ratio < 1.0))?;
    let (won, lost) = (&heats[last], heats.get(last + 1));
    let Some((lost, over)) = lost.and_then(|heat| Some((heat, ratio(heat)?))) else {
        return Some(CrossoverSize::Beyond(won.items));
    };
    let under = ratio(won)?;
    let share = under.ln() / (under.ln() - over.ln());
    let items = (won.items as f64).ln() + share * ((lost.items as f64).ln() - (won.items as f64).ln());
    Some(CrossoverSize::At(items.exp().round() as usize))
}

/// Size up to which the worse algorithm wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrossoverSize {
    /// About this many items.
    At(usize),
    /// Every size that was tried; this is the largest of them.
    Beyond(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::scratch::Scratch;

    fn like(items: usize, cold: f64, scan: f64) -> RaceSize {
        RaceSize {
            items,
            cold_search_ns: cold,
            warm_search_ns: 1.0,
            faults_a_search: 1.0,
            scan_ns: scan,
            quadratic_ns: None,
        }
    }

    #[test]
    fn the_crossover_lies_between_win_and_loss() {
        let heats = [like(100, 100.0, 10.0), like(1000, 100.0, 100.0 / 2.0), like(10_000, 100.0, 200.0)];
        let Some(CrossoverSize::At(at)) = crossing(&heats, |heat| Some(heat.scan_ns)) else {
            panic!("a crossing")
        };
        assert!((3000..3400).contains(&at), "{at}");
        assert_eq!(crossing(&heats[..2], |heat| Some(heat.scan_ns)), Some(CrossoverSize::Beyond(1000)));
        assert_eq!(crossing(&heats[2..], |heat| Some(heat.scan_ns)), None);
        assert_eq!(crossing(&heats, |heat| heat.quadratic_ns), None);
    }

    #[test]
    fn a_cold_search_faults_and_finds_its_item() {
        let scratch = Scratch::on_disk(None).unwrap();
        let file = scratch.words("race", 1 << 16, key).unwrap();
        let heat = heat(&file, 1 << 14, 5, &mut Random::new(5)).unwrap();
        // 16 Ki items are 32 pages: at least the first page of each search is cold.
        assert!(heat.faults_a_search >= 1.0, "{heat:?}");
        assert!(heat.faults_a_search <= 16.0, "{heat:?}");
        assert!(heat.scan_ns > 0.0 && heat.quadratic_ns.is_some());
    }

    #[test]
    fn insertion_sorts() {
        let mut random = Random::new(9);
        let mut items: Vec<u64> = (0..200).map(|_| random.word() % 50).collect();
        let mut twin = items.clone();
        insertion_sort(&mut items);
        twin.sort_unstable();
        assert_eq!(items, twin);
    }
}
