//! Ambiguous requests, ambiguous answers and cache poisoning: three tables (`tests/corpus/`), run against the
//! accelerator in front of strict and lax origins.
//!
//! ```text
//!   requests.txt ──▶ accelerator ──▶ ScriptedOrigin · nginx · Node · Node, lax · Python · Go
//!   responses.txt ─▶ accelerator ──▶ ScriptedOrigin, which sends the bytes of the row
//!   poisoning.txt ─▶ accelerator ──▶ ScriptedOrigin, which echoes all that it receives
//!          └ Case, one a row ─▶ Record ─▶ docs/conformance/smuggling.tsv ─▶ smuggling.md, which counts them
//! ```
//!
//! [`table`] reads the tables, [`cases`] writes the data, [`page`] the summary; the other modules run a table
//! each.

pub mod cases;
pub mod origins;
pub mod page;
mod poisoning;
mod requests;
mod responses;
pub mod table;

use std::{fs, thread};

use crate::node::source_tree;
use cases::Case;
use origins::Kind;
use table::Row;

/// Path of the summary from the top of the source tree.
pub const PAGE: &str = "docs/conformance/smuggling.md";
/// Path of the data from the top of the source tree.
pub const DATA: &str = "docs/conformance/smuggling.tsv";

/// One of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Requests of clients.
    Requests,
    /// Answers of origins.
    Responses,
    /// Requests of one client whose answer another client could get.
    Poisoning,
}

impl Table {
    /// All tables, in the order of the page.
    pub const ALL: [Self; 3] = [Self::Requests, Self::Responses, Self::Poisoning];

    /// Name of the table's file, and of the table in the data.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Responses => "responses",
            Self::Poisoning => "poisoning",
        }
    }

    /// Reads the table's rows.
    ///
    /// # Panics
    /// When the file cannot be read or parsed.
    #[must_use]
    pub fn rows(self) -> Vec<Row> {
        let path = source_tree().join("tests/corpus").join(self.name()).with_extension("txt");
        let text = fs::read_to_string(&path).expect("the table is in the source tree");
        Row::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    }
}

/// Result of a row with one origin behind the accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CaseResult {
    /// Statuses that the client got, or the answer in words.
    answer: String,
    /// State of the client's connection afterwards.
    connection: String,
    /// Requests that the origin got, or `stored` and `not stored`.
    effect: Vec<String>,
}

/// Result of a table.
#[derive(Debug)]
pub struct Outcome {
    /// Rows whose result differs from their expectation, and how.
    pub faults: Vec<String>,
    /// Rows with the expected result, as cases.
    pub cases: Vec<Case>,
}

/// Runs those rows of a table whose names begin with `beginning`.
///
/// # Panics
/// When a needed program is not installed, or the accelerator sends bytes that are not HTTP.
#[must_use]
pub fn run(table: Table, beginning: &str) -> Outcome {
    let mut rows = table.rows();
    rows.retain(|row| row.name.starts_with(beginning));
    assert!(!rows.is_empty(), "{table:?} has no row {beginning}");
    let (ours, others) = match table {
        Table::Requests => in_front_of_all(&rows),
        Table::Responses => (responses::run(&rows), Vec::new()),
        Table::Poisoning => (poisoning::run(&rows), Vec::new()),
    };
    let results = ours.iter().chain(others.iter().flatten());
    let faults = results.filter_map(|result| result.as_ref().err().cloned()).collect();
    let case = |(at, (row, ours)): (usize, (&Row, &Result<CaseResult, String>))| {
        let others: Vec<_> = others.iter().map(|results| results[at].as_ref().ok()).collect();
        Some(Case::of(table, row, ours.as_ref().ok()?, &others))
    };
    Outcome { faults, cases: rows.iter().zip(&ours).enumerate().filter_map(case).collect() }
}

/// Runs the requests with HTTP/2 between the accelerator and the origin. Returns the rows whose result
/// differs from their expectation.
///
/// # Panics
/// When an accelerator does not start.
#[must_use]
pub fn requests_over_http2() -> Vec<String> {
    requests::run_over_http2(&Table::Requests.rows()).into_iter().filter_map(Result::err).collect()
}

type TableResults = Vec<Result<CaseResult, String>>;

/// Runs each row; an error begins with the row's name.
fn each(rows: &[Row], mut run: impl FnMut(&Row) -> Result<CaseResult, String>) -> TableResults {
    let named = |row: &Row| {
        let panics = PanicNote(&row.name);
        let result = run(row);
        std::mem::forget(panics);
        result.map_err(|why| format!("{}: {why}", row.name))
    };
    rows.iter().map(named).collect()
}

/// Prints the row's name when a panic unwinds: a strict reader stops the test with a panic.
struct PanicNote<'a>(&'a str);

impl Drop for PanicNote<'_> {
    fn drop(&mut self) {
        eprintln!("in the row {}", self.0);
    }
}

/// Returns the results with the strict origin, and those with each other origin in the order of
/// [`Kind::ALL`].
fn in_front_of_all(rows: &[Row]) -> (TableResults, Vec<TableResults>) {
    thread::scope(|scope| {
        let others = Kind::ALL.map(|kind| scope.spawn(move || requests::run(rows, Some(kind))));
        let ours = requests::run(rows, None);
        (ours, others.into_iter().map(|run| run.join().expect("the table is run")).collect())
    })
}
