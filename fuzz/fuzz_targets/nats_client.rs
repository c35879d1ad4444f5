//! A NATS client's operation: agrees with the slow twin, whole and at every beginning, under limits that the fuzzer
//! chooses.
#![no_main]

#[path = "../../crates/wire/tests/it/naive_nats/mod.rs"]
mod naive_nats;

use libfuzzer_sys::fuzz_target;
use wire::nats::{client::Limits, server};

fuzz_target!(|input: (u8, u8, bool, &[u8])| {
    let (line, payload, headers, bytes) = input;
    let mut limits = Limits { headers, ..Limits::default() };
    // 255 stands for no limit that matters.
    if line < 255 {
        limits.control_line_bytes_max = line.into();
    }
    if payload < 255 {
        limits.payload_bytes_max = payload.into();
    }
    naive_nats::check(&bytes[..bytes.len().min(600)], &limits);
    let _ = server::parse(bytes);
});
