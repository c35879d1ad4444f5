//! Formatting of sizes in messages, as an operator writes them in a setting: `256MiB`, not `268435456 bytes`.

use std::fmt;

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
/// Minimum number shown when a size is rounded up to whole units, so that the error is below a hundredth.
const DIGITS_MIN: u64 = 100;

/// A size in bytes, shown as a whole number of units: exact, or rounded up by less than a hundredth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_exact = |unit: u64| self.0 >= unit && self.0.is_multiple_of(unit);
        let (name, unit) = UNITS
            .into_iter()
            .find(|(_, unit)| is_exact(*unit) || self.0 / unit >= DIGITS_MIN)
            .unwrap_or(("B", 1));
        write!(f, "{}{name}", self.0.div_ceil(unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_as_they_are_set() {
        for (bytes, text) in [
            (0, "0B"),
            (7, "7B"),
            (1024, "1KiB"),
            (1025, "1025B"),
            (256 << 20, "256MiB"),
            ((256 << 20) + 1, "257MiB"),
            (1_395_864_371, "1332MiB"),
            (900 << 30, "900GiB"),
            (16 << 40, "16TiB"),
            (u64::MAX, "16777216TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text, "{bytes}");
        }
    }
}
