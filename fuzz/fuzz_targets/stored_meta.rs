//! Fuzz target: metadata beside a record. The checks are in `crates/cache/src/fuzzing/meta.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cache::fuzzing::stored_meta(bytes));
