//! A workload that is larger than memory, the same on every machine and in every run.
//!
//! - [`objects`]: which objects there are, how large, with which bytes;
//! - [`requests`]: the sequence of requests: Zipf, with one-time scans mixed in.
//!
//! Everything follows from a number and a seed, so that a byte anywhere can be verified without keeping a copy.

pub mod objects;
pub mod requests;
