//! The message feed: the NATS client protocol on the engine.
//!
//! ```text
//!   producers                                                                              consumers
//!      │ bytes                                                                                 ▲ one write each
//!  ┌─ serve ───────┐   ┌─ session ────────┐   ┌─ publish ─────────────────┐   ┌─ outbox ───────┴─┐
//!  │ one read into │──▶│ operations, runs │──▶│ matching ◀─ trie          │──▶│ chunks that are  │
//!  │ the scratch   │   │ of publishes     │   │ subscriber by subscriber  │   │ reused           │
//!  └───────▲───────┘   └──────────────────┘   └────────────┬──────────────┘   └───────┬──────────┘
//!          │ paused                                        │ one batch per turn       │ large backlog
//!          └────────────────── backpressure ◀──────────────┼──────────────────────────┘
//!                                                          ▼
//!                                     across ═ ring ═▶ inbox of another core ─▶ publish there
//! ```
//!
//! Each core runs one loop, and a connection stays on its core. A message is copied from the read buffer into
//! the output of each local consumer, and once into a batch for each other core that has consumers. In steady
//! state none of this allocates or locks (`hot_path_tests`).

mod accounts;
mod client;
pub mod config;
mod counters;
mod delivery;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod leaf;
mod mesh;
pub mod monitor;
pub mod nats_config;
mod routing;
mod server;

pub use crate::client::connection::{CloseReason, Transport};
pub use crate::client::protocol_log::TARGET as PROTOCOL_LOG;
pub use crate::delivery::publisher::{BATCH_BYTES_MAX, NotTaken, Publisher};
pub use crate::mesh::links::links_bytes_max;
pub use crate::monitor::inspector::Looker;
pub use crate::monitor::look::NoAnswer;
pub use crate::monitor::snapshot::{Snapshot, Totals};
pub use accounts::identity;
pub use config::{Config, Limits, Tls, WebSocket};
pub use counters::Counter;
pub use engine::tls::{CertificateSource, TlsError, certificates::Pair};
pub use monitor::snapshot;
pub use server::{ReloadError, Server, StartError};
