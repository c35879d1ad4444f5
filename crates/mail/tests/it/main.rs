//! Mail from outside: over sockets, across restarts, and after kills.
//!
//! All tests are one program, because each test program is linked separately; each file covers one subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may fail, wait and lock"
)]

mod annotations;
mod bodies;
mod common;
mod full_disk;
mod fuzz_seeds;
mod hurried;
mod injected;
mod large;
mod letters;
mod power;
mod receiving;
mod restarts;
mod slow;
mod twin;
mod version_1;
