//! Client side of NATS, for the commands `nighttrain feed pub`, `sub` and `bench`.
//!
//! - [`target`]: the server and its credentials, from a URL;
//! - [`client`]: one blocking connection;
//! - [`bench`](mod@bench): producers and consumers that verify every message ([`wire::nats::stamp`]).
//!
//! Servers use none of this. Threads here block and read clocks, unlike a server's loops.

pub(crate) mod bench;
pub(crate) mod client;
pub(crate) mod target;
