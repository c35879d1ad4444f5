//! `nighttrain top`: current numbers of a running server, refreshed every few seconds.
//!
//! ```text
//! GET /stat ──▶ numbers ──┬─▶ change per second ──▶ a frame: replaces the last one on a terminal, follows it elsewhere
//!       (JSON)            └── numbers of the previous frame
//! ```
//! Rows are in the order of `nighttrain stat`. Numbers that stay at zero are left out; the last line counts
//! them.

use std::{
    fmt::Write as _,
    io::{IsTerminal, Write as _},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    admin::{
        client,
        numbers::{thousands, uptime_text},
        stat::{GROUPS, is_quantile},
    },
    failure::Failure,
    settings::Settings,
};

/// Clears the terminal and moves the cursor to the upper left corner (ECMA-48: ED, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Shows frames until the server no longer answers, or until `frames` of them have been shown.
pub(crate) fn top(settings: &Settings, interval: Duration, frames: Option<u64>) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let clear = if out.is_terminal() { CLEAR } else { "" };
    let mut before = (read(settings)?, Instant::now());
    for _ in 0..frames.unwrap_or(u64::MAX) {
        std::thread::sleep(interval);
        let now = (read(settings)?, Instant::now());
        let seconds = now.1.duration_since(before.1).as_secs_f64();
        let written = out.write_all(format!("{clear}{}", frame(&before.0, &now.0, seconds)).as_bytes());
        // A write error means that the reader has closed the pipe: the command ends without an error.
        if written.and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
        before = now;
    }
    Ok(())
}

fn read(settings: &Settings) -> Result<Value, Failure> {
    let said = client::stat(settings, true)?;
    serde_json::from_str(&said)
        .map_err(|error| Failure::Failed(format!("invalid JSON from the admin server: {error}")))
}

/// Renders the changes between `before` and `now`, `seconds` later.
fn frame(before: &Value, now: &Value, seconds: f64) -> String {
    let mut text = format!(
        "nighttrain {} · up {} · {}\n",
        now["version"].as_str().unwrap_or("?"),
        uptime_text(now["uptime_s"].as_u64().unwrap_or(0)),
        if now["ready"] == true { "ready" } else { "not ready" },
    );
    let mut at_rest = 0;
    for (group, title) in GROUPS {
        let mut rows = Vec::new();
        for (name, number) in now[group].as_object().into_iter().flatten() {
            let number = number.as_f64().unwrap_or(0.0);
            // A restarted server counts from zero, so its change is negative.
            let change = number - before[group][name].as_f64().unwrap_or(0.0);
            if number == 0.0 && change == 0.0 {
                at_rest += 1;
            } else {
                rows.push((name, number, change / seconds));
            }
        }
        if !rows.is_empty() {
            _ = writeln!(text, "\n{title:<34}{:>20}{:>18}", "now", "change a second");
        }
        for (name, number, change) in rows {
            // A quantile is not a sum, so its change has no meaning.
            let change = if change == 0.0 || is_quantile(name) { "–".to_owned() } else { signed(change) };
            _ = writeln!(text, "  {name:<32}{:>20}{change:>18}", shown(number));
        }
    }
    if at_rest > 0 {
        _ = writeln!(text, "\n{at_rest} at 0");
    }
    text
}

fn shown(number: f64) -> String {
    if number.fract() == 0.0 && number >= 0.0 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and not negative"
        )]
        return thousands(number as u64);
    }
    format!("{number:.3}")
}

fn signed(change: f64) -> String {
    let sign = if change < 0.0 { '−' } else { '+' };
    let size = change.abs();
    if size >= 10.0 { format!("{sign}{}", shown(size.round())) } else { format!("{sign}{size:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_frame_shows_values_and_their_rates() {
        let before = json!({"requests": {"received": 1_000, "hits": 900}, "limits": {"connections": 0}});
        let now = json!({
            "version": "0.1.0", "uptime_s": 61, "ready": true,
            "requests": {"received": 3_469, "hits": 899, "passes": 3},
            "loops": {"lateness_us_p99": 12.5, "batch_max": 40},
            "limits": {"connections": 0},
        });
        let text = frame(&before, &now, 2.0);
        assert!(text.starts_with("nighttrain 0.1.0 · up 1 min · ready\n"), "{text}");
        let row = |name: &str| -> Vec<&str> {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).expect(name);
            line.split_whitespace().collect()
        };
        assert_eq!(row("received"), ["received", "3,469", "+1,235"], "rounded");
        assert_eq!(row("hits"), ["hits", "899", "−0.5"]);
        assert_eq!(row("passes"), ["passes", "3", "+1.5"], "not there before");
        assert_eq!(row("lateness_us_p99"), ["lateness_us_p99", "12.500", "–"], "no sum");
        assert_eq!(row("batch_max"), ["batch_max", "40", "–"], "nor is this");
        assert!(text.ends_with("\n1 at 0\n") && !text.contains("Limits hit"), "{text}");
    }
}
