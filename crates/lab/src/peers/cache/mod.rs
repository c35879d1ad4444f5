//! Caches in front of one origin, filled alike and asked alike.

pub mod certificates;
pub mod contenders;
pub mod load;
pub mod origin;
