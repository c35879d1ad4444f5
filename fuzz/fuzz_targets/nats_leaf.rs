//! Fuzz target: operations of a hub to its leaf node. The checks are in `checks/nats_leaf.rs`.
#![no_main]

#[path = "../checks/cut.rs"]
mod cut;
#[path = "../../crates/wire/tests/it/naive_leaf.rs"]
mod naive_leaf;
#[path = "../checks/nats_leaf.rs"]
mod nats_leaf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nats_leaf::check(bytes));
