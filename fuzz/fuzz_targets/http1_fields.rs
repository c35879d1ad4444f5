//! Fuzz target: header values. The checks are in `checks/http1_fields.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/http1_fields.rs"]
mod http1_fields;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1_fields::check(bytes));
