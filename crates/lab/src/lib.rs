//! Instruments for measurements, and the experiments that use them.
//!
//! No code here is on a server's request path: this crate may block, sleep, read clocks and start processes.
//! In return it states the quality of each figure: the thread on which it was counted, the figure it was
//! paired with, the spread of the rounds, and when that spread is too wide for a conclusion.
//!
//! - [`paired`]: servers compared by CPU time per request, in interleaved rounds, with an interval and a verdict.
//! - [`lan`]: a link of a known rate between two network namespaces.
//! - [`peers`]: the servers that are compared, and the programs that load them.
//! - [`secured`]: TLS from the client's side.
//! - [`pressure`]: objects and requests that exceed memory, for stores.
//! - [`experiment`], [`report`]: the form of an experiment, and of its findings.
//! - [`experiments`]: all experiments.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "instruments read clocks, wait for processes and run beside the loops, never on them"
)]

pub mod compare;
pub mod cores;
pub mod costs;
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
