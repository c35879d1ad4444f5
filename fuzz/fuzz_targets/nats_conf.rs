//! Fuzz target: a nats-server configuration file. The checks are in `checks/nats_conf.rs`.
#![no_main]

#[path = "../checks/nats_conf.rs"]
mod nats_conf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nats_conf::check(bytes));
