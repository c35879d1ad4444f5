//! Figure 7 of the article “You're Doing It Wrong”, redrawn: this machine as a ladder of costs, on a
//! logarithmic scale.

use super::Rung;
use crate::report::drawing::{Anchor, Drawing};

const WIDTH: f64 = 780.0;
const ROW: f64 = 34.0;
const TOP: f64 = 34.0;
const LEFT: f64 = 216.0;
/// Space for the text next to the longest bar.
const RIGHT: f64 = 140.0;

/// Draws the rungs as bars whose length is the logarithm of their time. Next to each bar is the number of
/// instructions that could have run in that time.
#[must_use]
pub fn drawn(rungs: &[Rung]) -> String {
    let most = rungs.iter().map(|rung| rung.ns).fold(1.0, f64::max);
    let decades = (most.log10().ceil() as i32 + 1).max(2);
    // The scale begins at a tenth of a nanosecond, which is less than a cycle.
    let place = |tens: f64| LEFT + (tens + 1.0) / f64::from(decades) * (WIDTH - LEFT - RIGHT);
    let bottom = TOP + ROW * rungs.len() as f64;
    let mut drawing =
        Drawing::new(WIDTH, bottom + 34.0, "time of each step of the memory, on a logarithmic scale");
    drawing.text(
        "tick",
        (LEFT, 20.0),
        Anchor::Start,
        "time, and the instructions that could have been done in it",
    );
    for tens in -1..decades {
        let x = place(f64::from(tens));
        drawing.line("grid", (x, TOP), (x, bottom));
        drawing.text("tick small", (x, bottom + 18.0), Anchor::Middle, &tick(tens));
    }
    for (row, rung) in rungs.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let baseline = y + ROW / 2.0 + 5.0;
        let end = place(rung.ns.max(0.1).log10());
        let class = if rung.counted.is_some() { "disc one" } else { "disc two" };
        drawing.text("", (LEFT - 10.0, baseline), Anchor::End, &rung.name);
        drawing.rectangle(class, (LEFT, y + 6.0), (end - LEFT, ROW - 12.0));
        let cost = format!("{} · {}", time(rung.ns), count(rung.instructions));
        drawing.text("tick cost", (end + 8.0, baseline), Anchor::Start, &cost);
    }
    drawing.finish()
}

/// Returns the label of ten to the power of `tens` nanoseconds.
fn tick(tens: i32) -> String {
    if tens < 0 {
        return "0.1 ns".to_owned();
    }
    let unit = ["ns", "µs", "ms", "s"].get(tens as usize / 3).copied().unwrap_or("ks");
    format!("{} {unit}", 10_u32.pow(tens as u32 % 3))
}

/// Formats a time with three digits: `12 ns`, `3.4 µs`.
#[must_use]
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 999.5 => format!("{} ns", digits(ns)),
        ns if ns < 999_500.0 => format!("{} µs", digits(ns / 1e3)),
        ns if ns < 999_500_000.0 => format!("{} ms", digits(ns / 1e6)),
        ns => format!("{} s", digits(ns / 1e9)),
    }
}

/// Formats a count: `12`, `3.4 k`, `5.6 M`.
#[must_use]
pub fn count(number: f64) -> String {
    match number {
        number if number < 999.5 => digits(number),
        number if number < 999_500.0 => format!("{} k", digits(number / 1e3)),
        number => format!("{} M", digits(number / 1e6)),
    }
}

fn digits(number: f64) -> String {
    match number {
        number if number >= 99.95 => format!("{number:.0}"),
        number if number >= 9.995 => format!("{number:.1}"),
        number => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_where_a_thousand_is_reached() {
        assert_eq!(time(0.1), "0.10 ns");
        assert_eq!(time(999.4), "999 ns");
        assert_eq!(time(999.6), "1.00 µs");
        assert_eq!(time(61_234.0), "61.2 µs");
        assert_eq!(time(4_000_000.0), "4.00 ms");
        assert_eq!(
            [tick(-1), tick(0), tick(2), tick(3), tick(7)],
            ["0.1 ns", "1 ns", "100 ns", "1 µs", "10 ms"]
        );
        assert_eq!(count(12_345.0), "12.3 k");
        assert_eq!(count(2.5e6), "2.50 M");
    }

    #[test]
    fn bars_grow_with_time_and_are_labelled() {
        let rung = |name: &str, ns: f64| Rung { name: name.into(), ns, ..Rung::default() };
        let svg = drawn(&[rung("near", 1.0), rung("far", 1e6)]);
        let widths: Vec<f64> = svg
            .split("<rect")
            .skip(1)
            .map(|rest| rest.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths.len(), 2);
        assert!(widths[1] > 3.0 * widths[0], "{widths:?}");
        assert!(svg.contains(">near<") && svg.contains(">far<") && svg.ends_with("</svg>"));
    }
}
