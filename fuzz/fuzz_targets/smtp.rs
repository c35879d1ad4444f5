//! Fuzz target: an SMTP session. The checks are in `checks/smtp.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/smtp.rs"]
mod smtp;
#[path = "../../crates/wire/tests/it/smtp_twin/mod.rs"]
mod smtp_twin;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| smtp::check(bytes));
