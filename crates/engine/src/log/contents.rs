//! Tables of contents of segments in the file: the records that a sealed segment lists.

use std::io;

use super::{
    LogState,
    format::{
        ENTRY_BYTES, FOOTER_BYTES, Footer, Kind, Location, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentStart,
        TableEntry, record_bytes,
    },
};

/// A record found by recovery or in a segment's table of contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundRecord {
    /// Kind of the record.
    pub kind: Kind,
    /// Hash of the record's name, computed by the log's owner.
    pub hash: u64,
    /// Tag that the owner gave the record.
    pub tag: u64,
    /// Location of the record.
    pub location: Location,
    /// Length of the record's payload in bytes.
    pub payload_bytes: u32,
    /// Life number of the segment. Of two records of one writer, the one in the later life is newer; in the
    /// same life, the one with the greater location.
    pub life: u64,
    /// The class of the writer.
    pub class: u8,
    /// Record that this one ends or claims.
    pub target: Option<Location>,
    /// True if a live record claims this one ([`Kind::claims`]): it belongs to that record and is not
    /// independent.
    pub is_claimed: bool,
}

impl FoundRecord {
    pub(super) fn of(entry: &TableEntry, segment_start: u64, life: u64, class: u8) -> Option<Self> {
        entry.kind.is_owners().then(|| Self {
            kind: entry.kind,
            hash: entry.hash,
            tag: entry.tag,
            location: Location::new(segment_start + u64::from(entry.offset), life),
            payload_bytes: entry.payload_bytes,
            life,
            class,
            target: entry.target,
            is_claimed: false,
        })
    }
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
