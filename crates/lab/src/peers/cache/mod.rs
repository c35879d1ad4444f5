//! Caches in front of one origin, filled with the same objects and measured with the same requests.

pub mod certificates;
pub mod contenders;
pub mod load;
pub mod origin;
