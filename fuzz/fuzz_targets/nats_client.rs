//! Fuzz target: a NATS client's operation. The checks are in `checks/nats_client.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../../crates/wire/tests/it/naive_nats/mod.rs"]
mod naive_nats;
#[path = "../checks/nats_client.rs"]
mod nats_client;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nats_client::check(bytes));
