//! The file below a shard's memory: every object that is stored goes there too, and comes back from there.
//!
//! ```text
//!            link ─▶ copied into the log's buffer ─▶ helpers write it within `flush`
//!  memory ◀─────────────────────────────────────────────┐
//!  (index, arena)  a miss that the directory knows ─▶ a helper reads ─▶ restored, in probation ─┘
//!            evict ─▶ nothing: it is on the file (written anew if its segment has been given up)
//!            unlink, replace ─▶ its end is in the log, before that is acknowledged
//! ```
//! *Which core:* the shard's owner. *Which memory:* the directory, plain memory of the owner. *Bounds:* ends that the
//! log has not written yet (as many as there are objects on the file), large objects on their way (`COPIES_MAX`;
//! beyond, an object is not kept on the file, which is counted). Segments whose time is over are given up
//! (`lifetimes.rs`), and the oldest by the log itself; the directory finds out when it looks.

mod admission;
mod copying;
mod directory;
mod heads;
pub mod image;
mod large;
mod lifetimes;
mod open;
mod parts;
mod warming;

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use super::{
    hash::Hash,
    index::Slot,
    object::Object,
    record::{Lengths, Record},
    shard::{Restored, Shard},
    usage::Tally,
};
use crate::log::{Filling, Kind, Location, New, NotKept, Reader, Refused};

use admission::Door;
use copying::{Copying, Step, To};
use directory::Directory;
pub(crate) use directory::Kept;
use heads::Bodies;
use image::{IMAGE_HEADER_BYTES, Image, ImageHeader};
use lifetimes::{ByLifetime, Ending, Tickets};
use parts::{Owned, mark_of, tag};
use warming::Written;

pub use admission::Admission;
pub use large::LargeFilling;
pub use lifetimes::WRITERS_PER_CORE;
pub use open::{
    FileConfig, Known, OnFile, OpenOnFileError, Opening, Paging, Start, Tier, begin_on_file, open_on_file,
    open_stepped, write_buffer_bytes_max,
};
pub use parts::{PART_BODY_BYTES_MAX, Part, PartsList};
pub(super) use warming::Warming;

/// The kind of a record that is an object.
const OBJECT: Kind = Kind(1);
/// Large objects that are being copied into the log.
const COPIES_MAX: usize = 64;
/// Bits of a sequence below the epoch, which grows by a thousand at least with each start.
const SEQUENCE_BITS: u32 = 20;
/// Bytes that one step copies: some tens of microseconds.
const COPY_BYTES_A_STEP: usize = 256 << 10;

/// What of a shard is on the file.
#[derive(Debug)]
pub(super) struct FileTier {
    writers: ByLifetime,
    reader: Reader,
    directory: Directory,
    /// Ends that the log has refused. While there is one, no purge is acknowledged.
    ends: VecDeque<Location>,
    /// What is not yet known to be ended on the file.
    ending: Ending,
    copies: VecDeque<Copying>,
    /// By hash: the parts of those objects that are in parts.
    large: HashMap<u64, Owned>,
    /// The records of those objects that have got another head since.
    bodies: Bodies,
    /// With so many of them it is time to look for those whose list is gone.
    sweep_at: usize,
    /// Most body bytes of an object here.
    body_bytes_max: u64,
    /// The objects that were asked for once, where that is not enough to get onto the file.
    door: Option<Door>,
    /// What was stored and dropped while the file was read, until that is written to the file.
    catching_up: Option<Box<Warming>>,
}

/// Where an object is on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cold {
    /// Its record.
    pub location: Location,
    /// Bytes of the record's payload.
    pub payload_bytes: u32,
}

/// What has to happen before an end may be acknowledged.
#[derive(Debug)]
pub struct Promise(Wait);

#[derive(Debug)]
enum Wait {
    Nothing,
    Disk(Tickets),
    /// First for the file to be known.
    Start(oneshot::Receiver<Written>),
    InVain,
}

impl Promise {
    /// Whether there is nothing to wait for.
    pub fn is_void(&self) -> bool {
        matches!(self.0, Wait::Nothing)
    }

    fn refused() -> Self {
        Self(Wait::InVain)
    }

    fn after(start: oneshot::Receiver<Written>) -> Self {
        Self(Wait::Start(start))
    }

    /// Waits until it survives the process.
    ///
    /// # Errors
    /// It does not, or not yet: [`NotKept::Failing`] also when the log had no room for it.
    pub async fn kept(self) -> Result<(), NotKept> {
        let no_room = NotKept::Failing(libc::ENOSPC);
        let tickets = match self.0 {
            Wait::Nothing => return Ok(()),
            Wait::InVain => return Err(no_room),
            Wait::Disk(tickets) => tickets,
            Wait::Start(start) => match start.await {
                Ok(Ok(written)) => written,
                Ok(Err(())) => return Err(no_room),
                // The file could not be read.
                Err(_) => return Err(NotKept::Failing(libc::EIO)),
            },
        };
        for (progress, ticket) in tickets {
            progress.written(ticket).await?;
        }
        Ok(())
    }
}

impl FileTier {
    fn new(writers: ByLifetime, reader: Reader, admission: Admission) -> Self {
        let (ends, ending, copies) = (VecDeque::new(), Ending::default(), VecDeque::new());
        let door = Door::of(admission);
        let (large, sweep_at) = (HashMap::new(), large::SWEEP_AT_MIN);
        let bodies = Bodies::new();
        let body_bytes_max = large::body_bytes_max(&reader);
        let directory = Directory::new();
        Self {
            writers,
            reader,
            directory,
            ends,
            ending,
            copies,
            large,
            bodies,
            sweep_at,
            body_bytes_max,
            door,
            catching_up: None,
        }
    }

    pub(super) fn known(&self, hash: u64) -> Option<Kept> {
        self.directory.find(hash)
    }

    fn find(&mut self, hash: Hash, now_s: u32) -> Option<Kept> {
        self.writers.tell(now_s);
        if self.is_outdated(hash.word()) {
            return None;
        }
        let kept = self.directory.find(hash.word())?;
        if self.reader.segment_of(kept.location).is_none() {
            self.directory.remove(hash.word());
            self.release_pieces(hash.word());
            return None;
        }
        if !self.is_there(hash.word()) {
            // A head without its body: nothing that could come back.
            self.forget(hash);
            return None;
        }
        if kept.expires_s <= now_s {
            self.forget(hash);
            return None;
        }
        Some(kept)
    }

    /// Whether what the file holds under this hash is from before this process, and something has happened to it since.
    fn is_outdated(&self, hash: u64) -> bool {
        self.catching_up.as_ref().is_some_and(|warming| warming.is_touched(hash))
    }

    fn settle(&mut self, hash: u64) {
        if let Some(warming) = &mut self.catching_up {
            warming.settle(hash);
        }
    }

    /// Takes an expired object out. After a crash the tag in its record says that it has expired.
    fn forget(&mut self, hash: Hash) {
        self.release_pieces(hash.word());
        if let Some(kept) = self.directory.remove(hash.word()) {
            self.reader.died(kept.location, kept.payload_bytes as usize);
        }
    }

    /// Takes an object out for good; whether it was there.
    fn end(&mut self, hash: Hash) -> bool {
        self.settle(hash.word());
        self.release_pieces(hash.word());
        let Some(kept) = self.directory.remove(hash.word()) else { return false };
        if self.reader.segment_of(kept.location).is_none() {
            return false;
        }
        self.end_at(kept.hash, kept.location);
        self.reader.died(kept.location, kept.payload_bytes as usize);
        true
    }

    /// What an object had besides the record that the directory leads to is live no more.
    fn release_pieces(&mut self, hash: u64) {
        self.release_parts(hash);
        self.bodies.release(hash, &self.reader);
    }

    fn end_at(&mut self, hash: u64, location: Location) {
        self.ending.begins(hash, location);
        if !self.ends.is_empty() || self.writers.delete(location).is_err() {
            self.ends.push_back(location);
        }
    }

    /// Writes the ends that were refused.
    fn write_ends(&mut self) {
        while let Some(location) = self.ends.front() {
            if self.reader.segment_of(*location).is_some() && self.writers.delete(*location).is_err() {
                return;
            }
            self.ends.pop_front();
        }
        self.ending.look(&self.writers);
    }

    /// The record that a new one with this hash ends: what is known, or what was and whose end may not be on the file
    /// yet. A start that finds both could not tell by their places which came later, because they may be of different
    /// writers.
    fn target(&self, hash: u64) -> Option<Location> {
        self.known(hash).map(|kept| kept.location).or_else(|| self.ending.of(hash))
    }

    /// Enters what has been appended, and lets go of what it replaces; `mark` says which parts it has.
    fn enter(&mut self, tally: &Tally, kept: Kept, mark: u32) {
        let reader = &self.reader;
        let old = self.directory.insert(kept, |location| reader.segment_of(location).is_some());
        if let Some(old) = old {
            self.reader.died(old.location, old.payload_bytes as usize);
        }
        self.bodies.release(kept.hash, reader);
        if self.large.get(&kept.hash).is_some_and(|owned| owned.mark != mark) {
            self.release_parts(kept.hash);
        }
        self.settle(kept.hash);
        tally.file_kept.add(1);
        self.count(tally);
    }

    fn count(&self, tally: &Tally) {
        tally.file_objects.set(self.directory.len() as u64);
        tally.file_directory_bytes.set(self.directory.bytes() as u64);
        tally.file_copying.set(self.copies.len() as u64);
    }

    /// The log had no room: whatever is on the file under this hash is outdated by now.
    fn refused(&mut self, tally: &Tally, hash: Hash, refused: Refused) {
        match refused {
            Refused::TooLarge => tally.file_too_large.add(1),
            Refused::Busy | Refused::Full => tally.file_refused.add(1),
        }
        self.end(hash);
        self.count(tally);
    }
}

/// The lengths of an object of memory, but for what stands where others have their body.
fn lengths_of(object: &Object<'_>) -> Lengths {
    let [key, head, extra, tail] =
        [object.key(), object.head(), object.extra(), object.tail()].map(|part| part.len());
    Lengths { key, head, extra, rest: 0, tail }
}

fn header_of(object: &Object<'_>) -> ImageHeader {
    ImageHeader {
        key_bytes: object.key().len() as u32,
        head_bytes: object.head().len() as u32,
        extra_bytes: object.extra().len() as u32,
        tail_bytes: object.tail().len() as u32,
        body_bytes: object.body_bytes(),
        in_parts: object.is_in_parts(),
        sequence: object.sequence(),
        expires_s: object.expires_s(),
        body_at: None,
        meta: object.meta(),
    }
}

/// Bytes of an object with such lengths as a record's payload.
fn object_bytes(Lengths { key, head, extra, rest, tail }: Lengths) -> usize {
    IMAGE_HEADER_BYTES + key + head + extra + rest + tail
}

fn put(filling: &mut Filling, bytes: crate::sys::span::Span<'_>) {
    filling.span().slice(0..bytes.len()).write_from_span(bytes);
    filling.written(bytes.len());
}

impl Shard {
    /// From now on what is stored goes to the file too, and what the file holds is found.
    pub fn put_on_file(&mut self, tier: Tier) {
        let Tier { mut tier, epoch } = tier;
        tier.count(self.tally());
        tier.catching_up = self.warming.take().filter(|warming| !warming.is_idle());
        self.tally().file_warming.set(tier.catching_up.is_some().into());
        self.file = Some(tier);
        // Sequences are in the names of variants: none may come twice. While warming it began at what was known then,
        // which is no more.
        self.sequence = self.sequence.max(epoch << SEQUENCE_BITS);
    }

    /// Where an object is that memory does not have, if it is on the file and its time is not over. Its head may be
    /// elsewhere by now: [`Shard::cold_head`].
    pub fn cold(&mut self, hash: Hash, now_s: u32) -> Option<Cold> {
        let Self { local, file, .. } = self;
        let file = file.as_mut()?;
        let kept = file.find(hash, now_s)?;
        if file.has_lost_parts(hash.word()) {
            file.end(hash);
            local.store.shards[local.core].tally.file_incomplete.add(1);
            return None;
        }
        let own = Cold { location: kept.location, payload_bytes: kept.payload_bytes };
        Some(file.bodies.find(hash.word()).unwrap_or(own))
    }

    /// The object is on the file and cannot be read: it is not there any more.
    pub fn damaged(&mut self, hash: Hash, location: Location) {
        let tally = &self.local.store.shards[self.local.core].tally;
        if let Some(file) = &mut self.file
            && let is_body = file.bodies.find(hash.word()).is_some_and(|body| body.location == location)
            && (is_body || file.known(hash.word()).is_some_and(|kept| kept.location == location))
        {
            file.end(hash);
            tally.file_damaged.add(1);
        }
    }

    /// Reads a record that is still in memory, on its way to the file; without waiting.
    pub fn held(&self, cold: Cold) -> Option<Vec<u8>> {
        let reader = &self.file.as_ref()?.reader;
        reader.read_held(cold.location, cold.payload_bytes as usize)
    }

    /// Puts an object back into memory that was read from the file, with the sequence that it had. `false` if it is not
    /// the one that was asked for (another with the same hash, or replaced since). `head` is what was read where
    /// [`Shard::cold_head`] said, if it said so.
    ///
    /// # Errors
    /// As [`Shard::insert`].
    pub fn restore(
        &mut self,
        hash: Hash,
        key: &[u8],
        (cold, image): (Cold, &Image<'_>),
        head: Option<(Cold, &Image<'_>)>,
        now_s: u32,
    ) -> Result<bool, super::Refused> {
        let Some(file) = &self.file else { return Ok(false) };
        let own = file.known(hash.word()).map(|kept| kept.location);
        // The record that the directory leads to, and where the body is by what that says.
        let (top, body) = match (head, file.bodies.find(hash.word())) {
            (None, None) => (Some(cold.location), true),
            (Some((at, head)), Some(body)) => {
                let is_its = head.header.body_at == Some(cold.location) && head.key == key;
                (Some(at.location), is_its && body.location == cold.location)
            }
            _ => (None, false),
        };
        if image.key != key || image.header.body_at.is_some() || !body || top.is_none() || top != own {
            return Ok(false);
        }
        if self.index.find(self.shared(), hash).is_some() {
            return Ok(true);
        }
        let header = &image.header;
        if header.in_parts && !self.has_all_parts(hash, image) {
            // The process ended before all of them were written.
            if let Some(file) = &mut self.file {
                file.end(hash);
            }
            self.tally().file_incomplete.add(1);
            return Ok(false);
        }
        let youngest = head.map_or(image, |(_, head)| head);
        let new = super::NewObject {
            hash,
            key,
            head: youngest.head,
            extra: youngest.extra,
            meta: youngest.header.meta,
            body: super::BodyLength::Exact(header.body_bytes),
            expires_s: youngest.header.expires_s,
            now_s,
        };
        // Only where the body lies as it would have been put here may it be sent from the file.
        let is_as_in_memory = head.is_none() && image.is_laid_out_as_ours();
        self.insert_as(
            new,
            image.body,
            image.tail,
            Some(Restored {
                sequence: header.sequence,
                location: if is_as_in_memory { cold.location.bits() } else { 0 },
                in_parts: header.in_parts,
            }),
        )?;
        let tally = self.tally();
        tally.file_hits.add(1);
        tally.file_hit_bytes.add(u64::from(cold.payload_bytes));
        Ok(true)
    }

    /// Whether the parts that an object's list names are those that the file has.
    fn has_all_parts(&self, hash: Hash, image: &Image<'_>) -> bool {
        let Some(file) = &self.file else { return false };
        let list = PartsList::parse(image.body, hash.word());
        list.zip(file.large.get(&hash.word())).is_some_and(|(list, owned)| {
            list.id() == image.header.sequence && owned.are(&list) && owned.are_there(&file.reader)
        })
    }

    /// What to wait for before an unlinking is acknowledged; asks for it to be written now. While the file is being
    /// read at the start, until that is done.
    pub fn promise(&mut self) -> Promise {
        let warming = match &mut self.file {
            None => &mut self.warming,
            Some(file) => &mut file.catching_up,
        };
        if let Some(warming) = warming {
            return warming.promise();
        }
        Promise(match self.file.as_ref().map(|file| file.written()) {
            None => Wait::Nothing,
            Some(Ok(tickets)) if tickets.is_empty() => Wait::Nothing,
            Some(Ok(tickets)) => Wait::Disk(tickets),
            Some(Err(())) => Wait::InVain,
        })
    }

    /// Copies a little more of what is on its way to the file; says whether there is more.
    pub fn copy_to_file(&mut self) -> bool {
        if let Some(file) = &mut self.file {
            file.write_ends();
            file.writers.give_up_what_is_over();
        }
        let is_behind = self.catch_up();
        self.admit_the_visited();
        let Self { local, file, .. } = self;
        let Some(file) = file else { return false };
        let tally = &local.store.shards[local.core].tally;
        let Some(mut copying) = file.copies.pop_front() else { return is_behind };
        match copying.step(&mut file.writers, COPY_BYTES_A_STEP) {
            Step::More => {
                file.copies.push_front(copying);
                return true;
            }
            Step::Whole => match file.finish_copy(tally, copying) {
                Ok(()) => {}
                Err(copying) => {
                    file.copies.push_back(*copying);
                    return is_behind;
                }
            },
            Step::Later => {
                file.copies.push_back(copying);
                return is_behind;
            }
            Step::GivenUp => file.refused(tally, copying.hash(), Refused::Busy),
        }
        is_behind || !file.copies.is_empty()
    }

    /// Keeps an object on the file that was linked just now.
    pub(super) fn keep(&mut self, slot: Slot) {
        if let Some(warming) = &mut self.warming {
            // Room for it was asked for when it was begun.
            warming.touch(slot.hash);
            return;
        }
        if !self.is_admitted(slot.hash()) {
            return;
        }
        if let Err(refused) = self.put(slot) {
            self.not_put(slot.hash(), refused);
        }
    }

    fn not_put(&mut self, hash: Hash, refused: Refused) {
        let Self { local, file, .. } = self;
        if let Some(file) = file {
            file.refused(&local.store.shards[local.core].tally, hash, refused);
        }
    }

    /// Copies an object to the file, or has it copied. Refused, nothing has changed but that of one with extents an
    /// older copy is gone.
    fn put(&mut self, slot: Slot) -> Result<(), Refused> {
        let Self { local, file, .. } = self;
        let Some(file) = file else { return Ok(()) };
        let tally = &local.store.shards[local.core].tally;
        let object = Object { local, slot };
        let header = header_of(&object);
        let hash = slot.hash();
        let mut mark = 0;
        if object.is_in_parts() {
            mark = mark_of(object.sequence());
            if file.large.get(&slot.hash).is_none_or(|owned| owned.mark != mark) {
                // Without its parts it is nothing that could be kept.
                return Ok(());
            }
        }
        let Some(bytes) = header.bytes().filter(|bytes| *bytes <= file.writers.payload_bytes_max()) else {
            return self.put_in_parts(slot);
        };
        file.copies.retain(|copying| copying.hash() != hash);
        if slot.is_chained() {
            // It takes some steps, and what it replaces is outdated now.
            file.end(hash);
        }
        if !slot.is_chained() {
            let location = file.append_object(tally, (hash, slot.expires_s(), mark), bytes, |record| {
                record.write(&header.encode());
                for part in [object.key(), object.head(), object.extra(), object.body(0), object.tail()] {
                    put(record, part);
                }
            })?;
            local.store.record(slot.location()).write_file(location.bits());
            return Ok(());
        }
        let target = file.target(slot.hash);
        let new = New { kind: OBJECT, hash: slot.hash, tag: tag(slot.expires_s(), 0), target };
        if file.copies.len() >= COPIES_MAX {
            return Err(Refused::Busy);
        }
        let mut filling = file.writers.begin(new, bytes, slot.expires_s())?;
        filling.write(&header.encode());
        put(&mut filling, object.key());
        put(&mut filling, object.head());
        put(&mut filling, object.extra());
        let pinned = object.pin().ok_or(Refused::Busy)?;
        file.copies.push_back(Copying::new(pinned, hash, To::Record(filling)));
        file.settle(hash.word());
        file.count(tally);
        Ok(())
    }

    /// An object is about to leave memory for want of room: it must be on the file.
    pub(super) fn keep_evicted(&mut self, slot: Slot, was_visited: bool) {
        let Some(file) = &self.file else { return };
        let is_kept = file.is_there(slot.hash);
        let is_wanted = (!is_kept && self.is_admitted_late(was_visited)) || file.is_outdated(slot.hash);
        if is_wanted && !slot.is_chained() {
            self.tally().file_written_back.add(1);
            if let Err(refused) = self.put(slot) {
                self.not_put(slot.hash(), refused);
            }
        }
    }

    /// It is this late now.
    pub(super) fn tell_file(&mut self, now_s: u32) {
        if let Some(file) = &mut self.file {
            file.writers.tell(now_s);
        }
    }

    /// An object's time is over.
    pub(super) fn forget_expired(&mut self, slot: &Slot) {
        if let Some(file) = &mut self.file
            && file.known(slot.hash).is_some_and(|kept| kept.expires_s <= slot.expires_s())
        {
            file.forget(slot.hash());
        }
    }

    /// An object is dropped on request; whether it was on the file.
    pub(super) fn end_on_file(&mut self, hash: Hash) -> bool {
        if let Some(warming) = &mut self.warming
            && !warming.touch(hash.word())
        {
            self.tally().file_refused.add(1);
        }
        let Self { local, file, .. } = self;
        let Some(file) = file else { return false };
        file.copies.retain(|copying| copying.hash() != hash);
        let was_there = file.end(hash);
        file.count(&local.store.shards[local.core].tally);
        was_there
    }
}

/// Where an object's body lies on the file, to be sent from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRun {
    /// Its record.
    pub location: Location,
    /// Byte of the file at which the body begins.
    pub body_at: u64,
    /// Bytes of the body.
    pub body_bytes: u64,
}

impl Object<'_> {
    /// Where it is on the file, if it was copied there as one record. Ask the log's reader whether it is written
    /// ([`Reader::is_on_file`]), and pin it there ([`Reader::pin`]).
    pub fn on_file(&self) -> Option<FileRun> {
        let record: Record<'_> = self.local.store.record(self.slot.location());
        let is_one_record = !self.slot.is_chained() && !record.is_in_parts();
        let location = Location::from_bits(record.file()).filter(|_| is_one_record)?;
        let before = IMAGE_HEADER_BYTES + self.key().len() + self.head().len() + self.extra().len();
        let body_at = location.offset() + (crate::log::format::RECORD_HEADER_BYTES + before) as u64;
        Some(FileRun { location, body_at, body_bytes: self.body_bytes() })
    }
}

impl Drop for FileTier {
    fn drop(&mut self) {
        // An orderly end: what was on its way is copied whole, and what was refused has its last chance.
        self.copy_the_rest();
        // What it was outdated by is lost with the memory; it must not come back for that.
        for hash in self.catching_up.take().into_iter().flat_map(|warming| warming.left()) {
            self.end(Hash::from_word(hash));
        }
        self.write_ends();
    }
}
