//! A large file to page with: on a real disk, allocated, and gone when dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

/// Magic numbers of file systems that live in memory: their pages have no disk to come from (statfs(2)).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// A directory of our own on a disk; it and all in it are removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
}

impl Scratch {
    /// Makes one in `asked`, or else in the first of the temporary directory, `/var/tmp` and the working directory
    /// that is on a disk.
    ///
    /// # Errors
    /// If `asked`, or else none of them, is on a disk and may be written to; the text names them.
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

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A file of `words` words, of which word `i` is `value(i)`, written out and on the disk.
    ///
    /// # Errors
    /// What the system says: a full disk above all.
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

/// Puts the file's pages out of the page cache; only those that are clean and mapped nowhere go.
///
/// # Errors
/// What `posix_fadvise` says.
pub fn drop_from_cache(file: &File) -> io::Result<()> {
    file.sync_all()?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(())
}
