//! What an experiment found: tables, figures and verdicts, and the four ways to read them.
//!
//! ```text
//!   Report ─┬─▶ text      for people at a terminal
//!           ├─▶ json      for programs; its names stay
//!           ├─▶ page      one HTML file that stands alone, with the figures drawn
//!           └─▶ markdown  each claim's verdict, and in words why
//! ```

pub mod drawing;
pub mod json;
pub mod markdown;
pub mod page;
pub mod plot;
pub mod text;

use serde::{Deserialize, Serialize};

/// What an experiment found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Figures in rows.
    pub tables: Vec<Table>,
    /// Figures drawn.
    pub figures: Vec<Figure>,
    /// What follows, claim by claim.
    pub verdicts: Vec<Judgement>,
    /// All that was measured, for programs.
    pub data: serde_json::Value,
    /// What a reader must know to judge it: conventions, limits, what was left out.
    pub notes: Vec<String>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each as long as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// The head of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// What stands below.
    pub heading: String,
    /// In what unit; empty for text and for numbers without one.
    pub unit: String,
}

/// A drawing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// What one sees in it, as a sentence.
    pub title: String,
    /// The drawing: an `<svg>` element that takes its colours from the classes of [`page`].
    pub svg: String,
    /// How to read it, and what it stands for in the source.
    pub caption: String,
    /// What the page's script makes of it. Without scripts, and on paper, the drawing stands as it is.
    pub play: Option<InteractiveDrawing>,
}

/// A drawing that its reader may play with: a script of the page, and the facts that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InteractiveDrawing {
    /// Which script.
    pub kind: PlayKind,
    /// What it needs to know beyond the drawing.
    pub facts: serde_json::Value,
}

/// The scripts that the page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlayKind {
    /// Steps through a heap: `{layout: textbook | paged, name, keys}`.
    Heap,
    /// Rescales and compares the bars of the ladder: `{names, ns}`.
    Ladder,
}

/// What a measurement says about a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The claim: `C3`.
    pub claim: String,
    /// What was published.
    pub article: String,
    /// What was found here.
    pub ours: String,
    /// What follows.
    pub verdict: Verdict,
}

/// Whether a claim holds on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As published.
    Holds,
    /// In kind, not in size.
    HoldsWithAnotherFigure,
    /// The contrary was measured.
    DoesNotHoldHere,
    /// Something that it needs is missing.
    CannotBeTestedHere,
    /// The rounds lie further apart than what is compared.
    TooNoisyToSay,
}

impl Verdict {
    /// In words.
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

    /// A mark that differs without colour.
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
    /// An empty table: `columns` are pairs of heading and unit.
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
    /// If it is longer or shorter than the head.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(row.len(), self.columns.len(), "a cell for each column of “{}”", self.title);
        self.rows.push(row);
    }

    /// Whether all that stands in a column reads as a number: such columns are set flush right.
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

    /// Lets the reader of the page play with the drawing that was added last.
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

/// A whole number with commas: `1,234,567`.
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
    fn a_column_of_numbers_is_known_by_its_cells() {
        let mut table = Table::new("", &[("a", ""), ("b", ""), ("c", "")]);
        table.row(["1,024", "−0.5", "binary heap"]);
        table.row(["–", "+12%", "4 KiB"]);
        assert_eq!([0, 1, 2].map(|column| table.is_numeric(column)), [true, true, false]);
    }
}
