//! Fuzz target: a search query. The checks are in `checks/search_query.rs`.
#![no_main]

#[path = "../checks/search_query.rs"]
mod search_query;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| search_query::check(bytes));
