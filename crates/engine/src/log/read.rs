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
    LogState, REAPER_CLASS,
    contents::{FoundRecord, TableFault, read_table},
    format::{CHUNK_BYTES, Kind, Location, RECORD_HEADER_BYTES, RecordHeader, chunks, record_bytes},
    table::{NO_BUFFER, SegmentState},
    usage::{LogUsage, SAID},
};
use crate::meter::{Family, Source};

/// Reader of records by their location. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reader {
    shared: Arc<LogState>,
}

/// A segment that is completely written to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedSegment {
    /// Number of the segment.
    pub segment: u32,
    /// Class of the segment's writer.
    pub class: u8,
    /// Life: the number of this use of the segment; later uses have larger numbers.
    pub life: u64,
    /// Bytes of live records.
    pub live_bytes: u64,
}

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
    pub(super) fn new(shared: Arc<LogState>) -> Self {
        Self { shared }
    }

    /// Reports that the record at `location`, with `payload_bytes` of payload, is dead. The owner reports
    /// this once: after it has appended the record that ends it
    /// ([`NewRecord::target`](super::NewRecord::target), [`Writer::delete`](super::Writer::delete)), or if it
    /// does not matter that the record comes back after a crash.
    pub fn died(&self, location: Location, payload_bytes: usize) {
        if self.shared.table.died(location, record_bytes(payload_bytes)) {
            self.shared.reap_bell.ring();
        }
    }

    /// Returns the completely written segments, from the oldest life to the newest, with their live bytes, so
    /// that an owner that needs room can choose a segment to give up.
    pub fn sealed(&self) -> Vec<SealedSegment> {
        let table = &self.shared.table;
        let mut sealed: Vec<SealedSegment> = (0..table.len())
            .filter(|segment| table.segment(*segment).state() == SegmentState::Sealed)
            .filter_map(|segment| {
                let of = table.segment(segment);
                let class = of.class.load(SeqCst) as u8;
                (class != REAPER_CLASS).then(|| SealedSegment {
                    segment,
                    class,
                    life: of.life.load(SeqCst),
                    live_bytes: of.live_bytes(),
                })
            })
            .collect();
        sealed.sort_unstable_by_key(|sealed| sealed.life);
        sealed
    }

    /// Returns the segment of a record, unless that segment has been freed.
    #[inline]
    pub fn segment_of(&self, location: Location) -> Option<u32> {
        self.shared.table.living(location)
    }

    /// Waits until a buffer or a segment becomes free, counted from this call. A caller that can wait calls
    /// this before it tries to write, awaits the future if the write is refused
    /// ([`AppendRefusal::Busy`](super::AppendRefusal::Busy),
    /// [`AppendRefusal::Full`](super::AppendRefusal::Full)), and then retries; another caller may still take
    /// the space first.
    pub fn room(&self) -> impl Future<Output = ()> + '_ {
        self.shared.room.notified()
    }

    /// Returns the number of free segments.
    pub fn free_segments(&self) -> usize {
        self.shared.table.free_count()
    }

    /// Returns the size of a segment in bytes.
    pub fn segment_bytes(&self) -> usize {
        self.shared.table.segment_bytes
    }

    /// Returns current amounts and counters, like [`Log::usage`](super::Log::usage).
    pub fn usage(&self) -> LogUsage {
        LogUsage::of(&self.shared)
    }

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

impl Source for Reader {
    fn collect(&self, families: &mut Vec<Family>) {
        let usage = self.usage();
        families.extend(SAID.iter().map(|figure| figure.family(&usage)));
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
