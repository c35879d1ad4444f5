//! The message feed: the NATS client protocol on the engine.
//!
//! ```text
//!   producers                                                                              consumers
//!      │ bytes                                                                                 ▲ one write each
//!  ┌─ serve ───────┐   ┌─ session ────────┐   ┌─ publish ─────────────────┐   ┌─ outbox ───────┴─┐
//!  │ one read into │──▶│ operations, runs │──▶│ matching ◀─ trie          │──▶│ chunks that go   │
//!  │ the scratch   │   │ of publishes     │   │ subscriber by subscriber  │   │ round            │
//!  └───────▲───────┘   └──────────────────┘   └────────────┬──────────────┘   └───────┬──────────┘
//!          │ paused                                        │ one batch a turn         │ too much waits
//!          └────────────────── backpressure ◀──────────────┼──────────────────────────┘
//!                                                          ▼
//!                                     across ═ ring ═▶ inbox of another core ─▶ publish there
//! ```
//!
//! One loop per core; a connection lives and dies on its core. A message is copied from the read buffer into the output
//! of each local consumer, and once into a batch for each other core that has any. In steady state nothing of this
//! allocates or locks (`hot_path_tests`).

mod abroad;
mod across;
mod backpressure;
#[cfg(test)]
mod backpressure_tests;
mod buffers;
mod checking;
pub mod config;
mod connection;
mod contributions;
mod core;
mod counters;
mod crossing;
mod free_holds;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod groups;
mod handshakes;
#[cfg(test)]
mod hot_path_tests;
pub mod identity;
mod inbox;
mod info_header;
mod keep;
pub mod leaf;
mod lean;
mod look;
mod mapped;
mod marks;
mod matching;
pub mod monitor;
pub mod nats_config;
mod outbox;
mod outputs;
mod overlap;
mod protocol_log;
mod proxied;
mod publish;
mod publisher;
mod requests;
mod revoke;
mod serve;
mod server;
mod session;
mod shared;
mod slab;
pub mod snapshot;
mod sparing;
mod subjects;
mod system;
pub mod tools;
mod transaction;
mod transport;
mod trie;
#[cfg(test)]
mod turn_tests;
mod victims;
mod websocket;
mod word;
mod work;

pub use across::links_bytes_max;
pub use config::{Config, Limits, Tls, WebSocket};
pub use connection::{Closed, Transport};
pub use counters::Counter;
pub use engine::tls::{Shown, TlsError, certificates::Pair};
pub use look::Looker;
pub use protocol_log::TARGET as PROTOCOL_LOG;
pub use publisher::{BATCH_BYTES_MAX, NotTaken, Publisher};
pub use server::{NoAnswer, ReloadError, Server, StartError};
pub use snapshot::{Snapshot, Totals};
