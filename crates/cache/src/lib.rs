//! The HTTP accelerator.
//!
//! ```text
//!            clients                                                               the origin
//!               │ ▲                                                                   ▲ │
//!       bytes   ▼ │ answers                                             requests      │ ▼ bytes
//!  ┌─ connection ─┴──────┐    ┌─ hit ──────────────────┐    ┌─ slow ──────────┐   ┌─ origin ─┐
//!  │ one read, one write │──▶ │ key · lookup · fresh?  │──▶ │ miss · pass ·   │──▶│ pool,    │
//!  │ per turn            │◀── │ 200 · 206 · 304        │    │ purge · synth   │   │ exchange │
//!  └─────────────────────┘    └───────────┬────────────┘    └───────┬─────────┘   └────┬─────┘
//!               ▲                         │ reads                   │ asks the owner   │ body
//!               │                ┌────────▼─────────┐               ▼                  ▼
//!               │                │ engine::store    │◀──────── fetch (one for all) ◀───┘
//!               └─── deliver ◀───┤ segments, index  │           growing: followed while it arrives
//!                                └──────────────────┘
//! ```
//!
//! One loop per core; a connection stays on its core. An object belongs to the core that its key's hash names: that
//! core fetches and writes it, all cores read it. The states carry Varnish's names: *recv* ([`policy::recv`]), *hash*
//! (`key`), *hit* (`hit`), *miss*, *pass*, *purge*, *synth* (files of these names; `slow` chooses), *backend_error*
//! (`synth`), *backend_fetch* (`fetch`, `origin`), *backend_response* (`response`), *deliver* (`deliver`).

mod client;
mod clients;
mod cold;
pub mod config;
mod connection;
mod core;
mod counters;
mod deliver;
pub mod error_page;
mod fetch;
mod growing;
mod hit;
#[cfg(test)]
mod hot_path_tests;
mod key;
mod large;
mod memory_need;
mod miss;
mod origin;
mod parts;
mod pass;
pub mod policy;
mod purge;
mod request;
mod response;
pub mod response_head;
mod server;
mod slow;
mod store_file;
mod synth;
mod trailers;

pub use config::{Config, CookieRule, Limits, Origin};
pub use counters::Counter;
pub use engine::network::{InvalidNetwork, Network};
pub use server::{PurgeError, Purged, Server, StartError};
