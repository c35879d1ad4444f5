//! What a request asks to have purged. What is held: `crates/cache/src/fuzzing/purge.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cache::fuzzing::purge_request(bytes));
