//! Numbering of purges, and the file next to the store's file that keeps purges across a restart
//! (`docs/formats/purges.md`).
//!
//! ```text
//!  a purge ─▶ number ─┬─▶ each core's table                                    takes effect at once
//!                     └─▶ queue ─▶ thread `purge-log`: one frame for all that   answered when both are done
//!                                  wait, fdatasync; the file is rewritten when
//!                                  later purges make most of it redundant
//! ```
//! *Memory:* the thread has a table of its own, from which the file is rewritten. *Bounds:* at most
//! [`WAITING_MAX`] purges wait for the disk; more are refused. The file is at most twice as long as its table
//! needs, plus [`SLACK_BYTES`] and one frame of [`FRAME_WORDS_MAX`] words.
//!
//! A frame has one checksum, and is on the disk before the next is begun. So only the last frame can be torn,
//! and its purges were never confirmed. If a valid frame follows unreadable bytes, the file is damaged, and
//! the start reports it.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
};

use engine::store::{Hash, Store};
use tokio::sync::oneshot;

use crate::{
    purging::{
        bans::Ban,
        invalidations::{Invalidation, Numbers, Table, What},
    },
    request::ports::Ports,
};

/// Maximum number of purges that wait for the disk.
const WAITING_MAX: usize = 1024;
/// Maximum number of words of a frame. Further purges go into the next frame.
const FRAME_WORDS_MAX: usize = 1 << 16;
/// Bytes by which the file may exceed twice the needed size before it is rewritten.
const SLACK_BYTES: u64 = 1 << 20;
/// Maximum length of a file in bytes; a longer file was not written by us.
const FILE_BYTES_MAX: u64 = 64 << 20;

const MAGIC: u64 = u64::from_le_bytes(*b"NTpurges");
const VERSION: u64 = 1;
const WORD: usize = size_of::<u64>();
const HEADER_WORDS: usize = 4;
const FRAME_HEADER_WORDS: usize = 2;
const PURGE_HEADER_WORDS: usize = 2;
/// Flag in a purge's second word: the purge is soft.
const SOFT: u64 = 1 << 8;

/// Error that makes a purge log unusable.
#[derive(Debug, thiserror::Error)]
pub enum PurgesError {
    /// The file cannot be read or written.
    #[error("cannot use the purge log {path}: {error}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file's contents are damaged.
    #[error(
        "the purge log {path} is damaged at byte {at}, so some purges may be unknown: move it away, and run \
         `nighttrain purge --all` when the server runs"
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the damage.
        at: u64,
    },
}

/// True if a purge was written to the disk.
type WriteReceipt = bool;
type Entry = (Arc<Invalidation>, oneshot::Sender<WriteReceipt>);

/// State of purges that all cores share.
#[derive(Debug, Default)]
pub(crate) struct Book {
    numbers: Numbers,
    /// Queue to the thread that writes the file, if there is a file.
    file: Option<SyncSender<Entry>>,
    /// Ports under which pages are stored.
    pub(crate) ports: Ports,
    /// The warning about a purge token sent over plain HTTP has been logged.
    pub(crate) has_warned_of_token: AtomicBool,
}

/// Error: the queue of purges that wait for the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// Contents of a purge log, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgesSeen {
    /// Path of the file.
    pub path: PathBuf,
    /// Bytes of the file that are intact.
    pub bytes: u64,
    /// Number of purged tags and addresses.
    pub purged: usize,
    /// Number of bans.
    pub bans: usize,
    /// Bytes after the intact part: a purge that was being written when the last process ended, and was never
    /// confirmed. The next start removes them.
    pub torn_bytes: u64,
    /// The file belongs to another store: a start replaces it with an empty one.
    pub is_foreign: bool,
}

/// Reads the purge log next to a store's file, without changing it. `hash_seed` is the seed of the store's
/// hashes. `None` if there is no purge log.
///
/// # Errors
/// [`PurgesError`] if the file cannot be read, or is damaged so that a start would refuse it.
pub fn check(store_path: &Path, hash_seed: u64) -> Result<Option<PurgesSeen>, PurgesError> {
    let (path, mark) = (path_beside(store_path), Hash::seeded(&MAGIC.to_le_bytes(), hash_seed).word());
    let Some(FileContents { table, bytes, torn_bytes, is_foreign }) = look(&path, mark)? else {
        return Ok(None);
    };
    let (purged, bans) = (table.held(), table.bans().len());
    Ok(Some(PurgesSeen { path, bytes, purged, bans, torn_bytes, is_foreign }))
}

/// Parsed contents of a file.
struct FileContents {
    table: Table,
    /// Length of the intact part.
    bytes: u64,
    torn_bytes: u64,
    /// The file belongs to another store, with other objects and other hashes, or was cut off while it was
    /// being created. Its contents are ignored.
    is_foreign: bool,
}

/// Reads the file of the store with this mark; `None` if there is no file.
fn look(path: &Path, mark: u64) -> Result<Option<FileContents>, PurgesError> {
    let damaged = |at: usize| PurgesError::Damaged { path: path.to_owned(), at: at as u64 };
    let Some(found) = read_file(path)? else { return Ok(None) };
    // A file shorter than its header was cut off while it was being created.
    let (known, rest) = found.split_at_checked(HEADER_WORDS * WORD).unwrap_or((&[], &[]));
    let is_foreign = known != header(mark);
    if is_foreign && !known.is_empty() && !is_header(known) {
        return Err(damaged(0));
    }
    let mut table = Table::default();
    let mut torn_bytes = 0;
    let mut bytes = known.len();
    if !is_foreign {
        bytes += read(mark, rest, &mut table).map_err(|at| damaged(known.len() + at))?;
        torn_bytes = found.len() - bytes;
    }
    Ok(Some(FileContents { table, bytes: bytes as u64, torn_bytes: torn_bytes as u64, is_foreign }))
}

fn path_beside(store_path: &Path) -> PathBuf {
    let mut path = store_path.as_os_str().to_owned();
    path.push(".purges");
    PathBuf::from(path)
}

/// Reads a whole file; `None` if there is no file.
fn read_file(path: &Path) -> Result<Option<Vec<u8>>, PurgesError> {
    let failed = |error| PurgesError::Io { path: path.to_owned(), error };
    match fs::metadata(path) {
        Ok(found) if found.len() > FILE_BYTES_MAX => {
            Err(PurgesError::Damaged { path: path.to_owned(), at: FILE_BYTES_MAX })
        }
        Ok(_) => fs::read(path).map(Some).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

impl Book {
    /// Opens the purge log of a store on this file; also returns the table of earlier purges.
    pub(crate) fn open(store_path: &Path, store: &Store) -> Result<(Self, Table), PurgesError> {
        let path = path_beside(store_path);
        let failed = |error| PurgesError::Io { path: path.clone(), error };
        let (file, table) = PurgesFile::open(path.clone(), store.hash(&MAGIC.to_le_bytes()).word())?;
        let numbers = Numbers::after(table.youngest());
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let known = table.clone();
        let thread = thread::Builder::new().name("purge-log".to_owned());
        thread.spawn(move || write_all_that_comes(file, known, &receiver)).map_err(failed)?;
        let ports = Ports::of_earlier_objects();
        Ok((Self { numbers, file: Some(sender), ports, ..Self::default() }, table))
    }

    /// Gives a purge its number and queues it for the file. The receiver tells whether it was written; `None`
    /// if there is no file.
    ///
    /// # Errors
    /// [`Full`] if too many purges wait. Nothing was purged then.
    pub(crate) fn enter(
        &self,
        what: What,
        is_soft: bool,
        now_ms: u64,
    ) -> Result<(Arc<Invalidation>, Option<oneshot::Receiver<WriteReceipt>>), Full> {
        let invalidation = Arc::new(Invalidation { number: self.numbers.next(now_ms), what, is_soft });
        let Some(file) = &self.file else { return Ok((invalidation, None)) };
        let (done, kept) = oneshot::channel();
        match file.try_send((Arc::clone(&invalidation), done)) {
            Ok(()) => Ok((invalidation, Some(kept))),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Full),
        }
    }
}

/// Runs the thread `purge-log` until no sender of purges is left.
fn write_all_that_comes(mut file: PurgesFile, mut table: Table, entries: &Receiver<Entry>) {
    let mut next = None;
    while let Some(first) = next.take().or_else(|| entries.recv().ok()) {
        let (mut frame, mut told) = (Vec::new(), Vec::new());
        let mut entry = Some(first);
        while let Some((invalidation, done)) = entry.take() {
            if !frame.is_empty() && frame.len() + words_of(&invalidation) > FRAME_WORDS_MAX {
                next = Some((invalidation, done));
                break;
            }
            append(&mut frame, &invalidation);
            table.apply(&invalidation);
            told.push(done);
            entry = entries.try_recv().ok();
        }
        let kept = file.put(&frame);
        if let Err(error) = &kept {
            tracing::error!(%error, path = %file.path.display(), "cannot write a purge to disk: it is lost at a restart");
        }
        for done in told {
            // The requester may be gone.
            let _ = done.send(kept.is_ok());
        }
        // Maximum size of the table's purges: a hard and a soft one per hash, the four purges of all objects
        // or of all tagged ones, and the bans with their texts.
        let purge_bytes = (PURGE_HEADER_WORDS + 1) * WORD;
        let bans = table.bans();
        let bans_bytes = bans.len() * (purge_bytes + WORD) + bans.texts_bytes();
        let needed_bytes = (2 * table.held() + 4) * purge_bytes + bans_bytes;
        if file.bytes > 2 * needed_bytes as u64 + SLACK_BYTES
            && let Err(error) = file.write_anew(&table)
        {
            tracing::warn!(%error, path = %file.path.display(), "cannot rewrite the purge log");
        }
    }
}

/// Encodes the words after a purge's header.
fn words(what: &What) -> Cow<'_, [u64]> {
    match what {
        What::Tags(tags) => Cow::Borrowed(tags),
        What::Address(hash) => Cow::Borrowed(std::slice::from_ref(hash)),
        What::All | What::Tagged | What::Doubted => Cow::Borrowed(&[]),
        What::Ban(ban) => {
            let (whole, rest) = ban.text().as_bytes().as_chunks::<WORD>();
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            let words = whole.iter().copied().chain((!rest.is_empty()).then_some(last));
            Cow::Owned(
                std::iter::once(ban.text().len() as u64).chain(words.map(u64::from_le_bytes)).collect(),
            )
        }
    }
}

/// Parses the ban in the words after a purge's header.
fn ban_of(words: &[u64]) -> Option<What> {
    let (&len, words) = words.split_first()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let len = usize::try_from(len).ok().filter(|len| len.div_ceil(WORD) == words.len())?;
    let (text, padding) = bytes.split_at_checked(len)?;
    // The check for tag fields was made when the ban was entered.
    padding.iter().all(|byte| *byte == 0).then(|| Ban::parse(text, &[]).ok().map(What::Ban))?
}

fn words_of(invalidation: &Invalidation) -> usize {
    PURGE_HEADER_WORDS + words(&invalidation.what).len()
}

fn append(frame: &mut Vec<u64>, invalidation: &Invalidation) {
    let Invalidation { number, what, is_soft } = invalidation;
    let kind = match what {
        What::Tags(_) => 1,
        What::Address(_) => 2,
        What::All => 3,
        What::Tagged => 4,
        What::Ban(_) => 5,
        What::Doubted => 6,
    };
    let soft = if *is_soft { SOFT } else { 0 };
    let words = words(what);
    frame.extend([*number, kind | soft | (words.len() as u64) << 32]);
    frame.extend(&*words);
}

/// Parses the purges of a frame; `None` if the words were not written by us.
fn parse(mut words: &[u64]) -> Option<Vec<Invalidation>> {
    let mut purges = Vec::new();
    while let [number, kind, rest @ ..] = words {
        let (hashes, rest) = rest.split_at_checked(usize::try_from(kind >> 32).ok()?)?;
        let what = match (kind & 0xff, hashes) {
            (1, hashes) => What::Tags(hashes.into()),
            (2, [hash]) => What::Address(*hash),
            (3, []) => What::All,
            (4, []) => What::Tagged,
            (5, words) => ban_of(words)?,
            (6, []) => What::Doubted,
            _ => return None,
        };
        purges.push(Invalidation { number: *number, what, is_soft: kind & SOFT != 0 });
        words = rest;
    }
    words.is_empty().then_some(purges)
}

/// Encodes a frame. Its checksum is seeded with the store's mark, so that frames of another store are
/// invalid.
fn framed(mark: u64, frame: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; WORD];
    bytes.extend((frame.len() as u64).to_le_bytes());
    bytes.extend(frame.iter().flat_map(|word| word.to_le_bytes()));
    let checksum = Hash::seeded(&bytes[WORD..], mark).word();
    bytes[..WORD].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Parses the frame at the beginning of these bytes, and returns its length, too; `None` if there is no valid
/// frame.
fn frame_at(mark: u64, bytes: &[u8]) -> Option<(Vec<u64>, usize)> {
    let (words, _) = bytes.as_chunks::<WORD>();
    let &[checksum, count, ref rest @ ..] = words else { return None };
    let count = usize::try_from(u64::from_le_bytes(count)).ok().filter(|count| *count <= FRAME_WORDS_MAX)?;
    let frame: Vec<u64> = rest.get(..count)?.iter().copied().map(u64::from_le_bytes).collect();
    let bytes_whole = (FRAME_HEADER_WORDS + count) * WORD;
    let is_ours = Hash::seeded(&bytes[WORD..bytes_whole], mark).word() == u64::from_le_bytes(checksum);
    is_ours.then_some((frame, bytes_whole))
}

fn header(mark: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = [MAGIC, VERSION, mark].into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend(Hash::seeded(&bytes, 0).word().to_le_bytes());
    bytes
}

/// Open file of purges.
struct PurgesFile {
    path: PathBuf,
    file: File,
    mark: u64,
    /// Length that has been written.
    bytes: u64,
}

impl PurgesFile {
    /// Opens or creates the file of the store with this mark, and reads it.
    fn open(path: PathBuf, mark: u64) -> Result<(Self, Table), PurgesError> {
        let failed = |error| PurgesError::Io { path: path.clone(), error };
        if let Some(FileContents { table, bytes, torn_bytes, is_foreign: false }) = look(&path, mark)? {
            if torn_bytes > 0 {
                tracing::warn!(path = %path.display(), bytes = torn_bytes, "purge log: incomplete record at the end dropped");
            }
            let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
            file.set_len(bytes).map_err(failed)?;
            return Ok((Self { path, file, mark, bytes }, table));
        }
        let file = write_new(&path, &header(mark)).map_err(failed)?;
        let bytes = (HEADER_WORDS * WORD) as u64;
        Ok((Self { path, file, mark, bytes }, Table::default()))
    }

    /// Appends a frame and syncs it to the disk.
    fn put(&mut self, frame: &[u64]) -> io::Result<()> {
        let bytes = framed(self.mark, frame);
        // Overwrites any bytes that a failed write has left.
        self.file.write_all_at(&bytes, self.bytes)?;
        self.file.sync_data()?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes the purges that rebuild a table to a new file, which replaces this one when it is complete.
    fn write_anew(&mut self, table: &Table) -> io::Result<()> {
        let (mut bytes, mut frame) = (header(self.mark), Vec::new());
        for purge in table.purges() {
            if frame.len() + words_of(&purge) > FRAME_WORDS_MAX {
                bytes.extend(framed(self.mark, &frame));
                frame.clear();
            }
            append(&mut frame, &purge);
        }
        bytes.extend(framed(self.mark, &frame));
        self.file = write_new(&self.path, &bytes)?;
        self.bytes = bytes.len() as u64;
        Ok(())
    }
}

/// Returns whether these bytes are the header of any store's file.
fn is_header(bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<WORD>();
    matches!(words, [_, _, mark, _] if header(u64::from_le_bytes(*mark)) == bytes)
}

/// Applies all frames, and returns how many bytes they take. The bytes after them are a torn end.
///
/// # Errors
/// Returns the offset of the damage if a valid frame follows invalid bytes.
fn read(mark: u64, bytes: &[u8], table: &mut Table) -> Result<usize, usize> {
    let mut at = 0;
    while let Some((frame, length)) = frame_at(mark, &bytes[at..]) {
        for purge in parse(&frame).ok_or(at)? {
            table.apply(&purge);
        }
        at += length;
    }
    // Only the last frame can be torn, so more invalid bytes than the longest frame has are damage.
    let is_torn = bytes.len() - at <= (FRAME_HEADER_WORDS + FRAME_WORDS_MAX) * WORD
        && (at + WORD..bytes.len()).step_by(WORD).all(|later| frame_at(mark, &bytes[later..]).is_none());
    if is_torn { Ok(at) } else { Err(at) }
}

/// Writes a file under a temporary name, and renames it to this one when it is on the disk.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;
#[cfg(test)]
mod tests;
