//! Fuzz target: an HTTP/1 message body. The checks are in `checks/http1_body.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/http1_body.rs"]
mod http1_body;
#[path = "../../crates/wire/tests/it/naive/mod.rs"]
mod naive;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1_body::check(bytes));
