//! Walks through memory in an order that no prefetcher can predict: each load returns the address of the
//! next.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::sys::arena::Words;

use super::random::Random;

/// Bytes of a cache line, assumed on every machine.
const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / 8;

/// Lines of memory linked into one cycle that visits each once, in random order.
#[derive(Debug)]
pub struct Circle {
    words: Words,
    lines: usize,
}

impl Circle {
    /// Creates a cycle through `bytes` bytes; `huge` requests huge pages, which remove the cost of address
    /// translation.
    ///
    /// # Errors
    /// Returns the system's error if the memory cannot be reserved.
    pub fn new(bytes: usize, huge: bool, random: &mut Random) -> std::io::Result<Self> {
        let lines = (bytes / LINE_BYTES).max(2);
        let words = Words::reserve(lines * LINE_WORDS, huge)?;
        for line in 0..lines {
            words[line * LINE_WORDS].store(line as u64, Relaxed);
        }
        // Sattolo's shuffle yields a permutation that is a single cycle, so that no walk stays in a short
        // one.
        for line in (1..lines).rev() {
            let other = random.below(line);
            let (a, b) = (&words[line * LINE_WORDS], &words[other * LINE_WORDS]);
            let was = a.swap(b.load(Relaxed), Relaxed);
            b.store(was, Relaxed);
        }
        Ok(Self { words, lines })
    }

    /// Walks `steps` lines on from `line` and returns the line that it reaches.
    fn walk(&self, mut line: usize, steps: usize) -> usize {
        for _ in 0..steps {
            line = self.words[line * LINE_WORDS].load(Relaxed) as usize;
        }
        line
    }

    /// Returns nanoseconds per load: the minimum of `rounds` rounds of about `round` each, after one complete
    /// cycle. Disturbances can only make a walk slower, so the minimum counts.
    #[must_use]
    pub fn ns_a_load(&self, rounds: usize, round: Duration) -> f64 {
        let start = Instant::now();
        let mut line = self.walk(0, self.lines);
        // The first cycle determines how many steps fill a round (the second pass of a tiny cycle is much
        // faster).
        let turn = start.elapsed().as_secs_f64() / self.lines as f64;
        let steps = ((round.as_secs_f64() / turn) as usize).clamp(10_000, 100_000_000);
        let mut least = f64::INFINITY;
        for _ in 0..rounds {
            let start = Instant::now();
            line = self.walk(black_box(line), steps);
            least = least.min(start.elapsed().as_nanos() as f64 / steps as f64);
        }
        black_box(line);
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_circle_visits_each_line_once() {
        let circle = Circle::new(1000 * LINE_BYTES, false, &mut Random::new(7)).unwrap();
        let mut seen = vec![false; 1000];
        let mut line = 0;
        for _ in 0..1000 {
            assert!(!std::mem::replace(&mut seen[line], true), "line {line} twice");
            line = circle.walk(line, 1);
        }
        assert_eq!(line, 0);
    }
}
