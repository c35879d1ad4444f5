//! Markdown paragraphs, lists and tables of docs/benchmarks.md.

use lab::paired::spread::{Ratio, Verdict};
use lab::report::Table;

use crate::pages::contenders::{is_ours, is_reference, shown};
use crate::pages::record_set::{RecordFile, comparison};
use crate::record::{Comparison, Figure, Record};

/// Maximum length of a line of prose.
const COLUMNS: usize = 118;

/// Formats items as a Markdown list.
pub(crate) fn list<I: AsRef<str>>(items: impl IntoIterator<Item = I>) -> String {
    items.into_iter().map(|item| format!("- {}\n", item.as_ref())).collect()
}

/// Wraps the prose of a page, and leaves one empty line between its blocks. Headings, tables and images are
/// not wrapped.
pub(crate) fn reflow(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut out = String::new();
    for block in lines.split(|line| line.is_empty()).filter(|block| !block.is_empty()) {
        if !out.is_empty() {
            out.push('\n');
        }
        if block[0].starts_with(['#', '|']) || block[0].starts_with("![") {
            out.extend(block.iter().flat_map(|line| [line, "\n"]));
        } else if block[0].starts_with("- ") {
            let joined = block.join("\n");
            for item in joined.trim_start_matches("- ").split("\n- ") {
                wrapped(&mut out, "- ", "  ", item);
            }
        } else {
            wrapped(&mut out, "", "", &block.join(" "));
        }
    }
    out
}

fn wrapped(out: &mut String, first: &str, rest: &str, text: &str) {
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in unbroken(text) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out.push_str(&line);
            out.push('\n');
            rest.clone_into(&mut line);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    out.push_str(&line);
    out.push('\n');
}

/// Splits a text into words. A link's text or a code span counts as one word, so that a search of the source
/// finds it whole.
fn unbroken(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split_whitespace() {
        match words.last_mut().filter(|_| is_open) {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
        let whole = words.last().map_or("", String::as_str);
        let of = |mark: char| whole.matches(mark).count();
        is_open = of('[') > of(']') || of('`') % 2 == 1;
    }
    words
}

/// Formats a table with its title above it.
pub(crate) fn table(table: &Table) -> String {
    let mut out = String::new();
    if !table.title.is_empty() {
        out.push_str(&format!("*{}*\n\n", table.title));
    }
    let heads: Vec<String> = table
        .columns
        .iter()
        .map(|column| {
            let unit = if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
            format!("{}{unit}", cell(&column.heading))
        })
        .collect();
    row(&mut out, &heads);
    let rules: Vec<String> = (0..table.columns.len())
        .map(|column| if table.is_numeric(column) { "--:" } else { "---" }.to_owned())
        .collect();
    row(&mut out, &rules);
    for cells in &table.rows {
        row(&mut out, &cells.iter().map(|text| cell(text)).collect::<Vec<_>>());
    }
    out
}

fn row(out: &mut String, cells: &[String]) {
    out.push_str("| ");
    out.push_str(&cells.join(" | "));
    out.push_str(" |\n");
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Returns a table with a column of costs and one of ratios for each of a record's scenarios (name, heading).
/// The reference is the first row, then Nighttrain, then the other contenders in ascending cost of the first
/// scenario.
pub(crate) fn costs(record: &Record, scenarios: &[(&str, &str)], places: usize) -> Result<Table, String> {
    costs_beside(record, scenarios, &record.reference, places)
}

/// Returns the table of [`costs`] with ratios to the named reference.
pub(crate) fn costs_beside(
    record: &Record,
    scenarios: &[(&str, &str)],
    reference: &str,
    places: usize,
) -> Result<Table, String> {
    let found: Vec<&Comparison> = scenarios
        .iter()
        .map(|(name, _)| comparison(record, name).ok_or_else(|| format!("{} has no {name}", record.date)))
        .collect::<Result<_, _>>()?;
    let mut columns = vec![(String::new(), "")];
    for (_, heading) in scenarios {
        columns.push(((*heading).to_owned(), "µs"));
        columns.push((format!("× {}", shown(reference, &record.versions)), ""));
    }
    let columns: Vec<(&str, &str)> = columns.iter().map(|(name, unit)| (name.as_str(), *unit)).collect();
    let mut table = Table::new("", &columns);
    for name in order(record, found.first().copied()) {
        let mut cells = vec![bold_if_ours(&name, &shown(&name, &record.versions))];
        for comparison in &found {
            cells.push(comparison.cost(&name).map_or_else(dash, |cost| format!("{cost:.places$}")));
            cells.push(ratio(comparison, &name, reference).map_or_else(dash, interval));
        }
        table.row(cells);
    }
    Ok(table)
}

/// Returns the names of a comparison's contenders in the order of a table's rows.
pub(crate) fn order(record: &Record, comparison: Option<&Comparison>) -> Vec<String> {
    let Some(comparison) = comparison else { return Vec::new() };
    let mut names: Vec<&str> = comparison
        .series
        .iter()
        .map(|series| series.name.as_str())
        .filter(|&name| name == record.reference || !is_reference(name))
        .collect();
    let rank = |name: &str| match name {
        _ if is_reference(name) => 0,
        _ if is_ours(name) => 1,
        _ => 2,
    };
    let cost = |name: &str| comparison.cost(name).unwrap_or(f64::INFINITY);
    names.sort_by(|a, b| rank(a).cmp(&rank(b)).then(cost(a).total_cmp(&cost(b))));
    names.into_iter().map(str::to_owned).collect()
}

/// Returns the cost of a contender as a multiple of `reference`'s.
pub(crate) fn ratio(comparison: &Comparison, name: &str, reference: &str) -> Option<Ratio> {
    Ratio::paired(&comparison.series(name)?.costs_us(), &comparison.series(reference)?.costs_us())
}

/// Formats a ratio as `1.16 (1.15–1.18)`.
pub(crate) fn interval(ratio: Ratio) -> String {
    // The reference compared with itself has a ratio of exactly 1.
    if (ratio.low, ratio.high) == (1.0, 1.0) {
        return "1".into();
    }
    format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.low, ratio.high)
}

/// Tabulates the goals with their latest verdicts.
pub(crate) fn goals(judged: &[(&Figure, &RecordFile<Record>)]) -> String {
    let mut found = Table::new("", &[("goal", ""), ("measured (95%)", ""), ("", ""), ("record", "")]);
    for (figure, kept) in judged {
        found.row([
            figure.what.clone(),
            figure.ratio.map_or_else(dash, interval),
            verdict(figure.verdict).to_owned(),
            kept.link(),
        ]);
    }
    table(&found)
}

/// Returns a verdict's words on the page.
pub(crate) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::TooNoisy => "undecided",
        other => other.words(),
    }
}

/// A table with links to the record that it comes from.
#[derive(Debug)]
pub(crate) struct SourcedTable {
    pub(crate) links: String,
    pub(crate) table: String,
}

impl SourcedTable {
    pub(crate) fn new<R>(kept: &RecordFile<R>, table: String) -> Self {
        Self { links: kept.links(), table }
    }
}

/// Formats a name in bold if it is Nighttrain's.
pub(crate) fn bold_if_ours(name: &str, text: &str) -> String {
    if is_ours(name) { format!("**{text}**") } else { text.to_owned() }
}

/// Returns the content of an empty cell.
pub(crate) fn dash() -> String {
    "–".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_code_are_not_broken() {
        let words = unbroken("see [the page](a.md), `make it so` and more");
        assert_eq!(words, ["see", "[the page](a.md),", "`make it so`", "and", "more"]);
    }

    #[test]
    fn prose_is_broken_and_items_hang() {
        let out =
            reflow(&format!("# Title\n\n\n{0}\n{0}\n\n- {0} end\n- two\n\n| a | b |\n", "word ".repeat(40)));
        let blocks: Vec<&str> = out.split("\n\n").collect();
        assert_eq!((blocks.len(), blocks[0], blocks[3]), (4, "# Title", "| a | b |\n"), "{out}");
        assert!(blocks[2].contains("\n  word") && blocks[2].ends_with("end\n- two"), "{out}");
        assert!(out.lines().all(|line| line.chars().count() <= COLUMNS), "{out}");
    }
}
