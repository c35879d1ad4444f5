//! Limits for one client: connections, requests, bytes, memory, turns of the event loop.

pub(crate) mod body_rate;
pub(crate) mod client_budget;
pub(crate) mod client_memory;
pub(crate) mod connection_counts;
pub(crate) mod crawlers;
pub(crate) mod rates;
pub(crate) mod request_tasks;
pub(crate) mod send_rate;
pub(crate) mod turns;
