//! Fuzz target: a record of the accelerator's file. The checks are in `checks/store_record.rs`.
#![no_main]

#[path = "../checks/store_record.rs"]
mod store_record;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| store_record::check(bytes));
