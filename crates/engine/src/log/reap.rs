//! Freeing segments without live records.
//!
//! A record that ends another (deletes or replaces it) must stay in the file as long as the ended record
//! does; otherwise the ended record would come back after a crash.
//!
//! ```text
//! dying segment B:  read its table ─▶ targets still in the file? ─▶ rewrite their deletions ─▶ written (synced)
//!                   ─▶ B's header says "over" (synced) ─▶ B is free
//! rewritten deletions are in segments of the reaper; each stays until the segment of its target is freed
//! ```
//! *Thread:* the reaper. *Bounds:* a rewritten deletion takes 64 bytes, and is written at most once while its
//! segment dies; there are at most as many as dead records in the file. If no segment is free for them, dying
//! segments wait.

use std::{collections::HashMap, io, sync::Arc};

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::{
    LogState, REAPER_CLASS,
    contents::{TableFault, read_table},
    format::{BLOCK_BYTES, Kind, Location, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION, record_bytes},
    lives,
    table::SegmentState,
    writer::Writer,
};
use crate::sys::{arena::Words, span::Span};

/// The reaper: frees segments that have no live records.
#[derive(Debug)]
pub(super) struct Reaper {
    shared: Arc<LogState>,
    writer: Writer,
    /// For each segment, the locations of the deletions that the reaper has written for records in that
    /// segment.
    ends: HashMap<u32, Vec<Location>>,
    block: Words,
}

impl Reaper {
    pub(super) fn new(shared: Arc<LogState>, writer: Writer) -> io::Result<Self> {
        let block = Words::reserve(BLOCK_BYTES / size_of::<u64>(), false)?;
        Ok(Self { shared, writer, ends: HashMap::new(), block })
    }

    /// Gives up the oldest segments until enough are free or about to be freed.
    fn give_up_oldest(&self) {
        let table = &self.shared.table;
        let mut wanted = self.shared.keep_free.saturating_sub(table.free_count());
        if wanted == 0 {
            return;
        }
        let all = || (0..table.len()).map(|segment| (table.segment(segment), segment));
        wanted = wanted.saturating_sub(all().filter(|(of, _)| of.state() == SegmentState::Dying).count());
        let mut sealed: Vec<(u64, u32)> = all()
            .filter(|(of, _)| of.state() == SegmentState::Sealed)
            // The reaper's own segments hold deletions, which must stay as long as the records that they
            // delete.
            .filter(|(of, _)| of.class.load(Relaxed) != u32::from(REAPER_CLASS))
            .map(|(of, segment)| (of.life.load(Acquire), segment))
            .collect();
        sealed.sort_unstable();
        for (_, segment) in sealed.into_iter().take(wanted) {
            if table.segment(segment).advance(SegmentState::Sealed, SegmentState::Dying) {
                self.shared.count.given_up.fetch_add(1, Relaxed);
            }
        }
    }

    /// Registers a deletion that recovery found in one of the reaper's segments.
    pub(super) fn adopt(&mut self, segment: u32, end: Location, target: Location) {
        let shared = &self.shared;
        if let Some(of_target) = shared.table.living(target) {
            shared.table.born(segment, record_bytes(0));
            self.ends.entry(of_target).or_default().push(end);
        }
    }

    /// Frees dying segments that are not pinned. Returns false if the reaper must retry without being woken.
    /// A segment that starts dying or is unpinned rings the bell, and so does a claim.
    pub(super) fn turn(&mut self) -> bool {
        let mut is_done = true;
        if let Err(error) = lives::keep_ahead(&self.shared) {
            self.shared.count.write_errors.fetch_add(1, Relaxed);
            tracing::error!(%error, "cannot write the generation markers; trying again");
            is_done = false;
        }
        loop {
            self.give_up_oldest();
            let mut held = 0;
            let mut dying: Vec<(u64, u32)> = Vec::new();
            for segment in 0..self.shared.table.len() {
                let of = self.shared.table.segment(segment);
                match (of.state(), of.pins.load(SeqCst)) {
                    (SegmentState::Dying, 0) => dying.push((of.life.load(Acquire), segment)),
                    (SegmentState::Dying, _) => held += 1,
                    _ => {}
                }
            }
            // The oldest segment is freed first: the targets of a newer segment's deletions are then often
            // gone.
            dying.sort_unstable();
            let dying: Vec<u32> = dying.into_iter().map(|(_, segment)| segment).collect();
            // Segments are freed one at a time, so that a deletion whose target has just been freed is not
            // rewritten; if each free requires a sync, all are freed at once.
            let together = if self.shared.must_sync { dying.len() } else { 1 };
            let before = self.shared.count.frees.load(Relaxed);
            for batch in dying.chunks(together.max(1)) {
                self.free(batch);
            }
            if self.shared.count.frees.load(Relaxed) == before {
                // Sealing a segment does not ring the reaper's bell, although a sealed segment may have to be
                // given up.
                let is_short = self.shared.table.free_count() < self.shared.keep_free;
                return is_done && dying.is_empty() && held == 0 && !is_short;
            }
        }
    }

    /// Frees segments, as far as their deletions can be rewritten.
    fn free(&mut self, batch: &[u32]) {
        let mut carried: Vec<u32> = Vec::with_capacity(batch.len());
        let mut last = None;
        for segment in batch {
            match self.carry(*segment) {
                Ok(ticket) => {
                    last = ticket.or(last);
                    carried.push(*segment);
                }
                Err(CarryFault::Later) => {}
                Err(CarryFault::Damaged) => {
                    // The targets of this segment's deletions are unknown, so the segment is kept, and
                    // neither read nor overwritten.
                    tracing::error!(
                        segment,
                        "cannot read the table of contents of a segment to be freed: segment taken out of use"
                    );
                    self.shared.table.segment(*segment).advance(SegmentState::Dying, SegmentState::Damaged);
                }
            }
        }
        if let Some(ticket) = last {
            let reaper = self.shared.reaper();
            self.shared.write(reaper);
            if !self.shared.progress[reaper].is_written(ticket) || !self.synced() {
                return;
            }
        }
        carried.retain(|segment| match self.erase(*segment) {
            Ok(()) => true,
            Err(error) => {
                self.shared.count.write_errors.fetch_add(1, Relaxed);
                tracing::error!(%error, segment, "cannot free a segment; trying again");
                false
            }
        });
        if carried.is_empty() || !self.synced() {
            return;
        }
        for segment in carried {
            self.shared.table.free(segment);
            self.shared.count.frees.fetch_add(1, Relaxed);
            for end in self.ends.remove(&segment).unwrap_or_default() {
                // If this was the last live record of its segment, the next turn frees that segment.
                self.shared.table.died(end, record_bytes(0));
            }
        }
        self.shared.room.notify_waiters();
    }

    fn synced(&self) -> bool {
        !self.shared.must_sync || self.shared.sync().is_ok()
    }

    /// Rewrites the deletions of a segment whose targets are still in the file.
    fn carry(&mut self, segment: u32) -> Result<Option<super::Ticket>, CarryFault> {
        let shared = Arc::clone(&self.shared);
        let life = shared.table.segment(segment).life.load(Acquire);
        let table = read_table(&shared, segment, life).map_err(|fault| match fault {
            TableFault::Io(error) => {
                shared.count.read_errors.fetch_add(1, Relaxed);
                tracing::error!(%error, segment, "cannot read the table of contents of a segment to be freed; trying again");
                CarryFault::Later
            }
            TableFault::Damaged => CarryFault::Damaged,
        })?;
        let mut last = None;
        for entry in table {
            let Some(target) = entry.target else { continue };
            let needed = entry.kind != Kind::UNFINISHED
                && shared.table.living(target).is_some_and(|of_target| of_target != segment);
            if !needed {
                continue;
            }
            let appended =
                self.writer.append_end(entry.kind.carried(), target).map_err(|_| CarryFault::Later)?;
            shared.count.ends_carried.fetch_add(1, Relaxed);
            last = Some(appended.ticket);
            let (Some(of_target), Some((of_end, _))) =
                (shared.table.living(target), shared.table.place(appended.location))
            else {
                continue;
            };
            shared.table.born(of_end, record_bytes(0));
            self.ends.entry(of_target).or_default().push(appended.location);
        }
        Ok(last)
    }

    /// Marks the segment's life as over in the file.
    fn erase(&self, segment: u32) -> io::Result<()> {
        let shared = &self.shared;
        let of = shared.table.segment(segment);
        let start = shared.table.start(segment);
        if shared.punch {
            shared.disk.punch(start, shared.table.segment_bytes as u64)?;
        }
        let header = SegmentHeader {
            life: of.life.load(Acquire),
            class: of.class.load(Relaxed) as u8,
            is_over: true,
            version: VERSION as u8,
        };
        // The rest of the block is rewritten unchanged: if the write is torn, the segment is still as before.
        let mut bytes = [0; BLOCK_BYTES];
        shared.disk.read(start, &mut bytes)?;
        bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode(shared.seed, segment));
        Span::new(&self.block, 0..BLOCK_BYTES).write_from(&bytes);
        shared.disk.write(start, &self.block)
    }
}

enum CarryFault {
    Later,
    Damaged,
}
