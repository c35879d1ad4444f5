//! Writer of the summary: `docs/conformance/smuggling.md` counts the cases of the data file.

use std::fmt::Write as _;

use super::{
    Table,
    cases::{Case, Record},
    poisoning::{CLEAN, SEPARATE, SHARED},
};

const HEAD: &str = "\
# Ambiguous messages: what the accelerator does with each

Two programs can read one message differently: where its body ends, which host it is for, who may share the answer. Attackers use
this for request smuggling, response splitting and cache poisoning. [smuggling.tsv](smuggling.tsv) has a line a case: what is sent,
the rule (RFC), our answer, what becomes of the connection, and what the origin is asked. This page counts the cases.

`make smuggling` runs the cases of [tests/corpus](../../tests/corpus/README.md) and writes both files. `make test` runs them, too,
and fails when a result differs.
";

const REQUESTS: &str = "\
A client sends each request to the accelerator in front of six origins: a strict one of the tests, and five that others wrote.
*Refused*: an answer of 400 or higher; no origin sees more of the request than its beginning. *Closed*: the connection ends after
the answer. Behind each case stands a plain request in the same bytes: on an open connection it gets its own answer, on a closed one
none. Other clients then get their own answers. The last columns count the cases that an origin reads differently from the strict
one; the data says how. Python's `http.server`, for example, reads no chunked body.
";

const RESPONSES: &str = "\
An origin sends each answer. *Refused*: the client gets 502. *Refused or cut*: the client gets 502, or the beginning of the answer
and then a cut, where the fault comes late. *Stored*: the next client gets the answer from the store. What the origin sends behind an
answer reaches no client.
";

const POISONING: &str = "\
An attacker sends a request with the word `evil`; then another client asks for the same page. The origin repeats all that it is
sent, in an answer that may be stored for everybody unless the case says otherwise. *Separate*: each client gets an answer of its own.
*Clean*: both share one stored answer without the word. *Shared*: both share one stored answer with the word.
";

/// Writes the page about a record.
#[must_use]
pub fn of(record: &Record) -> String {
    let cases_of = |table: Table| record.cases.iter().filter(|case| case.table == table).collect::<Vec<_>>();

    let requests = cases_of(Table::Requests);
    let mut columns = vec![
        column("refused", is_refused),
        column("answered", |case| !is_refused(case)),
        column("closed", |case| case.connection == "closed"),
    ];
    let others = record.origins.iter().enumerate();
    columns.extend(others.map(|(at, origin)| column(origin, move |case| !case.others[at].is_empty())));
    let mut page = format!("{HEAD}\n## Requests: {} cases\n\n{REQUESTS}\n", requests.len());
    page += &counts(&requests, &columns);

    let responses = cases_of(Table::Responses);
    let columns = [
        column("refused", |case| case.answer == "502"),
        column("refused or cut", |case| case.answer.starts_with("502,")),
        column("passed on", |case| !case.answer.starts_with("502")),
        column("stored", |case| case.effect == "stored"),
    ];
    let _ = write!(page, "\n## Responses: {} cases\n\n{RESPONSES}\n", responses.len());
    page += &counts(&responses, &columns);

    let poisoning = cases_of(Table::Poisoning);
    let columns = [
        column("refused", is_refused),
        column("separate", |case| case.answer == SEPARATE),
        column("clean", |case| case.answer == CLEAN),
        column("shared", |case| case.answer == SHARED),
    ];
    let _ = write!(page, "\n## Poisoning: {} cases\n\n{POISONING}\n", poisoning.len());
    page += &counts(&poisoning, &columns);
    page += "\nShared, and why:\n\n";
    for case in poisoning.iter().filter(|case| case.answer == SHARED) {
        let _ = writeln!(page, "- `{}`: {}", case.name, case.remark);
    }
    page
}

/// A column's title, and the test for the cases that it counts.
type Column<'a> = (&'a str, Box<dyn Fn(&Case) -> bool + 'a>);

fn column<'a>(title: &'a str, is_counted: impl Fn(&Case) -> bool + 'a) -> Column<'a> {
    (title, Box::new(is_counted))
}

/// Returns whether one of the answers is a refusal; earlier answers may precede it.
fn is_refused(case: &Case) -> bool {
    case.answer.split(", ").any(|status| status.starts_with(['4', '5']))
}

/// Writes the table of counts by class of attack, with the sums in the last row.
fn counts(cases: &[&Case], columns: &[Column<'_>]) -> String {
    let mut attacks: Vec<&str> = Vec::new();
    for case in cases {
        if !attacks.contains(&case.attack.as_str()) {
            attacks.push(&case.attack);
        }
    }
    let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let mut table =
        format!("| attack | cases | {} |\n|---|--:|{}\n", titles.join(" | "), "--:|".repeat(columns.len()));
    for attack in attacks {
        let cases: Vec<&Case> = cases.iter().copied().filter(|case| case.attack == attack).collect();
        table += &row(attack, &cases, columns);
    }
    table + &row("**all**", cases, columns)
}

fn row(name: &str, cases: &[&Case], columns: &[Column<'_>]) -> String {
    let mut row = format!("| {name} | {} |", cases.len());
    for (_, is_counted) in columns {
        let _ = match cases.iter().filter(|case| is_counted(case)).count() {
            0 => write!(row, " – |"),
            count => write!(row, " {count} |"),
        };
    }
    row + "\n"
}
