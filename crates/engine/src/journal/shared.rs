//! The journal's shared memory: rings and lease, created by one process and opened by others.

use std::{
    cell::Cell,
    fs::{File, OpenOptions},
    io,
    ops::Deref,
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    time::Duration,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

use super::ring::{self, HEAD_WORDS, Reader, Writer};
use crate::{
    cores::clock,
    meter::{Family, Source, Unit, counter, gauge},
    random,
    sys::mapping::MappedWords,
};

/// Maximum rings of one journal: one for each loop.
pub const RINGS_MAX: usize = 4096;
/// Maximum time for which a reader is considered active without renewing its lease.
pub const LEASE_MAX: Duration = Duration::from_secs(5);
/// Duration of a reader's lease, counted from each renewal.
const LEASE: Duration = Duration::from_secs(3);

const LEASE_MAX_MS: u64 = 5000;
const LEASE_MS: u64 = 3000;
const _: () = assert!(LEASE_MAX.as_millis() == LEASE_MAX_MS as u128 && LEASE.as_millis() == LEASE_MS as u128);

/// Words before the rings that identify the journal; they fill one page.
const FRONT_WORDS: usize = 512;
/// Words of the lease's file, which is one page long.
const LEASE_WORDS: usize = 512;
/// Magic number: "NTJOURN" and the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"NTJOURN1");
/// Indices of the words that identify and describe the journal.
const AT_MAGIC: usize = 0;
const AT_TOKEN: usize = 1;
const AT_RINGS: usize = 2;
const AT_CAPACITY: usize = 3;
const RING_BYTES_MIN: usize = 64 << 10;
const RING_BYTES_MAX: usize = 1 << 30;

/// A journal of this process.
#[derive(Debug)]
pub struct Journal {
    memory: Arc<Rings>,
    lease: MappedWords,
    file: File,
    lease_file: File,
    token: u64,
    /// Number of rings whose writer has been handed out.
    taken: AtomicUsize,
    /// True if a thread of this process reads the journal for as long as the process runs.
    is_always_read: bool,
}

/// Data by which another process finds and opens this process's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalAddress {
    /// Process ID of the process that owns the journal.
    pub pid: u32,
    /// File descriptor of the rings in that process.
    pub rings_fd: RawFd,
    /// File descriptor of the lease in that process.
    pub lease_fd: RawFd,
    /// Random token at the front of the rings, so that another process with the same ID is not mistaken for
    /// this one.
    pub token: u64,
}

/// Reasons why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Error returned by the system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The opened file is not a journal.
    #[error("the process's shared memory is not a Nighttrain journal")]
    Other,
}

impl Journal {
    /// Creates a journal of `rings` rings, with `ring_bytes` bytes each (rounded up to a power of two, at
    /// least 64 KiB). `is_always_read`: a thread of this process reads it for as long as the process runs.
    ///
    /// # Errors
    /// Returns the system's error.
    ///
    /// # Panics
    /// Panics if `rings` is 0 or more than [`RINGS_MAX`].
    pub fn create(rings: usize, ring_bytes: usize, is_always_read: bool) -> io::Result<Arc<Self>> {
        assert!((1..=RINGS_MAX).contains(&rings), "{rings} rings");
        let capacity_words =
            ring_bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX).next_power_of_two() / size_of::<u64>();
        let len = FRONT_WORDS + rings * (HEAD_WORDS + capacity_words);
        let (file, words) = memory("nighttrain-log", len)?;
        let (lease_file, lease) = memory("nighttrain-log-lease", LEASE_WORDS)?;
        // From here on a process that opens the rings can only read them.
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        fcntl_add_seals(&lease_file, SealFlags::SEAL)?;
        let token = random::number()?;
        words[AT_TOKEN].store(token, Relaxed);
        words[AT_RINGS].store(rings as u64, Relaxed);
        words[AT_CAPACITY].store(capacity_words as u64, Relaxed);
        words[AT_MAGIC].store(MAGIC, Relaxed);
        let memory = Arc::new(Rings { words, rings, capacity_words });
        let taken = AtomicUsize::new(0);
        Ok(Arc::new(Self { memory, lease, file, lease_file, token, taken, is_always_read }))
    }

    /// Returns the writer of the next ring.
    ///
    /// # Panics
    /// Panics if the writers of all rings have been handed out.
    #[must_use]
    pub fn scribe(self: &Arc<Self>) -> Scribe {
        let index = self.taken.fetch_add(1, AcqRel);
        assert!(index < self.memory.rings, "all {} rings of the journal have a writer", self.memory.rings);
        let writer = Writer::new(Ring { memory: Arc::clone(&self.memory), index });
        Scribe { writer, journal: Arc::clone(self), index: index as u64, ids: Cell::new(0) }
    }

    /// Returns the address at which other processes find the journal.
    #[must_use]
    pub fn opened(&self) -> JournalAddress {
        JournalAddress {
            pid: std::process::id(),
            rings_fd: self.file.as_raw_fd(),
            lease_fd: self.lease_file.as_raw_fd(),
            token: self.token,
        }
    }

    /// Returns a reader in this process that starts after the existing records.
    #[must_use]
    pub fn reader(&self) -> JournalReader {
        JournalReader::new(&self.memory)
    }

    /// Returns the number of records written so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        (0..self.memory.rings)
            .map(|index| Ring { memory: Arc::clone(&self.memory), index }[ring::RECORDS].load(Relaxed))
            .sum()
    }

    /// Returns whether the journal has a reader.
    #[inline]
    fn is_read(&self) -> bool {
        self.is_always_read || (self.lease[0].load(Relaxed) != 0 && self.is_leased())
    }

    /// Returns whether the lease is still valid.
    #[cold]
    fn is_leased(&self) -> bool {
        let (now_ms, until_ms) = (clock::monotonic_ms(), self.lease[0].load(Relaxed));
        // A failed exchange means that a reader has renewed the lease, which the next check sees.
        if until_ms <= now_ms {
            let _ = self.lease[0].compare_exchange(until_ms, 0, Relaxed, Relaxed);
            return false;
        }
        if until_ms > now_ms + LEASE_MAX_MS {
            let _ = self.lease[0].compare_exchange(until_ms, now_ms + LEASE_MAX_MS, Relaxed, Relaxed);
        }
        true
    }
}

/// Creates anonymous memory whose size cannot be changed.
fn memory(name: &str, len: usize) -> io::Result<(File, MappedWords)> {
    let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.set_len((len * size_of::<u64>()) as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    let words = MappedWords::map(&file, len)?;
    Ok((file, words))
}

/// All rings of a journal, of this process or another.
#[derive(Debug)]
struct Rings {
    words: MappedWords,
    rings: usize,
    capacity_words: usize,
}

/// A single ring of a journal.
#[derive(Debug)]
struct Ring {
    memory: Arc<Rings>,
    index: usize,
}

impl Deref for Ring {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        let stride = HEAD_WORDS + self.memory.capacity_words;
        &self.memory.words[FRONT_WORDS + self.index * stride..][..stride]
    }
}

/// Writer of one loop's ring in the journal.
#[derive(Debug)]
pub struct Scribe {
    writer: Writer<Ring>,
    journal: Arc<Journal>,
    index: u64,
    ids: Cell<u64>,
}

/// Number of bits in a record ID below the loop's index.
const ID_BITS: u32 = 48;

impl Scribe {
    /// Returns whether the journal has a reader. If not, the call costs a load and a branch.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.journal.is_read()
    }

    /// Returns an ID that no other record of this process has; never 0.
    #[inline]
    pub fn next_id(&self) -> u64 {
        let id = self.ids.get() + 1;
        self.ids.set(id);
        self.index << ID_BITS | id
    }

    /// Writes a record that consists of these parts ([`Writer::write`]).
    #[inline]
    pub fn write(&self, parts: &[&[u8]]) {
        self.writer.write(parts);
    }
}

/// A reader of all rings of a journal.
#[derive(Debug)]
pub struct JournalReader {
    rings: Vec<Reader<Ring>>,
    /// Index of the ring that is read next.
    next: usize,
}

impl JournalReader {
    fn new(memory: &Arc<Rings>) -> Self {
        let ring = |index| Reader::new(Ring { memory: Arc::clone(memory), index });
        Self { rings: (0..memory.rings).map(ring).collect(), next: 0 }
    }

    /// Passes available records to `take`, ring by ring, at most `at_most` from each ring; returns the number
    /// of records passed.
    pub fn read(&mut self, into: &mut Vec<u8>, at_most: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut read = 0;
        let rings = self.rings.len();
        for _ in 0..rings {
            let ring = &mut self.rings[self.next];
            self.next = (self.next + 1) % rings;
            for _ in 0..at_most {
                if !ring.read(into) {
                    break;
                }
                take(into);
                read += 1;
            }
        }
        read
    }

    /// Returns the number of records that were overwritten before they were read.
    pub fn lost(&self) -> u64 {
        self.rings.iter().map(Reader::lost).sum()
    }
}

/// Lease of a reader: a word in shared memory that tells the loops of another process that they have a
/// reader.
#[derive(Debug)]
pub struct Lease(MappedWords);

impl Lease {
    /// Renews the lease for a few seconds.
    pub fn renew(&self) {
        self.0[0].fetch_max(clock::monotonic_ms() + LEASE_MS, Relaxed);
    }
}

impl JournalAddress {
    /// Opens the journal of another process and begins to read it. That process's loops write records from
    /// now on, as long as the lease is renewed.
    ///
    /// # Errors
    /// [`OpenError::Io`] if the process is gone or belongs to another user; [`OpenError::Other`] if the open
    /// file is not a journal.
    pub fn open(self) -> Result<(JournalReader, Lease), OpenError> {
        let Self { pid, rings_fd, lease_fd, token } = self;
        let rings_file = File::open(format!("/proc/{pid}/fd/{rings_fd}"))?;
        let lease_file =
            OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{lease_fd}"))?;
        // Access to the mapping of a file that can be truncated could cause a SIGBUS, so the seals are
        // checked.
        for file in [&rings_file, &lease_file] {
            let seals = fcntl_get_seals(file).map_err(|_| OpenError::Other)?;
            if !seals.contains(SealFlags::SHRINK) {
                return Err(OpenError::Other);
            }
        }
        let bytes = rings_file.metadata()?.len();
        let len = usize::try_from(bytes).map_err(|_| OpenError::Other)? / size_of::<u64>();
        if len < FRONT_WORDS {
            return Err(OpenError::Other);
        }
        let words = MappedWords::map_seen(&rings_file, len)?;
        let said = |at: usize| usize::try_from(words[at].load(Relaxed)).unwrap_or(usize::MAX);
        let (rings, capacity_words) = (said(AT_RINGS), said(AT_CAPACITY));
        let is_ours = words[AT_MAGIC].load(Acquire) == MAGIC
            && words[AT_TOKEN].load(Relaxed) == token
            && (1..=RINGS_MAX).contains(&rings)
            && capacity_words.is_power_of_two()
            && capacity_words <= RING_BYTES_MAX / size_of::<u64>()
            && FRONT_WORDS + rings * (HEAD_WORDS + capacity_words) <= len;
        if !is_ours {
            return Err(OpenError::Other);
        }
        let lease = Lease(MappedWords::map(&lease_file, LEASE_WORDS)?);
        lease.renew();
        Ok((JournalReader::new(&Arc::new(Rings { words, rings, capacity_words })), lease))
    }
}

impl Source for Journal {
    fn collect(&self, families: &mut Vec<Family>) {
        let figures = [
            counter(
                "log_records",
                "Records written for readers of the transaction log.",
                Unit::None,
                Self::records,
            ),
            gauge(
                "log_read",
                "Whether a reader is attached to the transaction log: 1 or 0.",
                Unit::None,
                |journal: &Self| u64::from(journal.is_read()),
            ),
        ];
        families.extend(figures.iter().map(|figure| figure.family(self)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING_BYTES: usize = 64 << 10;

    fn opened(journal: &Journal) -> (JournalReader, Lease) {
        journal.opened().open().expect("our own")
    }

    #[test]
    fn records_are_read_through_another_mapping() {
        let journal = Journal::create(2, RING_BYTES, false).expect("memory");
        let (one, two) = (journal.scribe(), journal.scribe());
        assert!(!one.is_read() && !two.is_read(), "nobody reads");
        let (mut reader, lease) = opened(&journal);
        assert!(one.is_read() && two.is_read());
        let ids = [one.next_id(), one.next_id(), two.next_id()];
        assert!(ids[0] != 0 && ids[0] != ids[1] && ids[0] != ids[2]);
        one.write(&[b"abcdefgh", b"ijklmnop"]);
        two.write(&[b"12345678"]);
        let (mut into, mut read) = (Vec::new(), Vec::new());
        reader.read(&mut into, 10, |record| read.push(record.to_vec()));
        assert_eq!(read, [b"abcdefghijklmnop".to_vec(), b"12345678".to_vec()]);
        assert_eq!(reader.lost(), 0);
        lease.renew();
    }

    #[test]
    fn an_excessive_lease_is_cut_and_expires() {
        let journal = Journal::create(1, RING_BYTES, false).expect("memory");
        let scribe = journal.scribe();
        journal.lease[0].store(u64::MAX, Relaxed);
        assert!(scribe.is_read());
        let until_ms = journal.lease[0].load(Relaxed);
        assert!(until_ms <= clock::monotonic_ms() + LEASE_MAX_MS, "{until_ms}");
        journal.lease[0].store(clock::monotonic_ms(), Relaxed);
        assert!(!scribe.is_read());
        assert_eq!(journal.lease[0].load(Relaxed), 0, "from now on it is one load and a branch");
    }

    #[test]
    fn readers_cannot_write_or_truncate_the_rings() {
        let journal = Journal::create(1, RING_BYTES, false).expect("memory");
        let opened = journal.opened();
        let path = |fd: RawFd| format!("/proc/self/fd/{fd}");
        let rings = OpenOptions::new().read(true).write(true).open(path(opened.rings_fd)).expect("open");
        assert!(rings.set_len(0).is_err());
        assert!(std::io::Write::write(&mut &rings, b"x").is_err());
        assert!(MappedWords::map(&rings, 8).is_err(), "a mapping to write through");
        let lease = OpenOptions::new().read(true).write(true).open(path(opened.lease_fd)).expect("open");
        assert!(lease.set_len(0).is_err());
    }

    #[test]
    fn what_is_no_journal_is_not_opened() {
        let journal = Journal::create(1, RING_BYTES, false).expect("memory");
        let opened = journal.opened();
        let plain = tempfile::tempfile().expect("a file");
        for wrong in [
            JournalAddress { token: opened.token ^ 1, ..opened },
            JournalAddress { rings_fd: opened.lease_fd, ..opened },
            JournalAddress { rings_fd: plain.as_raw_fd(), ..opened },
        ] {
            assert!(matches!(wrong.open(), Err(OpenError::Other)), "{wrong:?}");
        }
        assert!(matches!(JournalAddress { rings_fd: 10_000, ..opened }.open(), Err(OpenError::Io(_))));
    }
}
