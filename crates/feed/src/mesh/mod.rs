//! A core, and its exchange with other cores.

pub(crate) mod core;
pub(crate) mod inbox;
pub(crate) mod links;
pub(crate) mod memory_trim;
pub(crate) mod shared;
