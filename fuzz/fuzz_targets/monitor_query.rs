//! Fuzz target: the query of a monitoring page. The checks are in `crates/feed/src/fuzzing/query.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::fuzzing::monitor_query(bytes));
