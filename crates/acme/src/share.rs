//! Several instances as one, as far as an authority sees: one account, each certificate ordered once, and whoever the
//! authority asks answers.
//!
//! ```text
//!   an instance whose turn it is ─▶ files and challenges of all ─▶ each instance: ChangeListener ─┬▶ challenges: opened, closed at once
//!                                                                                      └▶ files: read anew by the keeper
//! ```
//! The files of the state directory are what an instance has when the others cannot be asked: they are written after what is
//! shared. Of two certificates the one that begins later counts, so that one that was obtained before there was anybody to
//! share it with, or before a backup was brought back, is not lost.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, PoisonError, mpsc::SyncSender},
    time::Duration,
};

use engine::tls::challenges::{ChallengeError, ChallengeGuard, Challenges};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde::{Deserialize, Serialize};

#[expect(
    clippy::disallowed_types,
    reason = "taken a few times in two months, for as long as an insertion takes"
)]
type Lock<T> = std::sync::Mutex<T>;

/// How long an authority is kept waiting for an instance that does not say that it can answer.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// What the keys of challenges begin with.
const CHALLENGE: &str = "challenge.";

/// Who is told of each value, and of each that is gone. It does not wait.
pub type OnChange = Box<dyn Fn(&str, Option<&[u8]>) + Send + Sync>;

/// Why something was not shared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// Another instance orders now.
    #[error("another instance orders certificates now")]
    Busy,
    /// It cannot be, for now.
    #[error("{0}")]
    Failed(String),
}

/// What instances share. All but `listen` block.
pub trait Share: fmt::Debug + Send + Sync {
    /// Begins to follow what is shared.
    ///
    /// # Errors
    /// It cannot.
    fn listen(&self, hears: OnChange) -> Result<(), ShareError>;

    /// Makes it our turn to change anything, until what is returned is dropped.
    ///
    /// # Errors
    /// [`ShareError`]
    fn take_turn(&self) -> Result<Box<dyn Any + Send>, ShareError>;

    /// What all have under a key.
    ///
    /// # Errors
    /// [`ShareError`]
    fn read(&self, key: &str) -> Result<Option<Vec<u8>>, ShareError>;

    /// Has all have this under a key; in our turn.
    ///
    /// # Errors
    /// [`ShareError`]
    fn write(&self, key: &str, value: &[u8]) -> Result<(), ShareError>;

    /// The same, and waits until all have heard of it, but no longer than that.
    ///
    /// # Errors
    /// [`ShareError`]
    fn write_everywhere(&self, key: &str, value: &[u8], at_most: Duration) -> Result<(), ShareError>;

    /// Has nobody have anything under a key; in our turn.
    ///
    /// # Errors
    /// [`ShareError`]
    fn remove(&self, key: &str) -> Result<(), ShareError>;
}

/// A challenge, as instances tell each other of it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SharedChallenge {
    /// A token, its answer, and the name that it is about (http-01).
    Path { name: String, token: String, answer: String },
    /// A name and the certificate to be shown for it, with its key, as PEM (tls-alpn-01).
    Name { name: String, certificate: String, key: String },
}

impl SharedChallenge {
    /// Has it answered by this process.
    pub(crate) fn open(&self, challenges: &Arc<Challenges>) -> Result<ChallengeGuard, ChallengeError> {
        match self {
            Self::Path { token, answer, .. } => challenges.open_path(token, answer),
            Self::Name { name, certificate, key } => {
                let wrong = |_| {
                    ChallengeError::Key(rustls::Error::General(
                        "it is no certificate with its key".to_owned(),
                    ))
                };
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(wrong)?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(wrong)?;
                challenges.open_name(name, certificate, &key)
            }
        }
    }

    /// By its name, of which there are so many, and not by its token, each of which is another: what is removed leaves a mark.
    fn key(&self) -> String {
        let (Self::Path { name, .. } | Self::Name { name, .. }) = self;
        format!("{CHALLENGE}{name}")
    }
}

/// What is heard of the others.
struct ChangeListener {
    challenges: Arc<Challenges>,
    opened: Lock<HashMap<String, ChallengeGuard>>,
    changed: Lock<BTreeSet<String>>,
    wake: SyncSender<()>,
}

impl ChangeListener {
    fn hear(&self, name: &str, value: Option<&[u8]>) {
        if !name.starts_with(CHALLENGE) {
            self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
            // One that waits is enough.
            let _ = self.wake.try_send(());
            return;
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
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

/// What is shared with the others of one authority's account and certificates.
#[derive(Clone)]
pub(crate) struct AuthorityShare {
    share: Arc<dyn Share>,
    ears: Arc<ChangeListener>,
    /// What all keys of this authority begin with.
    prefix: Arc<str>,
}

impl fmt::Debug for AuthorityShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl AuthorityShare {
    /// Begins to share what `authority` gives.
    pub(crate) fn begin(
        share: Arc<dyn Share>,
        authority: &str,
        challenges: &Arc<Challenges>,
        wake: SyncSender<()>,
    ) -> Result<Self, ShareError> {
        let challenges = Arc::clone(challenges);
        let ears =
            Arc::new(ChangeListener { challenges, opened: Lock::default(), changed: Lock::default(), wake });
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

    /// Makes it our turn. Challenges that whoever had it before left open are closed.
    pub(crate) fn take_turn(&self) -> Result<Box<dyn Any + Send>, ShareError> {
        let turn = self.share.take_turn()?;
        let left: Vec<String> = {
            let opened = self.ears.opened.lock().unwrap_or_else(PoisonError::into_inner);
            opened.keys().cloned().collect()
        };
        for name in left {
            self.share.remove(&self.key(&name))?;
        }
        Ok(turn)
    }

    /// What has changed since the last time.
    pub(crate) fn changed(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.ears.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ShareError> {
        self.share.read(&self.key(name))
    }

    pub(crate) fn write(&self, name: &str, value: &[u8]) -> Result<(), ShareError> {
        self.share.write(&self.key(name), value)
    }

    /// Has all answer a challenge until what is returned is dropped.
    pub(crate) fn open(&self, told: &SharedChallenge) -> Result<SharedChallengeGuard, ShareError> {
        let key = self.key(&told.key());
        let value = serde_json::to_vec(told).map_err(|error| ShareError::Failed(error.to_string()))?;
        self.share.write_everywhere(&key, &value, SHOWN_WITHIN)?;
        Ok(SharedChallengeGuard { share: Arc::clone(&self.share), key })
    }
}

/// A challenge that all instances answer until this is dropped.
pub(crate) struct SharedChallengeGuard {
    share: Arc<dyn Share>,
    key: String,
}

impl Drop for SharedChallengeGuard {
    fn drop(&mut self) {
        if let Err(error) = self.share.remove(&self.key) {
            // Whoever has the next turn closes it.
            tracing::debug!(%error, "cannot remove an answered ACME challenge");
        }
    }
}
