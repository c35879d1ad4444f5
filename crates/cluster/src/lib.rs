//! Purges for several accelerators, coordinated by a NATS cluster with JetStream, which operators often run
//! already.
//!
//! ```text
//!  a purge ─▶ Cluster::tell ─▶ publish ─▶ stream of purges (Raft, replicas) ─▶ each instance ─▶ PurgeExecutor ─▶ all its cores
//!                                 │                                                │
//!                                 │ ◀── watched ── bucket of instances ◀── its heartbeat: applied up to …, renewed each lease/3
//!                                 ▼
//!              everywhere: each heartbeat confirms it, or has not changed for lease + margin
//! ```
//! One thread, `cluster`, with a runtime of its own does all of it (`keeper`). It shares one value with the
//! event loops: the time until which they may serve stored objects, which it extends through
//! [`PurgeExecutor`]. This crate contains no server and no HTTP. It does not vote, elect or replicate: the
//! NATS cluster does that.
//!
//! **Guarantee.** An instance stops serving stored objects one lease after it *sent* the last renewal that
//! the cluster accepted (`lease`). It measures this by its own clock, which also runs while the machine
//! sleeps. A purge that was acknowledged everywhere was carried out by each instance, or that instance's
//! lease had expired before (`view`). Decision 052 proves it.
//!
//! *Bounds:* at most [`WISHES_MAX`] purges wait at once, of at most [`RECORD_BYTES_MAX`] bytes each; at most
//! [`INSTANCES_MAX`] instances are known.

mod card;
mod client;
mod config;
mod connect;
mod counts;
mod keeper;
mod lease;
mod open;
mod position;
mod record;
mod vault;
mod view;
mod wish;

pub use client::{Cluster, StartError};
pub use config::{Config, InvalidName, LEASE_MAX, LEASE_MIN, Login, Name, WhenCutOff};
pub use connect::without_secret;
pub use record::{Purge, PurgeSelection, RECORD_BYTES_MAX};
pub use vault::{OnChange, Secrets, VALUE_BYTES_MAX, Vault, VaultConfig, VaultError, VaultLease};
pub use view::{ClusterStatus, INSTANCES_MAX, InstancePurgeState, InstanceStatus, LiveInstance};
pub use wish::{InstanceOutcome, Outcome, PurgeRequestError, Scope, WISHES_MAX};

/// Executor of the cluster's purges: the accelerator. Its methods are called by helper threads, which may
/// block.
pub trait PurgeExecutor: Send + Sync + 'static {
    /// Carries out a purge on all cores. Returns once the purge is in force.
    ///
    /// # Errors
    /// [`ExecuteError::NotUnderstood`] if this server will never be able to carry it out,
    /// [`ExecuteError::NotNow`] if a retry may succeed.
    fn carry_out(&self, purge: &Purge) -> Result<(), ExecuteError>;

    /// Marks every stored object for revalidation, because purges may have been missed.
    ///
    /// # Errors
    /// Returns an [`ExecuteError`] if the call must be repeated.
    fn mark_all_unverified(&self) -> Result<(), ExecuteError>;

    /// Allows stored objects to be served until this time, as measured by [`engine::cores::clock::boot_ms`];
    /// `None` for no time limit.
    fn set_lease(&self, boot_ms: Option<u64>);

    /// Announces that the purge with this sequence number, in the stream of this generation, is about to be
    /// carried out.
    fn note_begun(&self, generation: u64, sequence: u64);

    /// Reports that everything up to this sequence number has been carried out.
    fn note_applied(&self, generation: u64, sequence: u64);

    /// Returns whether this instance carries out its own purge again when the purge arrives from the stream.
    /// The purge was in force here before it was published, but peers that had not applied it yet may have
    /// answered us in the meantime.
    fn repeats_own_purges(&self) -> bool;

    /// Reports the live instances, including this one, with the addresses that they announce; called at each
    /// change.
    fn members_changed(&self, live: &[LiveInstance]);
}

/// Reason why a purge was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    /// The purge is of a kind that this server does not understand.
    #[error("{0}")]
    NotUnderstood(String),
    /// The purge could not be carried out now.
    #[error("{0}")]
    NotNow(String),
}
