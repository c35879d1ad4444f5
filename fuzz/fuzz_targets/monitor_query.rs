//! What is asked of a page of monitoring. What is held: `crates/feed/src/fuzzing/query.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::fuzzing::monitor_query(bytes));
