//! A drawing as SVG: shapes with classes, whose colours the page defines.
//!
//! No colours are defined here: a class names the meaning of a shape (`axis`, `one`, `two`, `reference`), and
//! the page's style sheet gives it a colour for the light theme, the dark theme and print. Lengths are in
//! units of the drawing, whose text is 14 units high.

use std::fmt::Write as _;

/// A drawing to which shapes are added.
#[derive(Debug, Clone)]
pub struct Drawing {
    width: f64,
    height: f64,
    label: String,
    body: String,
}

/// Alignment of a text relative to its given point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The point is the text's beginning.
    Start,
    /// The point is the text's middle.
    Middle,
    /// The point is the text's end.
    End,
}

impl Drawing {
    /// Creates an empty drawing. `label` describes it for readers who cannot see it.
    #[must_use]
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        Self { width, height, label: label.to_owned(), body: String::new() }
    }

    /// Adds a straight line.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.put(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// Adds a line through points.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut d = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            // Writing to a string does not fail.
            _ = write!(d, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        }
        self.put(format_args!(r#"<path class="{class}" d="{d}"/>"#));
    }

    /// Adds an area whose outline follows `upper` forwards and `lower` backwards.
    pub fn band(&mut self, class: &str, upper: &[(f64, f64)], lower: &[(f64, f64)]) {
        let mut d = String::new();
        for (i, (x, y)) in upper.iter().chain(lower.iter().rev()).enumerate() {
            _ = write!(d, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        }
        self.put(format_args!(r#"<path class="{class}" d="{d}Z"/>"#));
    }

    /// Adds a rectangle with its upper left corner at `x`, `y`.
    pub fn rectangle(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        self.put(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
        ));
    }

    /// Adds a disc.
    pub fn disc(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        self.put(format_args!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"/>"#));
    }

    /// Adds a line of text with its baseline at `y`.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = anchor.name();
        let text = escaped(text);
        self.put(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// Adds a line of text that reads upwards, centred at `x`, `y`.
    pub fn upright_text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escaped(text);
        self.put(format_args!(
            r#"<text class="{class}" transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle">{text}</text>"#
        ));
    }

    fn put(&mut self, shape: std::fmt::Arguments<'_>) {
        _ = self.body.write_fmt(shape);
        self.body.push('\n');
    }

    /// Returns the `<svg>` element for a page that has a style sheet.
    #[must_use]
    pub fn finish(&self) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>",
            self.width,
            self.height,
            escaped(&self.label),
            self.body
        )
    }

    /// Returns a self-contained SVG file with this style sheet.
    #[must_use]
    pub fn finish_alone(&self, style: &str) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n<style>{style}</style>\n{}</svg>\n",
            escaped(&self.label),
            self.body
        )
    }
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Escapes text for HTML and SVG, in elements and in quoted attributes.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        let mut drawing = Drawing::new(10.0, 10.0, "a \"b\"");
        drawing.text("label", (1.0, 2.0), Anchor::End, "<script>&");
        let svg = drawing.finish();
        assert!(svg.contains("aria-label=\"a &quot;b&quot;\""), "{svg}");
        assert!(svg.contains("text-anchor=\"end\">&lt;script&gt;&amp;</text>"), "{svg}");
    }
}
