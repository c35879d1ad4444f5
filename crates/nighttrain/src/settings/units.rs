//! Sizes and durations with units, such as `256MiB` and `10s`.
//!
//! The parsers are strict on purpose: `10` may mean bytes or MiB, seconds or milliseconds, so a unit is
//! required rather than guessed, and the error shows a correct example. The output of [`size_text`] and
//! [`duration_text`] parses back to the same value (a test checks this), so that `config --print` prints a
//! usable file.

use std::time::Duration;

/// Units of size, largest first, with their bytes.
const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Units of time, largest first, with their milliseconds.
const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a whole number of bytes such as `256MiB`.
///
/// # Errors
/// Returns a sentence that says what is wrong, with a correct example.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    const RIGHT: &str = "expected a whole number and B, KiB, MiB or GiB, for instance 256MiB";
    let (number, unit) = number_and_unit(text, RIGHT)?;
    let Some((_, bytes)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let near = SIZE_UNITS
            .iter()
            .find(|(name, _)| unit.chars().next().is_some_and(|c| name.starts_with(c.to_ascii_uppercase())));
        return Err(match near {
            Some((name, _)) => format!("unknown unit `{unit}`: {RIGHT}; perhaps {number}{name}"),
            None if unit.is_empty() => format!("missing unit: {RIGHT}; perhaps {number}MiB"),
            None => format!("unknown unit `{unit}`: {RIGHT}"),
        });
    };
    number.checked_mul(*bytes).ok_or_else(|| "more than 2^64 bytes".to_owned())
}

/// Parses a duration such as `250ms`.
///
/// # Errors
/// Returns a sentence that says what is wrong, with a correct example.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    const RIGHT: &str = "expected a whole number and ms, s, m, h or d, for instance 10s";
    let (number, unit) = number_and_unit(text, RIGHT)?;
    let Some((_, ms)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(if unit.is_empty() {
            format!("missing unit: {RIGHT}; perhaps {number}s")
        } else {
            format!("unknown unit `{unit}`: {RIGHT}")
        });
    };
    let ms = number.checked_mul(*ms).ok_or_else(|| "more than 2^64 milliseconds".to_owned())?;
    Ok(Duration::from_millis(ms))
}

fn number_and_unit<'t>(text: &'t str, right: &str) -> Result<(u64, &'t str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("no number: {right}"));
    }
    if unit.starts_with(['.', ',', '_']) {
        return Err(format!("not a whole number: {right}"));
    }
    let number = number.parse().map_err(|_| format!("number too large: {right}"))?;
    // A space between number and unit is allowed: `10 s`.
    Ok((number, unit.strip_prefix(' ').unwrap_or(unit)))
}

/// Returns the shortest exact text of a size: `256MiB`, `1025B`.
pub(crate) fn size_text(bytes: u64) -> String {
    exact(bytes, &SIZE_UNITS, "B")
}

/// Returns the shortest exact text of a duration, to the millisecond: `10s`, `1500ms`.
pub(crate) fn duration_text(time: Duration) -> String {
    exact(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), &DURATION_UNITS, "s")
}

fn exact(value: u64, units: &[(&str, u64)], zero_unit: &str) -> String {
    units
        .iter()
        .find(|(_, size)| value != 0 && value.is_multiple_of(*size))
        .map_or_else(|| format!("0{zero_unit}"), |(name, size)| format!("{}{name}", value / size))
}

/// Formats a size with three significant figures, in the largest unit that leaves at least 1: `1.23 MiB`, `41
/// B`.
pub(crate) fn size_for_people(bytes: u64) -> String {
    for (name, size) in SIZE_UNITS {
        if bytes >= size && size > 1 {
            #[allow(clippy::cast_precision_loss, reason = "three figures are shown")]
            let value = bytes as f64 / size as f64;
            let places = if value >= 100.0 {
                0
            } else if value >= 10.0 {
                1
            } else {
                2
            };
            return format!("{value:.places$} {name}");
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("256MiB"), Ok(256 << 20));
        assert_eq!(parse_size("1 GiB"), Ok(1 << 30));
        assert_eq!(parse_size("0B"), Ok(0));
        assert_eq!(parse_size("7KiB"), Ok(7168));
        for (wrong, says) in [
            ("", "no number"),
            ("MiB", "no number"),
            ("-1MiB", "no number"),
            ("1.5GiB", "not a whole number"),
            ("256", "perhaps 256MiB"),
            ("256M", "perhaps 256MiB"),
            ("256mb", "perhaps 256MiB"),
            ("3TiB", "unknown unit `TiB`"),
            ("1  KiB", "unknown unit"),
            ("99999999999999999999B", "too large"),
            ("99999999999GiB", "more than 2^64"),
        ] {
            let error = parse_size(wrong).expect_err(wrong);
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("3m"), Ok(Duration::from_secs(180)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_duration("1d"), Ok(Duration::from_secs(86400)));
        for (wrong, says) in [
            ("", "no number"),
            ("s", "no number"),
            ("10", "perhaps 10s"),
            ("1.5s", "not a whole number"),
            ("10sec", "unknown unit `sec`"),
            ("-3s", "no number"),
            ("9999999999999999999d", "more than 2^64"),
        ] {
            let error = parse_duration(wrong).expect_err(wrong);
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn text_parses_back() {
        for bytes in [0, 1, 1023, 1024, 1025, 1 << 20, 3 << 29, 1 << 40, u64::MAX] {
            assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }
        for ms in [0, 1, 999, 1000, 1500, 60_000, 90_000, 3_600_000, 86_400_000, 86_400_001] {
            let time = Duration::from_millis(ms);
            assert_eq!(parse_duration(&duration_text(time)), Ok(time));
        }
        assert_eq!(size_text(256 << 20), "256MiB");
        assert_eq!(duration_text(Duration::from_secs(90)), "90s");
        assert_eq!(duration_text(Duration::from_secs(86_400)), "1d");
    }

    #[test]
    fn for_people() {
        assert_eq!(size_for_people(0), "0 B");
        assert_eq!(size_for_people(1023), "1023 B");
        assert_eq!(size_for_people(1 << 20), "1.00 MiB");
        assert_eq!(size_for_people(300 << 20), "300 MiB");
    }
}
