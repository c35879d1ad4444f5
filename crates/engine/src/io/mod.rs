//! Disk reads by helper threads, so that no loop ever waits for one.
//!
//! ```text
//!   core 0 (loop)                              helper 0 … h−1 (threads that may sleep)
//!  ┌───────────────────────────────┐           ┌─────────────────────────────┐
//!  │ Reads: pending, queue ────────┼──ring───▶ │ Source::read into the       │
//!  │   │ one read for all waiters  │           │ buffer, Source::verify      │
//!  │ Completions ◀─────────────────┼──ring──── │                             │
//!  └───│───────────────────────────┘  (mesh)   └─────────────────────────────┘
//!      ▼ wakes the waiting tasks; each has a Block, a part of an aligned buffer
//! ```
//! *Memory:* buffers are slots of one anonymous mapping, of four sizes, aligned to pages as `O_DIRECT`
//! requires. *Writer:* the helper that holds the slot; after that the slot is not written until the last
//! [`Block`] is dropped. *Waiting:* tasks, and helpers in the kernel. *Bounds*, set by [`ReadPoolConfig`]:
//! active and queued reads per core, bytes of buffers, the time that a task waits for a disk. A caller that
//! reaches a bound gets a [`ReadRefusal`] or a [`ReadError`], which is counted, and continues without the
//! object (a miss, or an answer made without the store).
//!
//! A read that a helper has begun cannot be cancelled: if its task stops waiting, the read goes on and frees
//! its buffer when it ends. A disk that hangs therefore costs only the buffers of the active reads.

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
