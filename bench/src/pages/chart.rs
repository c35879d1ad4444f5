//! A chart for the README: each contender's cost as a multiple of the limit, drawn as a dot with its
//! interval.
//!
//! The chart uses dots, because on a logarithmic scale the length of a bar has no meaning. The SVG file is
//! self-contained: it has its own background and its own colours for light and dark mode, because a page that
//! shows it as an image passes on neither.

use lab::paired::spread::Ratio;
use lab::report::drawing::{Anchor, Drawing};

const WIDTH: f64 = 720.0;
/// X coordinate at which the names end and the scale begins.
const LEFT: f64 = 190.0;
/// X coordinate at which the scale ends and the numbers begin.
const RIGHT: f64 = 560.0;
const TOP: f64 = 68.0;
const ROW: f64 = 23.0;
const BELOW: f64 = 46.0;

/// Style sheet with the colours of docs/data-flow.svg, which the pages use too.
const STYLE: &str = "
  .ground { fill: #fbfaf7 } text { fill: #1c2030; font: 14px system-ui, sans-serif } .title { font-weight: 600; font-size: 15px }
  .quiet { fill: #596079; font-size: 12.5px } .ours { fill: #9a6700; font-weight: 600 }
  .grid { stroke: #dcd8cd } .one { stroke: #596079; stroke-width: 1.5; stroke-dasharray: 4 3 }
  .whisker { stroke: #596079; stroke-width: 2 } .dot { fill: #596079 }
  .whisker-ours { stroke: #9a6700; stroke-width: 3 } .dot-ours { fill: #9a6700 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #10131c } text { fill: #e8eaf2 } .quiet { fill: #a3abc2 } .ours { fill: #ffc857 }
    .grid { stroke: #2a3145 } .one { stroke: #a3abc2 } .whisker { stroke: #a3abc2 } .dot { fill: #a3abc2 }
    .whisker-ours { stroke: #ffc857 } .dot-ours { fill: #ffc857 }
  }
";

/// Content of a chart.
#[derive(Debug)]
pub(crate) struct Chart {
    /// Main result, as a sentence.
    pub(crate) finding: String,
    /// Description of the measurement.
    pub(crate) what: String,
    /// Name of the reference, shown at its line.
    pub(crate) reference: String,
    /// Rows: name, whether it is Nighttrain, and the ratio to the reference.
    pub(crate) rows: Vec<(String, bool, Ratio)>,
}

impl Chart {
    /// Renders the chart as SVG.
    pub(crate) fn draw(&self) -> String {
        let height = TOP + ROW * self.rows.len() as f64 + BELOW;
        let bottom = TOP + ROW * self.rows.len() as f64;
        let lowest = self.rows.iter().map(|row| row.2.low).fold(1.0, f64::min);
        let highest = self.rows.iter().map(|row| row.2.high).fold(1.0, f64::max);
        let ticks: Vec<f64> =
            [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0].into();
        let from = ticks.iter().copied().filter(|tick| *tick <= lowest).fold(ticks[0], f64::max);
        let to = ticks.iter().copied().filter(|tick| *tick >= highest).fold(1000.0, f64::min);
        let x = |value: f64| LEFT + (value / from).ln() / (to / from).ln() * (RIGHT - LEFT);

        let said: Vec<String> =
            self.rows.iter().map(|(name, _, ratio)| format!("{name} {:.2}", ratio.median)).collect();
        let mut drawing =
            Drawing::new(WIDTH, height, &format!("{} {}: {}.", self.finding, self.what, said.join(", ")));
        drawing.rectangle("ground", (0.0, 0.0), (WIDTH, height));
        drawing.text("title", (16.0, 26.0), Anchor::Start, &self.finding);
        drawing.text("quiet", (16.0, 46.0), Anchor::Start, &self.what);
        for tick in ticks.into_iter().filter(|tick| (from..=to).contains(tick)) {
            drawing.line(if tick == 1.0 { "one" } else { "grid" }, (x(tick), TOP - 8.0), (x(tick), bottom));
            drawing.text("quiet", (x(tick), bottom + 17.0), Anchor::Middle, &format!("{tick}"));
        }
        drawing.text(
            "quiet",
            (f64::midpoint(LEFT, RIGHT), bottom + 35.0),
            Anchor::Middle,
            &format!("times {}, log scale; lines: 95% intervals", self.reference),
        );
        for (at, (name, is_ours, ratio)) in self.rows.iter().enumerate() {
            let y = TOP + ROW * (at as f64 + 0.5);
            let class = |class: &str| if *is_ours { format!("{class}-ours") } else { class.to_owned() };
            let text = if *is_ours { "ours" } else { "label" };
            drawing.text(text, (LEFT - 14.0, y + 5.0), Anchor::End, name);
            drawing.line(&class("whisker"), (x(ratio.low), y), (x(ratio.high), y));
            drawing.disc(&class("dot"), (x(ratio.median), y), if *is_ours { 6.5 } else { 5.0 });
            drawing.text(text, (WIDTH - 16.0, y + 5.0), Anchor::End, &format!("{:.2} ×", ratio.median));
        }
        drawing.finish_alone(STYLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_stands_alone_and_says_each_number() {
        let ratio = |median: f64| Ratio { median, low: median * 0.9, high: median * 1.1, rounds: 5 };
        let chart = Chart {
            finding: "Ours costs little".into(),
            what: "CPU time".into(),
            reference: "the limit".into(),
            rows: vec![("ours & co".into(), true, ratio(1.2)), ("peer".into(), false, ratio(250.0))],
        };
        let svg = chart.draw();
        for part in [
            "xmlns=\"http://www.w3.org/2000/svg\"",
            "prefers-color-scheme: dark",
            "1.20 ×",
            "250.00 ×",
            "&amp; co",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        // The scale ends beyond the largest interval, and nothing is drawn outside of the scale.
        assert!(svg.contains(">500<") && !svg.contains(">1000<"), "{svg}");
    }
}
