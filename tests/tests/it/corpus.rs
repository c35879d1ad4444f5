//! The tables in `tests/corpus/`: ambiguous requests and answers, and poisoning of one client's answers by
//! another.

use std::fs;

use tests::{
    corpus::{DATA, PAGE, Table, cases::Record, page, run},
    node::source_tree,
};

fn record() -> Record {
    let text = fs::read_to_string(source_tree().join(DATA)).expect("the data is in the source tree");
    Record::parse(&text).expect("the data is in order")
}

/// Asserts that every row has the result that it expects, and that the data file has it.
#[track_caller]
fn holds(table: Table) {
    let outcome = run(table, "");
    assert!(outcome.faults.is_empty(), "{}", outcome.faults.join("\n"));
    let changes = record().changes(table, &outcome.cases);
    assert!(changes.is_empty(), "`make smuggling` writes {DATA}, which changes:\n{}", changes.join("\n"));
}

#[test]
fn the_page_counts_the_data() {
    let record = record();
    let page = fs::read_to_string(source_tree().join(PAGE)).expect("the page is in the source tree");
    assert_eq!(page, page::of(&record), "`make smuggling` writes {PAGE}");
    assert_eq!(fs::read_to_string(source_tree().join(DATA)).expect("the data"), record.text());
}

#[test]
fn a32_ambiguous_requests_get_the_expected_answer() {
    holds(Table::Requests);
}

#[test]
fn a42_ambiguous_requests_get_the_expected_answer_over_http2() {
    let faults = tests::corpus::requests_over_http2();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a32_ambiguous_responses_reach_only_their_client() {
    holds(Table::Responses);
}

#[test]
fn a32_what_one_client_sends_reaches_no_other() {
    holds(Table::Poisoning);
}

/// Asserts that the rows whose names begin with `beginning` have the results that they expect.
#[track_caller]
fn rows_hold(table: Table, beginning: &str) {
    let outcome = run(table, beginning);
    assert!(outcome.faults.is_empty(), "{}", outcome.faults.join("\n"));
}

#[test]
fn a45_pingoras_key_without_a_host() {
    rows_hold(Table::Poisoning, "pingora-key-without-host");
}

#[test]
fn a45_pingoras_bytes_behind_an_upgrade() {
    rows_hold(Table::Requests, "pingora-bytes-behind-an-upgrade");
}

#[test]
fn a45_pingoras_http_1_0_with_transfer_encoding() {
    rows_hold(Table::Requests, "pingora-http-1-0-with-a-coding");
}

#[test]
fn a45_an_unread_body_of_a_hit_smuggles_nothing() {
    rows_hold(Table::Requests, "pingora-hit-with-a-body");
}
