//! The feed from outside, over sockets.
//!
//! All tests are one program, because each test program is linked separately; each file covers one subject.
#![allow(clippy::expect_used, clippy::disallowed_methods, reason = "a test may fail and wait")]

mod accounts;
mod answers;
mod bad_days;
mod common;
mod fuzz_seeds;
mod looking;
mod mutation;
mod order;
mod own;
mod proxied;
mod reports;
mod revoking;
mod rights;
mod sums;
mod system;
mod turns;
mod web_floods;
mod words;
mod wrapped;
