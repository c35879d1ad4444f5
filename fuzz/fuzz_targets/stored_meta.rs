//! The words beside a record. What is held: `crates/cache/src/fuzzing/meta.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cache::fuzzing::stored_meta(bytes));
