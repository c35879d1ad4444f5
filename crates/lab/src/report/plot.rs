//! Curves over two axes: the one kind of plot that the experiments share.
//!
//! Series differ by stroke as well as by colour, so that they can be told apart in black and white print. A
//! plot may have a second scale on the right. Published figures are marked as reference lines and points.

use super::drawing::{Anchor, Drawing};
use super::grouped;

const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 62.0;
/// Height of a row of the legend.
const ROW: f64 = 20.0;
/// Approximate width of a character in text of 14 units.
const CHARACTER: f64 = 7.2;
const BOTTOM: f64 = 56.0;

/// An axis of a plot.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Quantity that the axis shows, with its unit.
    pub label: String,
    /// Value at the beginning of the axis.
    pub from: f64,
    /// Value at the end of the axis.
    pub to: f64,
    /// True for a logarithmic axis; its label says so.
    pub log: bool,
    /// Ticks: values and their labels.
    pub ticks: Vec<(f64, String)>,
}

/// A curve of a plot.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Stroke of the curve.
    pub stroke: Stroke,
    /// True if the curve uses the right scale.
    pub right: bool,
    /// Points of the curve.
    pub points: Vec<(f64, f64)>,
    /// Interval around each point, lower and upper, drawn as an area; may be empty.
    pub intervals: Vec<(f64, f64, f64)>,
    /// True if each point is marked with a disc.
    pub discs: bool,
}

/// Colour and dash pattern of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// Accent colour, solid: the main subject of the plot.
    One,
    /// Second colour, long dashes.
    Two,
    /// Muted colour, short dashes: for derived curves.
    Three,
    /// Green, dots and dashes.
    Four,
}

/// A published figure that is marked in the plot.
#[derive(Debug, Clone)]
pub enum Reference {
    /// A value, drawn along the whole x axis.
    Level {
        /// Value on the y axis.
        at: f64,
        /// True if the value uses the right scale.
        right: bool,
        /// Label next to the line.
        label: String,
    },
    /// A position on the x axis.
    Place {
        /// Value on the x axis.
        at: f64,
        /// Label next to the line.
        label: String,
    },
    /// A point with both coordinates.
    Point {
        /// Value on the x axis.
        x: f64,
        /// Value on the y axis.
        y: f64,
        /// True if the value uses the right scale.
        right: bool,
        /// Label next to the point.
        label: String,
    },
}

/// A plot with its axes and curves.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Horizontal axis.
    pub x: Axis,
    /// Scale on the left.
    pub left: Axis,
    /// Scale on the right, if there is one.
    pub right: Option<Axis>,
    /// Curves, in the order of the legend.
    pub series: Vec<Series>,
    /// Published figures to mark.
    pub references: Vec<Reference>,
}

impl Axis {
    /// Creates a linear axis with a tick at every `step`.
    #[must_use]
    pub fn linear(label: &str, from: f64, to: f64, step: f64) -> Self {
        // Labels have as many decimals as the step, at most two.
        let whole = |value: f64| (value - value.round()).abs() < 1e-9;
        let places = if whole(step) {
            0
        } else if whole(step * 10.0) {
            1
        } else {
            2
        };
        let mut ticks = Vec::new();
        let mut at = from;
        while at <= to + step * 1e-6 {
            let text = format!("{:.places$}", at.abs());
            ticks.push((at, if at < -1e-9 { format!("−{text}") } else { text }));
            at += step;
        }
        Self { label: label.to_owned(), from, to, log: false, ticks }
    }

    /// Creates a logarithmic axis with ticks at the powers of ten from `from` to `to`, both positive.
    #[must_use]
    pub fn log(label: &str, from: f64, to: f64) -> Self {
        let mut ticks = Vec::new();
        let mut exponent = from.log10().ceil();
        while exponent <= to.log10() + 1e-9 {
            let value = 10_f64.powf(exponent);
            let text = if exponent < -3.0 {
                format!("10^−{:.0}", -exponent)
            } else if exponent < 0.0 {
                format!("{value}")
            } else if exponent < 6.0 {
                grouped(value as u64)
            } else {
                format!("10^{exponent}")
            };
            ticks.push((value, text));
            exponent += 1.0;
        }
        Self { label: format!("{label} (log scale)"), from, to, log: true, ticks }
    }

    /// Returns the position of a value as a fraction of the axis; values beyond its ends are clamped.
    fn fraction(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(f64::MIN_POSITIVE).log10() - self.from.log10()) / (self.to.log10() - self.from.log10())
        } else {
            (value - self.from) / (self.to - self.from)
        };
        place.clamp(0.0, 1.0)
    }
}

impl Series {
    /// Creates a curve on the left scale, without discs or intervals.
    #[must_use]
    pub fn new(name: &str, stroke: Stroke, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), stroke, right: false, points, intervals: Vec::new(), discs: false }
    }

    /// Moves the curve to the right scale.
    #[must_use]
    pub fn on_the_right(mut self) -> Self {
        self.right = true;
        self
    }

    /// Marks each point of the curve with a disc.
    #[must_use]
    pub fn with_discs(mut self) -> Self {
        self.discs = true;
        self
    }
}

impl Stroke {
    const fn class(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Two => "two",
            Self::Three => "three",
            Self::Four => "four",
        }
    }
}

impl Plot {
    /// Draws the plot as an `<svg>` element. `label` describes it for readers who cannot see it.
    #[must_use]
    pub fn draw(&self, label: &str) -> String {
        let mut drawing = Drawing::new(WIDTH, HEIGHT, label);
        self.draw_axes(&mut drawing);
        for series in &self.series {
            self.draw_series(&mut drawing, series);
        }
        for reference in &self.references {
            self.draw_reference(&mut drawing, reference);
        }
        self.draw_legend(&mut drawing);
        drawing.finish()
    }

    fn x_at(&self, value: f64) -> f64 {
        LEFT + self.x.fraction(value) * (self.x_end() - LEFT)
    }

    /// Returns the height at which the legend ends and the frame begins.
    fn top(&self) -> f64 {
        let rows = self.legend().iter().map(|entry| entry.2).max().unwrap_or(0);
        let below = rows as f64 * ROW;
        44.0 + below
    }

    /// Returns the entries of the legend: text, x coordinate and row number.
    fn legend(&self) -> Vec<(String, f64, usize)> {
        let (mut x, mut row) = (LEFT, 0);
        let mut entries = Vec::new();
        for series in &self.series {
            let side = match (&self.right, series.right) {
                (None, _) => "",
                (Some(_), false) => " (left)",
                (Some(_), true) => " (right)",
            };
            let text = format!("{}{side}", series.name);
            let width = 36.0 + text.chars().count() as f64 * CHARACTER;
            if x > LEFT && x + width > WIDTH - 8.0 {
                (x, row) = (LEFT, row + 1);
            }
            entries.push((text, x, row));
            x += width + 20.0;
        }
        entries
    }

    fn x_end(&self) -> f64 {
        WIDTH - if self.right.is_some() { RIGHT } else { 24.0 }
    }

    fn y_at(&self, value: f64, right: bool) -> f64 {
        let axis = if right { self.right.as_ref().unwrap_or(&self.left) } else { &self.left };
        HEIGHT - BOTTOM - axis.fraction(value) * (HEIGHT - BOTTOM - self.top())
    }

    fn draw_axes(&self, drawing: &mut Drawing) {
        let (top, bottom, end) = (self.top(), HEIGHT - BOTTOM, self.x_end());
        for (value, text) in &self.left.ticks {
            let y = self.y_at(*value, false);
            drawing.line("grid", (LEFT, y), (end, y));
            drawing.text("tick", (LEFT - 8.0, y + 4.5), Anchor::End, text);
        }
        for (value, text) in &self.x.ticks {
            let x = self.x_at(*value);
            drawing.line("axis", (x, bottom), (x, bottom + 5.0));
            drawing.text("tick", (x, bottom + 20.0), Anchor::Middle, text);
        }
        if let Some(right) = &self.right {
            for (value, text) in &right.ticks {
                let y = self.y_at(*value, true);
                drawing.line("axis", (end, y), (end + 5.0, y));
                drawing.text("tick", (end + 9.0, y + 4.5), Anchor::Start, text);
            }
            drawing.line("axis", (end, top), (end, bottom));
            drawing.upright_text("label", (WIDTH - 8.0, f64::midpoint(top, bottom)), &right.label);
        }
        drawing.line("axis", (LEFT, bottom), (end, bottom));
        drawing.line("axis", (LEFT, top), (LEFT, bottom));
        drawing.upright_text("label", (16.0, f64::midpoint(top, bottom)), &self.left.label);
        drawing.text("label", (f64::midpoint(LEFT, end), HEIGHT - 10.0), Anchor::Middle, &self.x.label);
    }

    fn draw_series(&self, drawing: &mut Drawing, series: &Series) {
        let class = series.stroke.class();
        if !series.intervals.is_empty() {
            let edge = |pick: fn(&(f64, f64, f64)) -> f64| -> Vec<(f64, f64)> {
                let places = series.intervals.iter();
                places.map(|place| (self.x_at(place.0), self.y_at(pick(place), series.right))).collect()
            };
            drawing.band(&format!("band {class}"), &edge(|p| p.2), &edge(|p| p.1));
        }
        let points: Vec<(f64, f64)> =
            series.points.iter().map(|&(x, y)| (self.x_at(x), self.y_at(y, series.right))).collect();
        drawing.path(&format!("curve {class}"), &points);
        if series.discs {
            for point in points {
                drawing.disc(&format!("disc {class}"), point, 3.5);
            }
        }
    }

    fn draw_reference(&self, drawing: &mut Drawing, reference: &Reference) {
        let end = self.x_end();
        match reference {
            Reference::Level { at, right, label } => {
                let y = self.y_at(*at, *right);
                drawing.line("reference", (LEFT, y), (end, y));
                drawing.text("said", (end - 6.0, y - 6.0), Anchor::End, label);
            }
            Reference::Place { at, label } => {
                let x = self.x_at(*at);
                let top = self.top();
                drawing.line("reference", (x, top), (x, HEIGHT - BOTTOM));
                self.beside(drawing, (x, top + 14.0), label);
            }
            Reference::Point { x, y, right, label } => {
                let place = (self.x_at(*x), self.y_at(*y, *right));
                drawing.disc("reference", place, 6.0);
                self.beside(drawing, (place.0, place.1 - 8.0), label);
            }
        }
    }

    /// Draws a label next to a point, on the side that has room.
    fn beside(&self, drawing: &mut Drawing, (x, y): (f64, f64), label: &str) {
        let leftwards = x > f64::midpoint(LEFT, self.x_end());
        let (x, anchor) = if leftwards { (x - 8.0, Anchor::End) } else { (x + 8.0, Anchor::Start) };
        drawing.text("said", (x, y), anchor, label);
    }

    fn draw_legend(&self, drawing: &mut Drawing) {
        for (series, (text, x, row)) in self.series.iter().zip(self.legend()) {
            let y = 18.0 + row as f64 * ROW;
            let class = series.stroke.class();
            drawing.path(&format!("curve {class}"), &[(x, y), (x + 30.0, y)]);
            if series.discs {
                drawing.disc(&format!("disc {class}"), (x + 15.0, y), 3.5);
            }
            drawing.text("label", (x + 36.0, y + 4.5), Anchor::Start, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_map_to_the_scale_within_bounds() {
        let log = Axis::log("s", 1.0, 10_000.0);
        assert!((log.fraction(100.0) - 0.5).abs() < 1e-12);
        assert!(log.fraction(0.0).abs() < 1e-12 && (log.fraction(1e9) - 1.0).abs() < 1e-12);
        let texts: Vec<&str> = log.ticks.iter().map(|tick| tick.1.as_str()).collect();
        assert_eq!(texts, ["1", "10", "100", "1,000", "10,000"]);
        let small = Axis::log("share", 1e-5, 0.01);
        let texts: Vec<&str> = small.ticks.iter().map(|tick| tick.1.as_str()).collect();
        assert_eq!(texts, ["10^−5", "10^−4", "0.001", "0.01"], "short enough to stand beside the axis");
        let halves = Axis::linear("ratio", 0.0, 1.0, 0.5);
        assert_eq!(
            halves.ticks.iter().map(|tick| tick.1.as_str()).collect::<Vec<_>>(),
            ["0.0", "0.5", "1.0"]
        );
        let linear = Axis::linear("MiB", -8.0, 0.0, 4.0);
        assert!((linear.fraction(-2.0) - 0.75).abs() < 1e-12);
        assert_eq!(linear.ticks.iter().map(|tick| tick.1.as_str()).collect::<Vec<_>>(), ["−8", "−4", "0"]);
    }

    #[test]
    fn a_plot_draws_axes_curves_and_references() {
        let plot = Plot {
            x: Axis::linear("memory missing [KiB]", -64.0, 0.0, 16.0),
            left: Axis::log("runtime [s]", 1.0, 100.0),
            right: Some(Axis::linear("ratio", 0.0, 2.0, 0.5)),
            series: vec![
                Series::new("binary", Stroke::Two, vec![(-64.0, 100.0), (0.0, 1.0)]),
                Series::new("ratio", Stroke::Three, vec![(-64.0, 2.0), (0.0, 0.5)]).on_the_right(),
            ],
            references: vec![Reference::Place { at: -16.0, label: "article: they cross".into() }],
        };
        let svg = plot.draw("what it shows");
        for part in
            ["memory missing [KiB]", "runtime [s] (log scale)", ">ratio<", "binary (left)", "article: they"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        // Both curves go from the top left to the bottom right of the frame, each on its own scale.
        assert_eq!(svg.matches("d=\"M78.0 44.0L618.0 364.0\"").count(), 1, "{svg}");
        assert!(svg.contains("d=\"M78.0 44.0L618.0 284.0\""), "{svg}");
    }
}
