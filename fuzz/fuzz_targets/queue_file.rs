//! Fuzz target: a queue's file. The checks are in `checks/queue_file.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/memory_disk.rs"]
mod memory_disk;
#[path = "../checks/queue_file.rs"]
mod queue_file;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| queue_file::check(bytes));
