//! Writing records into segments: the part of the log that runs on a loop and never waits.
//!
//! ```text
//! append ───────────────────────────────┐ one copy into the open buffer, blocks marked, ticket
//! begin ─▶ span or write, written ─▶ finish ┘
//! full buffer ─▶ table and footer added ─▶ sealed; its helper writes it; the next segment is claimed
//! ```
//! *Core:* a writer belongs to one thread. *Waiting:* never; if there is no buffer or segment, an
//! [`AppendRefusal`] is returned at once, and counted. No lock, and no allocation except for the checksums of
//! payloads above 256 KiB.

use std::sync::{
    Arc,
    atomic::Ordering::{Acquire, Relaxed, Release},
};

use smallvec::SmallVec;

use super::{
    LogState,
    format::{
        CHUNK_BYTES, ENTRY_BYTES, FOOTER_BYTES, Footer, Kind, Location, RECORD_HEADER_BYTES, RecordHeader,
        SEGMENT_HEADER_BYTES, SegmentHeader, TableEntry, UNIT_BYTES, VERSION, chunks, entry_at,
        payload_bytes_max, record_bytes,
    },
    lives,
    progress::{Progress, Ticket},
};
use crate::sys::span::Span;

/// Maximum bytes copied out of a buffer at a time to compute a checksum.
const SUM_BYTES: usize = 1024;
/// Number of free segments reserved for the reaper, which stores deletions there that must outlive their
/// segment.
const SEGMENTS_KEPT: usize = 1;
/// Number of free buffers that callers which can wait leave to callers which cannot. One is enough: a log has
/// two more buffers than its writers and the reaper can have open ([`super::Options`]), so a waiting caller
/// always waits for a buffer that a helper is writing out.
const BUFFERS_LEFT: usize = 1;

/// Header fields of a new record.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord {
    /// Kind of the record.
    pub kind: Kind,
    /// Hash of the record's name, computed by the log's owner.
    pub hash: u64,
    /// Information that recovery returns to the owner without reading the record.
    pub tag: u64,
    /// Record that this one replaces: it is dead once this one is complete, even after a crash.
    pub target: Option<Location>,
}

/// Location and ticket of a record that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedRecord {
    /// Location of the record.
    pub location: Location,
    /// Ticket for waiting until the record is written or durable.
    pub ticket: Ticket,
}

/// Reasons why no record was appended. Each is counted in [`super::LogUsage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AppendRefusal {
    /// The disk is too slow: all buffers wait to be written. An append may succeed later.
    #[error("too many records are waiting to be written")]
    Busy,
    /// No segment is free; one becomes free only when enough records have died.
    #[error("no segment is free")]
    Full,
    /// The record does not fit into a segment.
    #[error("the record is longer than a segment")]
    TooLarge,
}

/// A segment that is being filled.
#[derive(Debug)]
struct OpenSegment {
    buffer: usize,
    segment: u32,
    life: u64,
    used: usize,
    entries: u32,
    targets: u32,
}

/// Writer of a log for one thread.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<LogState>,
    id: usize,
    class: u8,
    /// Number of free segments that this writer must leave to other writers.
    keep: usize,
    open: Option<OpenSegment>,
    /// Full segments that still have unfinished records.
    closing: Vec<OpenSegment>,
    appended: u64,
}

/// A record whose payload arrives later. Dropping it before [`Writer::finish`] leaves a hole.
#[derive(Debug)]
pub struct RecordWriter {
    shared: Arc<LogState>,
    /// Number of the log's writer that began the record.
    writer: usize,
    new: NewRecord,
    buffer: usize,
    segment: u32,
    life: u64,
    number: u32,
    offset: usize,
    room: usize,
    written: usize,
    /// Checksums of the complete chunks.
    checksums: SmallVec<[u32; 4]>,
    /// Checksum of the incomplete chunk.
    checksum: u32,
}

impl Writer {
    pub(super) fn new(shared: Arc<LogState>, id: usize, class: u8, keep: usize) -> Self {
        // Each closing segment occupies a buffer, so there are never more of them than buffers.
        let closing = Vec::with_capacity(shared.buffers.len());
        let appended = shared.progress[id].appended();
        Self { shared, id, class, keep, open: None, closing, appended }
    }

    /// Creates a writer for the log's owner, which leaves the usual number of segments to the reaper.
    pub(super) fn for_owner(shared: Arc<LogState>, id: usize, class: u8) -> Self {
        Self::new(shared, id, class, SEGMENTS_KEPT)
    }

    /// Returns the progress of this writer's records; it may be kept and read on any thread.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.shared.progress[self.id])
    }

    /// Returns the maximum bytes of a payload.
    pub fn payload_bytes_max(&self) -> usize {
        payload_bytes_max(self.shared.table.segment_bytes)
    }

    /// Appends a record whose payload is the concatenation of `parts`.
    ///
    /// # Errors
    /// Returns an [`AppendRefusal`] if the record cannot be appended.
    pub fn append(&mut self, new: NewRecord, parts: &[&[u8]]) -> Result<AppendedRecord, AppendRefusal> {
        let len = parts.iter().map(|part| part.len()).sum();
        let mut filling = self.begin(new, len)?;
        for part in parts {
            filling.write(part);
        }
        Ok(self.finish(filling))
    }

    /// Appends the deletion of a record, so that the record does not come back at a later start.
    ///
    /// # Errors
    /// Returns an [`AppendRefusal`] if the deletion cannot be appended; the record is then not deleted.
    pub fn delete(&mut self, target: Location) -> Result<AppendedRecord, AppendRefusal> {
        self.append_end(Kind::MARKER, target)
    }

    pub(super) fn append_end(
        &mut self,
        kind: Kind,
        target: Location,
    ) -> Result<AppendedRecord, AppendRefusal> {
        self.append(NewRecord { kind, hash: 0, tag: 0, target: Some(target) }, &[])
    }

    /// Begins a record with room for `room` bytes of payload.
    ///
    /// # Errors
    /// Returns an [`AppendRefusal`] if there is no buffer or segment, or the record is too large.
    pub fn begin(&mut self, new: NewRecord, room: usize) -> Result<RecordWriter, AppendRefusal> {
        assert!(new.kind != Kind::UNFINISHED, "the kind 0 is the log's own");
        if room > self.payload_bytes_max() {
            self.shared.count.refused_too_large.fetch_add(1, Relaxed);
            return Err(AppendRefusal::TooLarge);
        }
        self.close_finished();
        let space = record_bytes(room);
        let open = self.open_for(space)?;
        let (offset, number) = (open.used, open.entries);
        open.used += space;
        open.entries += 1;
        let (buffer, segment, life) = (open.buffer, open.segment, open.life);
        open.targets += u32::from(new.target.is_some());
        let filling = RecordWriter {
            shared: Arc::clone(&self.shared),
            writer: self.id,
            new,
            buffer,
            segment,
            life,
            number,
            offset,
            room,
            written: 0,
            checksums: SmallVec::new(),
            checksum: 0,
        };
        self.shared.buffers.buffer(buffer).fillings.fetch_add(1, Relaxed);
        // This provisional header lets recovery find the records after this one, even if this one is never
        // completed.
        filling.write_header(Kind::UNFINISHED, 0, space);
        Ok(filling)
    }

    /// Begins a record like [`Writer::begin`], for a caller that can wait for [`super::Reader::room`]: it
    /// leaves a buffer to callers that cannot wait, so that one large object on a slow disk does not cause
    /// small ones to be refused.
    ///
    /// # Errors
    /// Returns an [`AppendRefusal`] if there is no spare buffer or no segment, or the record is too large.
    pub fn begin_if_spare(&mut self, new: NewRecord, room: usize) -> Result<RecordWriter, AppendRefusal> {
        self.close_finished();
        let is_room_open = self.open.as_ref().is_some_and(|open| self.fits(open, record_bytes(room)));
        if self.shared.buffers.free() < BUFFERS_LEFT + usize::from(!is_room_open) {
            return Err(AppendRefusal::Busy);
        }
        self.begin(new, room)
    }

    /// Enlarges the room of an unfinished record to at least `room` bytes in total: in place if no record was
    /// appended after it, otherwise in a new location to which the bytes written so far are copied. The room
    /// grows by at least half, so that many small steps do not copy much. Spans taken before are invalid
    /// afterwards.
    ///
    /// # Errors
    /// Returns an [`AppendRefusal`] if there is no room; the record is then unchanged, and may be finished or
    /// dropped.
    pub fn extend(&mut self, filling: &mut RecordWriter, room: usize) -> Result<(), AppendRefusal> {
        let max = self.payload_bytes_max();
        if room <= filling.room {
            return Ok(());
        }
        if room > max {
            self.shared.count.refused_too_large.fetch_add(1, Relaxed);
            return Err(AppendRefusal::TooLarge);
        }
        let room = room.max(filling.room + filling.room / 2).min(max);
        let segment_bytes = self.shared.table.segment_bytes;
        let end = filling.offset + record_bytes(filling.room);
        if let Some(open) = self.open.as_mut()
            && (open.segment, open.life) == (filling.segment, filling.life)
            && open.used == end
        {
            let used = filling.offset + record_bytes(room);
            if used <= entry_at(segment_bytes, open.entries) + ENTRY_BYTES {
                open.used = used;
                filling.room = room;
                filling.write_header(Kind::UNFINISHED, 0, record_bytes(room));
                return Ok(());
            }
        }
        let mut moved = self.begin(filling.new, room)?;
        moved.payload(0..filling.written).write_from_span(filling.payload(0..filling.written));
        moved.written = filling.written;
        moved.checksums = std::mem::take(&mut filling.checksums);
        moved.checksum = filling.checksum;
        *filling = moved;
        Ok(())
    }

    /// Returns whether a record was begun by this writer.
    pub fn has_begun(&self, filling: &RecordWriter) -> bool {
        self.id == filling.writer && Arc::ptr_eq(&self.shared, &filling.shared)
    }

    /// Completes a record with the payload written so far.
    pub fn finish(&mut self, filling: RecordWriter) -> AppendedRecord {
        assert!(self.has_begun(&filling), "a filling must end on the core where it began");
        let shared = &self.shared;
        let mut space = record_bytes(filling.room);
        let needed = record_bytes(filling.written);
        if let Some(open) = self.open.as_mut()
            && (open.segment, open.life) == (filling.segment, filling.life)
            && open.used == filling.offset + space
        {
            // No record was appended after this one, so its unused room is returned to the segment.
            open.used = filling.offset + needed;
            space = needed;
        }
        let sums_at = filling.offset + RECORD_HEADER_BYTES + filling.written;
        let last = (!filling.written.is_multiple_of(CHUNK_BYTES)).then_some(filling.checksum);
        for (number, checksum) in filling.checksums.iter().copied().chain(last).enumerate() {
            shared.buffers.span(filling.buffer, sums_at + 4 * number, 4).write_from(&checksum.to_le_bytes());
        }
        debug_assert_eq!(filling.checksums.len() + usize::from(last.is_some()), chunks(filling.written));
        // The padding may contain old bytes of a record that was cut, so it is overwritten with zeros.
        let end = sums_at + 4 * chunks(filling.written);
        let padding = shared.buffers.span(filling.buffer, end, filling.offset + needed - end);
        padding.write_from(&[0; UNIT_BYTES][..padding.len()]);
        if !filling.new.kind.is_end_alone() {
            shared.table.born(filling.segment, needed);
        }
        filling.write_header(filling.new.kind, filling.written as u32, space);
        shared.buffers.mark(filling.buffer, filling.offset, space.min(needed));
        let location =
            Location::new(shared.table.start(filling.segment) + filling.offset as u64, filling.life);
        drop(filling);
        self.appended += 1;
        let ticket = Ticket(self.appended);
        self.shared.progress[self.id].append(ticket);
        self.shared.appended(self.id);
        self.close_finished();
        AppendedRecord { location, ticket }
    }

    /// Requests that all appended records are written now instead of within the flush interval.
    pub fn flush(&self) {
        self.shared.ask_to_write(self.id);
    }

    /// Writes all appended records into the kernel's page cache now, on this thread, instead of waking a
    /// helper (about 2 µs for a few KiB instead of 5; but the kernel may make the thread wait if many pages
    /// are dirty). Returns `false` if a helper was woken instead: the caller must then wait for the ticket.
    pub fn write_here(&self) -> bool {
        let is_written = self.shared.write_here(self.id);
        if !is_written {
            self.flush();
        }
        is_written
    }

    /// Requests that all appended records are made durable as soon as possible. Several requests share one
    /// sync.
    pub fn make_durable(&self) {
        self.shared.progress[self.id].want_durable(Ticket(self.appended));
        self.shared.ask_to_write(self.id);
    }

    /// Returns the ticket of the last appended record, for waiting until all records so far are written or
    /// durable.
    pub fn last(&self) -> Ticket {
        Ticket(self.appended)
    }

    /// Returns whether a record of `room` bytes would now go to the same segment as the record at `location`,
    /// and the payload of that record contains `bytes` at offset `at`. If so, the new record may refer to
    /// these bytes instead of containing them: a segment is freed as a whole, so they stay as long as the new
    /// record does. The bytes are compared in the buffer of the open segment.
    pub fn has_beside(&self, location: Location, at: usize, bytes: &[u8], room: usize) -> bool {
        let Some(open) = &self.open else { return false };
        let segment_bytes = self.shared.table.segment_bytes;
        let Some((segment, offset)) = self.shared.table.place(location) else { return false };
        let is_beside = segment == open.segment
            && location.is_of(open.life)
            && open.used + record_bytes(room) <= entry_at(segment_bytes, open.entries);
        let from = offset + RECORD_HEADER_BYTES + at;
        if !is_beside || from + bytes.len() > open.used {
            return false;
        }
        let mut scratch = [0; SUM_BYTES];
        bytes.chunks(SUM_BYTES).enumerate().all(|(number, chunk)| {
            let there = &mut scratch[..chunk.len()];
            self.shared
                .buffers
                .span(open.buffer, from + number * SUM_BYTES, chunk.len())
                .copy_to_slice(there);
            there == chunk
        })
    }

    /// Closes the open segment, even if it has room. The next record goes to another segment.
    pub fn seal(&mut self) {
        if let Some(open) = self.open.take() {
            self.close(open);
        }
    }

    /// Returns an open segment that has `space` bytes for one more record, claiming a new one if needed.
    fn open_for(&mut self, space: usize) -> Result<&mut OpenSegment, AppendRefusal> {
        if !self.open.as_ref().is_some_and(|open| self.fits(open, space)) {
            let fresh = self.claim()?;
            if let Some(full) = self.open.replace(fresh) {
                self.close(full);
            }
        }
        match &mut self.open {
            Some(open) => Ok(open),
            None => unreachable!("claimed just now"),
        }
    }

    /// Returns whether a segment has `space` bytes for one more record, and room for its table entry.
    fn fits(&self, open: &OpenSegment, space: usize) -> bool {
        open.used + space <= entry_at(self.shared.table.segment_bytes, open.entries)
    }

    fn claim(&mut self) -> Result<OpenSegment, AppendRefusal> {
        let shared = &self.shared;
        let Some(buffer) = shared.buffers.take(self.id) else {
            shared.count.refused_busy.fetch_add(1, Relaxed);
            shared.ask_to_write(self.id);
            return Err(AppendRefusal::Busy);
        };
        let Some((segment, life)) = shared.table.claim(self.keep, self.class, buffer as u32) else {
            shared.buffers.give_back_unused(buffer);
            shared.count.refused_full.fetch_add(1, Relaxed);
            return Err(AppendRefusal::Full);
        };
        if shared.table.lives_left() < lives::LIVES_AHEAD / 2 || shared.table.free_count() < shared.keep_free
        {
            shared.reap_bell.ring();
        }
        shared.buffers.buffer(buffer).segment.store(segment, Release);
        let header = SegmentHeader { life, class: self.class, is_over: false, version: VERSION as u8 }
            .encode(shared.seed, segment);
        shared.buffers.span(buffer, 0, SEGMENT_HEADER_BYTES).write_from(&header);
        shared.buffers.mark(buffer, 0, SEGMENT_HEADER_BYTES);
        Ok(OpenSegment { buffer, segment, life, used: SEGMENT_HEADER_BYTES, entries: 0, targets: 0 })
    }

    /// Seals a segment, or keeps it for later if some of its records are unfinished.
    fn close(&mut self, open: OpenSegment) {
        if self.shared.buffers.buffer(open.buffer).fillings.load(Acquire) > 0 {
            self.closing.push(open);
            return;
        }
        let shared = &self.shared;
        let segment_bytes = shared.table.segment_bytes;
        let table_at = segment_bytes - FOOTER_BYTES - ENTRY_BYTES * open.entries as usize;
        let table_checksum = sum(
            shared.seed,
            shared.buffers.span(open.buffer, table_at, segment_bytes - FOOTER_BYTES - table_at),
        );
        let footer = Footer {
            life: open.life,
            class: self.class,
            entries: open.entries,
            targets: open.targets,
            table_checksum,
        };
        shared.buffers.seal(open.buffer, open.used, table_at, &footer.encode(shared.seed, open.segment));
        shared.ask_to_write(self.id);
    }

    /// Seals the closing segments whose records are all complete by now.
    fn close_finished(&mut self) {
        let mut at = 0;
        while at < self.closing.len() {
            let buffer = self.shared.buffers.buffer(self.closing[at].buffer);
            if buffer.fillings.load(Acquire) == 0 {
                let open = self.closing.swap_remove(at);
                self.close(open);
            } else {
                at += 1;
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.seal();
        // Segments with unfinished records are recovered by rolling forward at the next start.
        self.close_finished();
    }
}

impl RecordWriter {
    /// Returns the total room for payload, including written bytes.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Returns the number of payload bytes written so far.
    pub fn len(&self) -> usize {
        self.written
    }

    /// Returns whether no payload byte has been written yet.
    pub fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Returns the remaining room, for receiving bytes into it; call [`RecordWriter::written`] after that.
    pub fn span(&self) -> Span<'_> {
        self.payload(self.written..self.room)
    }

    /// Returns the payload written so far.
    pub fn so_far(&self) -> Span<'_> {
        self.payload(0..self.written)
    }

    /// Notes that the next `len` bytes of the room have been written.
    ///
    /// # Panics
    /// Panics if the room is smaller.
    pub fn written(&mut self, len: usize) {
        assert!(len <= self.room - self.written, "{len} bytes written beyond the reserved room");
        let mut left = len;
        while left > 0 {
            let now = left.min(CHUNK_BYTES - self.written % CHUNK_BYTES);
            self.checksum = sum(self.checksum, self.payload(self.written..self.written + now));
            self.written += now;
            left -= now;
            if self.written.is_multiple_of(CHUNK_BYTES) {
                self.checksums.push(std::mem::take(&mut self.checksum));
            }
        }
    }

    /// Copies `bytes` into the room, or as many as fit; returns the number of copied bytes.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut bytes = &bytes[..bytes.len().min(self.room - self.written)];
        let len = bytes.len();
        while !bytes.is_empty() {
            let now = bytes.len().min(CHUNK_BYTES - self.written % CHUNK_BYTES);
            let (first, rest) = bytes.split_at(now);
            self.payload(self.written..self.written + now).write_from(first);
            self.checksum = crc32c::crc32c_append(self.checksum, first);
            self.written += now;
            bytes = rest;
            if self.written.is_multiple_of(CHUNK_BYTES) {
                self.checksums.push(std::mem::take(&mut self.checksum));
            }
        }
        len
    }

    fn payload(&self, range: std::ops::Range<usize>) -> Span<'_> {
        let at = self.offset + RECORD_HEADER_BYTES;
        self.shared.buffers.span(self.buffer, at + range.start, range.len())
    }

    fn write_header(&self, kind: Kind, payload_bytes: u32, space: usize) {
        let shared = &self.shared;
        let NewRecord { hash, tag, target, .. } = self.new;
        // A record that was never completed must not end its target.
        let target = target.filter(|_| kind != Kind::UNFINISHED);
        let header = RecordHeader {
            kind,
            hash,
            tag,
            target,
            payload_bytes,
            number: self.number,
            space_bytes: space as u32,
        };
        shared.buffers.span(self.buffer, self.offset, RECORD_HEADER_BYTES).write_from(&header.encode(
            shared.seed,
            self.life,
            self.offset,
        ));
        let entry = TableEntry { kind, hash, tag, target, offset: self.offset as u32, payload_bytes };
        shared
            .buffers
            .span(self.buffer, entry_at(shared.table.segment_bytes, self.number), ENTRY_BYTES)
            .write_from(&entry.encode());
        shared.buffers.mark(self.buffer, self.offset, RECORD_HEADER_BYTES);
    }
}

impl Drop for RecordWriter {
    fn drop(&mut self) {
        let before = self.shared.buffers.buffer(self.buffer).fillings.fetch_sub(1, Release);
        assert!(before > 0, "filling ended twice");
    }
}

/// Computes a checksum over atomic words, copying them first. (No thread writes to them meanwhile, but the
/// compiler does not know that.)
fn sum(mut checksum: u32, span: Span<'_>) -> u32 {
    let mut scratch = [0; SUM_BYTES];
    let mut at = 0;
    while at < span.len() {
        let now = (span.len() - at).min(SUM_BYTES);
        span.slice(at..at + now).copy_to_slice(&mut scratch[..now]);
        checksum = crc32c::crc32c_append(checksum, &scratch[..now]);
        at += now;
    }
    checksum
}
