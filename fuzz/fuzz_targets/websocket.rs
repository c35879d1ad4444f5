//! Fuzz target: a browser's WebSocket bytes. The checks are in `crates/feed/src/fuzzing/websocket.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| feed::fuzzing::websocket(bytes));
