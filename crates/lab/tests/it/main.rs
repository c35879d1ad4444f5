//! Tests of the lab from outside: its program, tiny runs of its benchmarks, its instruments.
//!
//! All tests are one program, because each program is linked separately; each file has one subject.

mod bench_cache;
mod bench_feed;
mod bench_mail;
mod bench_pressure;
mod bench_tls;
mod bheap_sim;
mod load;
mod program;
mod quick;
