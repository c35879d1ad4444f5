//! The public suite for RFC 9111 against the accelerator.
//!
//! ```text
//!   the suite's client ──▶ nighttrain cache --cookies rfc ──▶ the suite's origin server
//!            └ results by id ─▶ Judgement ─▶ docs/conformance/http-cache-tests.md
//!                                   ▲ reasons.txt: why what fails fails
//! ```
//!
//! The page is the record, too: a test whose row would change is run once more by itself, because the suite counts
//! seconds and a busy machine loses some; what it says then counts. [`suite`] runs things, [`judgement`] decides what
//! has passed, [`reasons`] knows why not, [`page`] writes.

pub mod judgement;
pub mod page;
pub mod reasons;
pub mod suite;

use std::collections::BTreeMap;

pub use judgement::{Judgement, Kind};
pub use reasons::Reasons;

/// The record, from the top of the source tree.
pub const PAGE: &str = "docs/conformance/http-cache-tests.md";

/// Tests that are run once more by themselves when they differ from the record. A group of twenty runs at once and has
/// two seconds, so one stall of the machine may spoil it all; more are no accident.
const RERUNS_MAX: usize = 32;

/// What a run found.
#[derive(Debug)]
pub struct Outcome {
    /// What each test came to.
    pub judgement: Judgement,
    /// The page about it.
    pub page: String,
    /// The rows of the record that are not the page's any more, as `was` and `is`, by test.
    pub changed: BTreeMap<String, (String, String)>,
    /// Reasons without a failure and failures without a reason, in words.
    pub unexplained: Vec<String>,
}

/// Runs the suite and compares with `record`, an older page.
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
        // The record may know tests that another version of the suite has.
        let known: Vec<String> = rows.keys().filter(|id| results.contains_key(*id)).cloned().collect();
        results.extend(suite.again(&known));
        (rows, judgement, page) = judge(&results);
    }
    let unexplained = reasons.compare(&judgement);
    Outcome { judgement, page, changed: rows, unexplained }
}
