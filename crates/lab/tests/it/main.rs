//! Tests of the lab from outside: its program, its instruments.
//!
//! All tests are one program, because each program is linked separately; each file has one subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test may fail and wait"
)]

mod bheap_sim;
mod load;
mod program;
