//! Walking through memory in an order that no prefetcher guesses: each load says where the next one goes.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::sys::arena::Words;

use super::random::Random;

/// Bytes of a cache line where the system does not say.
const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / 8;

/// Lines of memory linked to one circle that visits each once, in a random order.
#[derive(Debug)]
pub struct Circle {
    words: Words,
    lines: usize,
}

impl Circle {
    /// A circle through `bytes` bytes; `huge` asks for huge pages, which take the address translation out.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn new(bytes: usize, huge: bool, random: &mut Random) -> std::io::Result<Self> {
        let lines = (bytes / LINE_BYTES).max(2);
        let words = Words::reserve(lines * LINE_WORDS, huge)?;
        for line in 0..lines {
            words[line * LINE_WORDS].store(line as u64, Relaxed);
        }
        // Sattolo's shuffle: a permutation that is a single cycle, so that no walk turns in a small circle.
        for line in (1..lines).rev() {
            let other = random.below(line);
            let (a, b) = (&words[line * LINE_WORDS], &words[other * LINE_WORDS]);
            let was = a.swap(b.load(Relaxed), Relaxed);
            b.store(was, Relaxed);
        }
        Ok(Self { words, lines })
    }

    /// Walks `steps` lines on from `line` and says where it arrived.
    fn walk(&self, mut line: usize, steps: usize) -> usize {
        for _ in 0..steps {
            line = self.words[line * LINE_WORDS].load(Relaxed) as usize;
        }
        line
    }

    /// Nanoseconds a load: the least of `rounds` rounds of about `round` each, after one whole turn. The least,
    /// because what disturbs a walk can only make it slower.
    #[must_use]
    pub fn ns_a_load(&self, rounds: usize, round: Duration) -> f64 {
        let start = Instant::now();
        let mut line = self.walk(0, self.lines);
        // The first turn says how many steps fill a round (the second pass of a tiny circle is much faster).
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
