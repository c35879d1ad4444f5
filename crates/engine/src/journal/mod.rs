//! The journal: what loops say about their work, for whoever reads it, in memory that other processes can see.
//!
//! ```text
//!   loop ──Scribe──▶ ring │ one writer each      ┐                  ┌──▶ a thread of this process (the access log)
//!   loop ──Scribe──▶ ring │ nobody waits         ┴── memfd, sealed ─┤
//!                      ▲                                            └──▶ another process (`nighttrain log`): /proc/PID/fd/N
//!                      └── is anybody reading? ◀── lease: one word in a page of its own ◀── renewed by readers
//! ```
//! *Where the data lives:* in memory of the kernel that belongs to this process and goes with it, even at `kill -9`; no
//! disk is behind it, so that no write-back holds a loop up. Pages that were never written to take no memory.
//!
//! *What it costs:* while nobody reads, [`Scribe::is_read`] is one load and a branch, and nothing else happens. Who reads
//! raises the lease to a moment at most [`LEASE_MAX`] from now, again and again; who dies stops costing when it is over.
//! Records that nobody has read are written over: a reader counts what it missed, and no loop waits.
//!
//! *What is believed of others:* nothing. The rings cannot be written by whoever opens them (`F_SEAL_FUTURE_WRITE`), and
//! neither file can be made shorter under our feet (`F_SEAL_SHRINK`). A word of the lease that makes no sense counts as a
//! lease of [`LEASE_MAX`].

pub mod ring;

#[cfg(not(feature = "loom"))]
mod shared;

#[cfg(not(feature = "loom"))]
pub use self::shared::{
    Journal, JournalAddress, JournalReader, LEASE_MAX, Lease, OpenError, RINGS_MAX, Scribe,
};
