//! Line plots as SVG: two vertical axes, the left one logarithmic on demand, a legend at the lines' ends.

use super::outcome::escape;
use std::fmt::Write as _;

/// One line of a plot.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is, written at its end.
    pub name: String,
    /// Points, in the axes' units.
    pub points: Vec<(f64, f64)>,
    /// Against the axis on the right.
    pub right: bool,
}

/// A plot: axes and lines.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Under the horizontal axis.
    pub x: String,
    /// At the left axis.
    pub left: String,
    /// At the right axis; empty for none.
    pub right: String,
    /// The left axis is logarithmic.
    pub log: bool,
    /// The lines.
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const EDGE: f64 = 64.0;

struct Axis {
    from: f64,
    to: f64,
    log: bool,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, log: bool, from_zero: bool) -> Self {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!log || *value > 0.0)) {
            from = from.min(value);
            to = to.max(value);
        }
        if log {
            return Self {
                from: from.log10().floor(),
                to: to.log10().ceil().max(from.log10().floor() + 1.0),
                log,
            };
        }
        if from_zero {
            from = from.min(0.0);
        }
        if to <= from {
            to = from + 1.0;
        }
        Self { from, to, log }
    }

    fn place(&self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-300).log10() } else { value };
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        if self.log {
            let mut tick = self.from;
            let mut ticks = Vec::new();
            while tick <= self.to + 0.5 {
                let value = 10_f64.powf(tick);
                ticks.push((
                    value,
                    if tick < 0.0 { format!("{value:.*}", (-tick) as usize) } else { format!("{value:.0}") },
                ));
                tick += 1.0;
            }
            return ticks;
        }
        let rough = (self.to - self.from) / 6.0;
        let unit = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * unit).find(|step| *step >= rough).unwrap_or(rough);
        let digits = if step < 1.0 { (-step.log10().floor()) as usize } else { 0 };
        let mut tick = (self.from / step).ceil() * step;
        let mut ticks = Vec::new();
        while tick <= self.to + step * 1e-6 {
            ticks.push((tick, format!("{tick:.digits$}")));
            tick += step;
        }
        ticks
    }
}

impl Plot {
    /// The plot as an SVG element; colours come from the page's custom properties, dashes tell lines apart too.
    #[must_use]
    pub fn svg(&self) -> String {
        let points = |right: bool| {
            self.lines.iter().filter(move |line| line.right == right).flat_map(|line| &line.points)
        };
        let x =
            Axis::over(self.lines.iter().flat_map(|line| &line.points).map(|point| point.0), false, false);
        let left = Axis::over(points(false).map(|point| point.1), self.log, true);
        let right = Axis::over(points(true).map(|point| point.1), false, true);
        let at_x = |value: f64| EDGE + x.place(value) * (WIDTH - 2.0 * EDGE);
        let at_y = |axis: &Axis, value: f64| HEIGHT - 48.0 - axis.place(value) * (HEIGHT - 80.0);
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
        for (value, label) in x.ticks() {
            let at = at_x(value);
            let _ = write!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"32\" y2=\"{}\" stroke=\"var(--line)\"/><text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                HEIGHT - 48.0,
                HEIGHT - 32.0
            );
        }
        for (value, label) in left.ticks() {
            let at = at_y(&left, value);
            let _ = write!(
                svg,
                "<line x1=\"{EDGE}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"var(--line)\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                WIDTH - EDGE,
                EDGE - 6.0,
                at + 4.0
            );
        }
        if !self.right.is_empty() {
            for (value, label) in right.ticks() {
                let _ = write!(
                    svg,
                    "<text x=\"{}\" y=\"{:.1}\">{label}</text>",
                    WIDTH - EDGE + 6.0,
                    at_y(&right, value) + 4.0
                );
            }
            let _ = write!(
                svg,
                "<text x=\"{WIDTH}\" y=\"16\" text-anchor=\"end\">{}</text>",
                escape(&self.right)
            );
        }
        let log = if self.log { " (log scale)" } else { "" };
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"16\">{}{log}</text><text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            escape(&self.left),
            WIDTH / 2.0,
            HEIGHT - 8.0,
            escape(&self.x)
        );
        for (n, line) in self.lines.iter().enumerate() {
            let axis = if line.right { &right } else { &left };
            let colour = ["var(--a)", "var(--b)", "var(--c)", "var(--quiet)"][n % 4];
            let dash = ["", "6 3", "2 3", "8 3 2 3"][n % 4];
            let path: Vec<String> = line
                .points
                .iter()
                .filter(|point| !axis.log || point.1 > 0.0)
                .map(|point| format!("{:.1},{:.1}", at_x(point.0), at_y(axis, point.1)))
                .collect();
            let _ = write!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\" points=\"{}\"/>",
                path.join(" ")
            );
            let y = 48 + 16 * n;
            let _ = write!(
                svg,
                "<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/><text x=\"{}\" y=\"{y}\">{}</text>",
                EDGE + 12.0,
                EDGE + 40.0,
                y - 4,
                y - 4,
                EDGE + 46.0,
                escape(&line.name)
            );
        }
        svg + "</svg>"
    }
}
