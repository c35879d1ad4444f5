//! The numbers of purges, and the file beside the store's in which purges outlive a restart (`docs/formats/purges.md`).
//!
//! ```text
//!  a purge ─▶ number ─┬─▶ each core's table                                    holds at once
//!                     └─▶ queue ─▶ thread `purge-log`: a frame for all that     answered when both are done
//!                                  waits, fdatasync; written anew when most
//!                                  of it says what later purges say, too
//! ```
//! *Where the data live:* the thread has a table of its own, from which the file is written anew. *Bounds:*
//! [`WAITING_MAX`] purges wait for the disk, one beyond is refused; the file is at most a [`FRAME_WORDS_MAX`] longer
//! than twice what the table takes, and [`SLACK_BYTES`].
//!
//! A frame has one checksum, and a frame is on the disk before the next is begun. So what is torn is the last one, and
//! nobody was told that it holds; where another follows what cannot be read, the file is damaged, and the start says
//! so.

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

/// Purges that wait for the disk.
const WAITING_MAX: usize = 1024;
/// Words of a frame. What waits beyond comes in the next.
const FRAME_WORDS_MAX: usize = 1 << 16;
/// Bytes that the file may have beside twice what is needed before it is written anew.
const SLACK_BYTES: u64 = 1 << 20;
/// A longer file is none of ours.
const FILE_BYTES_MAX: u64 = 64 << 20;

const MAGIC: u64 = u64::from_le_bytes(*b"NTpurges");
const VERSION: u64 = 1;
const WORD: usize = size_of::<u64>();
const HEADER_WORDS: usize = 4;
const FRAME_HEADER_WORDS: usize = 2;
const PURGE_HEADER_WORDS: usize = 2;
/// Of a purge's second word.
const SOFT: u64 = 1 << 8;

/// Why a file of purges cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PurgesError {
    /// The disk does not do it.
    #[error("cannot use the file of purges {path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it says.
        error: io::Error,
    },
    /// The bytes are not those that were written.
    #[error(
        "the file of purges {path} is damaged at byte {at}, so it is not known what was purged: move it away, and say \
         `nighttrain purge --all` when the server runs"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: u64,
    },
}

/// Whether the disk has taken a purge.
type WriteReceipt = bool;
type Entry = (Arc<Invalidation>, oneshot::Sender<WriteReceipt>);

/// What all cores share of purges.
#[derive(Debug, Default)]
pub(crate) struct Book {
    numbers: Numbers,
    /// To the thread that writes the file, where there is one.
    file: Option<SyncSender<Entry>>,
    /// The ports under which pages are stored.
    pub(crate) ports: Ports,
    /// The log has said that a purge token came over plain HTTP.
    pub(crate) has_warned_of_token: AtomicBool,
}

/// As many purges wait for the disk as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// What a file of purges holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgesSeen {
    /// The file.
    pub path: PathBuf,
    /// Bytes of it that are whole.
    pub bytes: u64,
    /// Tags and addresses that it says were purged.
    pub purged: usize,
    /// Bans.
    pub bans: usize,
    /// Bytes behind: of a purge that was being written when the last process ended, and was never said to hold. A start cuts
    /// them off.
    pub torn_bytes: u64,
    /// It is of another store: a start begins it anew.
    pub is_foreign: bool,
}

/// Reads the file of purges beside a store's file, whose hashes have this seed, and changes nothing; `None`: there is none.
///
/// # Errors
/// It cannot be read, or is damaged, so that a start would refuse it.
pub fn check(store_path: &Path, hash_seed: u64) -> Result<Option<PurgesSeen>, PurgesError> {
    let (path, mark) = (path_beside(store_path), Hash::seeded(&MAGIC.to_le_bytes(), hash_seed).word());
    let Some(FileContents { table, bytes, torn_bytes, is_foreign }) = look(&path, mark)? else {
        return Ok(None);
    };
    let (purged, bans) = (table.held(), table.bans().len());
    Ok(Some(PurgesSeen { path, bytes, purged, bans, torn_bytes, is_foreign }))
}

/// What is read of a file.
struct FileContents {
    table: Table,
    /// As far as it is whole.
    bytes: u64,
    torn_bytes: u64,
    /// It is of another store, which had other objects and other hashes; or it was being made. Then nothing of it counts.
    is_foreign: bool,
}

/// Reads the file of the store with this mark; `None`: there is none.
fn look(path: &Path, mark: u64) -> Result<Option<FileContents>, PurgesError> {
    let damaged = |at: usize| PurgesError::Damaged { path: path.to_owned(), at: at as u64 };
    let Some(found) = read_file(path)? else { return Ok(None) };
    // What is shorter than a header was being made.
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

/// The bytes of a file; `None`: there is none.
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
    /// The book of a store on this file; and what was purged before.
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

    /// Gives a purge its number, and has it written; the answer says whether it was. `None`: there is no file.
    ///
    /// # Errors
    /// Too many wait. Nothing was purged.
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

/// The thread. It ends when nobody can purge any more.
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
            // Who purged may be gone.
            let _ = done.send(kept.is_ok());
        }
        // Each may have been purged in both ways; four floors. Bans with their lengths.
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

/// The words behind a purge's header.
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

/// The ban in the words behind a purge's header.
fn ban_of(words: &[u64]) -> Option<What> {
    let (&len, words) = words.split_first()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let len = usize::try_from(len).ok().filter(|len| len.div_ceil(WORD) == words.len())?;
    let (text, padding) = bytes.split_at_checked(len)?;
    // Which fields carry tags was asked when it was said.
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

/// The purges of a frame; `None`: they are none of ours.
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

/// The bytes of a frame. Its checksum begins with the store's mark, so that another store's frames are none.
fn framed(mark: u64, frame: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; WORD];
    bytes.extend((frame.len() as u64).to_le_bytes());
    bytes.extend(frame.iter().flat_map(|word| word.to_le_bytes()));
    let checksum = Hash::seeded(&bytes[WORD..], mark).word();
    bytes[..WORD].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The frame that begins with these bytes, and its length; `None`: none does.
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

/// The file.
struct PurgesFile {
    path: PathBuf,
    file: File,
    mark: u64,
    /// As far as it has been written.
    bytes: u64,
}

impl PurgesFile {
    /// Opens or makes the file of the store with this mark, and reads it.
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

    /// Appends a frame and makes it durable.
    fn put(&mut self, frame: &[u64]) -> io::Result<()> {
        let bytes = framed(self.mark, frame);
        // Over what a write that failed may have left.
        self.file.write_all_at(&bytes, self.bytes)?;
        self.file.sync_data()?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes what counts of a table to a new file, which takes this one's name when it is whole.
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

/// Whether these are a header, of whichever store.
fn is_header(bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<WORD>();
    matches!(words, [_, _, mark, _] if header(u64::from_le_bytes(*mark)) == bytes)
}

/// Takes in all frames; the answer is how many bytes they are. What follows is a torn end.
///
/// # Errors
/// Where the file is damaged: there are frames behind bytes that are none.
fn read(mark: u64, bytes: &[u8], table: &mut Table) -> Result<usize, usize> {
    let mut at = 0;
    while let Some((frame, length)) = frame_at(mark, &bytes[at..]) {
        for purge in parse(&frame).ok_or(at)? {
            table.apply(&purge);
        }
        at += length;
    }
    // A torn frame is the last, and no longer than the longest.
    let is_torn = bytes.len() - at <= (FRAME_HEADER_WORDS + FRAME_WORDS_MAX) * WORD
        && (at + WORD..bytes.len()).step_by(WORD).all(|later| frame_at(mark, &bytes[later..]).is_none());
    if is_torn { Ok(at) } else { Err(at) }
}

/// Writes a file under another name, and gives it this one when it is on the disk.
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
