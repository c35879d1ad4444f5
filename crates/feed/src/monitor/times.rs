//! Times in the form in which nats-server writes them.

use std::time::{Duration, SystemTime};

/// Formats a time as Go does: RFC 3339 with nanoseconds.
pub(crate) fn moment(time: SystemTime) -> String {
    humantime::format_rfc3339_nanos(time).to_string()
}

/// Formats an age as nats-server does (`myUptime`): `1d2h3m4s`, in whole seconds.
pub(crate) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    let mut text = String::new();
    for (total, value, unit) in
        [(years, years, 'y'), (days, days % 365, 'd'), (hours, hours % 24, 'h'), (minutes, minutes % 60, 'm')]
    {
        if total > 0 {
            text += &format!("{value}{unit}");
        }
    }
    text + &format!("{}s", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_nats_server_writes_them() {
        let texts = [0, 59, 60, 3_600, 86_400 + 61, 366 * 86_400].map(|s| age(Duration::from_secs(s)));
        assert_eq!(texts, ["0s", "59s", "1m0s", "1h0m0s", "1d0h1m1s", "1y1d0h0m0s"]);
        assert_eq!(moment(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000000000Z");
    }
}
