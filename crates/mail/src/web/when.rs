//! Formats times and sizes.
//!
//! A list has four of these texts per row, so they are built digit by digit in place, without a formatter and
//! without allocations.

use std::{fmt, ops::Deref};

use askama::{FastWritable, filters::HtmlSafe};
use mail_parser::DateTime;
use serde::{Serialize, Serializer};

/// Buffer size for the longest text, `18446744073709551615 min ago`, which never occurs.
const SHORT_BYTES_MAX: usize = 32;

/// A short text of digits, letters, blanks and `-:.`, which needs no HTML escaping.
#[derive(Clone, Copy)]
pub(crate) struct ShortText {
    bytes: [u8; SHORT_BYTES_MAX],
    len: usize,
}

impl ShortText {
    const EMPTY: Self = Self { bytes: [0; SHORT_BYTES_MAX], len: 0 };

    fn text(mut self, text: &str) -> Self {
        let end = self.len + text.len();
        self.bytes[self.len..end].copy_from_slice(text.as_bytes());
        self.len = end;
        self
    }

    fn number(self, number: u64) -> Self {
        self.text(itoa::Buffer::new().format(number))
    }

    /// Appends the last `digits` digits of a number, padded with zeros.
    fn padded(mut self, number: u64, digits: usize) -> Self {
        let mut rest = number;
        for place in self.bytes[self.len..self.len + digits].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.len += digits;
        self
    }
}

impl Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        // The bytes are ASCII, so the conversion cannot fail.
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl fmt::Display for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl FastWritable for ShortText {
    fn write_into(&self, out: &mut dyn fmt::Write, _: &dyn askama::Values) -> askama::Result<()> {
        Ok(out.write_str(self)?)
    }
}

impl HtmlSafe for ShortText {}

impl Serialize for ShortText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl PartialEq<&str> for ShortText {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

/// Formats a time in UTC, with the separator `between` between date and time.
fn moment(ms: u64, between: &str) -> ShortText {
    let DateTime { year, month, day, hour, minute, second, .. } =
        DateTime::from_timestamp((ms / 1000).cast_signed());
    let two = |short: ShortText, number: u8| short.padded(number.into(), 2);
    let date = two(ShortText::EMPTY.padded(year.into(), 4).text("-"), month).text("-");
    let hours = two(two(date, day).text(between), hour).text(":");
    two(two(hours, minute).text(":"), second)
}

/// Formats a time as in RFC 3339, in UTC and with milliseconds, for programs.
pub(crate) fn iso(ms: u64) -> ShortText {
    moment(ms, "T").text(".").padded(ms % 1000, 3).text("Z")
}

/// Formats a time for people: `2026-11-21 22:00:00 UTC`.
pub(crate) fn exact(ms: u64) -> ShortText {
    moment(ms, " ").text(" UTC")
}

/// Formats the age of a mail; the page's script uses the same words when it updates the age.
pub(crate) fn relative(then_ms: u64, now_ms: u64) -> ShortText {
    let s = now_ms.saturating_sub(then_ms) / 1000;
    let (count, unit) = match s {
        0..10 => return ShortText::EMPTY.text("now"),
        10..60 => (s, " s ago"),
        60..3600 => (s / 60, " min ago"),
        3600..86400 => (s / 3600, " h ago"),
        _ => (s / 86400, " d ago"),
    };
    ShortText::EMPTY.number(count).text(unit)
}

/// Formats a duration in its largest unit.
pub(crate) fn span(ms: u64) -> String {
    let (count, unit) = match ms / 1000 {
        s @ 0..120 => (s, "second"),
        s @ 120..7200 => (s / 60, "minute"),
        s @ 7200..172_800 => (s / 3600, "hour"),
        s => (s / 86400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// Formats a size in B, KiB or MiB with one decimal; ties are rounded to the even digit.
pub(crate) fn size(bytes: u64) -> ShortText {
    let (unit_bytes, unit) = match bytes {
        0..1024 => return ShortText::EMPTY.number(bytes).text(" B"),
        1024..1_048_576 => (1 << 10, " KiB"),
        _ => (1 << 20, " MiB"),
    };
    let tenths = u128::from(bytes) * 10;
    let (mut rounded, over) = ((tenths / unit_bytes) as u64, tenths % unit_bytes);
    if over > unit_bytes / 2 || (over == unit_bytes / 2 && rounded % 2 == 1) {
        rounded += 1;
    }
    ShortText::EMPTY.number(rounded / 10).text(".").number(rounded % 10).text(unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Slow twin of [`iso`], built with the formatter.
    fn iso_twin(ms: u64) -> String {
        let text = DateTime::from_timestamp((ms / 1000).cast_signed()).to_rfc3339();
        format!("{}.{:03}Z", text.trim_end_matches('Z'), ms % 1000)
    }

    fn size_twin(bytes: u64) -> String {
        match bytes {
            0..1024 => format!("{bytes} B"),
            1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
            _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        }
    }

    proptest! {
        #[test]
        fn times_are_what_the_formatter_says(ms in 0u64..250_000_000_000_000) {
            prop_assert_eq!(&*iso(ms), iso_twin(ms));
            prop_assert_eq!(&*exact(ms), iso_twin(ms)[..19].replace('T', " ") + " UTC");
        }

        #[test]
        fn sizes_are_what_the_formatter_says(bits in 0u32..44, low: u64) {
            let bytes = (1 << bits) | (low & ((1 << bits) - 1));
            prop_assert_eq!(&*size(bytes), size_twin(bytes));
        }

        #[test]
        fn no_number_is_too_long(number: u64) {
            let _ = (iso(number), exact(number), relative(0, number), size(number));
        }
    }

    #[test]
    fn halves_and_ends_are_what_the_formatter_says() {
        for bytes in (0..4096).chain(1_048_000..1_049_000).chain((0..400).map(|n| n * 52_428 + 1_048_576)) {
            assert_eq!(&*size(bytes), size_twin(bytes), "{bytes}");
        }
    }

    #[test]
    fn times_and_sizes_read_well() {
        assert_eq!(iso(1_795_298_400_123), "2026-11-21T22:00:00.123Z");
        assert_eq!(exact(1_795_298_400_123), "2026-11-21 22:00:00 UTC");
        let ago = |s: u64| relative(1_000_000, 1_000_000 + s * 1000);
        assert_eq!(
            [ago(3), ago(59), ago(61), ago(7200), ago(200_000)],
            ["now", "59 s ago", "1 min ago", "2 h ago", "2 d ago"]
        );
        assert_eq!(relative(5000, 0), "now");
        assert_eq!([span(86_400_000), span(1000), span(3_600_000)], ["24 hours", "1 second", "60 minutes"]);
        assert_eq!([size(12), size(1536), size(3_250_000)], ["12 B", "1.5 KiB", "3.1 MiB"]);
    }
}
