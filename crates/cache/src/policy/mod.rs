//! What RFC 9111 lets a shared cache do, as pure functions: no I/O, no clock (every time is an argument), no state.
//!
//! ```text
//!  request ──RequestFacts──> recv ──┬─ Synth(fault) · Purge · Pass(reason)
//!                                   └─ Lookup ── secondary_key (vary) ──> a stored response?
//!                                                    │ yes                        │ no
//!                                        may_reuse (reuse) ── no ──┐              │
//!                                                    │ yes         v              v
//!                                   evaluate (conditional)         fetch from the origin
//!                                   304 · 206 · 416 · whole                │ ResponseFacts
//!                                                                  storable ── Yes(Freshness) · No(Why)
//!                                                                  invalidate, after unsafe methods
//! ```
//!
//! Times are whole seconds since 1970 (`…_s`), as HTTP's dates are. Requests are judged on the hit path: nothing
//! there allocates. Responses are judged once per fetch.
//!
//! Every *no* has a stable name, which `Cache-Status` and `explain` show.
pub mod conditional;
pub mod directives;
pub mod freshness;
pub mod invalidate;
pub mod request;
pub mod reuse;
pub mod storable;
pub mod vary;

pub use conditional::{Validators, Verdict, evaluate};
pub use freshness::{Freshness, Source, Times};
pub use request::{PassReason, Recv, RequestFacts, recv};
pub use reuse::{NotReused, Reuse, Stored, may_reuse, may_share};
pub use storable::{ResponseFacts, Storable, StoreRules, Why, storable};

#[cfg(test)]
pub(crate) mod test_heads;

/// An HTTP date (RFC 9110 §5.6.7) as seconds since 1970. `None` for what is none, and for years before 1970.
pub fn http_date_s(value: &[u8]) -> Option<u64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs())
}
