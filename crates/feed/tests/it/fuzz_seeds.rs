//! Replays the seeds of the fuzz target through the target's check. Targets that need the crate's private
//! names are replayed in `src/fuzzing`.

#[path = "../../../../fuzz/checks/nats_conf.rs"]
mod nats_conf;
#[path = "../../../../fuzz/checks/seeds.rs"]
mod seeds;

#[test]
fn nats_conf() {
    seeds::replay("nats_conf", nats_conf::check);
}
