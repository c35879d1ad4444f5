//! Numbers with units, without floating point: a value must be a whole number of the smallest unit.

use std::fmt;

use super::Kind;

/// Maximum number of digits: `i64::MAX` has 19.
const DIGITS_MAX: usize = 19;

/// Returns the units of a kind with their factors, largest first. The unit with an empty name applies to a
/// bare number.
fn units(kind: Kind) -> &'static [(&'static str, i64)] {
    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND;
    match kind {
        Kind::Text | Kind::Number => &[("", 1)],
        Kind::Bytes => &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1), ("", 1)],
        // Varnish's units (a year has 365 days), and the microsecond.
        Kind::Duration => &[
            ("y", 365 * DAY),
            ("w", 7 * DAY),
            ("d", DAY),
            ("h", 3_600 * SECOND),
            ("m", 60 * SECOND),
            ("s", SECOND),
            ("ms", 1_000),
            ("us", 1),
            ("", SECOND),
        ],
    }
}

/// Describes a valid value of the kind, for error messages.
pub(super) fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Number => "a whole number",
        Kind::Bytes => "a size such as 512, 64KiB or 1.5MiB, in B, KiB, MiB or GiB",
        Kind::Duration => "a duration such as 0.5, 90s or 3h, in us, ms, s, m, h, d, w or y",
    }
}

/// Parses a number and converts it to the kind's smallest unit.
pub(super) fn parse(text: &str, kind: Kind) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let (_, worth) = units(kind).iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return None,
        None => (number, ""),
    };
    let digits = [whole, fraction].concat();
    if whole.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // A number of at most 19 digits times a year's 14-digit factor cannot overflow an `i128`.
    let scaled = sign * digits.parse::<i128>().ok()? * i128::from(*worth);
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    (scaled % scale == 0).then(|| i64::try_from(scaled / scale).ok()).flatten()
}

/// Writes the value in the largest unit that divides it; zero is written without a unit.
pub(super) fn print(f: &mut fmt::Formatter<'_>, value: i64, kind: Kind) -> fmt::Result {
    let units = units(kind);
    let bare = units.last().map_or(1, |(_, worth)| *worth);
    let fits = |(_, worth): &&(&str, i64)| if value == 0 { *worth == bare } else { value % worth == 0 };
    let (unit, worth) = units.iter().find(fits).unwrap_or(&("", 1));
    write!(f, "{}{unit}", value / worth)
}
