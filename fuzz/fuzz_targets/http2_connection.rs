//! Fuzz target: a client's HTTP/2 connection. The checks are in `checks/http2_connection.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/http2_connection.rs"]
mod http2_connection;
#[path = "../checks/http2_head.rs"]
mod http2_head;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http2_connection::check(bytes));
