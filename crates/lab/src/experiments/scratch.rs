//! A large file for paging: on a real disk, allocated, and removed when dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

/// Magic numbers of file systems in memory, whose pages are not on a disk (statfs(2)).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// A temporary directory on a disk, removed with its contents when dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
}

impl Scratch {
    /// Creates a directory in `asked`, or else in the first of the temporary directory, `/var/tmp` and the
    /// working directory that is on a disk.
    ///
    /// # Errors
    /// Returns an error that names the directories if `asked`, or else none of them, is on a disk and
    /// writable.
    pub fn on_disk(asked: Option<&Path>) -> io::Result<Self> {
        let mut refused = Vec::new();
        let usual = || vec![std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from(".")];
        for place in asked.map_or_else(usual, |asked| vec![asked.to_owned()]) {
            match Self::within(&place) {
                Ok(scratch) => return Ok(scratch),
                Err(error) => refused.push(format!("{}: {error}", place.display())),
            }
        }
        Err(io::Error::other(format!("no directory on a disk to write to ({})", refused.join("; "))))
    }

    fn within(place: &Path) -> io::Result<Self> {
        let kind = rustix::fs::statfs(place)?.f_type;
        #[expect(clippy::allow_attributes, reason = "the type of f_type differs between architectures")]
        #[allow(clippy::useless_conversion, reason = "i64 here, u32 elsewhere")]
        if IN_MEMORY.contains(&i64::from(kind)) {
            return Err(io::Error::other("its files live in memory"));
        }
        Ok(Self { directory: tempfile::Builder::new().prefix("nighttrain-lab-").tempdir_in(place)? })
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Creates a file of `words` words, where word `i` is `value(i)`, and syncs it to the disk.
    ///
    /// # Errors
    /// Returns the system's error, for instance if the disk is full.
    pub fn words(&self, name: &str, words: usize, mut value: impl FnMut(usize) -> u64) -> io::Result<File> {
        let file = create(&self.path().join(name))?;
        let mut out = io::BufWriter::with_capacity(1 << 20, &file);
        for at in 0..words {
            out.write_all(&value(at).to_ne_bytes())?;
        }
        out.flush()?;
        drop(out);
        file.sync_all()?;
        Ok(file)
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// Drops the file's pages from the page cache; only pages that are clean and not mapped are dropped.
///
/// # Errors
/// Returns the error of `posix_fadvise`.
pub fn drop_from_cache(file: &File) -> io::Result<()> {
    file.sync_all()?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(())
}
