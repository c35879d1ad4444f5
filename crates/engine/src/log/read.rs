//! Reading records back, from any thread that may wait for the disk.
//!
//! ```text
//! location ─▶ segment still in that life? ─▶ its buffer, if one holds it ─▶ else the file ─▶ header, checksums ─▶ Record
//! ```
//! Each read compares a record with its location and its checksums; a mismatch gives an error, never wrong
//! bytes. The same comparison detects a read that races with the reuse of its segment.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed, SeqCst},
    },
};

use super::{
    LogState, Reader, SealedSegment,
    format::{
        CHUNK_BYTES, ENTRY_BYTES, FOOTER_BYTES, Footer, Kind, Location, RECORD_HEADER_BYTES, RecordHeader,
        SEGMENT_HEADER_BYTES, SegmentHeader, SegmentStart, TableEntry, chunks, record_bytes,
    },
    recover::FoundRecord,
    table::{NO_BUFFER, SegmentState},
};

/// A complete record whose checksums have been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Header of the record.
    pub header: RecordHeader,
    bytes: Vec<u8>,
}

impl Record {
    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.payload_range()]
    }

    /// Returns the record's bytes; the payload is at [`Record::payload_range`].
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the range of the payload within the record's bytes.
    pub fn payload_range(&self) -> Range<usize> {
        RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + self.header.payload_bytes as usize
    }
}

/// Reasons why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The record's segment has been freed.
    #[error("the record at {0:?} no longer exists")]
    Gone(Location),
    /// The bytes read differ from those that were written.
    #[error("the record at {0:?} is damaged")]
    Damaged(Location),
    /// The disk returned an error.
    #[error("cannot read the record at {location:?}: {source}")]
    Io {
        /// Location of the record.
        location: Location,
        /// Error returned by the disk.
        source: io::Error,
    },
}

/// Pin that prevents the reuse of a segment, while data is sent from the file.
#[derive(Debug)]
pub struct Pin {
    shared: Arc<LogState>,
    segment: u32,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let before = self.shared.table.segment(self.segment).pins.fetch_sub(1, SeqCst);
        assert!(before > 0, "pin dropped twice");
        if before == 1 && self.shared.table.segment(self.segment).state() == SegmentState::Dying {
            self.shared.reap_bell.ring();
        }
    }
}

impl Reader {
    /// Reads the record at `location`, which has a payload of `payload_bytes`. Waits for the disk unless the
    /// record is so new that it is still in memory.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if the record is gone or damaged, or the disk fails.
    pub fn read(&self, location: Location, payload_bytes: usize) -> Result<Record, ReadError> {
        let mut bytes = vec![0; record_bytes(payload_bytes)];
        self.fill(location, 0, &mut bytes)?;
        match verify(&bytes, self.shared.seed, location, self.segment_offset(location)?) {
            Some(header) if header.payload_bytes as usize == payload_bytes => Ok(Record { header, bytes }),
            _ => Err(self.mismatch(location)),
        }
    }

    /// Returns the payload of a record that is still in a buffer, without waiting.
    pub fn read_held(&self, location: Location, payload_bytes: usize) -> Option<Vec<u8>> {
        let segment = self.shared.table.living(location)?;
        if self.shared.table.segment(segment).buffer.load(Acquire) == NO_BUFFER {
            return None;
        }
        let offset = self.segment_offset(location).ok()?;
        let mut bytes = vec![0; record_bytes(payload_bytes)];
        if !self.fill_held(segment, location, offset, &mut bytes) {
            return None;
        }
        let header = verify(&bytes, self.shared.seed, location, offset)?;
        bytes.drain(..RECORD_HEADER_BYTES);
        bytes.truncate(header.payload_bytes as usize);
        Some(bytes)
    }

    /// Extracts the payload from bytes that were read at `location` and verified by [`is_record`]; `None` if
    /// they belong to another record, because the segment has been reused.
    pub fn payload_of<'b>(&self, location: Location, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let offset = self.segment_offset(location).ok()?;
        let (header, life) = RecordHeader::decode(bytes.first_chunk()?, self.shared.seed, offset)?;
        let is_meant = location.is_of(life) && self.shared.table.living(location).is_some();
        bytes
            .get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + header.payload_bytes as usize)
            .filter(|_| is_meant)
    }

    /// Reads the header of the record at `location`, for a caller that does not know the record's length.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if the record is gone or damaged, or the disk fails.
    pub fn read_header(&self, location: Location) -> Result<RecordHeader, ReadError> {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        self.fill(location, 0, &mut bytes)?;
        match RecordHeader::decode(&bytes, self.shared.seed, self.segment_offset(location)?) {
            Some((header, life)) if location.is_of(life) && header.kind != Kind::UNFINISHED => Ok(header),
            _ => Err(self.mismatch(location)),
        }
    }

    /// Reads the part `range` of a payload of `payload_bytes` into `out`, which is emptied first. Whole
    /// chunks are read and verified, and the bytes outside the range are cut off.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if the record is gone or damaged, or the disk fails.
    ///
    /// # Panics
    /// Panics if the range is not within the payload.
    pub fn read_range(
        &self,
        location: Location,
        payload_bytes: usize,
        range: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        assert!(range.start <= range.end && range.end <= payload_bytes, "{range:?} of {payload_bytes} bytes");
        let header = self.read_header(location)?;
        if header.payload_bytes as usize != payload_bytes {
            return Err(self.mismatch(location));
        }
        let first = range.start / CHUNK_BYTES;
        let last = range.end.div_ceil(CHUNK_BYTES).max(first);
        let end = (last * CHUNK_BYTES).min(payload_bytes);
        out.clear();
        out.resize(end.saturating_sub(first * CHUNK_BYTES), 0);
        self.fill(location, RECORD_HEADER_BYTES + first * CHUNK_BYTES, out)?;
        let mut sums = vec![0; 4 * (last - first)];
        self.fill(location, RECORD_HEADER_BYTES + payload_bytes + 4 * first, &mut sums)?;
        let are_whole = out
            .chunks(CHUNK_BYTES)
            .zip(sums.as_chunks::<4>().0)
            .all(|(chunk, sum)| crc32c::crc32c(chunk) == u32::from_le_bytes(*sum));
        if !are_whole {
            return Err(self.mismatch(location));
        }
        out.truncate(range.end - first * CHUNK_BYTES);
        out.drain(..range.start - first * CHUNK_BYTES);
        Ok(())
    }

    /// Prevents the reuse of the segment of `location`; `None` if it is about to be freed.
    pub fn pin(&self, location: Location) -> Option<Pin> {
        let segment = self.shared.table.living(location)?;
        let of = self.shared.table.segment(segment);
        of.pins.fetch_add(1, SeqCst);
        let pin = Pin { shared: Arc::clone(&self.shared), segment };
        // The pin is counted before the state is checked; the reaper checks in the reverse order, so one of
        // the two sees the other.
        let is_held = self.shared.table.living(location).is_some() && of.state() != SegmentState::Dying;
        is_held.then_some(pin)
    }

    /// Gives up the segment of `location` with its live records, because its owner needs none of them.
    /// Returns `false` if the segment is still being filled, or about to be freed anyway.
    pub fn give_up(&self, location: Location) -> bool {
        // The pin ensures that the segment is not freed and reused before it is given up.
        let Some(pin) = self.pin(location) else { return false };
        let of = self.shared.table.segment(pin.segment);
        let is_given_up = of.advance(SegmentState::Sealed, SegmentState::Dying);
        if is_given_up {
            self.shared.count.given_up_over.fetch_add(1, Relaxed);
        }
        // Dropping the pin rings the reaper's bell.
        drop(pin);
        is_given_up
    }

    /// Returns whether the whole record is in the file (and not only in a buffer), so that it may be sent
    /// from there.
    pub fn is_on_file(&self, location: Location) -> bool {
        self.shared
            .table
            .living(location)
            .is_some_and(|segment| self.shared.table.segment(segment).state() != SegmentState::Open)
    }

    /// Reads the records of a sealed segment, including dead ones, in no particular order. Waits for the
    /// disk.
    ///
    /// # Errors
    /// Returns the disk's error; `InvalidData` if the table is damaged or the segment has been freed.
    pub fn table_of(&self, sealed: &SealedSegment) -> io::Result<Vec<FoundRecord>> {
        let table = read_table(&self.shared, sealed.segment, sealed.life).map_err(|fault| match fault {
            TableFault::Io(error) => error,
            TableFault::Damaged => {
                io::Error::new(io::ErrorKind::InvalidData, "the table is damaged or no longer exists")
            }
        })?;
        let start = self.shared.table.start(sealed.segment);
        Ok(table
            .iter()
            .filter_map(|entry| FoundRecord::of(entry, start, sealed.life, sealed.class))
            .collect())
    }

    /// Returns the checksum seed for [`verify`].
    pub fn seed(&self) -> u32 {
        self.shared.seed
    }

    /// Returns the offset of a record in its segment.
    ///
    /// # Errors
    /// [`ReadError::Gone`] if no segment contains the location.
    pub fn segment_offset(&self, location: Location) -> Result<usize, ReadError> {
        self.shared.table.place(location).map(|(_, offset)| offset).ok_or(ReadError::Gone(location))
    }

    /// Fills `out` with a record's bytes, starting `at` bytes after the record's start.
    fn fill(&self, location: Location, at: usize, out: &mut [u8]) -> Result<(), ReadError> {
        let shared = &self.shared;
        let segment = shared.table.living(location).ok_or(ReadError::Gone(location))?;
        let offset = self.segment_offset(location)? + at;
        if offset + out.len() > shared.table.segment_bytes {
            return Err(ReadError::Damaged(location));
        }
        if self.fill_held(segment, location, offset, out) {
            return Ok(());
        }
        let start = shared.table.start(segment) + offset as u64;
        shared.disk.read(start, out).map_err(|source| {
            shared.count.read_errors.fetch_add(1, Relaxed);
            ReadError::Io { location, source }
        })
    }

    /// Fills `out` from byte `offset` of the buffer that holds the segment; returns false if no buffer holds
    /// it.
    fn fill_held(&self, segment: u32, location: Location, offset: usize, out: &mut [u8]) -> bool {
        let shared = &self.shared;
        let of = shared.table.segment(segment);
        let buffer = of.buffer.load(Acquire);
        if buffer == NO_BUFFER || offset + out.len() > shared.table.segment_bytes {
            return false;
        }
        shared.buffers.span(buffer as usize, offset, out.len()).copy_to_slice(out);
        std::sync::atomic::fence(Acquire);
        // A buffer is detached from its segment before it is returned; so if the buffer is still the same, it
        // belonged to this segment all the time.
        of.buffer.load(Relaxed) == buffer && shared.table.living(location).is_some()
    }

    /// Returns the error for a mismatch: the segment has been freed in the meantime, or the record is
    /// damaged.
    fn mismatch(&self, location: Location) -> ReadError {
        if self.shared.table.living(location).is_none() {
            return ReadError::Gone(location);
        }
        self.shared.count.damaged_records.fetch_add(1, Relaxed);
        ReadError::Damaged(location)
    }
}

/// Verifies bytes that begin with the record of `location`, at `offset` in its segment, with the file's
/// checksum seed. Returns the header if the whole record is intact.
pub fn verify(bytes: &[u8], seed: u32, location: Location, offset: usize) -> Option<RecordHeader> {
    let (header, life) = RecordHeader::decode(bytes.first_chunk()?, seed, offset)?;
    let is_meant = location.is_of(life) && header.kind != Kind::UNFINISHED;
    (is_meant && is_whole(&header, bytes)).then_some(header)
}

/// Returns whether the bytes are one intact record at `offset` in its segment, with the file's checksum seed.
pub fn is_record(bytes: &[u8], seed: u32, offset: usize) -> bool {
    bytes
        .first_chunk()
        .and_then(|header| RecordHeader::decode(header, seed, offset))
        .is_some_and(|(header, _)| header.kind != Kind::UNFINISHED && is_whole(&header, bytes))
}

/// Returns whether the payload after this header matches its checksums.
pub(super) fn is_whole(header: &RecordHeader, bytes: &[u8]) -> bool {
    let len = header.payload_bytes as usize;
    let Some(payload) = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + len) else { return false };
    let sums = bytes.get(RECORD_HEADER_BYTES + len..RECORD_HEADER_BYTES + len + 4 * chunks(len));
    sums.is_some_and(|sums| {
        payload
            .chunks(CHUNK_BYTES)
            .zip(sums.as_chunks::<4>().0)
            .all(|(chunk, sum)| crc32c::crc32c(chunk) == u32::from_le_bytes(*sum))
    })
}

/// Reasons why a segment's table of contents could not be read.
#[derive(Debug)]
pub(super) enum TableFault {
    Io(io::Error),
    Damaged,
}

/// Reads the header and the footer of a segment.
pub(super) fn read_ends(shared: &LogState, segment: u32) -> io::Result<(SegmentStart, Option<Footer>)> {
    let start = shared.table.start(segment);
    let mut first = [0; SEGMENT_HEADER_BYTES];
    shared.disk.read(start, &mut first)?;
    let mut last = [0; FOOTER_BYTES];
    shared.disk.read(start + (shared.table.segment_bytes - FOOTER_BYTES) as u64, &mut last)?;
    Ok((SegmentHeader::decode(&first, shared.seed, segment), Footer::decode(&last, shared.seed, segment)))
}

/// Reads the table of contents of a sealed segment, if the segment still has this life.
pub(super) fn read_table(shared: &LogState, segment: u32, life: u64) -> Result<Vec<TableEntry>, TableFault> {
    let (_, footer) = read_ends(shared, segment).map_err(TableFault::Io)?;
    let footer = footer.filter(|footer| footer.life == life).ok_or(TableFault::Damaged)?;
    read_entries(shared, segment, &footer)
}

/// Reads the table of contents that a footer describes.
pub(super) fn read_entries(
    shared: &LogState,
    segment: u32,
    footer: &Footer,
) -> Result<Vec<TableEntry>, TableFault> {
    let bytes = footer.entries as usize * ENTRY_BYTES;
    let room = shared.table.segment_bytes - SEGMENT_HEADER_BYTES - FOOTER_BYTES;
    if bytes > room {
        return Err(TableFault::Damaged);
    }
    let mut table = vec![0; bytes];
    let end = shared.table.start(segment) + (shared.table.segment_bytes - FOOTER_BYTES) as u64;
    shared.disk.read(end - bytes as u64, &mut table).map_err(TableFault::Io)?;
    if crc32c::crc32c_append(shared.seed, &table) != footer.table_checksum {
        return Err(TableFault::Damaged);
    }
    let (entries, _) = table.as_chunks::<ENTRY_BYTES>();
    let entries: Vec<TableEntry> = entries.iter().rev().map(TableEntry::decode).collect();
    // A valid checksum does not prove that this program wrote the table, so entries outside the segment are
    // rejected.
    let are_within = entries.iter().all(|entry| {
        let end = entry.offset as usize + record_bytes(entry.payload_bytes as usize);
        entry.offset as usize >= SEGMENT_HEADER_BYTES && end <= shared.table.segment_bytes - FOOTER_BYTES
    });
    if are_within { Ok(entries) } else { Err(TableFault::Damaged) }
}
