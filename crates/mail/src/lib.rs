//! Disposable mail: received over SMTP, read on web pages and through APIs.
//!
//! ```text
//!  peers ──SMTP, LMTP──▶ smtp: session ──▶ core: log (one record per mail) ──▶ 250 once it is kept
//!                                            │ index of inboxes (owner: a core, by the inbox's hash)
//!  pages, APIs ──questions──▶ mailstore ─────┘ events (arrived, deleted) ──▶ listeners
//! ```
//! A core owns the inboxes that hash to it, and its own log writer. No mail waits for a lock.

mod abuse;
mod api;
mod background;
pub mod config;
mod counters;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod mailbox;
pub mod render;
pub mod samples;
pub mod search;
mod server;
mod smtp;
mod store;
pub mod web;

pub use crate::mailbox::mailstore::Mailstore;
pub use abuse::{ListFault, Lists, Rates};
pub use config::Config;
pub use engine::tls::{CertificateSource, certificates::Pair};
pub use mailbox::mailboxes;
pub use mailbox::twin;
pub use server::{Addresses, Server, StartError};
pub use smtp::address;
pub use smtp::sendmail;
pub use store::annotations;
pub use store::list_head;
