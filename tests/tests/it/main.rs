//! What only makes sense across crates.
//!
//! One program, because each is linked by itself; a file is one subject.

mod bad_client;
mod bad_origin;
mod bans;
mod clock_steps;
mod conformance;
mod corpus;
mod curl;
mod delivery;
mod dist;
mod feed_async_nats;
mod feed_clients;
mod feed_guide;
mod feed_mappings;
mod feed_monitoring;
mod feed_soak;
mod freshness;
mod idle;
mod keys;
mod lab_page;
mod lifecycle;
mod mail_clients;
mod mail_crash;
mod mail_guide;
mod mail_memory;
mod mail_smtp;
mod mail_web;
mod notes;
mod numbers;
mod pipelines;
mod pressure;
mod readme;
mod real_site;
mod requests;
mod serve;
mod shares;
mod siege;
mod stale;
mod store_crash;
mod store_disk_full;
mod store_file;
mod store_large;
mod store_start;
mod syscalls;
mod tags;
