//! Fuzz target: HTTP/2 field blocks. The checks are in `checks/http2_hpack.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/http2_hpack.rs"]
mod http2_hpack;
#[path = "../../crates/wire/tests/it/naive_hpack/mod.rs"]
mod naive_hpack;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http2_hpack::check(bytes));
