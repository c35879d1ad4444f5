//! Fuzz target: an HTTP/1 request head. The checks are in `checks/http1_request.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/http1_request.rs"]
mod http1_request;
#[path = "../../crates/wire/tests/it/naive/mod.rs"]
mod naive;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1_request::check(bytes));
