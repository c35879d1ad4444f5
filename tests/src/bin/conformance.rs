//! Runs the public test suite for RFC 9111 against the accelerator: `conformance PAGE` writes the page with
//! the results.

use std::{fs, process::ExitCode};

use tests::conformance::{self, Kind, Outcome, page};

const USAGE: &str = "\
conformance: the public suite for RFC 9111 (npm's http-cache-tests) against `nighttrain cache`

  conformance PAGE    runs it, says what passed and what did not, and writes the page anew;
                      fails when a failure has no reason in reasons.txt (tests/clients/conformance), or a reason
                      no failure
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path] = arguments.as_slice() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let record = fs::read_to_string(path).unwrap_or_default();
    let outcome = conformance::run(&record);
    show(&outcome);
    if outcome.page != record {
        fs::write(path, &outcome.page).expect("the page can be written");
        println!("\n{path} is written anew; {} tests say something else than before", outcome.changed.len());
    }
    outcome.unexplained.iter().for_each(|what| println!("{what}"));
    if outcome.unexplained.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(outcome: &Outcome) {
    let judgement = &outcome.judgement;
    for kind in Kind::ALL {
        let unit = if kind == Kind::Check { "yes" } else { "passed" };
        println!("{:<9} {:>10} {unit}", kind.name(), page::of(judgement.count(kind, true)));
    }
    for kind in [Kind::Required, Kind::Optimal] {
        let failed: Vec<_> = judgement.failed().filter(|test| test.kind == kind).collect();
        if !failed.is_empty() {
            println!("\n{} that did not pass", kind.name());
        }
        for test in failed {
            println!("  {}\n    {}", test.id, test.name);
            println!("    {}", page::words(kind, judgement.of(&test.id)));
        }
    }
}
