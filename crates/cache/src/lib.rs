//! HTTP accelerator: a reverse proxy that stores answers.
//!
//! ```text
//!            clients                                                                  the origin
//!               │ ▲                                                                      ▲ │
//!       bytes   ▼ │ bytes                                                     requests   │ ▼ bytes
//!  ┌─ http1 ──────┴──────┐    ┌─ hit ──────────────────┐    ┌─ respond ──────────┐   ┌─ origin ──┐
//!  │ connection: a read, │──▶ │ recv · key · lookup ·  │──▶ │ miss · pass ·      │──▶│ permits,  │
//!  │ parse, a write      │    │ fresh? · conditions    │    │ parts · purge ·    │   │ addresses,│
//!  │                     │    └──────┬─────────────────┘    │ synth              │   │ exchange  │
//!  │ deliver: Answer to  │◀─ Answer ─┴──────── Answer ◀──── └──────┬─────────────┘   └────┬──────┘
//!  │ bytes; send         │              reads │                    │ asks the owner       │ body
//!  └─────────┬───────────┘                ┌───▼────────────┐       ▼                      ▼
//!            └─ sends from the store ────▶│ engine::store  │◀── fetch (one for all) ◀── arriving
//!                                         └────────────────┘      growing: clients follow it
//! ```
//!
//! An answer is a value (`deliver::answer`): the states build it and know no socket, and `deliver` writes it.
//! There is one loop per core, and a connection stays on its core. An object belongs to the core that its
//! key's hash names: that core fetches and writes it, all cores read it. The states carry Varnish's names:
//! *recv* ([`policy::recv`]), *hash* (`request::key`), *hit*, *miss*, *pass*, *pipe*, *purge*, *synth* (files
//! of these names in `states`; `respond` goes from one to the next), *backend_error* (`synth`),
//! *backend_fetch* (`fetch`, `origin`), *backend_response* (`fetch::judge`), *deliver* (`deliver`).

mod admin;
mod body;
mod client;
mod coding;
pub mod config;
mod core;
mod counters;
mod deliver;
mod encoding;
pub mod error_page;
mod fetch;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod head;
mod log;
mod origin;
mod peers;
pub mod policy;
mod purging;
mod request;
mod server;
mod site;
mod states;
mod tags;

pub use crate::admin::explanation::{ExplainError, Explanation, Figure, RequestOf, Step};
pub use crate::admin::objects::{OBJECTS_MAX, ObjectSeen, Objects, ObjectsError};
pub use crate::core::memory_need::memory_limit;
pub use crate::peers::purge_broadcast::{BroadcastFuture, ClusterHandle, Invalidate, PurgeBroadcast};
pub use crate::purging::bans::BanSeen;
pub use crate::purging::purge_log::{PurgesError, PurgesSeen, check as check_purges};
pub use crate::request::key::urls_of_page;
pub use config::{
    ClientRule, Config, CookieRule, Limits, Origin, PEERS_MAX, PeerAt, PeerRules, PeerSecret, PurgeToken,
    Site, SiteRules, Tls,
};
pub use counters::Counter;
pub use engine::{
    network::{InvalidNetwork, Network},
    tls::{
        TlsError,
        authorities::Authorities,
        certificates::{Certificate, Pair},
    },
};
pub use head::response_head;
pub use origin::{ByHand, HealthState, MemberSaid, SetUpError};
pub use peers::lease;
pub use peers::{PeerSeen, PeerStanding};
pub use server::{PreparedConfig, PurgeError, PurgeResult, Server, StartError};
pub use site::SitesError;
