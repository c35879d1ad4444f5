//! Fuzz target: the first lines of a mail. The checks are in `crates/mail/src/fuzzing/words.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mail::fuzzing::mail_head(bytes));
