//! A core's writers, one for each class of lifetimes, and the segments whose time is over.
//!
//! ```text
//!  up to a minute ─▶ short  ─┐
//!  up to an hour  ─▶ medium ─┼─▶ segments whose objects end about together ─▶ the last is due ─▶ given up, unread
//!  longer         ─▶ long   ─┘
//! ```
//! If lifetimes were mixed, the objects of a segment would expire long before it is the oldest and given up; meanwhile
//! segments with many good objects would be given up for want of room. Records of ends go to the long class: they are
//! small and few.
//!
//! *Which memory:* the owner's, 24 bytes a segment. *Bounds:* [`SEGMENTS_A_LOOK`] segments are looked at in a step.

use std::{collections::HashMap, sync::Arc};

use crate::{
    log::{
        AppendRefusal, AppendedRecord, Location, NewRecord, Progress, Reader, RecordWriter, Ticket, Writer,
    },
    store::space::Log as Lifetime,
};

/// Writers of the log that each core has: one for each class of lifetimes.
pub const WRITERS_PER_CORE: usize = 3;
/// What is due later than this never is.
pub(super) const NEVER: u32 = u32::MAX;
/// The writer of ends.
const ENDS: usize = Lifetime::Long as usize;
/// Segments that one step looks at.
const SEGMENTS_A_LOOK: usize = 64;

/// What waits for the disk: of each class that has something to write.
pub(super) type Tickets = smallvec::SmallVec<[(Arc<Progress>, Ticket); WRITERS_PER_CORE]>;

/// SegmentDeadline when something in a segment is good, as far as one core knows.
#[derive(Debug, Clone, Copy)]
struct SegmentDeadline {
    /// Some record in it, which says which life of the segment is meant.
    of: Location,
    s: u32,
}

/// SegmentDeadline when something in each segment is good.
#[derive(Debug)]
pub(super) struct Deadlines {
    segments: Box<[Option<SegmentDeadline>]>,
    next: usize,
}

/// The writers.
#[derive(Debug)]
pub(super) struct LifetimeWriters {
    writers: [Writer; WRITERS_PER_CORE],
    reader: Reader,
    deadlines: Deadlines,
    /// The time, as the owner was told last.
    now_s: u32,
}

/// Records whose ends may not be on the file yet, by hash: the newest of each.
///
/// Two generations, so that each end need not say which ticket it waits for: when all of the older one are written, the
/// younger becomes the older.
#[derive(Debug, Default)]
pub(super) struct UnwrittenEnds {
    young: HashMap<u64, Location>,
    old: HashMap<u64, Location>,
    /// What to wait for until the older ones are written.
    old_until: Ticket,
}

impl UnwrittenEnds {
    pub(super) fn begins(&mut self, hash: u64, location: Location) {
        self.young.insert(hash, location);
    }

    pub(super) fn of(&self, hash: u64) -> Option<Location> {
        self.young.get(&hash).or_else(|| self.old.get(&hash)).copied()
    }

    /// Forgets what is written; only while all ends have been appended.
    pub(super) fn look(&mut self, writers: &LifetimeWriters) {
        let is_idle = self.young.is_empty() && self.old.is_empty();
        if !is_idle && writers.progress_of_ends().is_written(self.old_until) {
            self.old = std::mem::take(&mut self.young);
            self.old_until = writers.last_of_ends();
        }
    }
}

impl Deadlines {
    /// Nothing is known of so many segments.
    pub(super) fn new(segments: usize) -> Self {
        Self { segments: vec![None; segments].into(), next: 0 }
    }

    /// A record that is good until `until_s` is in this life of a segment.
    pub(super) fn note(&mut self, segment: u32, of: Location, until_s: u32) {
        let Some(known) = self.segments.get_mut(segment as usize) else { return };
        match known {
            Some(until) if until.of.is_of_the_life_of(of) => until.s = until.s.max(until_s),
            _ => *known = Some(SegmentDeadline { of, s: until_s }),
        }
    }

    /// What one of so many cores is to look at.
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

    /// It is this late now.
    pub(super) fn tell(&mut self, now_s: u32) {
        self.now_s = now_s;
    }

    /// The writer of what is good until `until_s`.
    pub(super) fn of(&mut self, until_s: u32) -> &mut Writer {
        &mut self.writers[Lifetime::for_lifetime(until_s.saturating_sub(self.now_s)) as usize]
    }

    /// As [`Writer::begin`], with those that are good about as long.
    pub(super) fn begin(
        &mut self,
        new: NewRecord,
        bytes: usize,
        until_s: u32,
    ) -> Result<RecordWriter, AppendRefusal> {
        self.of(until_s).begin(new, bytes)
    }

    /// As [`Writer::finish`]; it is good until `until_s`.
    pub(super) fn finish(&mut self, filling: RecordWriter, until_s: u32) -> Location {
        let writer = self.writers.iter_mut().find(|writer| writer.has_begun(&filling));
        let Some(writer) = writer else { unreachable!("a filling is finished by who began it") };
        let AppendedRecord { location, .. } = writer.finish(filling);
        self.note(location, until_s);
        location
    }

    /// A part of an object that is good until `until_s` was appended. Its segment is not over by then: the object may
    /// be refreshed, and its parts stay where they are.
    pub(super) fn note_part(&mut self, location: Location) {
        self.note(location, NEVER);
    }

    /// What is at a place is good until `until_s`.
    pub(super) fn note(&mut self, location: Location, until_s: u32) {
        if let Some(segment) = self.reader.segment_of(location) {
            self.deadlines.note(segment, location, until_s);
        }
    }

    /// As [`Writer::delete`].
    pub(super) fn delete(&mut self, location: Location) -> Result<(), AppendRefusal> {
        self.writers[ENDS].delete(location).map(|_| ())
    }

    /// How far the writing of ends has come.
    fn progress_of_ends(&self) -> Arc<Progress> {
        self.writers[ENDS].progress()
    }

    /// What to wait for until all ends so far are written.
    fn last_of_ends(&self) -> Ticket {
        self.writers[ENDS].last()
    }

    /// Gives up the segments in which nothing is good any more, of the next few.
    pub(super) fn give_up_what_is_over(&mut self) {
        let Deadlines { segments, next } = &mut self.deadlines;
        for _ in 0..SEGMENTS_A_LOOK.min(segments.len()) {
            *next = (*next + 1) % segments.len();
            let Some(until) = segments[*next] else { continue };
            let is_there = self.reader.segment_of(until.of).is_some();
            // One that is still being filled is looked at again.
            if !is_there || (until.s <= self.now_s && self.reader.give_up(until.of)) {
                segments[*next] = None;
            }
        }
    }

    pub(super) fn payload_bytes_max(&self) -> usize {
        self.writers[0].payload_bytes_max()
    }

    /// Asks for everything so far to be written now.
    pub(super) fn flush(&self) {
        self.writers.iter().for_each(Writer::flush);
    }

    /// Asks for everything so far to be written now; what to wait for until it is.
    ///
    /// Of all classes: where one record ends another that lies with another class, and is ended itself, all three must
    /// be known after a crash.
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
