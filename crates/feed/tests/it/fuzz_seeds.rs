//! The seeds of the fuzz target, through the check that the target is. Of what only the crate itself can name:
//! `src/fuzzing.rs`.

#![allow(clippy::expect_used, reason = "a test may fail")]

#[path = "../../../../fuzz/checks/nats_conf.rs"]
mod nats_conf;
#[path = "../../../../fuzz/checks/seeds.rs"]
mod seeds;

#[test]
fn nats_conf() {
    seeds::replay("nats_conf", nats_conf::check);
}
