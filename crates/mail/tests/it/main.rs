//! Mail from outside: over sockets, across restarts, and killed.
//!
//! One program, because each is linked by itself; a file is one subject.

mod annotations;
mod bodies;
mod common;
mod full_disk;
mod fuzz_seeds;
mod hurried;
mod injected;
mod large;
mod letters;
mod power;
mod receiving;
mod restarts;
mod slow;
mod twin;
mod version_1;
