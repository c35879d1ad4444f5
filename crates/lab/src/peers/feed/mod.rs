//! Servers that pass messages on, and flows through them of which every message is verified.

pub mod contenders;
pub mod ends;
pub mod load;
pub mod wire;
