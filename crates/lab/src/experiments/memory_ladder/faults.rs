//! Cost of a page fault: each of the three kinds, provoked page by page, timed, and counted by the kernel.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use engine::sys::arena::Words;
use engine::sys::mapping::{MappedWords, Pattern};
use serde::Serialize;

use super::random::Random;
use crate::experiments::counters::Counters;
use crate::experiments::scratch::drop_from_cache;

/// Faults of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct Faults {
    /// Number of pages touched, each for the first time.
    pub touched: usize,
    /// Kernel counters during the touches.
    pub counted: Counters,
    /// Nanoseconds of each touch, sorted.
    #[serde(skip)]
    pub ns: Vec<f64>,
}

impl Faults {
    /// Returns the time in nanoseconds that `share` (0 to 1) of the touches did not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.ns.len().saturating_sub(1);
        self.ns.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
    }

    /// Returns the median time.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Touches each of `pages` once by calling `touch` and records the time of each, less the cost of reading
    /// the clock.
    fn provoked(pages: &[usize], mut touch: impl FnMut(usize)) -> io::Result<Self> {
        let clock_ns = clock_cost();
        let mut ns = Vec::with_capacity(pages.len());
        // The list is written beforehand, so that its own memory does not fault while the kernel counts.
        ns.resize(pages.len(), 0.0);
        let before = Counters::now()?;
        for (page, ns) in pages.iter().zip(&mut ns) {
            let start = Instant::now();
            touch(*page);
            *ns = (start.elapsed().as_nanos() as f64 - clock_ns).max(0.0);
        }
        let counted = Counters::now()?.since(&before);
        ns.sort_by(f64::total_cmp);
        Ok(Self { touched: pages.len(), counted, ns })
    }
}

/// Returns the median time in nanoseconds between two readings of the clock with nothing between them.
fn clock_cost() -> f64 {
    let mut costs: Vec<u128> = (0..101)
        .map(|_| {
            let start = Instant::now();
            start.elapsed().as_nanos()
        })
        .collect();
    costs.sort_unstable();
    costs[costs.len() / 2] as f64
}

/// Touches anonymous memory for the first time: the kernel finds a page, clears it, and maps it.
///
/// # Errors
/// Returns the system's error if there is no memory, or no `/proc`.
pub fn minor(pages: usize, page_bytes: usize) -> io::Result<Faults> {
    let page_words = page_bytes / 8;
    let words = Words::reserve(pages * page_words, false)?;
    let order: Vec<usize> = (0..pages).collect();
    Faults::provoked(&order, |page| words[page * page_words].store(1, Relaxed))
}

/// Distance between pages that are to fault one by one: a fault also maps the neighbours that are in memory,
/// up to 64 KiB around (`fault_around_bytes`).
const AROUND_BYTES: usize = 64 << 10;

/// Touches at most `touches` pages, in random order, of a mapped file that is not in memory: first from the
/// disk; then again after the pages were removed from the mapping but not from the page cache.
///
/// (Pages that were written are in the page cache in large folios, and one fault maps a whole folio; pages
/// that a random fault has read are single. The second pass therefore counts the pages that the first has
/// read.)
///
/// # Errors
/// Returns the system's error if the file cannot be mapped or dropped from the cache, or if there is no
/// `/proc`.
pub fn disk_then_cached(
    file: &File,
    words: usize,
    touches: usize,
    random: &mut Random,
) -> io::Result<(Faults, Faults)> {
    let (mapped, order) = cold(file, words, touches, Pattern::Random, random)?;
    let touch = |at: usize| {
        black_box(mapped[at].load(Relaxed));
    };
    let disk = Faults::provoked(&order, touch)?;
    mapped.detach_pages()?;
    Ok((disk, Faults::provoked(&order, touch)?))
}

/// Touches a mapped file that is not in memory; each touch reads the kernel's readahead window.
///
/// # Errors
/// Returns the errors of [`disk_then_cached`].
pub fn disk_ahead(file: &File, words: usize, touches: usize, random: &mut Random) -> io::Result<Faults> {
    let (mapped, order) = cold(file, words, touches, Pattern::Normal, random)?;
    Faults::provoked(&order, |at| {
        black_box(mapped[at].load(Relaxed));
    })
}

/// Returns a mapping with nothing in memory, and positions in it in random order, far enough apart.
fn cold(
    file: &File,
    words: usize,
    touches: usize,
    pattern: Pattern,
    random: &mut Random,
) -> io::Result<(MappedWords, Vec<usize>)> {
    drop_from_cache(file)?;
    let mapped = MappedWords::map(file, words)?;
    mapped.expect(pattern)?;
    let mut order: Vec<usize> = (0..words).step_by(AROUND_BYTES / 8).collect();
    random.shuffle(&mut order);
    order.truncate(touches);
    Ok((mapped, order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::scratch::Scratch;

    #[test]
    fn each_fault_kind_is_counted_separately() {
        let mut random = Random::new(3);
        let first = minor(512, 4096).unwrap();
        assert!(first.counted.minor_faults >= 1 && first.counted.bytes_read == 0, "{:?}", first.counted);

        let scratch = Scratch::on_disk(None).unwrap();
        let words = 1 << 20; // 8 MiB
        let file = scratch.words("faults", words, |at| at as u64).unwrap();
        let (cold, cached) = disk_then_cached(&file, words, 100, &mut random).unwrap();
        let (faults, bytes) = (cold.counted.major_faults, cold.counted.bytes_read);
        assert!((90..=130).contains(&faults), "100 planted, {faults} counted");
        assert!(bytes >= 90 * 4096, "{bytes} bytes read");
        assert!((90..=130).contains(&cached.counted.minor_faults), "{:?}", cached.counted);
        assert_eq!(cached.counted.major_faults, 0, "what is in the page cache waits for no disk");
        assert_eq!(cached.counted.bytes_read, 0, "what is in the page cache is not read");
        assert!(cached.median() > 0.0, "a fault takes time");
        assert!(cold.median() > 0.0 && cold.quantile(1.0) >= cold.median());
    }
}
