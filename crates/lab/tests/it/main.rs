//! Tests of the lab from outside: its program, its instruments.
//!
//! All tests are one program, because each program is linked separately; each file has one subject.

mod bheap_sim;
mod load;
mod program;
