//! Ambiguous requests and answers, and what one client could plant for another: three tables (`tests/corpus/`), run
//! against the accelerator in front of origins that are strict and origins that are lax.
//!
//! ```text
//!   requests.txt ──▶ accelerator ──▶ ScriptedOrigin · nginx · Node · Node, lax · Python · Go
//!   responses.txt ─▶ accelerator ──▶ ScriptedOrigin, which says what stands there
//!   poisoning.txt ─▶ accelerator ──▶ ScriptedOrigin, which says all that it hears
//!          └ what each row came to ─▶ docs/conformance/smuggling.md
//! ```
//!
//! [`table`] reads, [`page`] writes; the others run a table each.

pub mod origins;
pub mod page;
mod poisoning;
mod requests;
mod responses;
pub mod table;

use std::{fs, thread};

use crate::node::source_tree;
use origins::Kind;
use table::Row;

/// The record, from the top of the source tree.
pub const PAGE: &str = "docs/conformance/smuggling.md";

/// One of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// What clients send.
    Requests,
    /// What origins answer.
    Responses,
    /// What one client sends and another could get.
    Poisoning,
}

impl Table {
    /// All of them, as they stand on the page.
    pub const ALL: [Self; 3] = [Self::Requests, Self::Responses, Self::Poisoning];

    /// Its rows.
    ///
    /// # Panics
    /// When the table is not in order.
    #[must_use]
    pub fn rows(self) -> Vec<Row> {
        let name = match self {
            Self::Requests => "requests",
            Self::Responses => "responses",
            Self::Poisoning => "poisoning",
        };
        let path = source_tree().join("tests/corpus").join(name).with_extension("txt");
        let text = fs::read_to_string(&path).expect("the table is in the source tree");
        Row::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    }
}

/// What a row came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The client's answer.
    said: String,
    /// What became of its connection.
    end: String,
    /// What the origin was asked, or what became of its answer.
    origin: Vec<String>,
}

/// What a table came to.
#[derive(Debug)]
pub struct Outcome {
    /// The rows that came to something else than they say.
    pub faults: Vec<String>,
    /// Its part of the page; without those rows.
    pub part: String,
}

/// Runs a table, of it the rows whose names begin so.
///
/// # Panics
/// When what it needs is not installed, and when the accelerator sends what is no HTTP.
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
    let faults = ours.iter().chain(others.iter().flat_map(|(_, came)| came));
    let faults = faults.filter_map(|came| came.as_ref().err().cloned()).collect();
    Outcome { faults, part: page::part(table, &rows, &ours, &others) }
}

/// Runs the requests with HTTP/2 between the accelerator and the origin: the rows that came to something else than they say.
///
/// # Panics
/// When an accelerator does not start.
#[must_use]
pub fn requests_over_http2() -> Vec<String> {
    requests::run_over_http2(&Table::Requests.rows()).into_iter().filter_map(Result::err).collect()
}

type Came = Vec<Result<Shown, String>>;

/// Runs each row; the answers say which one is wrong.
fn each(rows: &[Row], mut run: impl FnMut(&Row) -> Result<Shown, String>) -> Came {
    let named = |row: &Row| {
        let panics = Named(&row.name);
        let came = run(row);
        std::mem::forget(panics);
        came.map_err(|why| format!("{}: {why}", row.name))
    };
    rows.iter().map(named).collect()
}

/// Says where a panic came from: whatever reads strictly stops the test.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        eprintln!("in the row {}", self.0);
    }
}

fn in_front_of_all(rows: &[Row]) -> (Came, Vec<(Kind, Came)>) {
    thread::scope(|scope| {
        let others = Kind::ALL.map(|kind| (kind, scope.spawn(move || requests::run(rows, Some(kind)))));
        let ours = requests::run(rows, None);
        let others = others.into_iter().map(|(kind, run)| (kind, run.join().expect("a table is run")));
        (ours, others.collect())
    })
}
