//! Fuzz target: a NATS client's session. The checks are in `crates/feed/src/fuzzing/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::fuzzing::nats_session(bytes));
