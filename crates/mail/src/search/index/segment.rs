//! An index segment on the disk: written once, read often, removed as a whole.
//!
//! ```text
//!  0  magic 8 | version 4 | rows 4 | mails 4 | the store 4 | checksum 4 | 0s to 64
//!     rows: each its words, 8 bytes for 64 mails, then a checksum 4
//!     mails: time of arrival 8, ID 8; then a checksum 4
//! ```
//! Numbers are little-endian. A checksum is the low half of XXH3 over the bytes before it, with a seed for
//! its kind. The checksum of a row also covers the row's number and the store's, so that one row cannot be
//! mistaken for another. Nothing is synced: a segment torn by a loss of power is detected by its checksums,
//! and rebuilt from the mails.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::columns::{Columns, HEIGHTS, NAME_BYTES, Rows, columns_of};
use crate::{mailbox::mailboxes::MailId, search::mail_key::MailKey};

const MAGIC: [u8; 8] = *b"NTsheet\n";
/// Version of the format, and of the selection and hashing of grams.
const VERSION: u32 = 2;
/// Version with the same format, for which text was extracted from mails in an older way. Such a segment is
/// used until its mails are indexed again.
const VERSION_BEFORE: u32 = 1;
const HEADER_BYTES: usize = 64;
const HEADER_SUMMED: usize = 24;
const SUM_BYTES: usize = 4;
/// Checksum seeds of the header and the keys, in place of a row's number.
const OF_HEADER: u64 = u64::MAX;
const OF_NAMES: u64 = u64::MAX - 1;

/// An index segment on the disk, with the metadata that is kept in memory.
#[derive(Debug)]
pub(super) struct IndexSegment {
    path: PathBuf,
    height: u32,
    mails: usize,
    store: u32,
    pub(super) bytes: u64,
    /// True if the file is of [`VERSION_BEFORE`].
    is_outdated: bool,
}

/// Reason why a file is not a usable segment.
#[derive(Debug, thiserror::Error)]
pub(super) enum SegmentFault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the segment is damaged")]
    Damaged,
    #[error("the segment has version {0}; this program needs version {VERSION}")]
    Version(u32),
    #[error("the segment belongs to another store")]
    Foreign,
}

fn sum(bytes: &[u8], of: u64, store: u32) -> [u8; SUM_BYTES] {
    (xxh3_64_with_seed(bytes, of ^ u64::from(store).rotate_left(32)) as u32).to_le_bytes()
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "damaged")
}

impl IndexSegment {
    /// Writes the columns to a temporary file first, so that a file with the final name is complete.
    pub(super) fn write(path: PathBuf, columns: &Columns, store: u32) -> io::Result<Self> {
        let unfinished = path.with_extension("part");
        let written =
            Self::write_to(&unfinished, columns, store).and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = written {
            // An unfinished file is removed so that it does not occupy a full disk.
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        let bytes = fs::metadata(&path)?.len();
        let mails = columns.names.len();
        Ok(Self { path, height: columns.height, mails, store, bytes, is_outdated: false })
    }

    fn write_to(path: &Path, columns: &Columns, store: u32) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 18, File::create(path)?);
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        let mails = u32::try_from(columns.names.len()).map_err(|_| damaged())?;
        for (at, number) in [VERSION, columns.height, mails, store].into_iter().enumerate() {
            header[8 + 4 * at..12 + 4 * at].copy_from_slice(&number.to_le_bytes());
        }
        let checksum = sum(&header[..HEADER_SUMMED], OF_HEADER, store);
        header[HEADER_SUMMED..HEADER_SUMMED + SUM_BYTES].copy_from_slice(&checksum);
        file.write_all(&header)?;
        let mut bytes = Vec::new();
        for row in 0..columns.height {
            bytes.clear();
            columns.row(row).iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            file.write_all(&bytes)?;
            file.write_all(&sum(&bytes, row.into(), store))?;
        }
        bytes.clear();
        for name in &columns.names {
            bytes.extend_from_slice(&name.arrived_ms.to_le_bytes());
            bytes.extend_from_slice(&name.id.0.to_le_bytes());
        }
        file.write_all(&bytes)?;
        file.write_all(&sum(&bytes, OF_NAMES, store))?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(())
    }

    /// Opens an existing file.
    pub(super) fn open(path: PathBuf, store: u32) -> Result<Self, SegmentFault> {
        let file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        let mut header = [0; HEADER_BYTES];
        if bytes < HEADER_BYTES as u64 {
            return Err(SegmentFault::Damaged);
        }
        file.read_exact_at(&mut header, 0)?;
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[..8] != MAGIC {
            return Err(SegmentFault::Damaged);
        }
        let (version, height, mails, own) = (number(8), number(12), number(16), number(20));
        if ![VERSION, VERSION_BEFORE].contains(&version) {
            return Err(SegmentFault::Version(version));
        }
        let checksum = &header[HEADER_SUMMED..HEADER_SUMMED + SUM_BYTES];
        let is_ours = HEIGHTS.contains(&height) && (1..=columns_of(height)).contains(&(mails as usize));
        if checksum != sum(&header[..HEADER_SUMMED], OF_HEADER, own) || !is_ours {
            return Err(SegmentFault::Damaged);
        }
        if own != store {
            return Err(SegmentFault::Foreign);
        }
        let is_outdated = version == VERSION_BEFORE;
        let sheet = Self { path, height, mails: mails as usize, store, bytes, is_outdated };
        if sheet.names_at() + (sheet.mails * NAME_BYTES + SUM_BYTES) as u64 != bytes {
            return Err(SegmentFault::Damaged);
        }
        Ok(sheet)
    }

    pub(super) fn height(&self) -> u32 {
        self.height
    }

    pub(super) fn mails(&self) -> usize {
        self.mails
    }

    /// Returns whether the segment's mails are to be indexed again; until then it is still used.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn row_bytes(&self) -> usize {
        self.mails.div_ceil(64) * 8
    }

    fn names_at(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.height) * (self.row_bytes() + SUM_BYTES) as u64
    }

    /// Opens the file for one query, so that segments hold no file descriptors between queries.
    pub(super) fn reading(&self) -> io::Result<SegmentReader<'_>> {
        Ok(SegmentReader { sheet: self, file: File::open(&self.path)? })
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// An index segment opened for reading.
pub(super) struct SegmentReader<'a> {
    sheet: &'a IndexSegment,
    file: File,
}

impl SegmentReader<'_> {
    /// Reads the keys of the mails, in order of columns.
    pub(super) fn names(&self) -> io::Result<Vec<MailKey>> {
        let mut bytes = vec![0; self.sheet.mails * NAME_BYTES + SUM_BYTES];
        self.file.read_exact_at(&mut bytes, self.sheet.names_at())?;
        let (bytes, checksum) = bytes.split_at(self.sheet.mails * NAME_BYTES);
        if checksum != sum(bytes, OF_NAMES, self.sheet.store) {
            return Err(damaged());
        }
        let (numbers, _) = bytes.as_chunks::<8>();
        let numbers = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect::<Vec<_>>();
        Ok(numbers.chunks_exact(2).map(|name| MailKey { arrived_ms: name[0], id: MailId(name[1]) }).collect())
    }

    /// Reads the words of a row.
    pub(super) fn row(&self, row: u32, words: &mut Vec<u64>) -> io::Result<()> {
        let bytes_a_row = self.sheet.row_bytes();
        let mut bytes = vec![0; bytes_a_row + SUM_BYTES];
        let at = HEADER_BYTES as u64 + u64::from(row) * (bytes_a_row + SUM_BYTES) as u64;
        self.file.read_exact_at(&mut bytes, at)?;
        let (bytes, checksum) = bytes.split_at(bytes_a_row);
        if checksum != sum(bytes, row.into(), self.sheet.store) {
            return Err(damaged());
        }
        words.clear();
        words.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
        Ok(())
    }
}

impl Rows for SegmentReader<'_> {
    fn height(&self) -> u32 {
        self.sheet.height
    }

    fn words(&self) -> usize {
        self.sheet.mails.div_ceil(64)
    }

    fn intersect_row(&self, row: u32, set: &mut [u64]) -> io::Result<()> {
        let mut words = Vec::new();
        self.row(row, &mut words)?;
        set.iter_mut().zip(words).for_each(|(word, own)| *word &= own);
        Ok(())
    }
}

/// Changes a file to the previous version.
#[cfg(test)]
pub(super) fn make_outdated(path: &Path, store: u32) {
    let mut bytes = fs::read(path).unwrap();
    bytes[8..12].copy_from_slice(&VERSION_BEFORE.to_le_bytes());
    let checksum = sum(&bytes[..HEADER_SUMMED], OF_HEADER, store);
    bytes[HEADER_SUMMED..HEADER_SUMMED + SUM_BYTES].copy_from_slice(&checksum);
    fs::write(path, bytes).unwrap();
}

#[cfg(test)]
mod tests {
    use super::{super::columns, *};

    #[test]
    fn a_segment_reads_back_and_detects_damage() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.sheet");
        let mut filled = Columns::new(256);
        for id in 0..70u64 {
            filled.add(
                MailKey { arrived_ms: 1000 + id, id: MailId(id + 1) },
                &[id as u32, 7000 + id as u32 % 3],
            );
        }
        let sheet = IndexSegment::write(path.clone(), &filled, 5).unwrap();
        let found = |sheet: &IndexSegment, grams: &[u32]| -> io::Result<Vec<usize>> {
            let mut set = Vec::new();
            columns::ask(&sheet.reading()?, grams, &mut set)?;
            Ok(columns::set_columns(&set).collect())
        };
        let mut set = Vec::new();
        for gram in (0..70).chain(7000..7003) {
            columns::ask(&filled, &[gram], &mut set).unwrap();
            assert_eq!(found(&sheet, &[gram]).unwrap(), columns::set_columns(&set).collect::<Vec<_>>());
        }
        let again = IndexSegment::open(path.clone(), 5).unwrap();
        assert_eq!(again.reading().unwrap().names().unwrap(), filled.names);
        assert_eq!(again.bytes, sheet.bytes);
        assert!(matches!(IndexSegment::open(path.clone(), 6), Err(SegmentFault::Foreign)));

        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            // Bytes after the header's checksum are padding.
            if (HEADER_SUMMED + SUM_BYTES..HEADER_BYTES).contains(&at) {
                continue;
            }
            let mut broken = whole.clone();
            broken[at] ^= 0x10;
            fs::write(&path, &broken).unwrap();
            let noticed = match IndexSegment::open(path.clone(), 5) {
                Err(_) => true,
                Ok(sheet) => {
                    let reading = sheet.reading().unwrap();
                    let mut words = Vec::new();
                    reading.names().is_err() || (0..256).any(|row| reading.row(row, &mut words).is_err())
                }
            };
            assert!(noticed, "byte {at}");
        }
        for cut in [0, 63, 64, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            assert!(IndexSegment::open(path.clone(), 5).is_err(), "{cut} bytes");
        }
        let mut later = whole;
        later[8] = 3;
        fs::write(&path, &later).unwrap();
        assert!(matches!(IndexSegment::open(path, 5), Err(SegmentFault::Version(3))));
    }
}
