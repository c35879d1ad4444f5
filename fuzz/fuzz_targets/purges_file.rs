//! The file of purges. What is held: `crates/cache/src/purge_book/fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cache::fuzzing::purges_file(bytes));
