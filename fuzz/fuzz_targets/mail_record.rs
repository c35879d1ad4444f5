//! Fuzz target: a mail record of the log. The checks are in `crates/mail/src/fuzzing/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mail::fuzzing::mail_record(bytes));
