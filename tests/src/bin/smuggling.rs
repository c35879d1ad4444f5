//! Runs the tables of ambiguous messages against the accelerator: `smuggling` writes the data and the page
//! with the counts.

use std::{fs, process::ExitCode};

use tests::{
    corpus::{DATA, PAGE, Table, cases::Record, page, run},
    node::source_tree,
};

const USAGE: &str = "\
smuggling: the tables in tests/corpus against `nighttrain cache`

  smuggling    runs them, names the rows whose result differs, and writes docs/conformance/smuggling.tsv and .md
";

fn main() -> ExitCode {
    if std::env::args().len() > 1 {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    }
    let (mut cases, mut faults) = (Vec::new(), Vec::new());
    for table in Table::ALL {
        let outcome = run(table, "");
        cases.extend(outcome.cases);
        faults.extend(outcome.faults);
    }
    faults.iter().for_each(|fault| println!("{fault}"));
    let record = Record::new(cases);
    fs::write(source_tree().join(DATA), record.text()).expect("the data can be written");
    fs::write(source_tree().join(PAGE), page::of(&record)).expect("the page can be written");
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
