//! The engine: the foundation of all Nighttrain servers.
//!
//! - [`accounts`]: the amounts that each client makes a core hold, and which charges are cut when a sum is short.
//! - [`cold_mutex`]: a mutex for code off the hot path.
//! - [`cores`]: one pinned event loop per core, message batches between them, their lateness.
//! - [`bounded`]: a listener with a bounded number of connections, for the small servers beside the loops.
//! - [`tls`]: TLS server configuration from PEM files.
//! - [`store`]: the object store, which all cores read and to which each core writes its share.
//! - [`io`]: helper threads that read the disk for the loops.
//! - [`journal`]: records of the loops' activity, in memory that other processes can read.
//! - [`log`]: records in a file: appended by loops, written by helpers, recovered after any crash.
//! - [`heap`]: returns freed memory to the system.
//! - [`network`]: network prefixes, as an operator lists them.
//! - [`share`]: a limit for all cores together, of which each core has a part.
//! - [`size`]: formats sizes for messages.
//! - [`random`]: unpredictable random numbers.
//! - [`meter`]: counters and histograms per core, summed when read.
//! - [`sys`]: the only unsafe code; each wrapper states its contract.
//!
//! This crate knows no protocol: it does not interpret bytes.

pub mod accounts;
#[cfg(not(feature = "loom"))]
pub mod bounded;
pub mod cold_mutex;
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
