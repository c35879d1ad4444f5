//! Durations as test suites write them: `90s`, `2m`, `500ms`, `1h`, or seconds alone.

use std::time::Duration;

use crate::web::serve::fault::Fault;

/// Parses a duration. A duration longer than `most` is an error: silently shortening a wait would make a test
/// fail in a confusing way.
pub(crate) fn parse(text: &str, most: Duration) -> Result<Duration, Fault> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms: u64 = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    let ms = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit_ms)).filter(|_| unit_ms > 0);
    let said = crate::render::cut(text, 40);
    let Some(ms) = ms else {
        return Err(Fault::Bad(format!("invalid duration `{said}`; expected 90s, 2m or 500ms")));
    };
    let duration = Duration::from_millis(ms);
    if duration > most {
        return Err(Fault::Bad(format!("duration `{said}` is too long; at most {}", span(most))));
    }
    Ok(duration)
}

/// Formats a duration in the form that [`parse`] reads.
fn span(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds >= 60 && seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_bounded() {
        let most = Duration::from_secs(300);
        for (text, ms) in
            [("90s", 90_000), ("2m", 120_000), ("500ms", 500), ("7", 7000), ("5m", 300_000), ("0", 0)]
        {
            assert_eq!(parse(text, most).unwrap().as_millis(), ms, "{text}");
        }
        for text in ["", "m", "1d", "-1s", "99999999999999999999s", "1.5s"] {
            assert!(parse(text, most).is_err(), "{text}");
        }
        for text in ["10m", "1h", "301"] {
            let fault = parse(text, most).unwrap_err().to_string();
            assert_eq!(fault, format!("duration `{text}` is too long; at most 5m"));
        }
    }
}
