//! The instruments, and the experiments that they serve.
//!
//! Nothing here is on anybody's request path: this crate may block, sleep, read clocks and start processes. In
//! exchange it says what a figure is worth: on which thread it was counted, against what it was paired, how far
//! the rounds lie apart, and when that is too far to say anything.
//!
//! - [`paired`]: servers compared by CPU time a unit of work, in interleaved rounds, with an interval and a verdict.
//! - [`lan`]: a cable of a known speed between two network namespaces.
//! - [`peers`]: the servers that are compared, and what loads them.
//! - [`secured`]: TLS from the client's side.
//! - [`pressure`]: objects and requests that are more than memory, for stores.
//! - [`experiment`], [`report`]: what an experiment is, and how what it found is read.
//! - [`experiments`]: all of them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "instruments read clocks, wait for processes and run beside the loops, never on them"
)]

pub mod compare;
pub mod cores;
pub mod experiment;
pub mod experiments;
pub mod lan;
pub mod latency;
pub mod load;
pub mod paired;
pub mod peers;
pub mod placement;
pub mod pressure;
pub mod report;
pub mod secured;
