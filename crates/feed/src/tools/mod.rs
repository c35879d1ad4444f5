//! The client side: what `nighttrain feed pub`, `sub` and `bench` are made of.
//!
//! - [`target`]: which server, and who we are to it, from a URL;
//! - [`client`]: one blocking connection;
//! - [`bench`](mod@bench): producers and consumers that verify every message ([`wire::nats::stamp`]).
//!
//! Nothing of this runs in a server. Threads block and read clocks here.

pub mod bench;
pub mod client;
pub mod target;
