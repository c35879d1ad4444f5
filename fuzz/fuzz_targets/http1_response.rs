//! Fuzz target: an HTTP/1 response head. The checks are in `checks/http1_response.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/http1_response.rs"]
mod http1_response;
#[path = "../../crates/wire/tests/it/naive/mod.rs"]
mod naive;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1_response::check(bytes));
