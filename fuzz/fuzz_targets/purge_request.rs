//! Fuzz target: what a request wants purged. The checks are in `crates/cache/src/fuzzing/purge.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cache::fuzzing::purge_request(bytes));
