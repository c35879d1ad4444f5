//! A core, and its exchange with other cores.

pub(crate) mod client_memory;
pub(crate) mod core;
pub(crate) mod inbox;
pub(crate) mod links;
pub(crate) mod memory_trim;
pub(crate) mod reload;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod turn;
pub(crate) mod waiting;
