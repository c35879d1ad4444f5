//! Fuzz target: a filter expression, as in bans. The checks are in `checks/filter.rs`.
#![no_main]

#[path = "../checks/filter.rs"]
mod filter;
#[path = "../../crates/wire/tests/it/naive_filter.rs"]
mod naive_filter;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| filter::check(bytes));
