//! Several accelerators, one purge: what holds them together is a NATS cluster with JetStream, which people run already.
//!
//! ```text
//!  a purge ─▶ Cluster::tell ─▶ publish ─▶ stream of purges (Raft, replicas) ─▶ each instance ─▶ PurgeExecutor ─▶ all its cores
//!                                 │                                                │
//!                                 │ ◀── watched ── bucket of instances ◀── its card: applied up to …, renewed each lease/3
//!                                 ▼
//!              everywhere: each card has it, or has not changed for lease + margin
//! ```
//! One thread, `cluster`, with a runtime of its own does all of it (`keeper`); it shares nothing with the loops but a
//! point in time, until when they may serve what is stored, which it moves on through [`PurgeExecutor`]. It knows no server
//! and no HTTP. Nothing here votes, elects or replicates: that is the cluster's.
//!
//! **PurgeSelection is promised.** An instance serves what is stored until a lease after it *sent* its last renewal that the cluster
//! took (`lease`), by a clock of its own that goes on while the machine sleeps. A purge that was acknowledged everywhere
//! was carried out by each instance, or that one's lease was out before (`view`). Decision 052 says why that holds.
//!
//! *Bounds:* [`WISHES_MAX`] purges wait at once, [`RECORD_BYTES_MAX`] bytes each; [`INSTANCES_MAX`] instances are known.

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
pub use view::{ClusterStatus, INSTANCES_MAX, InstancePurgeState, InstanceStatus};
pub use wish::{InstanceOutcome, Outcome, PurgeRequestError, Scope, WISHES_MAX};

/// Who carries out what the cluster says: the accelerator. Called by helper threads, which may wait.
pub trait PurgeExecutor: Send + Sync + 'static {
    /// Carries out a purge on all cores. It returns when the purge holds.
    ///
    /// # Errors
    /// It does not, for now or at all.
    fn carry_out(&self, purge: &Purge) -> Result<(), ExecuteError>;

    /// Nobody knows what was purged: everything stored is good only once its origin has said so.
    ///
    /// # Errors
    /// As above.
    fn doubt_all(&self) -> Result<(), ExecuteError>;

    /// PurgeSelection is stored may be served until this point of [`engine::cores::clock::boot_ms`]; `None`: for ever.
    fn lease_until(&self, boot_ms: Option<u64>);

    /// A purge of this sequence, in the stream with this number, is going to be carried out.
    fn begins(&self, generation: u64, sequence: u64);

    /// Everything up to this sequence has been carried out.
    fn has_applied(&self, generation: u64, sequence: u64);

    /// Whether a purge of our own, which held here before it was told, is carried out once more when it comes back with its
    /// sequence: others may have answered us meanwhile who did not have it yet.
    fn carries_own_again(&self) -> bool;

    /// These instances are there now, ours too, with the addresses that they have told: each time that it is others.
    fn are_there(&self, live: &[(String, String)]);
}

/// Why a purge was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    /// It says what this server does not understand, and never will.
    #[error("{0}")]
    NotUnderstood(String),
    /// It could not be done now.
    #[error("{0}")]
    NotNow(String),
}
