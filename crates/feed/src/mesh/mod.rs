//! A core and what it exchanges with the others.

pub(crate) mod core;
pub(crate) mod inbox;
pub(crate) mod links;
pub(crate) mod memory_trim;
pub(crate) mod shared;
