//! The lab from outside: its program, its instruments.
//!
//! One program, because each is linked by itself; a file is one subject.

mod bheap_sim;
mod load;
mod program;
