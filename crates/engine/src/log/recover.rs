//! Recovery of the file's contents at startup.
//!
//! ```text
//! 1  each segment, in parallel:  sealed (footer of the same life)? ─▶ its table is read, if any entry has a target
//!                                open or torn? ─▶ rolled forward record by record, each verified, and sealed now
//! 2  all targets found, sorted   (8 bytes each, 16 for a claim: the only memory that grows with the file, besides the
//!                                owner's)
//! 3  each segment, in parallel:  its table ─▶ records that no other has ended ─▶ to the owner, on the calling thread
//! ```
//! Startup after a clean stop therefore reads tables (32 bytes per record) and no record. Damage is reported
//! and left unchanged: a segment whose start is damaged is neither read nor used.

use std::{
    io,
    sync::{
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed},
        },
        mpsc,
    },
    thread,
};

use super::{
    LogState, REAPER_CLASS,
    contents::{FoundRecord, TableFault, read_ends, read_entries},
    format::{
        BLOCK_BYTES, ENTRY_BYTES, FOOTER_BYTES, Footer, Kind, Location, RECORD_HEADER_BYTES, RecordHeader,
        SEGMENT_HEADER_BYTES, SegmentStart, TableEntry, UNIT_BYTES, entry_at, record_bytes,
    },
    read::is_whole,
    reap::Reaper,
    table::SegmentState,
};
use crate::sys::{arena::Words, span::Span};

/// Maximum number of segments that are read ahead while their records wait for the calling thread.
const SEGMENTS_AHEAD: usize = 8;

/// Report on a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// Records that were reported to the owner.
    pub records: u64,
    /// Records that the owner reported as live.
    pub live: u64,
    /// Records that were ended by other records, and so not reported to the owner.
    pub ended: u64,
    /// Segments whose table was read.
    pub segments_sealed: u64,
    /// Segments without an intact table, which were rolled forward and sealed.
    pub segments_rolled: u64,
    /// Rolled-forward segments whose table was damaged.
    pub tables_damaged: u64,
    /// Incomplete records in segments that were rolled forward: being written when the process ended, or
    /// damaged.
    pub records_torn: u64,
    /// Segments that were taken out of use, because their start is damaged or unreadable.
    pub segments_damaged: u64,
}

/// Locations of all records that were ended or claimed by others.
#[derive(Debug, Default)]
struct Ends {
    ended: Vec<Location>,
    /// Claimed records, each with the record that claims it, or with itself if the claiming record is gone.
    claims: Vec<(Location, Location)>,
}

impl Ends {
    fn of(entries: &[TableEntry], segment_start: u64, life: u64) -> Self {
        let mut ends = Self::default();
        for entry in entries {
            let Some(target) = entry.target else { continue };
            if entry.kind.claims() {
                let by = Location::new(segment_start + u64::from(entry.offset), life);
                ends.claims.push((target, by));
            } else if entry.kind == Kind::PAST_CLAIM {
                ends.claims.push((target, target));
            } else {
                ends.ended.push(target);
            }
        }
        ends
    }

    fn extend(&mut self, other: Self) {
        self.ended.extend(other.ended);
        self.claims.extend(other.claims);
    }

    fn sort(&mut self) {
        self.ended.sort_unstable();
        self.ended.dedup();
        self.claims.sort_unstable();
    }

    fn is_ended(&self, location: Location) -> bool {
        self.ended.binary_search(&location).is_ok()
    }

    /// Returns whether the record is claimed by another that still exists; `None` if it was never claimed.
    fn claimed(&self, location: Location) -> Option<bool> {
        let from = self.claims.partition_point(|(target, _)| *target < location);
        let of = self.claims[from..].iter().take_while(|(target, _)| *target == location);
        let mut is_claimed = None;
        for (_, by) in of {
            let is_there = *by != location && !self.is_ended(*by);
            is_claimed = Some(is_claimed.unwrap_or(false) || is_there);
        }
        is_claimed
    }
}

/// Findings of recovery's first pass in one segment.
#[derive(Debug, Default)]
struct SegmentSurvey {
    ends: Ends,
    rolled: bool,
    table_damaged: bool,
    torn: u64,
}

/// Records of one segment, to be reported to the owner.
struct Batch {
    segment: u32,
    found: Vec<FoundRecord>,
    ended: u64,
    /// Deletions in a segment of the reaper, each with the location of the record that it deletes.
    reapers: Vec<(Location, Location)>,
}

pub(super) fn recover(
    shared: &LogState,
    threads: usize,
    stop: &AtomicBool,
    reaper: &mut Reaper,
    mut found: impl FnMut(&FoundRecord) -> bool,
) -> io::Result<RecoveryReport> {
    let mut recovered = RecoveryReport::default();
    let mut ends = survey_all(shared, threads, stop, &mut recovered)?;
    ends.sort();
    let segments: Vec<u32> = (0..shared.table.len())
        .filter(|segment| shared.table.segment(*segment).state() == SegmentState::Sealed)
        .collect();
    recovered.segments_sealed = segments.len() as u64 - recovered.segments_rolled;
    let next = AtomicU32::new(0);
    let (sender, batches) = mpsc::sync_channel(SEGMENTS_AHEAD);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, segments, ends) = (sender.clone(), &next, &segments, &ends);
            scope.spawn(move || {
                while let Some(segment) = segments.get(next.fetch_add(1, Relaxed) as usize) {
                    if stop.load(Relaxed) || sender.send(read_batch(shared, *segment, ends)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for batch in batches {
            let Some(batch) = batch else {
                recovered.segments_damaged += 1;
                continue;
            };
            recovered.ended += batch.ended;
            for record in &batch.found {
                recovered.records += 1;
                if found(record) {
                    recovered.live += 1;
                    shared.table.born(batch.segment, record_bytes(record.payload_bytes as usize));
                }
            }
            for (end, target) in batch.reapers {
                reaper.adopt(batch.segment, end, target);
            }
        }
    });
    if stop.load(Relaxed) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    for segment in segments {
        let of = shared.table.segment(segment);
        if of.live_bytes() == 0 {
            of.advance(SegmentState::Sealed, SegmentState::Dying);
        }
    }
    Ok(recovered)
}

/// Runs recovery's first pass over all segments. Returns the deletions found in them.
fn survey_all(
    shared: &LogState,
    threads: usize,
    stop: &AtomicBool,
    recovered: &mut RecoveryReport,
) -> io::Result<Ends> {
    let next = AtomicU32::new(0);
    let (sender, surveys) = mpsc::sync_channel(SEGMENTS_AHEAD);
    let mut ends = Ends::default();
    let mut failed = None;
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                let mut scratch = None;
                loop {
                    let segment = next.fetch_add(1, Relaxed);
                    if segment >= shared.table.len() || stop.load(Relaxed) {
                        return;
                    }
                    if sender.send(survey(shared, segment, &mut scratch)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for surveyed in surveys {
            match surveyed {
                Ok(Some(surveyed)) => {
                    recovered.segments_rolled += u64::from(surveyed.rolled);
                    recovered.tables_damaged += u64::from(surveyed.table_damaged);
                    recovered.records_torn += surveyed.torn;
                    ends.extend(surveyed.ends);
                }
                Ok(None) => recovered.segments_damaged += 1,
                // The loop continues until the other threads have finished, so that none of them still writes
                // after this function returns.
                Err(error) => failed = Some(error),
            }
        }
    });
    if stop.load(Relaxed) {
        failed = Some(io::ErrorKind::Interrupted.into());
    }
    failed.map_or(Ok(ends), Err)
}

/// Determines the state of a segment, and enters it into the segment table. `None` if the segment is damaged
/// or unreadable.
fn survey(shared: &LogState, segment: u32, scratch: &mut Option<Words>) -> io::Result<Option<SegmentSurvey>> {
    let set_aside = |life| {
        shared.table.restore(segment, SegmentState::Damaged, life, 0);
        Ok(None)
    };
    let (start, footer) = match read_ends(shared, segment) {
        Ok(ends) => ends,
        Err(error) => {
            tracing::error!(%error, segment, "cannot read a segment: segment taken out of use");
            return set_aside(0);
        }
    };
    let (life, class) = match start {
        SegmentStart::Fresh => return Ok(Some(SegmentSurvey::default())),
        SegmentStart::Used(header) if header.is_over => {
            shared.table.restore(segment, SegmentState::Free, header.life, header.class);
            return Ok(Some(SegmentSurvey::default()));
        }
        SegmentStart::Used(header) => (header.life, header.class),
        // The footer has the same life and class as the header, unless the segment was not sealed yet.
        SegmentStart::Damaged => match &footer {
            Some(footer) => (footer.life, footer.class),
            None => {
                tracing::error!(segment, "segment damaged at its beginning: its records are ignored");
                return set_aside(0);
            }
        },
    };
    let footer = footer.filter(|footer| footer.life == life);
    let mut surveyed = SegmentSurvey::default();
    if let Some(footer) = footer {
        let table = if footer.targets == 0 { Ok(Vec::new()) } else { read_entries(shared, segment, &footer) };
        match table {
            Ok(table) => {
                surveyed.ends = Ends::of(&table, shared.table.start(segment), life);
                shared.table.restore(segment, SegmentState::Sealed, life, class);
                return Ok(Some(surveyed));
            }
            Err(TableFault::Io(error)) => {
                tracing::error!(%error, segment, "cannot read a segment: segment taken out of use");
                return set_aside(life);
            }
            Err(TableFault::Damaged) => surveyed.table_damaged = true,
        }
    }
    let mut bytes = vec![0; shared.table.segment_bytes];
    if let Err(error) = shared.disk.read(shared.table.start(segment), &mut bytes) {
        tracing::error!(%error, segment, "cannot read a segment: segment taken out of use");
        return set_aside(life);
    }
    let (entries, torn) = roll_forward(&bytes, shared.seed, life);
    surveyed.ends = Ends::of(&entries, shared.table.start(segment), life);
    surveyed.torn = torn;
    surveyed.rolled = true;
    seal(shared, segment, life, class, &entries, &mut bytes, scratch)?;
    shared.table.restore(segment, SegmentState::Sealed, life, class);
    Ok(Some(surveyed))
}

/// Returns the table entries of all intact records of a segment in this life, and the number of torn records.
///
/// A missing header is skipped by a search for the next one: a damaged header loses only its own record.
pub(super) fn roll_forward(bytes: &[u8], seed: u32, life: u64) -> (Vec<TableEntry>, u64) {
    let mut entries = Vec::new();
    let mut torn = 0;
    let mut at = SEGMENT_HEADER_BYTES;
    let end = bytes.len() - FOOTER_BYTES;
    while at + RECORD_HEADER_BYTES <= end {
        let header = bytes[at..].first_chunk().and_then(|header| RecordHeader::decode(header, seed, at));
        let Some((header, _)) =
            header.filter(|(header, of)| *of == life && header.space_bytes as usize <= end - at)
        else {
            at += UNIT_BYTES;
            continue;
        };
        if header.kind != Kind::UNFINISHED {
            if is_whole(&header, &bytes[at..]) {
                entries.push(TableEntry {
                    kind: header.kind,
                    hash: header.hash,
                    tag: header.tag,
                    target: header.target,
                    offset: at as u32,
                    payload_bytes: header.payload_bytes,
                });
            } else {
                torn += 1;
            }
        }
        at += header.space_bytes as usize;
    }
    (entries, torn)
}

/// Writes the missing table of contents of a segment.
fn seal(
    shared: &LogState,
    segment: u32,
    life: u64,
    class: u8,
    entries: &[TableEntry],
    bytes: &mut [u8],
    scratch: &mut Option<Words>,
) -> io::Result<()> {
    let segment_bytes = bytes.len();
    let table_at = segment_bytes - FOOTER_BYTES - ENTRY_BYTES * entries.len();
    for (number, entry) in entries.iter().enumerate() {
        let at = entry_at(segment_bytes, number as u32);
        bytes[at..at + ENTRY_BYTES].copy_from_slice(&entry.encode());
    }
    let footer = Footer {
        life,
        class,
        entries: entries.len() as u32,
        targets: entries.iter().filter(|entry| entry.target.is_some()).count() as u32,
        table_checksum: crc32c::crc32c_append(shared.seed, &bytes[table_at..segment_bytes - FOOTER_BYTES]),
    };
    bytes[segment_bytes - FOOTER_BYTES..].copy_from_slice(&footer.encode(shared.seed, segment));
    let words: &[AtomicU64] = match scratch {
        Some(words) => words,
        None => scratch.insert(Words::reserve(segment_bytes / size_of::<u64>(), false)?),
    };
    let from = table_at / BLOCK_BYTES * BLOCK_BYTES;
    let span = Span::new(words, from..segment_bytes);
    span.write_from(&bytes[from..]);
    shared.disk.write(shared.table.start(segment) + from as u64, &words[from / size_of::<u64>()..])
}

/// Collects the records of a segment for the owner. `None` if its table of contents has become unreadable.
fn read_batch(shared: &LogState, segment: u32, ends: &Ends) -> Option<Batch> {
    let of = shared.table.segment(segment);
    let (life, class) = (of.life.load(Acquire), of.class.load(Relaxed) as u8);
    let footer = read_ends(shared, segment).ok().and_then(|(_, footer)| footer);
    let table = footer
        .filter(|footer| footer.life == life)
        .ok_or(TableFault::Damaged)
        .and_then(|footer| read_entries(shared, segment, &footer));
    let table = match table {
        Ok(table) => table,
        Err(fault) => {
            tracing::error!(
                ?fault,
                segment,
                "cannot read the table of contents of a segment: segment taken out of use"
            );
            of.advance(SegmentState::Sealed, SegmentState::Damaged);
            return None;
        }
    };
    let start = shared.table.start(segment);
    let mut batch = Batch { segment, found: Vec::with_capacity(table.len()), ended: 0, reapers: Vec::new() };
    for entry in &table {
        if class == REAPER_CLASS {
            let end = Location::new(start + u64::from(entry.offset), life);
            batch.reapers.extend(entry.target.map(|target| (end, target)));
        }
        let Some(mut found) = FoundRecord::of(entry, start, life, class) else { continue };
        let claimed = ends.claimed(found.location);
        found.is_claimed = claimed == Some(true);
        if ends.is_ended(found.location) || claimed == Some(false) {
            batch.ended += 1;
        } else {
            batch.found.push(found);
        }
    }
    Some(batch)
}
