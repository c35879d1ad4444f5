//! The HTTP accelerator.
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
//!            └─ sends from where it is ──▶│ engine::store  │◀── fetch (one for all) ◀── arriving
//!                                         └────────────────┘      growing: followed while it comes
//! ```
//!
//! An answer is a value (`answer`): the states make it and know no socket, one `deliver` writes it. One loop per core;
//! a connection stays on its core. An object belongs to the core that its key's hash names: that core fetches and writes
//! it, all cores read it. The states carry Varnish's names: *recv* ([`policy::recv`]), *hash* (`key`), *hit*, *miss*,
//! *pass*, *pipe*, *purge*, *synth* (files of these names; `respond` goes from one to the next), *backend_error* (`synth`),
//! *backend_fetch* (`fetch`, `origin`), *backend_response* (`judge`), *deliver* (`deliver`).

mod abroad;
mod accept;
mod announced;
mod answer;
mod arrival;
mod arriving;
mod as_is;
mod askers;
mod bans;
mod block;
mod blocks;
mod client_accounts;
mod client_fin;
mod client_memory;
mod clients;
mod coding;
mod coding_pool;
mod cold;
pub mod config;
mod cookie_names;
mod copy;
mod core;
mod counters;
mod credentials;
mod decoders;
mod deliver;
mod downstream;
mod encoders;
mod entry;
pub mod error_page;
#[cfg(test)]
mod exchange_tests;
mod explain;
mod explanation;
mod fetch;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod growing;
mod heard;
mod held;
mod hit;
#[cfg(test)]
mod hot_path_tests;
mod housekeeping;
mod http1;
mod http2;
mod in_flight;
mod in_force;
mod invalidate;
mod invalidations;
mod judge;
mod key;
mod keyed;
mod large;
mod last_said;
mod lately;
mod listener;
mod listing;
mod logged;
mod lurk;
mod majority;
pub mod membership;
mod memory_need;
mod miss;
mod note;
mod objects;
mod onward;
mod origin;
mod outside;
mod pace;
mod parts;
mod parts_in_memory;
mod pass;
mod peers;
mod pipe;
mod places;
pub mod policy;
mod ports;
mod purge;
mod purge_book;
mod put;
mod queries;
mod query;
mod rates;
mod refused_keys;
mod request;
mod respond;
mod response;
pub mod response_head;
mod revalidate;
mod samples;
mod send;
mod sent;
mod server;
mod several;
mod shared_pages;
mod sink;
mod site;
mod spread;
mod state;
mod store_file;
mod synth;
mod tags;
mod taking;
#[cfg(test)]
mod test_core;
mod tls_terms;
mod trailers;
mod transaction;
mod transport;
mod turns;
mod twins;
mod variants;
mod visitor;
mod websocket;
mod work;

pub use abroad::{Abroad, Among, Invalidate, Telling};
pub use bans::BanSeen;
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
pub use explanation::{ExplainError, Explanation, Figure, RequestOf, Step};
pub use key::urls_of_page;
pub use memory_need::memory_limit;
pub use objects::{OBJECTS_MAX, ObjectSeen, Objects, ObjectsError};
pub use origin::{ByHand, MemberSaid, SetUpError, Standing};
pub use peers::{PeerSeen, PeerStanding};
pub use purge_book::{PurgesError, PurgesSeen, check as check_purges};
pub use server::{Prepared, PurgeError, Purged, Server, StartError};
pub use site::SitesError;
