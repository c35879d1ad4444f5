//! Fuzz target: the file of purges. The checks are in `crates/cache/src/purging/purge_log/fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cache::fuzzing::purges_file(bytes));
