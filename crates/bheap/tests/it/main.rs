//! The queues from outside: against slow twins, on files, and killed.
//!
//! One program, because each is linked by itself; a file is one subject.

mod bad_input;
mod bounded;
mod file_bad_input;
mod file_crash;
mod file_damage;
mod file_queue_crash;
mod file_queue_damage;
mod file_twin;
mod fuzz_seeds;
mod handles;
mod memory;
mod twin;
