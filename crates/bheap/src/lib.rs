//! Page-aware priority queues.
//!
//! All queues are *min*-queues: `pop` returns the smallest item.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "file"))]
extern crate std;

pub mod blocks;
#[cfg(feature = "file")]
pub mod file;
pub mod heap;
pub mod layout;
pub mod memory;
pub mod page_queue;
pub mod rows;
pub mod trace;

#[cfg(feature = "file")]
pub use file::FileHeap;
pub use heap::{BHeap, BinaryHeap, Heap};
pub use page_queue::PageQueue;
pub use rows::{Full, Rows};
