//! A report for people at a terminal.
//!
//! Only the verdicts' symbols are coloured, and only if the caller requests it. A table that is wider than
//! the terminal is shown without its last columns, with a note.

use std::fmt::Write as _;

use super::{Table, Verdict};
use crate::experiment::Outcome;

/// Style of the output.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// True if the verdicts' symbols are coloured.
    pub colour: bool,
    /// Number of characters in a line.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Self { colour: false, width: 100 }
    }
}

/// Renders all outcomes, one below the other, and a summary.
#[must_use]
pub fn render(outcomes: &[Outcome], style: Style) -> String {
    let mut out = String::new();
    for (i, outcome) in outcomes.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        one(&mut out, outcome, style);
    }
    if outcomes.len() > 1 {
        out.push('\n');
        summary(&mut out, outcomes, style);
    }
    out
}

fn one(out: &mut String, outcome: &Outcome, style: Style) {
    let experiment = outcome.experiment;
    line(out, &format!("{} · {} · {}", experiment.name, experiment.claims.join(", "), experiment.title));
    wrapped(out, "Claim: ", experiment.statement, style.width);
    wrapped(out, "Source: ", experiment.source, style.width);
    let report = match &outcome.result {
        Ok(report) => report,
        Err(refusal) => {
            out.push('\n');
            wrapped(out, "  ", &refusal.to_string(), style.width);
            return;
        }
    };
    for shown in &report.tables {
        out.push('\n');
        table(out, shown, style.width);
    }
    if !report.verdicts.is_empty() {
        out.push('\n');
        line(out, "Verdicts");
        for judgement in &report.verdicts {
            let mark = painted(judgement.verdict, style.colour);
            line(out, &format!("  {mark} {:<4}{}", judgement.claim, judgement.verdict.words()));
            wrapped(out, "         claimed: ", &judgement.article, style.width);
            wrapped(out, "         here:    ", &judgement.ours, style.width);
        }
    }
    if !report.notes.is_empty() {
        out.push('\n');
        line(out, "Notes");
        for note in &report.notes {
            wrapped(out, "  - ", note, style.width);
        }
    }
    out.push('\n');
    let drawn = match report.figures.len() {
        0 => String::new(),
        1 => "; one figure, drawn by --html FILE".to_owned(),
        n => format!("; {n} figures, drawn by --html FILE"),
    };
    line(out, &format!("Took {}{drawn}.", time_text(outcome.seconds)));
}

/// Formats a time in seconds, in milliseconds, or as less than a millisecond.
fn time_text(seconds: f64) -> String {
    match seconds {
        1.0.. => format!("{seconds:.1} s"),
        0.001.. => format!("{:.0} ms", seconds * 1e3),
        _ => "less than 1 ms".to_owned(),
    }
}

fn summary(out: &mut String, outcomes: &[Outcome], style: Style) {
    line(out, "In short");
    let longest = outcomes.iter().map(|outcome| outcome.experiment.name.len()).max().unwrap_or(0);
    for outcome in outcomes {
        let name = outcome.experiment.name;
        match &outcome.result {
            Ok(report) => {
                for judgement in &report.verdicts {
                    let mark = painted(judgement.verdict, style.colour);
                    let verdict = judgement.verdict.words();
                    line(out, &format!("  {mark} {:<4} {name:<longest$}  {verdict}", judgement.claim));
                }
            }
            Err(refusal) => wrapped(out, &format!("  – {name}: "), &refusal.to_string(), style.width),
        }
    }
    let each: Vec<String> =
        outcomes.iter().map(|one| format!("{} {:.0},", one.experiment.name, one.seconds)).collect();
    let total: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    wrapped(out, "  seconds: ", &format!("{} together {total:.0}", each.join(" ")), style.width);
}

fn painted(verdict: Verdict, colour: bool) -> String {
    let code = match verdict {
        Verdict::Holds => 32,
        Verdict::DoesNotHoldHere => 31,
        Verdict::HoldsWithAnotherFigure | Verdict::TooNoisyToSay => 33,
        Verdict::CannotBeTestedHere => 2,
    };
    if colour { format!("\x1b[{code}m{}\x1b[0m", verdict.mark()) } else { verdict.mark().to_owned() }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

/// Writes text wrapped at spaces; further lines are indented by the prefix's width.
fn wrapped(out: &mut String, prefix: &str, text: &str, width: usize) {
    let indent = prefix.chars().count();
    let mut current = prefix.to_owned();
    let mut used = indent;
    let mut fresh = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !fresh && used + 1 + length > width {
            line(out, &current);
            current = " ".repeat(indent);
            used = indent;
            fresh = true;
        }
        if !fresh {
            current.push(' ');
            used += 1;
        }
        current.push_str(word);
        used += length;
        fresh = false;
    }
    line(out, &current);
}

/// Writes a table with aligned columns.
pub fn table(out: &mut String, table: &Table, width: usize) {
    const GAP: usize = 2;
    line(out, &table.title);
    let heads: Vec<Vec<String>> = table
        .columns
        .iter()
        .map(|column| {
            let mut lines = vec![column.heading.clone()];
            lines.extend((!column.unit.is_empty()).then(|| format!("[{}]", column.unit)));
            lines
        })
        .collect();
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|n| {
            let cells = table.rows.iter().filter_map(|row| row.get(n));
            cells.chain(&heads[n]).map(|text| text.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut shown = 0;
    let mut used = 2;
    for cell in &widths {
        if shown > 0 && used + cell > width {
            break;
        }
        used += cell + GAP;
        shown += 1;
    }
    let put = |out: &mut String, cells: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for (n, &cell_width) in widths.iter().enumerate().take(shown) {
            let gap = if n == 0 { 2 } else { GAP };
            let cell = cells(n);
            // Writing to a string does not fail.
            _ = if table.is_numeric(n) {
                write!(text, "{:gap$}{cell:>cell_width$}", "")
            } else {
                write!(text, "{:gap$}{cell:<cell_width$}", "")
            };
        }
        line(out, &text);
    };
    put(out, &|n| heads[n][0].clone());
    if heads.iter().any(|lines| lines.len() > 1) {
        put(out, &|n| heads[n].get(1).cloned().unwrap_or_default());
    }
    for row in &table.rows {
        put(out, &|n| row[n].clone());
    }
    let hidden: Vec<&str> = table.columns[shown..].iter().map(|column| column.heading.as_str()).collect();
    if !hidden.is_empty() {
        wrapped(out, "  ", &format!("(not shown in {width} columns: {})", hidden.join(", ")), width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let mut table =
            Table::new("Transfers", &[("pages", ""), ("binary heap", "transfers/op"), ("kind", "")]);
        table.row(["8", "11.88", "slow"]);
        table.row(["1,024", "0.505", "less slow"]);
        table
    }

    #[test]
    fn no_time_is_nothing() {
        for (seconds, text) in
            [(12.34, "12.3 s"), (1.0, "1.0 s"), (0.04, "40 ms"), (0.001, "1 ms"), (0.0, "less than 1 ms")]
        {
            assert_eq!(time_text(seconds), text);
        }
    }

    #[test]
    fn columns_are_aligned_numbers_right_and_words_left() {
        let mut out = String::new();
        table(&mut out, &example(), 80);
        assert_eq!(
            out,
            "Transfers\n  pages     binary heap  kind\n         [transfers/op]\n      8           11.88  slow\n  \
             1,024           0.505  less slow\n"
        );
    }

    #[test]
    fn a_narrow_terminal_drops_and_names_columns() {
        let mut out = String::new();
        table(&mut out, &example(), 26);
        assert!(!out.contains("slow") && out.contains("0.505"), "{out}");
        let said = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("(not shown in 26 columns: kind)"), "{out}");
        assert!(out.lines().all(|line| line.chars().count() <= 26), "{out}");
    }

    #[test]
    fn colour_only_when_wanted() {
        assert_eq!(painted(Verdict::Holds, false), "●");
        assert_eq!(painted(Verdict::Holds, true), "\x1b[32m●\x1b[0m");
    }
}
