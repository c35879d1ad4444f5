//! Fuzz target: words in mail's paths and files. The checks are in `crates/mail/src/fuzzing/words.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mail::fuzzing::mail_words(bytes));
