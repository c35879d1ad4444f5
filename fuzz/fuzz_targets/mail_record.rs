//! A mail as the log keeps it. What is held: `crates/mail/src/fuzzing/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mail::fuzzing::mail_record(bytes));
