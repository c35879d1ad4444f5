//! Heads of requests and responses, as they are stored and passed on.

pub(crate) mod found_object;
pub mod response_head;
pub(crate) mod sent_fields;
