//! Disposable mail: SMTP in, a page and an API out.
//!
//! ```text
//!  peers ──SMTP, LMTP──▶ smtp: session ──▶ core: log (one record a mail) ──▶ 250 once it is kept
//!                                            │ index of inboxes (owner: a core, by the inbox's hash)
//!  pages, APIs ──questions──▶ mailstore ─────┘ events (arrived, deleted) ──▶ listeners
//! ```
//! A core owns the inboxes that hash to it, and its own way into the log. Nothing on a mail's way takes a lock.

mod abuse;
#[cfg(test)]
mod accept_path_tests;
pub mod address;
mod api;
mod backlog;
mod bodies;
pub mod config;
mod core;
mod counters;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gather;
pub mod head;
mod index;
mod letters;
pub mod mailboxes;
mod mailstore;
pub mod noted;
mod questions;
mod recent;
mod record;
mod recovery;
pub mod render;
pub mod samples;
pub mod search;
pub mod sendmail;
mod server;
mod smtp;
mod transaction;
pub mod twin;
pub mod web;

pub use abuse::{ListFault, Lists, Rates};
pub use config::Config;
pub use engine::tls::{Shown, certificates::Pair};
pub use mailstore::Mailstore;
pub use server::{Addresses, Server, StartError};
