//! Fuzz target: a PROXY protocol header. The checks are in `crates/mail/src/fuzzing/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mail::fuzzing::proxy_header(bytes));
