//! Compacts the log at startup: moves the records of nearly empty segments together.
//!
//! ```text
//!  S1 ▣▢▢▢▢▢▢▢▢  S2 ▣▣▢▢▢▢▢▢▢  S3 ▣▣▣▣▣▣▢▢      each run begins a new segment on each core, and leaves it half filled
//!   └─────┬──────────┘
//!  G  ▣▣▣▢▢▢▢▢  (S1, S2 free)  S3 ▣▣▣▣▣▣▢▢    so, many restarts would fill the store with nearly empty segments
//! ```
//! Without compaction a store that is restarted often would drop its oldest mails for lack of a segment
//! although most of its bytes are free. A copy names the record that it replaces, and the old record is
//! deleted when the copy is as durable as a 250 promises, so a crash at any point leaves each mail exactly
//! once. *Bound:* the bytes of [`SEGMENTS_COPIED_MAX`] segments per start. *Blocks:* the start.

use std::{collections::HashMap, io, thread};

use engine::log::{
    DurabilityError, Kind, Location, NewRecord, Progress, Reader, Ticket, Writer, record_bytes,
};

use crate::{
    config::Durability,
    store::{
        core::MAIL,
        record::{self, DecodeOutcome},
        recovery::{Marker, Record, read_body},
    },
};

/// Maximum amount of data that one start may copy, in segments: the copies fit into one segment.
const SEGMENTS_COPIED_MAX: usize = 1;
/// A segment is sparse if its live records take at most 1/`SPARSE` of it.
const SPARSE: usize = 2;
/// Minimum number of sparse segments to move together; moving fewer gains nothing.
const SEGMENTS_MIN: usize = 2;

/// Live records of one segment, as indexes into the lists of records and of markers.
#[derive(Default)]
struct LiveRecords {
    bytes: usize,
    records: Vec<usize>,
    markers: Vec<usize>,
}

/// Moves the live records of sparse segments to a new segment of `writer`, seals it, and returns how many
/// were moved. Afterwards `records` and `markers` have the new locations. `is_live` is false for mails that
/// will not enter the index.
///
/// # Errors
/// Returns the system's error if waiting for the disk is impossible. No mail is lost then, and the lists have
/// the locations of the copies.
pub(crate) fn move_live_records(
    reader: &Reader,
    writer: &mut Writer,
    durability: Durability,
    records: &mut [Record],
    markers: &mut [Marker],
    is_live: impl Fn(&Record) -> bool,
) -> io::Result<usize> {
    let (mut chosen, mut chosen_markers) = choose(reader, records, markers, is_live);
    // Sorting fills the segment in order of arrival, like any other segment.
    chosen.sort_unstable_by_key(|at| records[*at].arrival());
    chosen_markers.sort_unstable();
    let mut moved: Vec<(Location, usize)> = Vec::new();
    let mut copy = |kind: Kind, hash: u64, tag: u64, from: Location, from_bytes: usize, payload: &[u8]| {
        let copy = writer.append(NewRecord { kind, hash, tag, target: Some(from) }, &[payload]).ok()?;
        moved.push((from, from_bytes));
        Some(copy.location)
    };
    for at in chosen {
        let record = &mut records[at];
        let from_bytes = record.payload_bytes as usize;
        // An unreadable record stays where it is, and a reader that opens it sees that it is damaged.
        let Some(payload) = read_whole_payload(reader, record) else { continue };
        let Ok(payload_bytes) = u32::try_from(payload.len()) else { continue };
        let Some(location) = copy(MAIL, 0, 0, record.location, from_bytes, &payload) else { break };
        record.moved_to(location, payload_bytes);
    }
    for at in chosen_markers {
        let Marker { kind, id, hash, location, payload_bytes } = &mut markers[at];
        let from_bytes = *payload_bytes as usize;
        let payload = if from_bytes > 0 {
            // An unreadable record stays where it is.
            let Ok(read) = reader.read(*location, from_bytes) else { continue };
            read.payload().to_vec()
        } else {
            Vec::new()
        };
        let Some(copied) = copy(*kind, *hash, id.0, *location, from_bytes, &payload) else { break };
        *location = copied;
    }
    if moved.is_empty() {
        return Ok(0);
    }
    let last = writer.last();
    match durability {
        Durability::Process => writer.flush(),
        Durability::Power => writer.make_durable(),
    }
    // Mails after this segment are younger: sealing it keeps the rule that the oldest mails are dropped
    // first.
    writer.seal();
    if wait_durable(&writer.progress(), last, durability)? {
        for (location, payload_bytes) in &moved {
            reader.died(*location, *payload_bytes);
        }
    }
    Ok(moved.len())
}

/// Returns the payload of a record, including a body that is shared with another record.
fn read_whole_payload(reader: &Reader, record: &Record) -> Option<Vec<u8>> {
    let read = reader.read(record.location, record.payload_bytes as usize).ok()?;
    let payload = read.payload();
    let DecodeOutcome::Whole(stored) = record::decode(payload) else { return None };
    match stored.body {
        Some(body) => Some(record::join(payload, stored.meta_bytes, &read_body(reader, &body).ok()?)),
        None => Some(payload.to_vec()),
    }
}

/// Chooses the records to move: all live records of the emptiest segments, as long as these are sparse and
/// the records fit.
fn choose(
    reader: &Reader,
    records: &[Record],
    markers: &[Marker],
    is_live: impl Fn(&Record) -> bool,
) -> (Vec<usize>, Vec<usize>) {
    let mut living: HashMap<u32, LiveRecords> = HashMap::new();
    let live = records.iter().enumerate().filter(|(_, record)| is_live(record));
    let whole_bytes = |record: &Record| record.payload_bytes as usize + record.body_bytes as usize;
    let live = live.map(|(at, record)| (record.location, whole_bytes(record), at, true));
    // The parts of a large mail are not moved, and keep their segments in use.
    let segment_bytes = reader.segment_bytes();
    for part in records.iter().filter(|record| is_live(record)).flat_map(|record| record.parts.iter()) {
        let segment = Location::from_bits(part.location).and_then(|location| reader.segment_of(location));
        if let Some(segment) = segment {
            living.entry(segment).or_default().bytes += segment_bytes;
        }
    }
    let ends = markers.iter().enumerate();
    let ends = ends.map(|(at, marker)| (marker.location, marker.payload_bytes as usize, at, false));
    for (location, payload_bytes, at, is_mail) in live.chain(ends) {
        let Some(segment) = reader.segment_of(location) else { continue };
        let of = living.entry(segment).or_default();
        of.bytes += record_bytes(payload_bytes);
        if is_mail { of.records.push(at) } else { of.markers.push(at) }
    }
    let mut sparse: Vec<LiveRecords> =
        living.into_values().filter(|of| of.bytes <= segment_bytes / SPARSE).collect();
    sparse.sort_unstable_by_key(|of| of.bytes);
    let mut bytes = 0;
    sparse.retain(|of| {
        bytes += of.bytes;
        // The segment's record table also needs room: half of the last sparse segment is more than enough.
        bytes <= SEGMENTS_COPIED_MAX * segment_bytes - segment_bytes / (2 * SPARSE)
    });
    if sparse.len() < SEGMENTS_MIN {
        return (Vec::new(), Vec::new());
    }
    let (records, markers): (Vec<_>, Vec<_>) = sparse.into_iter().map(|of| (of.records, of.markers)).unzip();
    (records.concat(), markers.concat())
}

/// Waits until a copy is as durable as a 250 promises; `false` if the disk fails.
fn wait_durable(progress: &Progress, ticket: Ticket, durability: Durability) -> io::Result<bool> {
    // A separate thread waits, because the caller may run within an async runtime, which must not be blocked.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| -> io::Result<Result<(), DurabilityError>> {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            Ok(runtime.block_on(async {
                match durability {
                    Durability::Process => progress.written(ticket).await,
                    Durability::Power => progress.durable(ticket).await,
                }
            }))
        });
        let kept = waiting.join().map_err(|_| io::Error::other("waiting for the disk panicked"))??;
        if let Err(error) = kept {
            tracing::error!(%error, "cannot sync compacted segments: keeping the old copies");
        }
        Ok(kept.is_ok())
    })
}
