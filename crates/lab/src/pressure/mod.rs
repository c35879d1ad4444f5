//! A workload that is larger than memory, and identical on every machine and in every run.
//!
//! - [`objects`]: the objects, with the size and the bytes of each;
//! - [`requests`]: the sequence of requests: Zipf-distributed, with one-time scans mixed in.
//!
//! Object numbers and a seed determine everything, so that any byte can be verified without keeping a copy.

pub mod objects;
pub mod requests;
