//! Runs the public test suite for RFC 9111 against the accelerator.
//!
//! ```text
//!   the suite's client ──▶ nighttrain cache --cookies rfc ──▶ the suite's origin server
//!            └ results by id ─▶ Judgement ─▶ docs/conformance/http-cache-tests.md
//!                                   ▲ reasons.txt: why what fails fails
//! ```
//!
//! The page is also the record. A test whose row would change is run once more alone, and that second result
//! counts: the suite counts seconds, and a busy machine loses some. [`suite`] runs the programs,
//! [`judgement`] decides which tests have passed, [`reasons`] knows why a test fails, [`page`] writes the
//! page.

pub mod judgement;
pub mod page;
pub mod reasons;
pub mod suite;

use std::collections::BTreeMap;

pub use judgement::{Judgement, Kind};
pub use reasons::Reasons;

/// Path of the page from the top of the source tree.
pub const PAGE: &str = "docs/conformance/http-cache-tests.md";

/// Largest number of tests that are run again alone when they differ from the record. A group of twenty runs
/// at once and has two seconds, so one stall of the machine may spoil all of it; more changed rows than this
/// are no accident.
const RERUNS_MAX: usize = 32;

/// Outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Verdicts on the tests.
    pub judgement: Judgement,
    /// Text of the page about the run.
    pub page: String,
    /// Rows that differ between the record and the new page, as `was` and `is`, by test.
    pub changed: BTreeMap<String, (String, String)>,
    /// Reasons without a failure, and failures without a reason, as sentences.
    pub unexplained: Vec<String>,
}

/// Runs the suite and compares the results with `record`, an older page.
///
/// # Panics
/// When the suite cannot be installed or run.
#[must_use]
pub fn run(record: &str) -> Outcome {
    let suite = suite::Suite::start();
    let groups = suite.groups();
    let reasons = Reasons::parse(&suite::reasons()).unwrap_or_else(|error| panic!("reasons.txt: {error}"));
    let mut results = suite.results();
    let judge = |results: &judgement::Results| {
        let judgement = Judgement::new(groups.clone(), results);
        let page = page::write(&judgement, &reasons, &suite.flags);
        (page::changed(record, &page), judgement, page)
    };
    let (mut rows, mut judgement, mut page) = judge(&results);
    if !record.is_empty() && (1..=RERUNS_MAX).contains(&rows.len()) {
        // The record may contain tests of another version of the suite.
        let known: Vec<String> = rows.keys().filter(|id| results.contains_key(*id)).cloned().collect();
        results.extend(suite.again(&known));
        (rows, judgement, page) = judge(&results);
    }
    let unexplained = reasons.compare(&judgement);
    Outcome { judgement, page, changed: rows, unexplained }
}
