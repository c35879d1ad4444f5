//! What instances share beside purges: values that nobody but they can read, written by one of them at a time.
//!
//! ```text
//!   take_turn ─▶ write, remove ─▶ bucket (Raft, replicas), sealed ─▶ each instance: hears ─▶ `confirmed.NAME`
//!                                                                                             │
//!        write_everywhere returns when all that are there have it, or the time is up ◀────────┘
//! ```
//! A *turn* is a lease in the bucket, taken by compare-and-set: its holder renews it, and whoever wants it takes it over when
//! it has not changed for its length and a margin, by a clock of the taker's. The holder counts from when it sent, so two
//! never have it (as of the lease of decision 052). Each write names the revision that it is in the place of: one that was
//! on its way for too long changes nothing.
//!
//! *Bounds:* [`VALUE_BYTES_MAX`] a value, 16,384 keys, 64 MiB in the bucket; [`ASKS_MAX`] asks at once, each with an answer
//! within [`ANSWER_WITHIN`].

mod keeper;
mod seal;

use std::{sync::mpsc as blocking, time::Duration};

use tokio::sync::mpsc;

pub(crate) use self::keeper::VaultTask;
pub use self::seal::Secrets;
use crate::config::Name;

/// Bytes of a value at most.
pub const VALUE_BYTES_MAX: usize = 128 << 10;
/// Asks that wait at once.
const ASKS_MAX: usize = 16;
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// What is configured of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultConfig {
    /// The bucket; made if it is not there.
    pub bucket: Name,
    /// What all instances know.
    pub secrets: Secrets,
}

/// Who is told of each value, and of each that is gone: on the cluster's thread, which it may not hold up.
pub type OnChange = Box<dyn Fn(&str, Option<&[u8]>) + Send + Sync>;

/// Why something was not shared. Nothing is lost: it is tried again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// It is another instance's turn.
    #[error("it is the turn of {0}")]
    Busy(String),
    /// It is nobody's turn to write, or not ours any more.
    #[error("it is not our turn any more")]
    NotOurTurn,
    /// A value cannot be opened.
    #[error("{0} in the cluster's bucket was sealed by another secret (cluster-secret), or not by us")]
    NotOurs(String),
    /// Another write came first.
    #[error("another instance has changed {0}")]
    Changed(String),
    /// It is longer than [`VALUE_BYTES_MAX`].
    #[error("{0} is longer than what is shared")]
    TooLong(String),
    /// The cluster cannot be reached, or does not allow it.
    #[error("the cluster: {0}")]
    CutOff(String),
}

/// How an ask is answered.
type Reply<T> = blocking::SyncSender<Result<T, VaultError>>;

/// What is asked of the thread.
enum VaultRequest {
    TakeTurn(Reply<()>),
    EndTurn,
    Read(String, Reply<Option<Vec<u8>>>),
    /// `Some`: it is answered when all who are there have heard of it, or so much time has passed.
    Write(String, Vec<u8>, Option<Duration>, Reply<()>),
    Remove(String, Reply<()>),
}

/// The way to it, for a thread that may wait.
#[derive(Debug, Clone)]
pub struct Vault {
    asks: mpsc::Sender<VaultRequest>,
}

/// Our turn, until it is dropped or lost.
#[derive(Debug)]
pub struct VaultLease {
    asks: mpsc::Sender<VaultRequest>,
}

impl Drop for VaultLease {
    fn drop(&mut self) {
        // One that is not told waits until the turn is over by itself.
        let _ = self.asks.try_send(VaultRequest::EndTurn);
    }
}

impl Vault {
    /// The way there, and what comes by it.
    fn open() -> (Self, mpsc::Receiver<VaultRequest>) {
        let (asks, asked) = mpsc::channel(ASKS_MAX);
        (Self { asks }, asked)
    }

    fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> VaultRequest) -> Result<T, VaultError> {
        let (reply, answer) = blocking::sync_channel(1);
        let stopping = || VaultError::CutOff("it is not asked any more, or too often".to_owned());
        self.asks.try_send(ask(reply)).map_err(|_| stopping())?;
        let silent = || VaultError::CutOff("it does not answer".to_owned());
        answer.recv_timeout(ANSWER_WITHIN).unwrap_or_else(|_| Err(silent()))
    }

    /// Makes it our turn. Blocks.
    ///
    /// # Errors
    /// It is another's, or nobody can say.
    pub fn take_turn(&self) -> Result<VaultLease, VaultError> {
        self.ask(VaultRequest::TakeTurn)?;
        Ok(VaultLease { asks: self.asks.clone() })
    }

    /// What is there now; `None`: nothing. Blocks.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, key: &str) -> Result<Option<Vec<u8>>, VaultError> {
        self.ask(|reply| VaultRequest::Read(key.to_owned(), reply))
    }

    /// Writes, in our turn, what was last read or heard of anew. Blocks.
    ///
    /// # Errors
    /// It is not there.
    pub fn write(&self, key: &str, value: &[u8]) -> Result<(), VaultError> {
        self.ask(|reply| VaultRequest::Write(key.to_owned(), value.to_vec(), None, reply))
    }

    /// The same, and waits until all who are there have heard of it, but no longer than that.
    ///
    /// # Errors
    /// It is not there. That somebody has not said that it heard of it is none.
    pub fn write_everywhere(&self, key: &str, value: &[u8], at_most: Duration) -> Result<(), VaultError> {
        self.ask(|reply| VaultRequest::Write(key.to_owned(), value.to_vec(), Some(at_most), reply))
    }

    /// Removes, in our turn. Blocks.
    ///
    /// # Errors
    /// It may be there still.
    pub fn remove(&self, key: &str) -> Result<(), VaultError> {
        self.ask(|reply| VaultRequest::Remove(key.to_owned(), reply))
    }
}
