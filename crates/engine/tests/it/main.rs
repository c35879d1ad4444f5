//! Integration tests of the engine: cores, reads and writes of files, the log, the store, the meter.
//!
//! They form one program, because each test program is linked separately; each file has one subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may fail, wait and lock"
)]

mod bounded;
mod common;
mod cores_listener;
mod cores_mesh;
mod cores_ring;
mod cores_run;
mod fuzz_seeds;
mod idle;
mod io_files;
mod io_reads;
mod log_damage;
mod log_file;
mod log_kill;
mod log_model;
mod meter_histogram;
mod meter_prometheus;
mod store_basic;
mod store_bench;
mod store_file;
mod store_heads;
mod store_hits;
mod store_index;
mod store_lent;
mod store_parts;
mod store_seed;
mod store_sweep;
mod store_threads;
mod store_twin;
