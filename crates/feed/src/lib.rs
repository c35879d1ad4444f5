//! The message feed: the NATS client protocol on the engine.

pub mod identity;
pub mod nats_config;
pub mod tools;
