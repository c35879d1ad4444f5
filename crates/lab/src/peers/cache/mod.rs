//! Caches in front of one origin, filled alike and asked alike.

pub mod contenders;
pub mod crowd;
pub mod load;
pub mod origin;
