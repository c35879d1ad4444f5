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

/// No file here is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

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
    _lock: File,
}

/// What is kept of a certificate beside itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
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
            Ok(()) => Ok(Self { directory: own, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(FilesError::Locked { path: all }),
            Err(why) => Err(FilesError::Io { path, why: why.into() }),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Puts a file there, whole and durable.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), FilesError> {
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
        let content = serde_json::to_vec_pretty(what)
            .map_err(|error| FilesError::Io { path: self.path(name), why: error.into() })?;
        self.write(name, &content)
    }

    /// The account's key (PEM).
    pub(crate) fn account_key(&self) -> Result<Option<String>, FilesError> {
        let key = self.read("account.key")?;
        Ok(key.map(|key| String::from_utf8_lossy(&key).into_owned()))
    }

    pub(crate) fn keep_account_key(&self, key: &str) -> Result<(), FilesError> {
        self.write("account.key", key.as_bytes())
    }

    pub(crate) fn account(&self) -> Result<KeptAccount, FilesError> {
        self.read_json("account.json")
    }

    pub(crate) fn keep_account(&self, account: &KeptAccount) -> Result<(), FilesError> {
        self.write_json("account.json", account)
    }

    /// A certificate's key and chain (PEM).
    pub(crate) fn certificate(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
        self.read(&format!("{name}.pem"))
    }

    pub(crate) fn keep_certificate(&self, name: &str, pem: &str) -> Result<(), FilesError> {
        self.write(&format!("{name}.pem"), pem.as_bytes())
    }

    /// Where it is.
    pub(crate) fn certificate_path(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.pem"))
    }

    pub(crate) fn kept(&self, name: &str) -> Result<Kept, FilesError> {
        self.read_json(&format!("{name}.json"))
    }

    pub(crate) fn keep(&self, name: &str, kept: &Kept) -> Result<(), FilesError> {
        self.write_json(&format!("{name}.json"), kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://ca.example:14000/dir";

    #[test]
    fn a36_files_are_whole_and_nobody_elses() {
        let state = tempfile::tempdir().expect("a directory");
        let files = Files::open(state.path(), URL).expect("opened");
        assert_eq!(files.kept("a.example").expect("read"), Kept::default());
        let names = vec!["a.example".to_owned()];
        let order = KeptOrder { names, url: "https://ca.example/order/1".to_owned(), key: "KEY".to_owned() };
        let kept = Kept { order: Some(order), failures: 3, ..Kept::default() };
        files.keep("a.example", &kept).expect("kept");
        // What a process leaves that ends while it writes.
        fs::write(files.path(".a.example.json.new"), "half").expect("written");
        assert_eq!(files.kept("a.example").expect("read"), kept);
        assert!(!format!("{kept:?}").contains("KEY"), "{kept:?}");
        files.keep("a.example", &Kept::default()).expect("kept");
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
        assert_eq!(files.kept("b.example").expect("read"), Kept::default());
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
