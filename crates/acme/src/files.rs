//! Files of the state directory: readable only by their owner, and replaced atomically.
//!
//! ```text
//! STATE/acme/                       0700
//!   lock                            held while a process keeps certificates here
//!   HOST-HASH/                      0700, one for each directory of a CA
//!     account.key                   the account's key (PEM); written before the CA learns of it
//!     account.json                  the account's URL at the CA, and the contacts that the CA knows
//!     NAME.pem                      a certificate's key and chain together: never one without the other
//!     NAME.json                     a pending order with its key; and failures
//! ```
//! All files are 0600. A file is written under another name, synced and renamed, and the rename is synced, so
//! that a process or a machine that stops at any moment leaves either the old file or the new one.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::share::{AuthorityShare, ShareError};

/// Maximum length of a file here.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// File name of the account's key.
pub(crate) const ACCOUNT_KEY: &str = "account.key";
/// File name of the account's other data.
pub(crate) const ACCOUNT: &str = "account.json";

/// Returns the file name of a certificate.
pub(crate) fn certificate_file(name: &str) -> String {
    format!("{name}.pem")
}

/// Returns the file name of a certificate's order and state.
pub(crate) fn order_file(name: &str) -> String {
    format!("{name}.json")
}

/// Error from an operation in the state directory.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// An operation on a file failed.
    #[error("{}: {why}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        why: io::Error,
    },
    /// The file could not be shared with the other instances.
    #[error("cannot share {name} with the other instances: {why}")]
    NotShared {
        /// Name of the file.
        name: String,
        /// Reason for the failure.
        why: ShareError,
    },
    /// Another process uses the directory.
    #[error("{}: in use by another process; give this one a state directory of its own", path.display())]
    Locked {
        /// Path of the lock.
        path: PathBuf,
    },
}

/// A directory for one CA's account and certificates.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    /// The cluster's copy of the files, if they are shared.
    sharing: Option<AuthorityShare>,
    _lock: File,
}

/// Result of merging a local file with the cluster's copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Both files are equal, or neither exists.
    Same,
    /// The local file was replaced by the cluster's.
    Taken,
    /// The local file must be published: the cluster has no file, or one that loses under the merge rule.
    OursIsToBeShared,
}

/// Saved state of a certificate, apart from the certificate itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RenewalState {
    /// The pending order, if any.
    pub(crate) order: Option<KeptOrder>,
    /// Number of failures since the last success.
    pub(crate) failures: u32,
    /// Earliest time of the next attempt.
    pub(crate) not_before_s: i64,
    /// True if the CA set `not_before_s`.
    pub(crate) is_limited: bool,
    /// The last error.
    pub(crate) error: Option<String>,
    /// Challenge type of the next attempt; empty for the first configured one.
    pub(crate) challenge: String,
    /// True if the certificate replaced one whose renewal window had passed (RFC 9773 §4.2).
    pub(crate) is_hastened: bool,
}

/// A pending order.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptOrder {
    /// Names that the certificate is for.
    pub(crate) names: Vec<String>,
    /// URL of the order at the CA.
    pub(crate) url: String,
    /// Key of the certificate (PEM).
    pub(crate) key: String,
}

impl fmt::Debug for KeptOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptOrder")
            .field("names", &self.names)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Saved data of the account, apart from its key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptAccount {
    /// URL of the account at the CA; `None` until it is registered.
    pub(crate) id: Option<String>,
    /// Contacts that the CA knows.
    pub(crate) contacts: Vec<String>,
}

impl Files {
    /// Opens the directory below `state` for the CA whose directory has this URL.
    ///
    /// # Errors
    /// [`FilesError::Io`] if it cannot be created, [`FilesError::Locked`] if another process uses it.
    pub(crate) fn open(state: &Path, directory_url: &str) -> Result<Self, FilesError> {
        let all = state.join("acme");
        let host = directory_url.split('/').nth(2).unwrap_or_default();
        let host: String =
            host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
        let own = all.join(format!("{host}-{:08x}", xxh3_64(directory_url.as_bytes()) >> 32));
        fs::create_dir_all(state).map_err(|why| FilesError::Io { path: state.to_owned(), why })?;
        for directory in [&all, &own] {
            let made = match DirBuilder::new().mode(0o700).create(directory) {
                Err(why) if why.kind() != ErrorKind::AlreadyExists => Err(why),
                _ => fs::set_permissions(directory, Permissions::from_mode(0o700)),
            };
            made.map_err(|why| FilesError::Io { path: directory.clone(), why })?;
        }
        let path = all.join("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(|why| FilesError::Io { path: path.clone(), why })?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { directory: own, sharing: None, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(FilesError::Locked { path: all }),
            Err(why) => Err(FilesError::Io { path, why: why.into() }),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the directory's name, which is unique for each CA directory.
    pub(crate) fn authority(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Shares every file written from now on.
    pub(crate) fn share(&mut self, sharing: AuthorityShare) {
        self.sharing = Some(sharing);
    }

    /// Publishes a file to the cluster and writes it locally, even if the cluster cannot be reached.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), FilesError> {
        let shared = self.sharing.as_ref().map_or(Ok(()), |sharing| sharing.write(name, content));
        // A file that could not be shared now is shared later.
        self.write_here(name, content)?;
        shared.map_err(|why| FilesError::NotShared { name: name.to_owned(), why })
    }

    /// Writes a local file atomically and durably.
    fn write_here(&self, name: &str, content: &[u8]) -> Result<(), FilesError> {
        let (path, beside) = (self.path(name), self.path(&format!(".{name}.new")));
        let written = || {
            // A temporary file left by a process that stopped here may have any content.
            match fs::remove_file(&beside) {
                Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        written().map_err(|why| FilesError::Io { path, why })
    }

    /// Reads a file; `None` if it does not exist.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
        let path = self.path(name);
        let read = fs::metadata(&path).and_then(|of| {
            if of.len() > FILE_BYTES_MAX {
                return Err(io::Error::new(ErrorKind::FileTooLarge, "the file is too long"));
            }
            fs::read(&path)
        });
        match read {
            Ok(content) => Ok(Some(content)),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
            Err(why) => Err(FilesError::Io { path, why }),
        }
    }

    fn read_json<T: for<'de> Deserialize<'de> + Default>(&self, name: &str) -> Result<T, FilesError> {
        let Some(content) = self.read(name)? else { return Ok(T::default()) };
        serde_json::from_slice(&content).or_else(|error| {
            // Only manual editing can leave an unreadable file.
            tracing::warn!("{}: {error}; file ignored", self.path(name).display());
            Ok(T::default())
        })
    }

    fn write_json(&self, name: &str, what: &impl Serialize) -> Result<(), FilesError> {
        let content = json(what).map_err(|why| FilesError::Io { path: self.path(name), why })?;
        self.write(name, &content)
    }

    /// Merges a local file with the cluster's copy: the local file is replaced if it is missing or if
    /// `counts(theirs, ours)` returns true, where `ours` is the local content. Returns the result of the
    /// merge.
    pub(crate) fn merge_shared(
        &self,
        name: &str,
        counts: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> Result<Merge, FilesError> {
        let Some(sharing) = &self.sharing else { return Ok(Merge::Same) };
        let of = |why| FilesError::NotShared { name: name.to_owned(), why };
        let theirs = sharing.read(name).map_err(of)?;
        Ok(match (theirs, self.read(name)?) {
            (None, None) => Merge::Same,
            (None, Some(_)) => Merge::OursIsToBeShared,
            (Some(theirs), Some(ours)) if theirs == ours => Merge::Same,
            (Some(theirs), Some(ours)) if !counts(&theirs, &ours) => Merge::OursIsToBeShared,
            (Some(theirs), _) => {
                self.write_here(name, &theirs)?;
                Merge::Taken
            }
        })
    }

    /// Publishes the local file to the cluster, if it exists.
    pub(crate) fn give(&self, name: &str) -> Result<(), FilesError> {
        let (Some(sharing), Some(ours)) = (&self.sharing, self.read(name)?) else { return Ok(()) };
        sharing.write(name, &ours).map_err(|why| FilesError::NotShared { name: name.to_owned(), why })
    }

    /// Returns the account's key (PEM).
    pub(crate) fn account_key(&self) -> Result<Option<String>, FilesError> {
        let key = self.read(ACCOUNT_KEY)?;
        Ok(key.map(|key| String::from_utf8_lossy(&key).into_owned()))
    }

    pub(crate) fn keep_account_key(&self, key: &str) -> Result<(), FilesError> {
        self.write(ACCOUNT_KEY, key.as_bytes())
    }

    pub(crate) fn account(&self) -> Result<KeptAccount, FilesError> {
        self.read_json(ACCOUNT)
    }

    pub(crate) fn keep_account(&self, account: &KeptAccount) -> Result<(), FilesError> {
        self.write_json(ACCOUNT, account)
    }

    /// Writes the account's data locally, without publishing it.
    pub(crate) fn keep_account_here(&self, account: &KeptAccount) -> Result<(), FilesError> {
        self.write_here(
            ACCOUNT,
            &json(account).map_err(|why| FilesError::Io { path: self.path(ACCOUNT), why })?,
        )
    }

    /// Returns a certificate's key and chain (PEM).
    pub(crate) fn certificate(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
        self.read(&certificate_file(name))
    }

    pub(crate) fn keep_certificate(&self, name: &str, pem: &str) -> Result<(), FilesError> {
        self.write(&certificate_file(name), pem.as_bytes())
    }

    /// Returns the path of a certificate's file.
    pub(crate) fn certificate_path(&self, name: &str) -> PathBuf {
        self.path(&certificate_file(name))
    }

    pub(crate) fn kept(&self, name: &str) -> Result<RenewalState, FilesError> {
        self.read_json(&order_file(name))
    }

    pub(crate) fn keep(&self, name: &str, kept: &RenewalState) -> Result<(), FilesError> {
        self.write_json(&order_file(name), kept)
    }
}

fn json(what: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec_pretty(what)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://ca.example:14000/dir";

    #[test]
    fn a36_files_are_whole_and_nobody_elses() {
        let state = tempfile::tempdir().expect("a directory");
        let files = Files::open(state.path(), URL).expect("opened");
        assert_eq!(files.kept("a.example").expect("read"), RenewalState::default());
        let names = vec!["a.example".to_owned()];
        let order = KeptOrder { names, url: "https://ca.example/order/1".to_owned(), key: "KEY".to_owned() };
        let kept = RenewalState { order: Some(order), failures: 3, ..RenewalState::default() };
        files.keep("a.example", &kept).expect("kept");
        // The file that a process leaves if it stops while writing.
        fs::write(files.path(".a.example.json.new"), "half").expect("written");
        assert_eq!(files.kept("a.example").expect("read"), kept);
        assert!(!format!("{kept:?}").contains("KEY"), "{kept:?}");
        files.keep("a.example", &RenewalState::default()).expect("kept");
        files.keep_certificate("a.example", "PEM").expect("kept");
        files.keep_account_key("KEY").expect("kept");
        assert_eq!(files.certificate("a.example").expect("read").as_deref(), Some(&b"PEM"[..]));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for file in fs::read_dir(&files.directory).expect("a directory") {
            let path = file.expect("a file").path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        assert_eq!((mode(&files.directory), mode(&state.path().join("acme"))), (0o700, 0o700));
        fs::write(files.path("b.example.json"), "{").expect("written");
        assert_eq!(files.kept("b.example").expect("read"), RenewalState::default());
    }

    #[test]
    fn a36_two_processes_do_not_keep_the_same_certificates() {
        let state = tempfile::tempdir().expect("a directory");
        let files = Files::open(state.path(), URL).expect("opened");
        let second = Files::open(state.path(), URL).expect_err("locked");
        assert!(second.to_string().contains("another process"), "{second}");
        drop(files);
        assert!(Files::open(state.path(), URL).is_ok());
    }
}
