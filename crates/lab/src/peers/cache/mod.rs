//! Caches in front of one origin, filled alike and asked alike.

pub mod certificates;
pub mod contenders;
pub mod crowd;
pub mod handshakes;
pub mod load;
pub mod origin;
pub mod sitting;
pub mod streams;
