//! Page-aware priority queues.
//!
//! All queues are *min*-queues: `pop` returns the smallest item.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "file"))]
extern crate std;

pub mod blocks;
#[cfg(all(unix, feature = "file"))]
pub mod file;
pub mod heap;
pub mod indexed;
pub mod layout;
pub mod lazy;
pub mod memory;
pub mod page_queue;
pub mod queue;
pub mod rows;
pub mod trace;

pub use heap::{BHeap, BinaryHeap, Heap};
pub use indexed::Indexed;
pub use lazy::Lazy;
pub use page_queue::PageQueue;
pub use queue::{Handle, HandleQueue, PriorityQueue, Stale};
pub use rows::{Full, Rows};
