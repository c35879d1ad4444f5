//! Accounts and permissions, and imports between accounts.

pub(crate) mod dice;
pub(crate) mod foreign;
pub mod identity;
pub(crate) mod imports;
pub(crate) mod info_header;
pub(crate) mod mapping;
pub(crate) mod pending_calls;
pub(crate) mod revoke;
pub(crate) mod service_calls;
pub(crate) mod service_chain;
