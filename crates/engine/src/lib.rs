//! What a Nighttrain server stands on.
//!
//! - [`accounts`]: what each client makes a core hold, and who gives way when a sum is short.
//! - [`cores`]: one pinned event loop per core, batches between them, their lateness.
//! - [`bounded`]: a listener with a bounded number of places, for the small servers beside the loops.
//! - [`tls`]: what accepts TLS, from files in PEM.
//! - [`store`]: the object store that all cores read and each core writes a share of.
//! - [`io`]: helper threads that read the disk for the loops.
//! - [`journal`]: what loops say about their work, in memory that others can read.
//! - [`log`]: records on a file: appended by loops, written by helpers, recovered after anything.
//! - [`heap`]: memory that was needed once, given back.
//! - [`network`]: addresses that begin alike, as an operator lists them.
//! - [`share`]: a bound for all cores together, of which each has a part.
//! - [`size`]: sizes in messages.
//! - [`random`]: numbers that nobody can guess.
//! - [`meter`]: counters and histograms per core, summed when read.
//! - [`sys`]: the only unsafe code; each wrapper states its contract.
//!
//! This crate knows no protocol: bytes in it have no meaning.

pub mod accounts;
#[cfg(not(feature = "loom"))]
pub mod bounded;
pub mod cores;
#[cfg(not(feature = "loom"))]
pub mod heap;
pub mod holding;
#[cfg(not(feature = "loom"))]
pub mod io;
pub mod journal;
#[cfg(not(feature = "loom"))]
pub mod log;
pub mod meter;
pub mod network;
pub mod random;
pub mod share;
pub mod size;
pub mod store;
pub mod sys;
pub mod tls;
