//! The queues from outside: compared with slow twins, in files, and killed.
//!
//! All tests are one program, because each program is linked by itself; each file is one subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may fail, wait, and say what it counted"
)]

mod bad_input;
mod bounded;
mod damage;
mod file_bad_input;
mod file_crash;
mod file_damage;
mod file_queue_crash;
mod file_queue_damage;
mod file_twin;
mod fuzz_seeds;
mod handles;
mod memory;
#[path = "../../../../fuzz/checks/memory_disk.rs"]
mod memory_disk;
mod random;
mod twin;
