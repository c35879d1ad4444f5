//! Purge position of an instance, saved beside its store, so that a restarted instance knows what it has
//! missed.
//!
//! ```text
//! word 0 magic "NTcluste" · 1 version · 2 generation · 3 stream made at, ns · 4 sequence · 5, 6 instance
//!      7 identity of the store's file: XXH3-64 of its device and inode · 8 XXH3-64 of 0–7
//! ```
//! A position is valid for one store file (word 7). A store that replaced the first one, or was restored from
//! a copy, has missed purges that the position counts as carried out. Everything is then revalidated.
//!
//! Words are 8 bytes, little-endian. The file is overwritten in one go, after the purges that it counts are
//! on the disk, and nothing waits for the write: an older position only causes purges to be repeated, and a
//! torn one causes everything to be revalidated.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::xxh3_64;

const MAGIC: u64 = u64::from_le_bytes(*b"NTcluste");
const VERSION: u64 = 2;
const WORDS: usize = 9;

/// A position in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Generation of the stream; a stream that replaces another of the same name has a higher generation.
    pub(crate) generation: u64,
    /// Creation time of the stream by its servers' clocks; it is only compared for equality.
    pub(crate) made_ns: u64,
    /// Sequence number up to which everything has been carried out.
    pub(crate) applied: u64,
}

/// File that holds the position.
#[derive(Debug)]
pub(crate) struct PositionFile {
    file: File,
    instance: u128,
    store: PathBuf,
    /// Position that was in the file when it was opened, if it belongs to this store.
    pub(crate) previous: Option<PreviousPosition>,
}

/// Position that the previous process left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PreviousPosition {
    pub(crate) position: Position,
    /// Number of the previous process's instance.
    pub(crate) instance: u128,
}

/// Returns the identity of a store's file (word 7); 0 if there is no file. `write` computes the identity
/// again each time, because the first start opens the position before it creates the store.
fn identity(store: &Path) -> u64 {
    let of = |of: std::fs::Metadata| [of.dev().to_le_bytes(), of.ino().to_le_bytes()].concat();
    std::fs::metadata(store).map_or(0, |metadata| xxh3_64(&of(metadata)).max(1))
}

impl PositionFile {
    /// Opens the position file of `instance`. The store's path is `path` without its last extension.
    pub(crate) fn open(path: &Path, instance: u128) -> io::Result<Self> {
        let store = path.with_extension("");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = [0; WORDS * 8];
        let previous = file.read_exact_at(&mut bytes, 0).ok().and_then(|()| read(&bytes, identity(&store)));
        Ok(Self { file, instance, store, previous })
    }

    /// Overwrites the file with a new position.
    pub(crate) fn write(&self, position: Position) -> io::Result<()> {
        self.file.write_all_at(&written(position, self.instance, identity(&self.store)), 0)
    }
}

fn written(position: Position, instance: u128, store: u64) -> [u8; WORDS * 8] {
    let Position { generation, made_ns, applied } = position;
    let mut bytes = [0; WORDS * 8];
    let [low, high] = [instance as u64, (instance >> 64) as u64];
    let words = [MAGIC, VERSION, generation, made_ns, applied, low, high, store];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let (of, sum) = bytes.split_at_mut((WORDS - 1) * 8);
    sum.copy_from_slice(&xxh3_64(of).to_le_bytes());
    bytes
}

/// Parses a complete position file that belongs to `store`.
fn read(bytes: &[u8; WORDS * 8], store: u64) -> Option<PreviousPosition> {
    let word = |at: usize| u64::from_le_bytes(bytes.as_chunks::<8>().0[at]);
    let is_whole = word(0) == MAGIC && word(1) == VERSION && word(8) == xxh3_64(&bytes[..(WORDS - 1) * 8]);
    (is_whole && word(7) == store).then(|| PreviousPosition {
        position: Position { generation: word(2), made_ns: word(3), applied: word(4) },
        instance: u128::from(word(5)) | u128::from(word(6)) << 64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITION: Position = Position { generation: 2, made_ns: 3, applied: 4 };

    #[test]
    fn what_is_written_is_read_by_the_next() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store.cluster");
        let file = PositionFile::open(&path, 5 << 70 | 6).expect("a file");
        assert_eq!(file.previous, None);
        file.write(Position { applied: 1, ..POSITION }).expect("it is written");
        file.write(POSITION).expect("it is written");
        let PositionFile { previous, .. } = PositionFile::open(&path, 7).expect("a file");
        assert_eq!(previous, Some(PreviousPosition { position: POSITION, instance: 5 << 70 | 6 }));
    }

    #[test]
    fn a_position_is_of_one_store() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = directory.path().join("store");
        let path = directory.path().join("store.cluster");
        std::fs::write(&store, "one").expect("a store");
        let file = PositionFile::open(&path, 5).expect("a file");
        file.write(POSITION).expect("it is written");
        let PositionFile { previous, .. } = PositionFile::open(&path, 7).expect("a file");
        assert_eq!(previous, Some(PreviousPosition { position: POSITION, instance: 5 }));
        // A copy replaces the store.
        let copy = directory.path().join("copy");
        std::fs::copy(&store, &copy).expect("a copy");
        std::fs::rename(&copy, &store).expect("it takes its place");
        assert_eq!(PositionFile::open(&path, 7).expect("a file").previous, None);
    }

    #[test]
    fn a_torn_one_is_none() {
        let whole = written(POSITION, 9, 8);
        assert_eq!(read(&whole, 8), Some(PreviousPosition { position: POSITION, instance: 9 }));
        for at in 0..whole.len() {
            let mut torn = whole;
            torn[at] ^= 1;
            assert_eq!(read(&torn, 8), None, "{at}");
        }
    }
}
