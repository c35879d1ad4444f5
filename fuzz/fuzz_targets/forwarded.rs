//! Fuzz target: client addresses in proxies' forwarding fields. The checks are in
//! `crates/httpd/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| httpd::fuzzing::forwarded(bytes));
