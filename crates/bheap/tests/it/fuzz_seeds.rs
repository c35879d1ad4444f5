//! Runs the seeds of the fuzz target through the target's own check.

#[path = "../../../../fuzz/checks/cut.rs"]
mod cut;
#[path = "../../../../fuzz/checks/queue_file.rs"]
mod queue_file;
#[path = "../../../../fuzz/checks/seeds.rs"]
mod seeds;

use crate::memory_disk;

#[test]
fn queue_file() {
    seeds::replay("queue_file", queue_file::check);
}
