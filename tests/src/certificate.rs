//! Certificates made for a test.

use std::{fs, path::PathBuf};

/// A certificate that vouches for itself, and its key, as files.
#[derive(Debug)]
pub struct Certificate {
    directory: tempfile::TempDir,
}

impl Certificate {
    /// One for these names.
    ///
    /// # Panics
    /// When it cannot be made or written.
    #[must_use]
    pub fn of(names: &[&str]) -> Self {
        let made = Self { directory: tempfile::tempdir().expect("a temporary directory") };
        made.renew(names);
        made
    }

    /// Makes another one in the same files.
    ///
    /// # Panics
    /// When it cannot be made or written.
    pub fn renew(&self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        fs::write(self.key(), made.signing_key.serialize_pem()).expect("written");
        fs::write(self.file(), made.cert.pem()).expect("written");
    }

    /// The certificate's file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    /// The key's file.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }
}
