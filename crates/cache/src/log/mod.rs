//! Records of requests, for the log.

pub(crate) mod last_logged;
pub(crate) mod request_meta;
pub(crate) mod transaction;
