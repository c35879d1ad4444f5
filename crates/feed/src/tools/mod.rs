//! The client side: what `nighttrain feed pub`, `sub` and `bench` are made of.
//!
//! - [`message`]: a payload that can be verified by whoever receives it.

pub mod message;
