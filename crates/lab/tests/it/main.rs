//! The lab from outside: its program, its benchmarks run tiny, its instruments.
//!
//! One program, because each is linked by itself; a file is one subject.

mod bench_cache;
mod bench_feed;
mod bench_mail;
mod bench_pressure;
mod bench_tls;
mod bheap_sim;
mod load;
mod program;
mod quick;
