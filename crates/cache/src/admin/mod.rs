//! Functions for the operator: explanations of answers, the list of stored objects, purges.

pub(crate) mod cookie_leak_check;
pub(crate) mod cookie_names;
pub(crate) mod cookie_samples;
pub(crate) mod explain;
pub(crate) mod explanation;
pub(crate) mod last_clients;
pub(crate) mod listing;
pub(crate) mod majority;
pub(crate) mod objects;
pub(crate) mod operator_port;
