//! The processor's clock as the program feels it, and how many instructions it does meanwhile.

use std::hint::black_box;
use std::time::Instant;

/// What a nanosecond is worth.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Clock {
    /// Cycles a nanosecond (GHz): from a chain of operations of one cycle each, of which each needs the last.
    pub cycles_a_ns: f64,
    /// Instructions a nanosecond: from several such chains side by side, which is what a program does when it
    /// waits for nothing.
    pub instructions_a_ns: f64,
}

/// A rotation and an addition: one cycle each on every processor that we know of the last ten years, and a pair
/// that no compiler folds into fewer.
const STEP_OPERATIONS: f64 = 2.0;
const CHAINS: usize = 4;

impl Clock {
    /// Measured over `rounds` rounds of about a millisecond; the fastest counts.
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
            // The loop's own count and jump are left out: how many they are is up to the compiler.
            instructions_a_ns: steps * STEP_OPERATIONS * CHAINS as f64 / many,
        }
    }

    /// Cycles in so many nanoseconds.
    #[must_use]
    pub fn cycles(&self, ns: f64) -> f64 {
        self.cycles_a_ns * ns
    }

    /// Instructions that could have been done in so many nanoseconds.
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
        // Different turns, so that they are not made one operation on a vector.
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
