//! The only unsafe code of the engine. Each wrapper states what must hold and who makes it hold.
#![allow(unsafe_code)]

pub mod arena;
pub(crate) mod atomics;
pub mod mapping;
pub mod readiness;
pub mod ring;
pub mod span;
