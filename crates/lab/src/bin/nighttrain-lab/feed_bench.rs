//! Page of `nighttrain feed bench --html`: that program measures and passes its figures to the lab.

use std::{fs, io::Read, path::Path};

use lab::report::{
    Report, Table, page,
    plot::{Axis, Plot, Series, Stroke},
};
use serde::Deserialize;

use crate::failure::Failure;

/// Maximum size of the input; a run writes less, because a curve has a few dozen points and the table a few
/// rows.
const MEASURED_BYTES_MAX: u64 = 1 << 20;

/// Figures as JSON on standard input.
#[derive(Debug, Deserialize)]
struct Measurement {
    /// Parameters of the run, and whether every message arrived intact.
    title: String,
    /// Rows of the table: a name, a count, a rate.
    rows: Vec<[String; 3]>,
    /// Points of the latency curve: a number x, and the latency in µs that the fraction 1 − 10^−x of the
    /// messages did not exceed; `None` without a rate.
    latency_us_by_nines: Option<Vec<(f64, f64)>>,
    /// End of the latency plot's x axis, as a number of nines.
    nines_max: f64,
    /// Command that repeats the measurement.
    repeat: String,
}

/// Reads the figures from standard input, and writes the page.
///
/// # Errors
/// Returns `Failure` if the input is not from that program, or if the file cannot be written.
pub(crate) fn draw(file: &Path) -> Result<(), Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MEASURED_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Failure::Failed(format!("cannot read stdin: {error}")))?;
    let measured: Measurement = serde_json::from_str(&text).map_err(|error| {
        Failure::Usage(format!("stdin is not what `nighttrain feed bench --html` hands over: {error}"))
    })?;
    fs::write(file, page_of(measured))
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", file.display())))
}

fn page_of(measured: Measurement) -> String {
    let mut report = Report::default();
    if let Some(points) = measured.latency_us_by_nines {
        let mut x = Axis::linear("share of messages that took no longer", 0.0, measured.nines_max, 1.0);
        x.ticks = ["0%", "90%", "99%", "99.9%", "99.99%", "99.999%", "99.9999%"]
            .iter()
            .enumerate()
            .map(|(at, text)| (at as f64, (*text).to_owned()))
            .collect();
        let plot = Plot {
            x,
            left: Axis::log("latency, µs", 1.0, 1e6),
            right: None,
            series: vec![Series::new("from when each message was due", Stroke::One, points)],
            references: Vec::new(),
        };
        report.figure(
            "How long messages took",
            plot.draw("Latency by percentile"),
            "Counted from when each message was due, not from when it was sent: what held up the producer counts.",
        );
    } else {
        report.note(
            "Without --rate there is no latency to draw: at full speed it would be the queue's length.",
        );
    }
    let mut table = Table::new(measured.title, &[("", ""), ("count", ""), ("rate", "1/s")]);
    measured.rows.into_iter().for_each(|row| table.row(row));
    report.tables.push(table);
    page::alone("A feed under load", &report, &measured.repeat)
}
