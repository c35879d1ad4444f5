//! The seeds of the fuzz targets, run through the same checks as the targets.

#[path = "../../../../fuzz/checks/cut.rs"]
mod cut;
#[path = "../../../../fuzz/checks/engine_log.rs"]
mod engine_log;
#[path = "../../../../fuzz/checks/seeds.rs"]
mod seeds;

#[path = "../../../../fuzz/checks/store_record.rs"]
mod store_record;

#[test]
fn store_record() {
    seeds::replay("store_record", store_record::check);
}

#[test]
fn engine_log() {
    seeds::replay("engine_log", engine_log::check);
}
