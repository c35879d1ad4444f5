//! The page of `nighttrain feed bench --html`: that program measures and hands over what it found.

use std::{fs, io::Read, path::Path};

use lab::report::{
    Report, Table, page,
    plot::{Axis, Plot, Series, Stroke},
};
use serde::Deserialize;

use crate::failure::Failure;

/// More than any run writes: a curve of some dozen points and a table of some rows.
const MEASURED_BYTES_MAX: u64 = 1 << 20;

/// What was measured, as JSON on standard input.
#[derive(Debug, Deserialize)]
struct Measurement {
    /// What was done, and whether it arrived.
    title: String,
    /// A name, a count, a rate.
    rows: Vec<[String; 3]>,
    /// The latency in µs that a share of 1 − 10^−x of the messages did not exceed; none without a rate.
    latency_us_by_nines: Option<Vec<(f64, f64)>>,
    /// Where that axis ends.
    nines_max: f64,
    /// The command that measures it again.
    repeat: String,
}

/// Reads what was measured from standard input, and writes the page.
///
/// # Errors
/// Input that is not what the program writes, a file that cannot be written.
pub(crate) fn draw(file: &Path) -> Result<(), Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MEASURED_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Failure::Failed(format!("stdin cannot be read: {error}")))?;
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
