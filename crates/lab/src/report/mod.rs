//! Findings of an experiment: tables, figures and verdicts, and four formats for them.
//!
//! ```text
//!   Report ─┬─▶ text      for people at a terminal
//!           ├─▶ json      for programs; its names are stable
//!           ├─▶ page      one self-contained HTML file with the figures drawn
//!           └─▶ markdown  each claim's verdict with an explanation
//! ```

pub mod drawing;
pub mod json;
pub mod markdown;
pub mod page;
pub mod plot;
pub mod text;

use serde::{Deserialize, Serialize};

/// Findings of an experiment.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Tables of figures.
    pub tables: Vec<Table>,
    /// Drawings.
    pub figures: Vec<Figure>,
    /// Verdicts, claim by claim.
    pub verdicts: Vec<Judgement>,
    /// Measurements as JSON.
    pub data: serde_json::Value,
    /// Notes for judging the report: conventions, limits, omissions.
    pub notes: Vec<String>,
}

/// A table of texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Title above the table.
    pub title: String,
    /// Columns of the table.
    pub columns: Vec<Column>,
    /// Rows of the table, each with one cell per column.
    pub rows: Vec<Vec<String>>,
}

/// Header of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Heading of the column.
    pub heading: String,
    /// Unit of the column; empty for text and for numbers without a unit.
    pub unit: String,
}

/// A drawing with its title and caption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// Title: what the drawing shows, as a sentence.
    pub title: String,
    /// Drawing: an `<svg>` element that takes its colours from the classes of [`page`].
    pub svg: String,
    /// Caption: how to read the drawing, and what it corresponds to in the published article.
    pub caption: String,
    /// Script that makes the drawing interactive. Without scripts, and in print, the static drawing is shown.
    pub play: Option<InteractiveDrawing>,
}

/// An interactive drawing: a script of the page, and the data that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InteractiveDrawing {
    /// Kind of script.
    pub kind: PlayKind,
    /// Data that the script needs beyond the drawing.
    pub facts: serde_json::Value,
}

/// Scripts that a page can contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlayKind {
    /// Steps through a heap: `{layout: textbook | paged, name, keys}`.
    Heap,
    /// Rescales and compares the bars of the ladder: `{names, ns}`.
    Ladder,
}

/// Conclusion of a measurement about a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// Number of the claim, such as `C3`.
    pub claim: String,
    /// Published figure.
    pub article: String,
    /// Figure measured here.
    pub ours: String,
    /// Conclusion about the claim.
    pub verdict: Verdict,
}

/// Conclusion about a claim on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim holds as published.
    Holds,
    /// The effect exists, but its size differs from the published one.
    HoldsWithAnotherFigure,
    /// The measurement contradicts the claim.
    DoesNotHoldHere,
    /// Something that the test needs is missing.
    CannotBeTestedHere,
    /// The rounds scatter more than the compared figures differ.
    TooNoisyToSay,
}

impl Verdict {
    /// Returns the verdict in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::HoldsWithAnotherFigure => "holds with another figure",
            Self::DoesNotHoldHere => "does not hold here",
            Self::CannotBeTestedHere => "cannot be tested here",
            Self::TooNoisyToSay => "too noisy to say",
        }
    }

    /// Returns a symbol that can be distinguished without colour.
    #[must_use]
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Holds => "●",
            Self::HoldsWithAnotherFigure => "◐",
            Self::DoesNotHoldHere => "○",
            Self::CannotBeTestedHere => "–",
            Self::TooNoisyToSay => "≈",
        }
    }
}

impl Table {
    /// Creates an empty table; `columns` are pairs of heading and unit.
    #[must_use]
    pub fn new(title: impl Into<String>, columns: &[(&str, &str)]) -> Self {
        let columns = columns
            .iter()
            .map(|(heading, unit)| Column { heading: (*heading).to_owned(), unit: (*unit).to_owned() })
            .collect();
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics if the row does not have one cell per column.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(row.len(), self.columns.len(), "a cell for each column of “{}”", self.title);
        self.rows.push(row);
    }

    /// Returns whether every cell of a column reads as a number; such columns are aligned right.
    #[must_use]
    pub fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(column)).all(|cell| {
            let digits = cell.trim_start_matches(['+', '-', '−', '≈', '≤', '≥', '<', '>', '~', ' ']);
            digits.is_empty()
                || cell == "–"
                || cell == "∞"
                || digits.starts_with(|c: char| c.is_ascii_digit())
        })
    }
}

impl Report {
    /// Adds a verdict.
    pub fn judge(
        &mut self,
        claim: &str,
        article: impl Into<String>,
        ours: impl Into<String>,
        verdict: Verdict,
    ) {
        self.verdicts.push(Judgement {
            claim: claim.to_owned(),
            article: article.into(),
            ours: ours.into(),
            verdict,
        });
    }

    /// Adds a drawing.
    pub fn figure(&mut self, title: impl Into<String>, svg: impl Into<String>, caption: impl Into<String>) {
        let (title, svg, caption) = (title.into(), svg.into(), caption.into());
        self.figures.push(Figure { title, svg, caption, play: None });
    }

    /// Makes the drawing that was added last interactive.
    pub fn play(&mut self, kind: PlayKind, facts: serde_json::Value) {
        if let Some(figure) = self.figures.last_mut() {
            figure.play = Some(InteractiveDrawing { kind, facts });
        }
    }

    /// Adds a note.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

/// Formats a whole number with commas: `1,234,567`.
#[must_use]
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        let texts = [0, 999, 1_000, 46_077_574, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "46,077,574", "1,234,567"]);
    }

    #[test]
    fn numeric_columns_are_recognized_by_their_cells() {
        let mut table = Table::new("", &[("a", ""), ("b", ""), ("c", "")]);
        table.row(["1,024", "−0.5", "binary heap"]);
        table.row(["–", "+12%", "4 KiB"]);
        assert_eq!([0, 1, 2].map(|column| table.is_numeric(column)), [true, true, false]);
    }
}
