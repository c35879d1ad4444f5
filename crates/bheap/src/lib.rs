//! Page-aware priority queues.
//!
//! All queues are *min*-queues: `pop` returns the smallest item.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod heap;
pub mod layout;
pub mod rows;

pub use heap::{BinaryHeap, Heap};
pub use rows::{Full, Rows};
