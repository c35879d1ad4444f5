//! Reads from the disk by helper threads, so that no loop ever waits for one.
//!
//! ```text
//!   core 0 (loop)                              helper 0 … h−1 (threads that may sleep)
//!  ┌───────────────────────────────┐           ┌─────────────────────────────┐
//!  │ Reads: pending, queue ────────┼──ring───▶ │ Source::read into the       │
//!  │   │ one read for all who wait │           │ buffer, Source::verify      │
//!  │ Completions ◀─────────────────┼──ring──── │                             │
//!  └───│───────────────────────────┘  (mesh)   └─────────────────────────────┘
//!      ▼ wakes the waiting tasks; each has a Block, a part of an aligned buffer
//! ```
//! *Which memory:* buffers are slots of one anonymous mapping, of four sizes, aligned to pages as `O_DIRECT` wants
//! them. *Who writes:* the helper that holds the slot; after that nobody, until the last [`Block`] is dropped. *Who
//! waits:* tasks, and helpers in the kernel. *Bounds:* [`ReadPoolConfig`] names them: reads under way and waiting per
//! core, bytes of buffers, the time that a task waits for a disk. A caller that hits one gets a [`ReadRefusal`] or a
//! [`ReadError`], which is counted, and goes on without the object (a miss, or an answer made without the store).
//!
//! A read that a helper has begun is not taken back: when its task gives up waiting, the read goes on and frees its
//! buffer when it ends. So a disk that hangs costs the buffers of the reads under way, and nothing else.

mod buffers;
mod counters;
mod pool;
mod reads;
mod source;

pub use buffers::{Block, READ_BYTES_MAX};
pub use counters::ReadCounter;
pub use pool::{ReadPool, ReadPoolConfig, StartError};
pub use reads::{Completions, Extent, Message, PendingRead, ReadError, ReadRefusal, Reads};
pub use source::{CachedFile, Damage, DirectFile, Source};
