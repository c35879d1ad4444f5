//! Data that instances share in addition to purges: values that only they can read, written by one instance
//! at a time.
//!
//! ```text
//!   take_turn ─▶ write, remove ─▶ bucket (Raft, replicas), sealed ─▶ each instance: hears ─▶ `confirmed.NAME`
//!                                                                                             │
//!        write_everywhere returns when all live instances have it, or the time is up ◀────────┘
//! ```
//! A *turn* is a lease in the bucket, taken by compare-and-set. Its holder renews it; another instance takes
//! the lease over if, by the clock of that instance, it has not changed for its length and a margin. The
//! holder counts from the send time, so two instances never hold it at once (like the lease of decision 052).
//! Each write names the revision that it replaces, so a delayed write changes nothing.
//!
//! *Bounds:* [`VALUE_BYTES_MAX`] per value, 16,384 keys, 64 MiB in the bucket; [`ASKS_MAX`] requests at once,
//! each answered within [`ANSWER_WITHIN`].

mod keeper;
mod seal;

use std::{sync::mpsc as blocking, time::Duration};

use tokio::sync::mpsc;

pub(crate) use self::keeper::VaultTask;
pub use self::seal::Secrets;
use crate::config::Name;

/// Maximum length of a value in bytes.
pub const VALUE_BYTES_MAX: usize = 128 << 10;
/// Maximum number of waiting requests.
const ASKS_MAX: usize = 16;
/// Longest time that an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// Configuration of the shared data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultConfig {
    /// Name of the bucket, which is created if it does not exist.
    pub bucket: Name,
    /// Secrets that all instances know.
    pub secrets: Secrets,
}

/// Callback that receives a key with its new value, or with `None` if the value was removed. It runs on the
/// cluster's thread, and must not block.
pub type OnChange = Box<dyn Fn(&str, Option<&[u8]>) + Send + Sync>;

/// Error from an operation on the shared data. The operation may be repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// Another instance holds the lease.
    #[error("{0} holds the lease")]
    Busy(String),
    /// This instance does not hold the lease.
    #[error("the lease was lost")]
    NotOurTurn,
    /// A value cannot be decrypted.
    #[error(
        "{0} in the cluster's bucket cannot be opened: it was sealed with another cluster-secret, or not by \
             Nighttrain"
    )]
    NotOurs(String),
    /// Another instance changed the value first.
    #[error("{0} was changed by another instance")]
    Changed(String),
    /// The value is longer than [`VALUE_BYTES_MAX`].
    #[error("{0} is too long to be shared")]
    TooLong(String),
    /// The cluster cannot be reached, or refuses the operation.
    #[error("shared vault unavailable: {0}")]
    CutOff(String),
}

/// Channel for the answer to a request.
type Reply<T> = blocking::SyncSender<Result<T, VaultError>>;

/// Request to the cluster's thread.
enum VaultRequest {
    TakeTurn(Reply<()>),
    EndTurn,
    Read(String, Reply<Option<Vec<u8>>>),
    /// A write; with a duration, it is answered once all live instances have confirmed it or that time has
    /// passed.
    Write(String, Vec<u8>, Option<Duration>, Reply<()>),
    Remove(String, Reply<()>),
}

/// Handle to the shared data, for threads that may block.
#[derive(Debug, Clone)]
pub struct Vault {
    asks: mpsc::Sender<VaultRequest>,
}

/// The lease for changes, held until it is dropped or lost.
#[derive(Debug)]
pub struct VaultLease {
    asks: mpsc::Sender<VaultRequest>,
}

impl Drop for VaultLease {
    fn drop(&mut self) {
        // If the message cannot be sent, the lease expires by itself.
        let _ = self.asks.try_send(VaultRequest::EndTurn);
    }
}

impl Vault {
    /// Creates a handle and the receiver of its requests.
    fn open() -> (Self, mpsc::Receiver<VaultRequest>) {
        let (asks, asked) = mpsc::channel(ASKS_MAX);
        (Self { asks }, asked)
    }

    fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> VaultRequest) -> Result<T, VaultError> {
        let (reply, answer) = blocking::sync_channel(1);
        let stopping = || VaultError::CutOff("the vault is closed, or has too many requests".to_owned());
        self.asks.try_send(ask(reply)).map_err(|_| stopping())?;
        let silent = || VaultError::CutOff("no answer from the vault".to_owned());
        answer.recv_timeout(ANSWER_WITHIN).unwrap_or_else(|_| Err(silent()))
    }

    /// Takes the lease. Blocks.
    ///
    /// # Errors
    /// [`VaultError::Busy`] if another instance holds it, [`VaultError::CutOff`] if the cluster cannot be
    /// reached or refuses.
    pub fn take_turn(&self) -> Result<VaultLease, VaultError> {
        self.ask(VaultRequest::TakeTurn)?;
        Ok(VaultLease { asks: self.asks.clone() })
    }

    /// Returns the present value of a key, if there is one. Blocks.
    ///
    /// # Errors
    /// Returns a [`VaultError`] if the value cannot be read.
    pub fn read(&self, key: &str) -> Result<Option<Vec<u8>>, VaultError> {
        self.ask(|reply| VaultRequest::Read(key.to_owned(), reply))
    }

    /// Replaces the value that was last read or reported; requires the lease. Blocks.
    ///
    /// # Errors
    /// Returns a [`VaultError`] if the value was not written.
    pub fn write(&self, key: &str, value: &[u8]) -> Result<(), VaultError> {
        self.ask(|reply| VaultRequest::Write(key.to_owned(), value.to_vec(), None, reply))
    }

    /// Writes like [`write`](Self::write), and waits until all live instances have seen the value, for at
    /// most the given time.
    ///
    /// # Errors
    /// Returns a [`VaultError`] if the value was not written. A missing confirmation is not an error.
    pub fn write_everywhere(&self, key: &str, value: &[u8], at_most: Duration) -> Result<(), VaultError> {
        self.ask(|reply| VaultRequest::Write(key.to_owned(), value.to_vec(), Some(at_most), reply))
    }

    /// Removes a key; requires the lease. Blocks.
    ///
    /// # Errors
    /// Returns a [`VaultError`] if the key may still exist.
    pub fn remove(&self, key: &str) -> Result<(), VaultError> {
        self.ask(|reply| VaultRequest::Remove(key.to_owned(), reply))
    }
}
