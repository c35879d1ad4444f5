//! Fuzz target: a URL, and a reference in its answer. The checks are in `crates/cache/src/fuzzing/key.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cache::fuzzing::cache_key(bytes));
