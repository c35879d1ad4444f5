//! Verification of a file that is not in use: each header, table, record and checksum, with a list of faults.

use std::{fmt, io, path::Path};

use super::{
    file::{Disk, FileDisk, OpenError},
    format::{
        ENTRY_BYTES, FOOTER_BYTES, Footer, Header, Kind, RECORD_HEADER_BYTES, RecordHeader,
        SEGMENT_HEADER_BYTES, SEGMENTS_AT, SegmentHeader, SegmentStart, TableEntry,
    },
    read::is_whole,
    recover::roll_forward,
};

/// A fault found in the file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Number of the segment.
    pub segment: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Description of the fault and its effect.
    pub what: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, byte {} of the file: {}", self.segment, self.offset, self.what)
    }
}

/// Contents of a file, as found by a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The file's header.
    pub header: Header,
    /// Free segments: never used, or freed after use.
    pub segments_free: u64,
    /// Segments that are complete, with their table of contents.
    pub segments_sealed: u64,
    /// Segments that were open when the last process ended; recovery rolls them forward at the next start.
    pub segments_open: u64,
    /// Intact records of the log's owner, including dead ones.
    pub records: u64,
    /// Payload bytes of all intact records.
    pub payload_bytes: u64,
    /// Records whose only purpose is to delete another record.
    pub ends: u64,
    /// The first faults, at most [`FAULTS_MAX`].
    pub faults: Vec<Fault>,
    /// Total number of faults.
    pub fault_count: u64,
}

/// Maximum number of faults that are listed.
pub const FAULTS_MAX: usize = 100;

/// Reads the whole file and checks every byte to which the format gives a meaning. Changes nothing.
///
/// # Errors
/// Returns an [`OpenError`] if the file is in use, not a store, of another version, or truncated.
pub fn check(path: &Path) -> Result<CheckReport, OpenError> {
    let (disk, header) = FileDisk::open_to_look(path)?;
    let failed = |source: io::Error| OpenError::Io { what: "read", path: path.into(), source };
    let mut checked = CheckReport {
        header,
        segments_free: 0,
        segments_sealed: 0,
        segments_open: 0,
        records: 0,
        payload_bytes: 0,
        ends: 0,
        faults: Vec::new(),
        fault_count: 0,
    };
    let mut bytes = vec![0; header.segment_bytes as usize];
    for segment in 0..header.segments {
        let start = SEGMENTS_AT + u64::from(segment) * u64::from(header.segment_bytes);
        match disk.read(start, &mut bytes) {
            Ok(()) => checked.segment(segment, start, &bytes),
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                checked.fault(segment, start, "cannot be read from the disk");
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(checked)
}

impl CheckReport {
    fn fault(&mut self, segment: u32, offset: u64, what: &'static str) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault { segment, offset, what });
        }
    }

    fn segment(&mut self, segment: u32, start: u64, bytes: &[u8]) {
        let seed = self.header.seed();
        let (mut first, mut last) = ([0; SEGMENT_HEADER_BYTES], [0; FOOTER_BYTES]);
        first.copy_from_slice(&bytes[..SEGMENT_HEADER_BYTES]);
        last.copy_from_slice(&bytes[bytes.len() - FOOTER_BYTES..]);
        let footer = Footer::decode(&last, seed, segment);
        let life = match (SegmentHeader::decode(&first, seed, segment), footer) {
            (SegmentStart::Fresh, _) => {
                self.segments_free += 1;
                return;
            }
            (SegmentStart::Used(header), _) if header.is_over => {
                self.segments_free += 1;
                return;
            }
            (SegmentStart::Used(header), _) => header.life,
            (SegmentStart::Damaged, Some(footer)) => {
                self.fault(segment, start, "segment header damaged; the footer is used instead");
                footer.life
            }
            (SegmentStart::Damaged, None) => {
                self.fault(segment, start, "segment header damaged; the segment is not used");
                return;
            }
        };
        let end = start + bytes.len() as u64;
        let table = footer.filter(|footer| footer.life == life).map(|footer| {
            let at = (bytes.len() - FOOTER_BYTES).checked_sub(footer.entries as usize * ENTRY_BYTES);
            at.map(|at| &bytes[at..bytes.len() - FOOTER_BYTES])
                .filter(|table| crc32c::crc32c_append(seed, table) == footer.table_checksum)
                .map(|table| {
                    table.as_chunks::<ENTRY_BYTES>().0.iter().map(TableEntry::decode).collect::<Vec<_>>()
                })
        });
        let entries = match table {
            Some(Some(entries)) => {
                self.segments_sealed += 1;
                entries
            }
            None => {
                self.segments_open += 1;
                roll_forward(bytes, seed, life).0
            }
            Some(None) => {
                self.segments_open += 1;
                let what = "table of contents damaged; a start reads the records instead";
                self.fault(segment, end - FOOTER_BYTES as u64, what);
                roll_forward(bytes, seed, life).0
            }
        };
        for entry in entries.iter().filter(|entry| entry.kind != Kind::UNFINISHED) {
            let offset = entry.offset as usize;
            let at = start + u64::from(entry.offset);
            let header = bytes
                .get(offset..offset + RECORD_HEADER_BYTES)
                .and_then(|header| header.first_chunk())
                .and_then(|header| RecordHeader::decode(header, seed, offset));
            match header {
                Some((header, of)) if of == life && header.payload_bytes == entry.payload_bytes => {
                    if !is_whole(&header, &bytes[offset..]) {
                        self.fault(segment, at, "record payload damaged; the record is not served");
                    } else if header.kind.is_end_alone() {
                        self.ends += 1;
                    } else {
                        self.records += 1;
                        self.ends += u64::from(header.target.is_some());
                        self.payload_bytes += u64::from(header.payload_bytes);
                    }
                }
                _ => self.fault(segment, at, "record header damaged; the record is not served"),
            }
        }
    }
}
