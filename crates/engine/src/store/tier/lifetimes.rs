//! A core's writers, one for each class of lifetimes, and the segments that have expired.
//!
//! ```text
//!  up to a minute ─▶ short  ─┐
//!  up to an hour  ─▶ medium ─┼─▶ segments whose objects end about together ─▶ the last is due ─▶ given up, unread
//!  longer         ─▶ long   ─┘
//! ```
//! With mixed lifetimes, most objects of a segment would expire long before the segment is the oldest and
//! given up; meanwhile segments with many good objects would be given up for want of room. Records of
//! deletions go to the long class, because they are small and few.
//!
//! *Memory:* the owner's, 24 bytes a segment. *Bounds:* one step examines [`SEGMENTS_A_LOOK`] segments.

use std::{collections::HashMap, sync::Arc};

use crate::{
    log::{
        AppendRefusal, AppendedRecord, Location, NewRecord, Progress, Reader, RecordWriter, Ticket, Writer,
    },
    store::space::Log as Lifetime,
};

/// Number of log writers of each core: one for each class of lifetimes.
pub const WRITERS_PER_CORE: usize = 3;
/// Expiry that never comes.
pub(super) const NEVER: u32 = u32::MAX;
/// Index of the writer for deletions.
const ENDS: usize = Lifetime::Long as usize;
/// Segments that one step examines.
const SEGMENTS_A_LOOK: usize = 64;

/// Tickets to wait for until the disk has everything: one for each class with something to write.
pub(super) type Tickets = smallvec::SmallVec<[(Arc<Progress>, Ticket); WRITERS_PER_CORE]>;

/// Time until which a record in a segment is valid, as far as one core knows.
#[derive(Debug, Clone, Copy)]
struct SegmentDeadline {
    /// Location of a record in the segment, which identifies the segment's current use.
    of: Location,
    s: u32,
}

/// Deadlines of all segments.
#[derive(Debug)]
pub(super) struct Deadlines {
    segments: Box<[Option<SegmentDeadline>]>,
    next: usize,
}

/// Log writers of a core, by class of lifetimes.
#[derive(Debug)]
pub(super) struct LifetimeWriters {
    writers: [Writer; WRITERS_PER_CORE],
    reader: Reader,
    deadlines: Deadlines,
    /// Current time, as last set by the owner.
    now_s: u32,
}

/// Records whose deletions may not be on the file yet, by hash: the newest of each.
///
/// Two generations, so that each deletion need not store its ticket: once all of the older generation are
/// written, the younger becomes the older.
#[derive(Debug, Default)]
pub(super) struct UnwrittenEnds {
    young: HashMap<u64, Location>,
    old: HashMap<u64, Location>,
    /// Ticket that is written once the older generation is.
    old_until: Ticket,
}

impl UnwrittenEnds {
    pub(super) fn begins(&mut self, hash: u64, location: Location) {
        self.young.insert(hash, location);
    }

    pub(super) fn of(&self, hash: u64) -> Option<Location> {
        self.young.get(&hash).or_else(|| self.old.get(&hash)).copied()
    }

    /// Forgets deletions that are written. Called only while no deletion is waiting to be appended.
    pub(super) fn look(&mut self, writers: &LifetimeWriters) {
        let is_idle = self.young.is_empty() && self.old.is_empty();
        if !is_idle && writers.progress_of_ends().is_written(self.old_until) {
            self.old = std::mem::take(&mut self.young);
            self.old_until = writers.last_of_ends();
        }
    }
}

impl Deadlines {
    /// Creates deadlines for `segments` segments, none of them known.
    pub(super) fn new(segments: usize) -> Self {
        Self { segments: vec![None; segments].into(), next: 0 }
    }

    /// Notes that a record at `of` in the segment is valid until `until_s`.
    pub(super) fn note(&mut self, segment: u32, of: Location, until_s: u32) {
        let Some(known) = self.segments.get_mut(segment as usize) else { return };
        match known {
            Some(until) if until.of.is_of_the_life_of(of) => until.s = until.s.max(until_s),
            _ => *known = Some(SegmentDeadline { of, s: until_s }),
        }
    }

    /// Returns the deadlines that one core out of `cores` watches.
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

    /// Sets the current time.
    pub(super) fn tell(&mut self, now_s: u32) {
        self.now_s = now_s;
    }

    /// Returns the writer for records that are valid until `until_s`.
    pub(super) fn of(&mut self, until_s: u32) -> &mut Writer {
        &mut self.writers[Lifetime::for_lifetime(until_s.saturating_sub(self.now_s)) as usize]
    }

    /// Begins a record like [`Writer::begin`], in the writer for its lifetime.
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

    /// Returns the ticket that is written once all deletions so far are.
    fn last_of_ends(&self) -> Ticket {
        self.writers[ENDS].last()
    }

    /// Examines the next few segments and gives up those in which nothing is valid any more.
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
