//! The processor's clock rate as a program observes it, and its instruction rate.

use std::hint::black_box;
use std::time::Instant;

/// Cycles and instructions per nanosecond.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Clock {
    /// Cycles per nanosecond (GHz), from a chain of one-cycle operations each of which depends on the
    /// previous one.
    pub cycles_a_ns: f64,
    /// Instructions per nanosecond, from several independent chains, as in a program that waits for nothing.
    pub instructions_a_ns: f64,
}

/// Number of operations per step: a rotation and an addition, which take one cycle each on all processors of
/// the last ten years that we know of, and which no compiler merges.
const STEP_OPERATIONS: f64 = 2.0;
const CHAINS: usize = 4;

impl Clock {
    /// Measures over `rounds` rounds of about a millisecond; the fastest counts.
    #[must_use]
    pub fn measured(rounds: usize) -> Self {
        const STEPS: u32 = 1 << 20;
        let (mut one, mut many) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..rounds {
            let start = Instant::now();
            black_box(chain(black_box(1), black_box(STEPS)));
            one = one.min(start.elapsed().as_nanos() as f64);
            let start = Instant::now();
            black_box(chains(black_box([1, 2, 3, 4]), black_box(STEPS)));
            many = many.min(start.elapsed().as_nanos() as f64);
        }
        let steps = f64::from(STEPS);
        Self {
            cycles_a_ns: steps * STEP_OPERATIONS / one,
            // The loop's own counter and jump are not counted: their number depends on the compiler.
            instructions_a_ns: steps * STEP_OPERATIONS * CHAINS as f64 / many,
        }
    }

    /// Returns the cycles in `ns` nanoseconds.
    #[must_use]
    pub fn cycles(&self, ns: f64) -> f64 {
        self.cycles_a_ns * ns
    }

    /// Returns the instructions that could have been executed in `ns` nanoseconds.
    #[must_use]
    pub fn instructions(&self, ns: f64) -> f64 {
        self.instructions_a_ns * ns
    }
}

#[inline(never)]
fn chain(mut word: u64, steps: u32) -> u64 {
    for _ in 0..steps {
        word = word.rotate_left(7).wrapping_add(0x9e37);
    }
    word
}

#[inline(never)]
fn chains([mut a, mut b, mut c, mut d]: [u64; CHAINS], steps: u32) -> u64 {
    for _ in 0..steps {
        // The rotations differ, so that the compiler does not merge the chains into one vector operation.
        a = a.rotate_left(7).wrapping_add(0x9e37);
        b = b.rotate_left(9).wrapping_add(0x9e37);
        c = c.rotate_left(11).wrapping_add(0x9e37);
        d = d.rotate_left(13).wrapping_add(0x9e37);
    }
    a ^ b ^ c ^ d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_side_by_side_do_more_than_one() {
        let clock = Clock::measured(5);
        assert!(clock.cycles_a_ns > 0.05 && clock.cycles_a_ns < 20.0, "{clock:?}");
        assert!((clock.cycles(10.0) - 10.0 * clock.cycles_a_ns).abs() < 1e-9);
        assert!(clock.instructions(1.0) > 0.0);
    }
}
