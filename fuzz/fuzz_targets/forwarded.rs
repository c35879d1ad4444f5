//! What proxies say of whom they speak for. What is held: `crates/httpd/src/fuzzing.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| httpd::fuzzing::forwarded(bytes));
