//! The files of the state directory: readable by nobody else, each whole or as it was.
//!
//! ```text
//! STATE/acme/                       0700
//!   lock                            held while a process keeps certificates here
//!   HOST-HASH/                      0700, one for each directory of a CA
//!     account.key                   the account's key (PEM); it is there before the CA hears of it
//!     account.json                  what the CA calls the account, and the contacts that it knows
//!     NAME.pem                      a certificate's key and chain together: never one without the other
//!     NAME.json                     an order that is under way, with its key; and failures
//! ```
//! All files are 0600. A file is written beside its place, made durable and renamed, and the rename is made durable, so
//! that a process or a machine that stops at any moment leaves the one or the other.

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

/// No file here is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The account's key.
pub(crate) const ACCOUNT_KEY: &str = "account.key";
/// What is kept of the account beside it.
pub(crate) const ACCOUNT: &str = "account.json";

/// Where a certificate is.
pub(crate) fn certificate_file(name: &str) -> String {
    format!("{name}.pem")
}

/// Where an order for it is.
pub(crate) fn order_file(name: &str) -> String {
    format!("{name}.json")
}

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The system says so.
    #[error("{}: {why}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// The other instances do not have it.
    #[error("{name} is not shared with the other instances: {why}")]
    NotShared {
        /// Which file.
        name: String,
        /// Why not.
        why: ShareError,
    },
    /// Another process has it.
    #[error("{}: another process keeps certificates there; give this one a state directory of its own", path.display())]
    Locked {
        /// Which.
        path: PathBuf,
    },
}

/// A directory for one CA's account and certificates.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    /// Whoever else is to have it.
    sharing: Option<AuthorityShare>,
    _lock: File,
}

/// What stands between our file and that of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Nothing.
    Same,
    /// Ours is theirs now.
    Taken,
    /// They have none, or one that does not count beside ours.
    OursIsToBeShared,
}

/// What is kept of a certificate beside itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RenewalState {
    /// An order that is under way.
    pub(crate) order: Option<KeptOrder>,
    /// Failures since the last success.
    pub(crate) failures: u32,
    /// Not before this second is the next attempt.
    pub(crate) not_before_s: i64,
    /// The CA has said so.
    pub(crate) is_limited: bool,
    /// What went wrong at last.
    pub(crate) error: Option<String>,
    /// By which challenge the next attempt is made; empty: the first.
    pub(crate) challenge: String,
    /// The certificate replaced one whose renewal window was over (RFC 9773 §4.2).
    pub(crate) is_hastened: bool,
}

/// An order that is under way.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptOrder {
    /// What it is for.
    pub(crate) names: Vec<String>,
    /// Where the CA has it.
    pub(crate) url: String,
    /// The key of the certificate (PEM).
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

/// What is kept of the account beside its key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptAccount {
    /// What the CA calls it (a URL); none until the CA has said so.
    pub(crate) id: Option<String>,
    /// The contacts that the CA knows.
    pub(crate) contacts: Vec<String>,
}

impl Files {
    /// The directory below `state` for the CA whose directory has this URL.
    ///
    /// # Errors
    /// It cannot be made, or another process has it.
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

    /// What the directory is called: one for each directory of a CA.
    pub(crate) fn authority(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// From now on what is written is shared.
    pub(crate) fn share(&mut self, sharing: AuthorityShare) {
        self.sharing = Some(sharing);
    }

    /// Puts a file where all instances have it, and there, whether it could be shared or not.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), FilesError> {
        let shared = self.sharing.as_ref().map_or(Ok(()), |sharing| sharing.write(name, content));
        // What could not be shared is, later.
        self.write_here(name, content)?;
        shared.map_err(|why| FilesError::NotShared { name: name.to_owned(), why })
    }

    /// Puts a file there, whole and durable.
    fn write_here(&self, name: &str, content: &[u8]) -> Result<(), FilesError> {
        let (path, beside) = (self.path(name), self.path(&format!(".{name}.new")));
        let written = || {
            // One that is left of a process that ended here may have anything in it.
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

    /// Reads a file; `None`: there is none.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
        let path = self.path(name);
        let read = fs::metadata(&path).and_then(|of| {
            if of.len() > FILE_BYTES_MAX {
                return Err(io::Error::new(ErrorKind::FileTooLarge, "it is longer than any file of ours"));
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
            // Nobody but a person writes half of it.
            tracing::warn!("{}: {error}; it counts for nothing", self.path(name).display());
            Ok(T::default())
        })
    }

    fn write_json(&self, name: &str, what: &impl Serialize) -> Result<(), FilesError> {
        let content = json(what).map_err(|why| FilesError::Io { path: self.path(name), why })?;
        self.write(name, &content)
    }

    /// Takes in what the others have of a file, if `counts` says so of theirs and ours; what stands between us then.
    pub(crate) fn meet(
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

    /// Shares a file with the others, if there is one.
    pub(crate) fn give(&self, name: &str) -> Result<(), FilesError> {
        let (Some(sharing), Some(ours)) = (&self.sharing, self.read(name)?) else { return Ok(()) };
        sharing.write(name, &ours).map_err(|why| FilesError::NotShared { name: name.to_owned(), why })
    }

    /// The account's key (PEM).
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

    /// Keeps it here and nowhere else.
    pub(crate) fn keep_account_here(&self, account: &KeptAccount) -> Result<(), FilesError> {
        self.write_here(
            ACCOUNT,
            &json(account).map_err(|why| FilesError::Io { path: self.path(ACCOUNT), why })?,
        )
    }

    /// A certificate's key and chain (PEM).
    pub(crate) fn certificate(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
        self.read(&certificate_file(name))
    }

    pub(crate) fn keep_certificate(&self, name: &str, pem: &str) -> Result<(), FilesError> {
        self.write(&certificate_file(name), pem.as_bytes())
    }

    /// Where it is.
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
        // What a process leaves that ends while it writes.
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
