//! Rules of RFC 9111 for a shared cache, as pure functions: no I/O, no clock (every time is an argument), no
//! state.
//!
//! ```text
//!  request ──RuleResult, RequestFacts──> recv ──┬─ Synth(fault) · Purge · Pass(reason)
//!                                   └─ Lookup ── secondary_key (vary) ──> a stored response?
//!                                                    │ yes                        │ no
//!                                        judge_reuse (reuse) ── no ──┐            │
//!                                                    │ yes         v              v
//!                                   evaluate (conditional)         fetch from the origin
//!                                   304 · 206 · 416 · whole                │ ResponseFacts
//!                                                                  storable ── Yes(Freshness) · No(Why)
//!                                                                  invalidate, after unsafe methods
//! ```
//!
//! Times are whole seconds since 1970 (`…_s`), as in HTTP's dates. Requests are judged on the hit path, which
//! never allocates. Responses are judged once per fetch.
//!
//! Every *no* has a stable name, which `Cache-Status` and `explain` show.
pub mod accept;
pub mod codable;
pub mod conditional;
pub mod directives;
pub mod freshness;
pub mod invalidate;
pub mod purge;
pub mod request;
pub mod reuse;
pub mod ruled;
pub mod storable;
pub mod vary;

pub use codable::{LeftAlone, codable, decodable};
pub use conditional::{Validators, Verdict, coding_had, coding_of_part, evaluate, has_decoded};
pub use freshness::{Freshness, Source, Times};
pub use request::{PassReason, Recv, RequestFacts, recv};
pub use reuse::{Audience, NotReused, Reuse, StoredResponse, judge_reuse, may_share};
pub use ruled::RuleResult;
pub use storable::{ResponseFacts, Storable, StoreRules, Why, storable};

#[cfg(test)]
pub(crate) mod test_heads;

/// Parses an HTTP date (RFC 9110 §5.6.7) to seconds since 1970, ignoring case (RFC 9111 §4.2) and the
/// weekday. `None` if it is invalid, or before 1970.
pub fn http_date_s(value: &[u8]) -> Option<u64> {
    let value = std::str::from_utf8(value).ok()?;
    let time = httpdate::parse_http_date(value).ok().or_else(|| lenient_date(value))?;
    Some(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs())
}

/// Parses a date with unusual case or a wrong weekday, after rewriting it in the proper form.
#[cold]
fn lenient_date(value: &str) -> Option<std::time::SystemTime> {
    const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
    let weekday = &value[..value.bytes().position(|b| !b.is_ascii_alphabetic())?];
    let is_short = weekday.len() == 3;
    let spelled = |day: &'static str| if is_short { &day[..3] } else { day };
    DAYS.iter().find(|day| spelled(day).eq_ignore_ascii_case(weekday))?;
    let mut rest = value[weekday.len()..].to_ascii_lowercase();
    if let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        rest[at..=at].make_ascii_uppercase();
    }
    let rest = rest.replace(" gmt", " GMT");
    DAYS.iter().find_map(|day| httpdate::parse_http_date(&format!("{}{rest}", spelled(day))).ok())
}
