//! A core's log writers, one for each class of lifetimes, and the segments that have expired.
//!
//! ```text
//!  up to a minute ─▶ short  ─┐
//!  up to an hour  ─▶ medium ─┼─▶ segments whose objects expire at similar times ─▶ all expired ─▶ freed, unread
//!  longer         ─▶ long   ─┘
//! ```
//! With mixed lifetimes, most objects of a segment would expire long before the segment becomes the oldest
//! and is given up; until then, segments with many useful objects would be given up for lack of room. Records
//! of deletions go to the long class, because they are small and few.
//!
//! *Memory:* the owner's, 24 bytes per segment. *Bounds:* one step examines [`SEGMENTS_A_LOOK`] segments.

use std::{collections::HashMap, sync::Arc};

use crate::{
    log::{
        AppendRefusal, AppendedRecord, Location, NewRecord, Progress, Reader, RecordWriter, Ticket, Writer,
    },
    store::space::Log as Lifetime,
};

/// Number of log writers of each core: one for each class of lifetimes.
pub const WRITERS_PER_CORE: usize = 3;
/// Expiry time of records that never expire.
pub(super) const NEVER: u32 = u32::MAX;
/// Index of the log writer for deletions.
const ENDS: usize = Lifetime::Long as usize;
/// Number of segments that one step examines.
const SEGMENTS_A_LOOK: usize = 64;

/// Tickets for waiting until all appended records are written: one for each class with pending writes.
pub(super) type Tickets = smallvec::SmallVec<[(Arc<Progress>, Ticket); WRITERS_PER_CORE]>;

/// Time until which some record in a segment is valid, as far as one core knows.
#[derive(Debug, Clone, Copy)]
struct SegmentDeadline {
    /// Location of a record in the segment, which identifies the segment's current use.
    of: Location,
    s: u32,
}

/// Deadlines after which the segments hold no valid records.
#[derive(Debug)]
pub(super) struct Deadlines {
    segments: Box<[Option<SegmentDeadline>]>,
    next: usize,
}

/// Log writers of a core, one per class of lifetimes.
#[derive(Debug)]
pub(super) struct LifetimeWriters {
    writers: [Writer; WRITERS_PER_CORE],
    reader: Reader,
    deadlines: Deadlines,
    /// Current time in seconds, as last set by the owner.
    now_s: u32,
}

/// Records whose deletions may not be in the file yet, by hash: the newest record per hash.
///
/// There are two generations, so that each deletion need not store its ticket: once all deletions of the
/// older generation are written, the younger becomes the older.
#[derive(Debug, Default)]
pub(super) struct UnwrittenEnds {
    young: HashMap<u64, Location>,
    old: HashMap<u64, Location>,
    /// Ticket of the last deletion in the older generation.
    old_until: Ticket,
}

impl UnwrittenEnds {
    pub(super) fn begins(&mut self, hash: u64, location: Location) {
        self.young.insert(hash, location);
    }

    pub(super) fn of(&self, hash: u64) -> Option<Location> {
        self.young.get(&hash).or_else(|| self.old.get(&hash)).copied()
    }

    /// Forgets deletions that are written. Must only be called while no deletion is waiting to be appended.
    pub(super) fn look(&mut self, writers: &LifetimeWriters) {
        let is_idle = self.young.is_empty() && self.old.is_empty();
        if !is_idle && writers.progress_of_ends().is_written(self.old_until) {
            self.old = std::mem::take(&mut self.young);
            self.old_until = writers.last_of_ends();
        }
    }
}

impl Deadlines {
    /// Creates the table of deadlines for `segments` segments, all of them unknown.
    pub(super) fn new(segments: usize) -> Self {
        Self { segments: vec![None; segments].into(), next: 0 }
    }

    /// Notes that the record at `of`, in this segment, is valid until `until_s`.
    pub(super) fn note(&mut self, segment: u32, of: Location, until_s: u32) {
        let Some(known) = self.segments.get_mut(segment as usize) else { return };
        match known {
            Some(until) if until.of.is_of_the_life_of(of) => until.s = until.s.max(until_s),
            _ => *known = Some(SegmentDeadline { of, s: until_s }),
        }
    }

    /// Returns the deadlines of the segments that one core out of `cores` watches.
    pub(super) fn share(&self, core: usize, cores: usize) -> Self {
        let of = self.segments.iter().enumerate();
        let segments = of.map(|(segment, until)| until.filter(|_| segment % cores == core)).collect();
        Self { segments, next: 0 }
    }
}

impl LifetimeWriters {
    pub(super) fn new(writers: [Writer; WRITERS_PER_CORE], reader: Reader, deadlines: Deadlines) -> Self {
        Self { writers, reader, deadlines, now_s: 0 }
    }

    /// Sets the current time in seconds.
    pub(super) fn tell(&mut self, now_s: u32) {
        self.now_s = now_s;
    }

    /// Returns the log writer for records that are valid until `until_s`.
    pub(super) fn of(&mut self, until_s: u32) -> &mut Writer {
        &mut self.writers[Lifetime::for_lifetime(until_s.saturating_sub(self.now_s)) as usize]
    }

    /// Begins a record like [`Writer::begin`], in the log writer for its lifetime.
    pub(super) fn begin(
        &mut self,
        new: NewRecord,
        bytes: usize,
        until_s: u32,
    ) -> Result<RecordWriter, AppendRefusal> {
        self.of(until_s).begin(new, bytes)
    }

    /// Finishes a record like [`Writer::finish`]; it is valid until `until_s`.
    pub(super) fn finish(&mut self, filling: RecordWriter, until_s: u32) -> Location {
        let writer = self.writers.iter_mut().find(|writer| writer.has_begun(&filling));
        let Some(writer) = writer else { unreachable!("a filling is finished by who began it") };
        let AppendedRecord { location, .. } = writer.finish(filling);
        self.note(location, until_s);
        location
    }

    /// Notes an appended part of an object. Its segment never expires, because the object may be refreshed
    /// while its parts stay where they are.
    pub(super) fn note_part(&mut self, location: Location) {
        self.note(location, NEVER);
    }

    /// Notes that the record at a location is valid until `until_s`.
    pub(super) fn note(&mut self, location: Location, until_s: u32) {
        if let Some(segment) = self.reader.segment_of(location) {
            self.deadlines.note(segment, location, until_s);
        }
    }

    /// Deletes a record like [`Writer::delete`].
    pub(super) fn delete(&mut self, location: Location) -> Result<(), AppendRefusal> {
        self.writers[ENDS].delete(location).map(|_| ())
    }

    /// Returns the progress of writing deletions.
    fn progress_of_ends(&self) -> Arc<Progress> {
        self.writers[ENDS].progress()
    }

    /// Returns the ticket of the last deletion so far.
    fn last_of_ends(&self) -> Ticket {
        self.writers[ENDS].last()
    }

    /// Examines the next few segments and gives up those that hold no valid record any more.
    pub(super) fn give_up_what_is_over(&mut self) {
        let Deadlines { segments, next } = &mut self.deadlines;
        for _ in 0..SEGMENTS_A_LOOK.min(segments.len()) {
            *next = (*next + 1) % segments.len();
            let Some(until) = segments[*next] else { continue };
            let is_there = self.reader.segment_of(until.of).is_some();
            // A segment that is still being filled is checked again later.
            if !is_there || (until.s <= self.now_s && self.reader.give_up(until.of)) {
                segments[*next] = None;
            }
        }
    }

    pub(super) fn payload_bytes_max(&self) -> usize {
        self.writers[0].payload_bytes_max()
    }

    /// Requests that all records appended so far are written now.
    pub(super) fn flush(&self) {
        self.writers.iter().for_each(Writer::flush);
    }

    /// Requests that all records appended so far are written now; returns the tickets to wait for.
    ///
    /// All classes are included: a record may delete another in a different class and be deleted itself, and
    /// after a crash all three records must be known.
    pub(super) fn tickets(&self) -> Tickets {
        let waiting = self.writers.iter().filter_map(|writer| {
            let (progress, last) = (writer.progress(), writer.last());
            (!progress.is_written(last)).then(|| {
                writer.flush();
                (progress, last)
            })
        });
        waiting.collect()
    }
}
