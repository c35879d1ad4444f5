//! Times and sizes in words.

use mail_parser::DateTime;

/// RFC 3339 in UTC, to the millisecond, for programs.
pub(crate) fn iso(ms: u64) -> String {
    let text = DateTime::from_timestamp((ms / 1000).cast_signed()).to_rfc3339();
    format!("{}.{:03}Z", text.trim_end_matches('Z'), ms % 1000)
}

/// The same for people: `2026-11-21 22:00:00 UTC`.
pub(crate) fn exact(ms: u64) -> String {
    iso(ms)[..19].replace('T', " ") + " UTC"
}

/// How long ago, as a page says it; its script goes on from there in the same words.
pub(crate) fn relative(then_ms: u64, now_ms: u64) -> String {
    let s = now_ms.saturating_sub(then_ms) / 1000;
    match s {
        0..10 => "now".to_owned(),
        10..60 => format!("{s} s ago"),
        60..3600 => format!("{} min ago", s / 60),
        3600..86400 => format!("{} h ago", s / 3600),
        _ => format!("{} d ago", s / 86400),
    }
}

/// A span of time in its largest unit.
pub(crate) fn span(ms: u64) -> String {
    let (count, unit) = match ms / 1000 {
        s @ 0..120 => (s, "second"),
        s @ 120..7200 => (s / 60, "minute"),
        s @ 7200..172_800 => (s / 3600, "hour"),
        s => (s / 86400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// Bytes in the unit that leaves one to three digits before the point.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
