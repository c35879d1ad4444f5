//! Fuzz target: which answers may be stored and served. The checks are in
//! `crates/cache/src/fuzzing/policy.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cache::fuzzing::cache_policy(bytes));
