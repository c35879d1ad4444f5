//! What may be stored and shown. What is held: `crates/cache/src/fuzzing/policy.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cache::fuzzing::cache_policy(bytes));
