//! The journal: records of the loops' activity for any reader, in memory that other processes can see.
//!
//! ```text
//!   loop ──Scribe──▶ ring │ one writer each      ┐                  ┌──▶ a thread of this process (the access log)
//!   loop ──Scribe──▶ ring │ never waits          ┴── memfd, sealed ─┤
//!                      ▲                                            └──▶ another process (`nighttrain log`): /proc/PID/fd/N
//!                      └── is there a reader? ◀── lease: one word in a page of its own ◀── renewed by readers
//! ```
//! *Memory:* kernel memory that belongs to this process and is freed with it, even at `kill -9`. No disk
//! backs it, so no write-back delays a loop. Pages that were never written take no memory.
//!
//! *Cost:* while there is no reader, [`Scribe::is_read`] is one load and a branch, and no record is written.
//! A reader repeatedly renews the lease to a time at most [`LEASE_MAX`] ahead; a reader that dies costs
//! nothing more once its lease expires. Unread records are overwritten: a reader counts the records that it
//! missed, and no loop waits.
//!
//! *Trust:* other processes are not trusted. The rings cannot be written by a process that opens them
//! (`F_SEAL_FUTURE_WRITE`), and neither file can be truncated (`F_SEAL_SHRINK`). An implausible lease counts
//! as a lease of [`LEASE_MAX`].

pub mod ring;

#[cfg(not(feature = "loom"))]
mod shared;

#[cfg(not(feature = "loom"))]
pub use self::shared::{
    Journal, JournalAddress, JournalReader, LEASE_MAX, Lease, OpenError, RINGS_MAX, Scribe,
};
