//! The public suite for RFC 9111, as `make conformance` runs it.

use std::fs;

use tests::{
    conformance::{self, PAGE},
    node::source_tree,
};

/// The record is compared in both directions: a new failure is a fault, and a new pass must be recorded so
/// that it stays.
#[test]
fn a1_suite_results_match_the_recorded_page() {
    let record = fs::read_to_string(source_tree().join(PAGE)).expect("the page is in the source tree");
    let outcome = conformance::run(&record);
    let changed: Vec<String> = outcome.changed.values().map(|(was, is)| format!("-{was}\n+{is}")).collect();
    assert!(changed.is_empty(), "`make conformance` records this anew:\n{}", changed.join("\n"));
    assert!(outcome.unexplained.is_empty(), "{}", outcome.unexplained.join("\n"));
    assert_eq!(outcome.page, record, "`make conformance` writes {PAGE} anew");
}
