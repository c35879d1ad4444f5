//! Serves pages and APIs: access, memory budget, threads.

pub(crate) mod access;
pub(crate) mod answer;
pub(crate) mod app;
pub(crate) mod assets;
pub(crate) mod budget;
pub(crate) mod charged_buffer;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod connections;
pub(crate) mod counters;
pub(crate) mod fault;
pub(crate) mod handed_out;
pub(crate) mod job_queue;
pub(crate) mod jobs;
pub(crate) mod params;
pub(crate) mod request_body;
pub(crate) mod request_source;
pub(crate) mod scope;
pub(crate) mod silent_proxy;
pub(crate) mod token;
pub(crate) mod unread_body;
