//! Keys as in the B-heap article, from the C library's `random(3)`, and other sequences for queues.

/// `random(3)` with its default table of 31 words, seeded as `srandom(seed)` does: r\[i\] = r\[i−3\] +
/// r\[i−31\], without the lowest bit. Source: the manual page's "nonlinear additive feedback" of degree 31; a
/// test checks the values against the C library's own.
#[derive(Debug, Clone)]
pub struct Random3 {
    words: [u32; 31],
    at: usize,
}

impl Random3 {
    /// Creates the generator in the state after `srandom(seed)`.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        let mut words = [0_u32; 31];
        let mut word = i64::from(seed.max(1));
        for slot in &mut words {
            *slot = u32::try_from(word).unwrap_or(u32::MAX);
            word = word * 16_807 % 2_147_483_647;
        }
        let mut generator = Self { words, at: 3 };
        for _ in 0..310 {
            generator.word();
        }
        generator
    }

    fn word(&mut self) -> u32 {
        // `at` is the index of r[i−31], which r[i] replaces; r[i−3] is 28 slots further on.
        let sum = self.words[self.at].wrapping_add(self.words[(self.at + 28) % 31]);
        self.words[self.at] = sum;
        self.at = (self.at + 1) % 31;
        sum
    }
}

impl Iterator for Random3 {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        Some(self.word() >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_are_the_c_librarys() {
        let first: Vec<u32> = Random3::new(1).take(4).collect();
        assert_eq!(first, [1_804_289_383, 846_930_886, 1_681_692_777, 1_714_636_915]);
    }
}
