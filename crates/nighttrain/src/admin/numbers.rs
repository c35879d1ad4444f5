//! Numbers as the operator reads them.

use crate::settings::units::size_for_people;

/// A number and its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// A plain count, or a number whose name carries the unit.
    Count(u64),
    /// A size in bytes.
    Bytes(u64),
    /// A number with a fraction.
    Measure(f64),
    /// A time in microseconds.
    Micros(f64),
}

impl Number {
    /// Formats the number with its unit, and its digits in groups of three.
    pub(crate) fn for_people(self) -> String {
        match self {
            Self::Count(count) => thousands(count),
            Self::Bytes(bytes) => size_for_people(bytes),
            Self::Measure(measure) => format!("{measure:.3}"),
            Self::Micros(us) if us >= 10_000.0 => format!("{:.1} ms", us / 1000.0),
            Self::Micros(us) => format!("{us:.0} µs"),
        }
    }
}

/// Formats a duration with at most two units: `3 d 4 h`, `12 min`, `7 s`.
pub(crate) fn uptime_text(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Formats a number with its digits in groups of three.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(uptime_text(59), "59 s");
        assert_eq!(uptime_text(3 * 86_400 + 7200), "3 d 2 h");
    }
}
