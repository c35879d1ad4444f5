//! What an experiment hands back: figures, verdicts, drawings; as text, as JSON, as one HTML page.

use serde::Serialize;
use std::fmt::Write as _;

/// What can be said about one line of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// The figure is within its bound.
    Yes,
    /// It is not; the figure says by how much.
    No,
    /// Something that the measurement needs is missing here.
    CannotBeTested,
}

/// One line of the claim, measured.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// What is claimed, with its bound.
    pub claim: String,
    /// What was measured.
    pub measured: String,
    /// Whether that is within the bound.
    pub holds: Holds,
}

impl Verdict {
    /// A verdict by comparison: the figure must be at most `bound`.
    #[must_use]
    pub fn at_most(claim: &str, figure: f64, bound: f64, unit: &str) -> Self {
        let holds = if figure <= bound { Holds::Yes } else { Holds::No };
        Self {
            claim: format!("{claim}: at most {bound}{unit}"),
            measured: format!("{figure:.4}{unit}"),
            holds,
        }
    }

    /// A verdict by agreement: the figure must lie within `share` of `reference`.
    #[must_use]
    pub fn close_to(claim: &str, figure: f64, reference: f64, share: f64) -> Self {
        let holds = if (figure / reference - 1.0).abs() <= share { Holds::Yes } else { Holds::No };
        Self { claim: format!("{claim}: {reference}"), measured: format!("{figure:.4}"), holds }
    }
}

/// A table of figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Column headings, with units.
    pub columns: Vec<String>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.iter().map(|&c| c.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let mut widths: Vec<usize> = self.columns.iter().map(|cell| cell.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut out = format!("{}\n", self.title);
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            for (n, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width - cell.chars().count());
                out += &if n == 0 { format!("  {cell}{pad}") } else { format!("  {pad}{cell}") };
            }
            out.push('\n');
        }
        out
    }
}

/// The whole of an experiment's result.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The command's name.
    pub name: String,
    /// The finding, as a headline.
    pub title: String,
    /// What was done, and what to know about it: paragraphs.
    pub notes: Vec<String>,
    /// Figures.
    pub tables: Vec<Table>,
    /// Line by line, what holds.
    pub verdicts: Vec<Verdict>,
    /// Drawings: a caption and an SVG element.
    #[serde(skip)]
    pub drawings: Vec<(String, String)>,
}

impl Outcome {
    /// For a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("{}: {}\n\n", self.name, self.title);
        for note in &self.notes {
            let _ = writeln!(out, "{note}\n");
        }
        for table in &self.tables {
            let _ = writeln!(out, "{}", table.text());
        }
        for verdict in &self.verdicts {
            let word = match verdict.holds {
                Holds::Yes => "holds",
                Holds::No => "does not hold here",
                Holds::CannotBeTested => "cannot be tested here",
            };
            let _ = writeln!(out, "{word:22} {} — {}", verdict.claim, verdict.measured);
        }
        out
    }

    /// One page that needs nothing else.
    #[must_use]
    pub fn html(&self) -> String {
        let mut body = format!("<h1>{}</h1>", escape(&self.title));
        for note in &self.notes {
            let _ = write!(body, "<p>{}</p>", escape(note));
        }
        for (caption, svg) in &self.drawings {
            let _ = write!(body, "<figure>{svg}<figcaption>{}</figcaption></figure>", escape(caption));
        }
        for table in &self.tables {
            let _ = write!(body, "<h2>{}</h2><table><tr>", escape(&table.title));
            table.columns.iter().for_each(|cell| {
                let _ = write!(body, "<th>{}</th>", escape(cell));
            });
            for row in &table.rows {
                body += "</tr><tr>";
                row.iter().for_each(|cell| {
                    let _ = write!(body, "<td>{}</td>", escape(cell));
                });
            }
            body += "</tr></table>";
        }
        body += "<h2>Verdicts</h2><table><tr><th>claim</th><th>measured</th><th></th></tr>";
        for verdict in &self.verdicts {
            let word = match verdict.holds {
                Holds::Yes => "holds",
                Holds::No => "does not hold here",
                Holds::CannotBeTested => "cannot be tested here",
            };
            let _ = write!(
                body,
                "<tr><td>{}</td><td>{}</td><td>{word}</td></tr>",
                escape(&verdict.claim),
                escape(&verdict.measured)
            );
        }
        body += "</table>";
        format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{}</title><style>{STYLE}</style>{body}</html>",
            escape(&self.name)
        )
    }
}

const STYLE: &str = "
:root{--ground:#fbfaf7;--line:#dcd8cd;--text:#1c2030;--quiet:#596079;--a:#9a6700;--b:#2457c5;--c:#1a7f4b}
@media(prefers-color-scheme:dark){:root{--ground:#10131c;--line:#2a3145;--text:#e8eaf2;--quiet:#a3abc2;--a:#ffc857;--b:#6ea8fe;--c:#58c48d}}
body{background:var(--ground);color:var(--text);font:15px/1.5 system-ui,sans-serif;max-width:72ch;margin:24px auto;padding:0 16px}
h1{font-size:24px}h2{font-size:18px}figure{margin:24px 0}figcaption{color:var(--quiet);font-size:13px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:4px 12px 4px 0;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto}svg text{fill:var(--text);font:12px system-ui,sans-serif}
@media print{:root{--ground:#fff;--text:#000;--a:#000;--b:#555;--c:#888}}";

/// Text made safe for HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
