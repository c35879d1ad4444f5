//! Fuzz target: HTTP/2 frames. The checks are in `checks/http2_frames.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../checks/http2_frames.rs"]
mod http2_frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http2_frames::check(bytes));
