//! Fuzz target: a mail address. The checks are in `checks/mail_address.rs`.
#![no_main]

#[path = "../checks/mail_address.rs"]
mod mail_address;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mail_address::check(bytes));
