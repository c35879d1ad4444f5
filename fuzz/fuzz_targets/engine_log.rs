//! Fuzz target: a log's file. The checks are in `checks/engine_log.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/engine_log.rs"]
mod engine_log;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| engine_log::check(bytes));
