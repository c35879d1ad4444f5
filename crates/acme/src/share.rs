//! Sharing among several instances, which the CA sees as one: one account, each certificate ordered once, and
//! every instance answers the challenges.
//!
//! ```text
//!   holder of the lease ─▶ shared files and challenges ─▶ each instance: ChangeListener ─┬▶ challenges: opened, closed at once
//!                                                                                        └▶ files: read again by the task
//! ```
//! The files of the state directory are an instance's fallback while the cluster cannot be reached: they are
//! written after the shared copy. Of two certificates the one whose validity begins later wins, so that a
//! certificate obtained before sharing began, or before a backup was restored, is not lost.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, mpsc::SyncSender},
    time::Duration,
};

use engine::{
    cold_mutex::ColdMutex,
    tls::challenges::{ChallengeError, ChallengeGuard, Challenges},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde::{Deserialize, Serialize};

/// Longest time for which validation by the CA is delayed until all instances have confirmed a challenge.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// Prefix of the keys of challenges.
const CHALLENGE: &str = "challenge.";

/// Callback that receives a key with its new value, or with `None` if the value was removed. It must not
/// block.
pub type OnChange = Box<dyn Fn(&str, Option<&[u8]>) + Send + Sync>;

/// Error from an operation on the shared data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// Another instance holds the lease.
    #[error("another instance is ordering certificates")]
    Busy,
    /// The operation failed, for the reason given.
    #[error("{0}")]
    Failed(String),
}

/// Data shared by several instances. All methods except `listen` block.
pub trait Share: fmt::Debug + Send + Sync {
    /// Begins to report changes to the shared data, by calling `hears`.
    ///
    /// # Errors
    /// Returns a [`ShareError`] if the data cannot be watched.
    fn listen(&self, hears: OnChange) -> Result<(), ShareError>;

    /// Takes the lease for changes, which is held until the returned value is dropped.
    ///
    /// # Errors
    /// [`ShareError::Busy`] if another instance holds the lease, [`ShareError::Failed`] if the request to the
    /// cluster fails.
    fn take_turn(&self) -> Result<Box<dyn Any + Send>, ShareError>;

    /// Returns the shared value of a key.
    ///
    /// # Errors
    /// [`ShareError::Failed`] if the value cannot be read.
    fn read(&self, key: &str) -> Result<Option<Vec<u8>>, ShareError>;

    /// Stores the shared value of a key; requires the lease.
    ///
    /// # Errors
    /// [`ShareError::Failed`] if the value cannot be stored.
    fn write(&self, key: &str, value: &[u8]) -> Result<(), ShareError>;

    /// Stores the shared value of a key and waits until all instances have seen it, for at most the given
    /// time.
    ///
    /// # Errors
    /// [`ShareError::Failed`] if the value cannot be stored.
    fn write_everywhere(&self, key: &str, value: &[u8], at_most: Duration) -> Result<(), ShareError>;

    /// Removes the shared value of a key; requires the lease.
    ///
    /// # Errors
    /// [`ShareError::Failed`] if the value cannot be removed.
    fn remove(&self, key: &str) -> Result<(), ShareError>;
}

/// A challenge in the form in which instances exchange it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SharedChallenge {
    /// An http-01 challenge: a token, its answer, and the name to validate.
    Path { name: String, token: String, answer: String },
    /// A tls-alpn-01 challenge: the name to validate, and the certificate to present for it, with its key, as
    /// PEM.
    Name { name: String, certificate: String, key: String },
}

impl SharedChallenge {
    /// Answers the challenge in this process until the guard is dropped.
    pub(crate) fn open(&self, challenges: &Arc<Challenges>) -> Result<ChallengeGuard, ChallengeError> {
        match self {
            Self::Path { token, answer, .. } => challenges.open_path(token, answer),
            Self::Name { name, certificate, key } => {
                let wrong = |_| {
                    ChallengeError::Key(rustls::Error::General("not a certificate with its key".to_owned()))
                };
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(wrong)?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(wrong)?;
                challenges.open_name(name, certificate, &key)
            }
        }
    }

    /// Returns the key under which the challenge is shared. It contains the name, not the token: the number
    /// of names is bounded, while every challenge has a new token, and every removed key leaves a delete
    /// marker.
    fn key(&self) -> String {
        let (Self::Path { name, .. } | Self::Name { name, .. }) = self;
        format!("{CHALLENGE}{name}")
    }
}

/// Receiver of the other instances' changes.
struct ChangeListener {
    challenges: Arc<Challenges>,
    /// Open challenges of other instances.
    opened: ColdMutex<HashMap<String, ChallengeGuard>>,
    /// Names of the files changed since [`AuthorityShare::changed`] was last called.
    changed: ColdMutex<BTreeSet<String>>,
    wake: SyncSender<()>,
}

impl ChangeListener {
    fn hear(&self, name: &str, value: Option<&[u8]>) {
        if !name.starts_with(CHALLENGE) {
            self.changed.lock().insert(name.to_owned());
            // A full channel is no error: a single pending wake-up is enough.
            let _ = self.wake.try_send(());
            return;
        }
        let mut opened = self.opened.lock();
        opened.remove(name);
        let Some(value) = value else { return };
        let told = serde_json::from_slice::<SharedChallenge>(value).map_err(|error| error.to_string());
        match told.and_then(|told| told.open(&self.challenges).map_err(|error| error.to_string())) {
            Ok(open) => {
                opened.insert(name.to_owned(), open);
            }
            Err(error) => {
                tracing::warn!(error, "cannot answer an ACME challenge of another instance")
            }
        }
    }
}

/// The shared account and certificates of one CA.
#[derive(Clone)]
pub(crate) struct AuthorityShare {
    share: Arc<dyn Share>,
    ears: Arc<ChangeListener>,
    /// Prefix of all keys of this CA.
    prefix: Arc<str>,
}

impl fmt::Debug for AuthorityShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityShare").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl AuthorityShare {
    /// Begins to share the account and certificates of the CA `authority`.
    pub(crate) fn begin(
        share: Arc<dyn Share>,
        authority: &str,
        challenges: &Arc<Challenges>,
        wake: SyncSender<()>,
    ) -> Result<Self, ShareError> {
        let challenges = Arc::clone(challenges);
        let ears = Arc::new(ChangeListener {
            challenges,
            opened: ColdMutex::default(),
            changed: ColdMutex::default(),
            wake,
        });
        let prefix: Arc<str> = format!("{authority}/").into();
        let (hearing, of) = (Arc::clone(&ears), Arc::clone(&prefix));
        share.listen(Box::new(move |key, value| {
            if let Some(name) = key.strip_prefix(&*of) {
                hearing.hear(name, value);
            }
        }))?;
        Ok(Self { share, ears, prefix })
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Takes the lease, and closes the challenges that its previous holder left open.
    pub(crate) fn take_turn(&self) -> Result<Box<dyn Any + Send>, ShareError> {
        let turn = self.share.take_turn()?;
        let left: Vec<String> = {
            let opened = self.ears.opened.lock();
            opened.keys().cloned().collect()
        };
        for name in left {
            self.share.remove(&self.key(&name))?;
        }
        Ok(turn)
    }

    /// Returns the names of the files changed since the last call.
    pub(crate) fn changed(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.ears.changed.lock())
    }

    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ShareError> {
        self.share.read(&self.key(name))
    }

    pub(crate) fn write(&self, name: &str, value: &[u8]) -> Result<(), ShareError> {
        self.share.write(&self.key(name), value)
    }

    /// Makes all instances answer a challenge until the guard is dropped.
    pub(crate) fn open(&self, told: &SharedChallenge) -> Result<SharedChallengeGuard, ShareError> {
        let key = self.key(&told.key());
        let value = serde_json::to_vec(told).map_err(|error| ShareError::Failed(error.to_string()))?;
        self.share.write_everywhere(&key, &value, SHOWN_WITHIN)?;
        Ok(SharedChallengeGuard { share: Arc::clone(&self.share), key })
    }
}

/// Guard of a challenge that all instances answer until it is dropped.
pub(crate) struct SharedChallengeGuard {
    share: Arc<dyn Share>,
    key: String,
}

impl Drop for SharedChallengeGuard {
    fn drop(&mut self) {
        if let Err(error) = self.share.remove(&self.key) {
            // The next holder of the lease closes the challenge.
            tracing::debug!(%error, "cannot remove an answered ACME challenge");
        }
    }
}
