//! The only unsafe code of the engine. Each wrapper states its safety conditions and the code that ensures
//! them.
#![allow(unsafe_code)]

pub mod arena;
pub(crate) mod atomics;
#[cfg(not(feature = "loom"))]
pub mod direct;
#[cfg(not(feature = "loom"))]
pub mod file_words;
pub mod heap;
#[cfg(not(feature = "loom"))]
pub mod lend;
#[cfg(not(feature = "loom"))]
pub mod mapping;
pub mod readiness;
pub mod ring;
pub mod signals;
pub mod span;
mod words;
