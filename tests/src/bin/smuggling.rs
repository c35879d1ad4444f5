//! The tables of ambiguous messages against the accelerator: `smuggling PAGE` writes the page about them.
#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program for the terminal, which may stop at the first surprise"
)]

use std::{fs, process::ExitCode};

use tests::corpus::{Table, page, run};

const USAGE: &str = "\
smuggling: the tables in tests/corpus against `nighttrain cache`

  smuggling PAGE    runs them, says which rows come to something else than they say, and writes the page anew
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path] = arguments.as_slice() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcomes = Table::ALL.map(|table| run(table, ""));
    let faults: Vec<&String> = outcomes.iter().flat_map(|outcome| &outcome.faults).collect();
    faults.iter().for_each(|fault| println!("{fault}"));
    let parts = outcomes.each_ref().map(|outcome| outcome.part.clone());
    fs::write(path, page::whole(&parts)).expect("the page can be written");
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
