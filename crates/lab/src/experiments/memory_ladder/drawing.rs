//! Figure 7 as it should have been drawn: the machine as a ladder of costs, on a logarithmic scale.

use std::fmt::Write as _;

use super::Rung;

const WIDTH: f64 = 760.0;
const ROW: f64 = 34.0;
const TOP: f64 = 34.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 150.0;

/// The rungs as bars whose length is the logarithm of their time, with the instructions lost beside each.
#[must_use]
pub fn drawn(rungs: &[Rung]) -> String {
    let most = rungs.iter().map(|rung| rung.ns).fold(1.0, f64::max);
    let decades = (most.log10().ceil() + 1.0).max(2.0);
    // The scale begins at a tenth of a nanosecond: less than a cycle.
    let x = |ns: f64| LEFT + (ns.max(0.1).log10() + 1.0) / decades * (WIDTH - LEFT - RIGHT);
    let bottom = TOP + ROW * rungs.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\" \
         fill=\"currentColor\">",
        bottom + 34.0
    );
    for decade in 0..=decades as i32 {
        let ns = 10_f64.powi(decade - 1);
        let at = x(ns);
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"currentColor\" \
             stroke-opacity=\"0.15\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" \
             fill-opacity=\"0.7\">{}</text>",
            bottom + 20.0,
            time(ns)
        );
    }
    for (row, rung) in rungs.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let middle = y + ROW / 2.0 + 4.5;
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" \
             fill=\"var(--series-1, #2f6f9f)\"/>\
             <text x=\"{:.1}\" y=\"{middle:.1}\">{} · {}</text>",
            LEFT - 10.0,
            rung.name,
            y + 6.0,
            x(rung.ns) - LEFT,
            ROW - 12.0,
            x(rung.ns) + 8.0,
            time(rung.ns),
            count(rung.instructions)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"20\" fill-opacity=\"0.7\">time, and the instructions that could have been done in it</text></svg>"
    );
    svg
}

/// `12 ns`, `3.4 µs`: three digits.
#[must_use]
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 999.5 => format!("{} ns", digits(ns)),
        ns if ns < 999_500.0 => format!("{} µs", digits(ns / 1e3)),
        ns if ns < 999_500_000.0 => format!("{} ms", digits(ns / 1e6)),
        ns => format!("{} s", digits(ns / 1e9)),
    }
}

/// `12`, `3.4 k`, `5.6 M`.
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
        number if number >= 0.0995 => format!("{number:.2}"),
        // A gridline of a tenth of a nanosecond and below.
        number => format!("{number}"),
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
        assert_eq!(count(12_345.0), "12.3 k");
        assert_eq!(count(2.5e6), "2.50 M");
    }

    #[test]
    fn a_longer_time_is_a_longer_bar_and_every_name_is_there() {
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
