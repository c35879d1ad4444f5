//! The periodic line that reports the accelerator's savings.

use crate::{admin::stat::Report, settings::units::size_for_people};

/// Produces the line when there are new requests to report.
#[derive(Debug, Default)]
pub(crate) struct SavingsLine {
    /// Number of requests at the last report.
    received: u64,
}

impl SavingsLine {
    /// Returns the line if any request arrived since the last one.
    pub(crate) fn line(&mut self, report: &Report) -> Option<String> {
        let received = report.count("requests", "received");
        if received == self.received {
            return None;
        }
        self.received = received;
        let hits = report.count("requests", "hits");
        // The origin's response time counts as saved only once one of its answers was requested again.
        let work = match report.count("requests", "origin_time_saved_ms") {
            0 => String::new(),
            ms => format!("{} of work and ", time_text(ms)),
        };
        Some(format!(
            "{hits} of {received} request{} answered from memory; the site was spared {work}{}",
            if received == 1 { "" } else { "s" },
            size_for_people(report.count("bytes", "saved")),
        ))
    }
}

fn time_text(ms: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "shown to a tenth")]
    let seconds = ms as f64 / 1000.0;
    match ms {
        0..120_000 => format!("{seconds:.1} s"),
        120_000..7_200_000 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_when_something_changed() {
        let registry = crate::admin::stat::tests::registry();
        let report = Report::new(&registry.snapshot(), true, 1);
        let mut savings = SavingsLine::default();
        assert_eq!(
            savings.line(&report).as_deref(),
            Some("617 of 1234 requests answered from memory; the site was spared 8.2 s of work and 3.00 MiB")
        );
        assert_eq!(savings.line(&report), None);
    }
}
