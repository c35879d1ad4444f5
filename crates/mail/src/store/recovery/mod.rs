//! Recovers the store at startup: rebuilds the index of each core from the log.
//!
//! The log reports the location of each live record; a few threads read the metadata in file order. Mails are
//! then inserted in order of arrival. Expired mails are left out. A mail that one inbox has deleted and
//! others still have stays deleted in that inbox.

mod newest;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use engine::{
    cold_mutex::ColdMutex,
    log::{
        Disk, FileOptions, Header, Kind, Location, Log, LogRecovery, OpenError, Options, ReadError, Reader,
        Writer, format,
    },
    random,
};

use crate::{
    config::{Config, Durability, Store},
    mailbox::mailboxes::{Inbox, MailId},
    store::{
        annotations::{Note, Notes, RecoveredNote},
        compaction::move_live_records,
        core::{CORES_MAX, HURRIED, MAIL, NOTED, PART, UNLINKED, name_without_inbox, owner, owner_of_mail},
        delivery_refs::DeliveryRefs,
        index::{Index, IndexRules, NewEntry, RemovedMail, Role},
        record::{self, DecodeOutcome, Part},
        shared_bodies::SharedBody,
    },
};

pub(crate) use newest::Record;
use newest::{ByAge, NewestRecords, READ_TIMES_MAX};

/// Size of a segment: the parts of large mails fit into it, and the log's memory consists of such buffers.
pub(crate) const SEGMENT_BYTES: u32 = 16 << 20;
/// Oldest file version that can be opened. Every later version can be opened, too, as mails cannot be
/// received again. This must never be raised (`tests/it/version_1.rs`).
const VERSION_MIN: u32 = 1;
/// Maximum number of bytes that wait for the disk: three segments.
const UNWRITTEN_BYTES_MAX: u64 = 3 * SEGMENT_BYTES as u64;
/// Bytes of a record that are read first: more than the metadata of most records.
pub(crate) const META_BYTES_GUESSED: usize = 1024;

/// The recovered state from which the cores start.
pub(crate) struct RecoveredStore {
    pub(crate) log: Log,
    pub(crate) header: Header,
    /// Log writers, one for each core.
    pub(crate) writers: Vec<Writer>,
    pub(crate) cores: Vec<RecoveredCore>,
    /// Flags and tags of the recovered mails.
    pub(crate) noted: Vec<RecoveredNote>,
    /// The greatest ID of any mail, without the bits of core and inbox.
    pub(crate) last_name: u64,
    pub(crate) mails: usize,
}

/// The recovered mails of one core.
pub(crate) struct RecoveredCore {
    pub(crate) index: Index,
    pub(crate) delivery_refs: DeliveryRefs,
    pub(crate) notes: Notes,
}

impl RecoveredCore {
    fn new(rules: IndexRules) -> Self {
        Self { index: Index::new(rules), delivery_refs: DeliveryRefs::default(), notes: Notes::default() }
    }
}

/// Reason why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or created.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system has no memory or threads, or the disk fails.
    #[error("cannot start the store: {0}")]
    Start(#[from] io::Error),
}

/// Opens the log and rebuilds the state of the cores from it.
pub(crate) fn recover(
    config: &Config,
    on: Option<(Arc<dyn Disk>, Option<Header>)>,
    cores: usize,
    now_ms: u64,
) -> Result<RecoveredStore, StoreError> {
    assert!(cores <= CORES_MAX, "names of mails tell {CORES_MAX} cores apart");
    let options = Options {
        file: FileOptions {
            purpose: "mail",
            bytes: config.store_bytes,
            segment_bytes: Some(SEGMENT_BYTES),
            version_min: VERSION_MIN,
        },
        writers: cores,
        unwritten_bytes_max: UNWRITTEN_BYTES_MAX,
        flush: Duration::from_secs(1),
        helpers: 2,
        must_sync: config.durability == Durability::Power,
        ..Options::default()
    };
    let recovering = match (on, &config.store) {
        (Some((disk, header)), _) => LogRecovery::on(disk, header, options)?,
        (None, Store::Anonymous) => LogRecovery::anonymous(options)?,
        (None, Store::File(path)) => LogRecovery::file(path, options)?,
    };
    let header = *recovering.header();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (mut mails, mut markers) = (Vec::new(), Vec::new());
    let mut parts: HashMap<Location, u32> = HashMap::new();
    let (log, _) = recovering.recover(threads, |found| {
        match found.kind {
            MAIL => mails.push((found.location, found.payload_bytes)),
            kind @ (UNLINKED | HURRIED | NOTED) => markers.push(Marker {
                kind,
                id: MailId(found.tag),
                hash: found.hash,
                location: found.location,
                payload_bytes: found.payload_bytes,
            }),
            PART => _ = parts.insert(found.location, found.payload_bytes),
            _ => return false,
        }
        true
    })?;
    let reader = log.reader();
    let bytes_max = usize::try_from(config.index_bytes()).unwrap_or(usize::MAX);
    let most = bytes_max.saturating_mul(READ_TIMES_MAX);
    let (mut records, older) = read_all(&reader, &mut mails, threads * READERS_A_PROCESSOR, most);
    if !older.is_empty() {
        tracing::warn!(
            mails = older.len(),
            "not enough memory to index all stored mails (index-memory): oldest mails dropped"
        );
        for (location, payload_bytes) in older {
            reader.died(location, payload_bytes as usize);
        }
    }
    drop_incomplete_mails(&mut records, &parts);
    order_arrivals(&mut records, now_ms);
    let mut writers: Vec<Writer> = (0..cores).map(|number| log.writer(number, 0)).collect();
    if let Some(writer) = writers.first_mut() {
        let age_ms = age_ms(config);
        let gone: HashSet<MailId> =
            markers.iter().filter(|marker| marker.kind == UNLINKED).map(|marker| marker.id).collect();
        let is_live = |record: &Record| {
            let lives = |(entry, _): &(NewEntry, Inbox)| {
                entry.arrived_ms.saturating_add(age_ms) > now_ms && !gone.contains(&entry.id)
            };
            record.entries.iter().any(lives)
        };
        move_live_records(&reader, writer, config.durability, &mut records, &mut markers, is_live)?;
    }
    let rules = IndexRules { bytes_max: bytes_max / cores, ..rules(config, random::number()?) };
    let mut cores: Vec<_> = (0..cores).map(|_| RecoveredCore::new(rules)).collect();
    let insertion = Insertion::new(&reader, &mut cores, &markers, age_ms(config), now_ms);
    let EntryTotals { last_name, mails, noted } = insertion.enter(records, &markers, &mut parts);
    // The remaining parts belong to deleted mails, or to mails that were incomplete when the process ended.
    for (location, payload_bytes) in parts {
        reader.died(location, payload_bytes as usize);
    }
    Ok(RecoveredStore { log, header, writers, cores, noted, last_name, mails })
}

/// Number of reading threads per processor: they mostly wait for the disk.
const READERS_A_PROCESSOR: usize = 4;
/// Number of records that a reading thread takes at a time.
const RECORDS_A_BATCH: usize = 256;

fn age_ms(config: &Config) -> u64 {
    u64::try_from(config.retention.age.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the limits of the index.
fn rules(config: &Config, seed: u64) -> IndexRules {
    IndexRules {
        age_ms: age_ms(config),
        per_inbox_max: config.retention.per_inbox_max,
        bytes_max: usize::MAX,
        segments_at: format::SEGMENTS_AT,
        segment_bytes: u64::from(SEGMENT_BYTES),
        seed,
    }
}

/// Sorts records in order of arrival, which their IDs preserve even if the clock was set back between two
/// starts. Each arrival time is capped at the next younger mail's time and at the current time, because mails
/// must expire in order of arrival: a mail that a wrong clock dated tomorrow expires no later than the mails
/// of today.
fn order_arrivals(records: &mut [Record], now_ms: u64) {
    let name = |record: &Record| record.entries.first().map_or(0, |(entry, _)| name_without_inbox(entry.id));
    records.sort_unstable_by_key(name);
    let mut latest_ms = now_ms;
    for record in records.iter_mut().rev() {
        for (entry, _) in &mut record.entries {
            latest_ms = latest_ms.min(entry.arrived_ms);
            entry.arrived_ms = latest_ms;
        }
    }
}

/// A record about one mail: a removal, an early expiry, or a note.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marker {
    /// [`UNLINKED`], [`HURRIED`] or [`NOTED`].
    pub(crate) kind: Kind,
    pub(crate) id: MailId,
    /// Expiry time of [`HURRIED`], flags of [`NOTED`].
    pub(crate) hash: u64,
    pub(crate) location: Location,
    /// Size of the tags of [`NOTED`].
    pub(crate) payload_bytes: u32,
}

/// Reads the metadata of a record.
///
/// # Errors
/// The log's [`ReadError`]; also [`ReadError::Damaged`] if the metadata cannot be decoded.
pub(crate) fn read_meta(
    reader: &Reader,
    location: Location,
    payload_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), ReadError> {
    let mut wanted = META_BYTES_GUESSED.min(payload_bytes);
    loop {
        reader.read_range(location, payload_bytes, 0..wanted, out)?;
        match record::decode(out) {
            DecodeOutcome::Whole(_) => return Ok(()),
            DecodeOutcome::NeedMore(bytes) if bytes > wanted && bytes <= payload_bytes => wanted = bytes,
            _ => return Err(ReadError::Damaged(location)),
        }
    }
}

/// Removes the entries of large mails with a missing part: the part's segment was reclaimed, which deleted
/// the mail without a record of the deletion.
fn drop_incomplete_mails(records: &mut [Record], parts: &HashMap<Location, u32>) {
    let is_there = |part: &Part| {
        Location::from_bits(part.location).and_then(|location| parts.get(&location)) == Some(&part.bytes)
    };
    let mut torn = 0;
    for record in records.iter_mut().filter(|record| !record.parts.iter().all(is_there)) {
        record.entries.clear();
        torn += 1;
    }
    if torn > 0 {
        tracing::warn!(mails = torn, "large mails with missing parts dropped");
    }
}

/// Reads a shared body out of the record that contains it.
///
/// # Errors
/// The log's [`ReadError`].
pub(crate) fn read_body(reader: &Reader, body: &SharedBody) -> Result<Vec<u8>, ReadError> {
    let Some(location) = Location::from_bits(body.location) else {
        unreachable!("a record that names no place is not decoded")
    };
    let mut bytes = Vec::new();
    let range = body.at as usize..(body.at + body.bytes) as usize;
    reader.read_range(location, body.record_bytes as usize, range, &mut bytes)?;
    Ok(bytes)
}

/// Reads all records with `threads` threads and keeps the newest within `most` bytes of memory. Returns them,
/// and the location and payload size of each dropped record.
fn read_all(
    reader: &Reader,
    mails: &mut [(Location, u32)],
    threads: usize,
    most: usize,
) -> (Vec<Record>, Vec<(Location, u32)>) {
    let newest = ColdMutex::new(NewestRecords::default());
    mails.sort_unstable_by_key(|(location, _)| location.offset());
    // An empty store needs no threads.
    let threads = threads.min(mails.len().div_ceil(RECORDS_A_BATCH));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let work = || {
            let mut meta = Vec::new();
            loop {
                let from = next.fetch_add(RECORDS_A_BATCH, Ordering::Relaxed);
                let Some(batch) = mails.get(from..(from + RECORDS_A_BATCH).min(mails.len())) else { break };
                if batch.is_empty() {
                    break;
                }
                let read = |&(location, bytes): &_| read_record(reader, location, bytes, &mut meta);
                let records: Vec<Record> = batch.iter().map(read).collect();
                newest.lock().take(records.into_iter(), most);
            }
        };
        (0..threads).for_each(|_| _ = scope.spawn(work));
    });
    let NewestRecords { records, older, .. } = newest.into_inner();
    (records.into_iter().map(|ByAge(record)| record).collect(), older)
}

/// Reads a record; a damaged one has no entries.
fn read_record(reader: &Reader, location: Location, payload_bytes: u32, meta: &mut Vec<u8>) -> Record {
    let read = read_meta(reader, location, payload_bytes as usize, meta);
    match (read, record::decode(meta)) {
        (Ok(()), DecodeOutcome::Whole(stored)) => Record::of(&stored, location, payload_bytes),
        // The log has reported the damage already.
        _ => Record { location, payload_bytes, body_bytes: 0, parts: Arc::default(), entries: Vec::new() },
    }
}

/// Totals of the recovered mails.
struct EntryTotals {
    /// The greatest ID, without the bits of core and inbox.
    last_name: u64,
    mails: usize,
    noted: Vec<RecoveredNote>,
}

/// Insertion of the recovered mails into the cores that own them.
struct Insertion<'a> {
    reader: &'a Reader,
    cores: &'a mut [RecoveredCore],
    age_ms: u64,
    now_ms: u64,
    /// Markers of removals from an inbox.
    unlinked: HashMap<MailId, Location>,
    /// Markers of early expiries, of each mail the earliest.
    hurried: HashMap<MailId, Marker>,
    /// Markers of flags and tags.
    notes: HashMap<MailId, Marker>,
    /// Notes of the inserted mails, not yet read.
    noted: Vec<(Marker, RecoveredNote)>,
    /// Locations of the markers that stay in the log.
    needed: HashSet<Location>,
    last_name: u64,
    mails: usize,
}

impl<'a> Insertion<'a> {
    fn new(
        reader: &'a Reader,
        cores: &'a mut [RecoveredCore],
        markers: &[Marker],
        age_ms: u64,
        now_ms: u64,
    ) -> Self {
        let of_kind = |kind: Kind| markers.iter().filter(move |marker| marker.kind == kind);
        let mut hurried: HashMap<MailId, Marker> = HashMap::new();
        for marker in of_kind(HURRIED) {
            let earliest = hurried.entry(marker.id).or_insert(*marker);
            if marker.hash < earliest.hash {
                *earliest = *marker;
            }
        }
        Self {
            reader,
            cores,
            age_ms,
            now_ms,
            unlinked: of_kind(UNLINKED).map(|of| (of.id, of.location)).collect(),
            hurried,
            notes: of_kind(NOTED).map(|of| (of.id, *of)).collect(),
            noted: Vec::new(),
            needed: HashSet::new(),
            last_name: 0,
            mails: 0,
        }
    }

    /// Inserts live mails in order of arrival and frees the records of all others. On return `parts` has only
    /// the parts that belong to no mail.
    fn enter(
        mut self,
        mut records: Vec<Record>,
        markers: &[Marker],
        parts: &mut HashMap<Location, u32>,
    ) -> EntryTotals {
        records.sort_unstable_by_key(Record::arrival);
        for record in records {
            self.enter_record(record, parts);
            // Mails are dropped only now, so that a mail with several inboxes is inserted completely before any
            // of them drops it.
            self.drop_oldest_mails();
        }
        let noted = self.enter_notes();
        for marker in markers {
            if !self.needed.contains(&marker.location) {
                self.reader.died(marker.location, marker.payload_bytes as usize);
            }
        }
        EntryTotals { last_name: self.last_name, mails: self.mails, noted }
    }

    /// Inserts a record's mail into its inboxes, or frees the record if no inbox has the mail.
    fn enter_record(&mut self, record: Record, parts: &mut HashMap<Location, u32>) {
        let Record { location, payload_bytes, entries, parts: own_parts, .. } = record;
        let Some(letter) = entries.first().map(|(entry, _)| entry.letter) else {
            return self.reader.died(location, payload_bytes as usize);
        };
        // The core responsible for a mail with several inboxes, whether one core owns these inboxes or
        // several.
        let answering = owner_of_mail(letter, self.cores.len());
        let has_several = entries.len() > 1;
        let mut linked = 0;
        let mut first_let_go = None;
        for (entry, inbox) in entries {
            self.last_name = self.last_name.max(name_without_inbox(entry.id));
            if entry.arrived_ms.saturating_add(self.age_ms) <= self.now_ms {
                continue;
            }
            if let Some(marker) = self.unlinked.get(&entry.id) {
                self.needed.insert(*marker);
                self.cores[answering].delivery_refs.let_go_by(entry.letter, marker.bits());
                if entry.role() == Role::First {
                    first_let_go = Some((entry, inbox));
                }
                continue;
            }
            linked += 1;
            self.enter_mail(entry, inbox);
        }
        if linked == 0 {
            return self.reader.died(location, payload_bytes as usize);
        }
        for part in own_parts.iter() {
            Location::from_bits(part.location).map(|location| parts.remove(&location));
        }
        if !has_several {
            return;
        }
        if let Some((first, inbox)) = first_let_go {
            if let Some(marker) = self.notes.get(&letter) {
                let note = Note::default();
                let of = RecoveredNote { id: letter, inbox, is_letter: true, is_let_go: true, note };
                self.noted.push((*marker, of));
            }
            self.cores[answering].index.insert_let_go(&first);
        }
        self.cores[answering].delivery_refs.add_inboxes(letter, linked);
    }

    /// Inserts a mail into an inbox.
    fn enter_mail(&mut self, entry: NewEntry, inbox: Inbox) {
        self.mails += 1;
        let id = entry.id;
        if let Some(marker) = self.notes.get(&id) {
            let is_letter = id == entry.letter;
            let note = Note::default();
            let of = RecoveredNote { id, inbox: inbox.clone(), is_letter, is_let_go: false, note };
            self.noted.push((*marker, of));
        }
        let owner = owner(&inbox, self.cores.len());
        let index = &mut self.cores[owner].index;
        let over = index.insert(entry, &inbox);
        // An early expiry is applied even if its time has passed: housekeeping then deletes the mail
        // permanently. Otherwise the mail would reappear once this marker is freed.
        if let Some(marker) = self.hurried.get(&id) {
            self.needed.insert(marker.location);
            index.set_early_expiry(id, marker.hash, marker.location.bits());
        }
        if let Some(gone) = over.and_then(|id| index.remove(id, Some(inbox))) {
            self.release_delivery(&gone);
        }
    }

    /// Drops the oldest mails of each core while its index is over its memory limit.
    fn drop_oldest_mails(&mut self) {
        for at in 0..self.cores.len() {
            while let Some(oldest) = self.cores[at].index.oldest_above_limit() {
                let Some(gone) = self.cores[at].index.remove(oldest, None) else { break };
                self.release_delivery(&gone);
            }
        }
    }

    /// Handles a mail that a full inbox or index has dropped; its record is freed if no other inbox has it.
    fn release_delivery(&mut self, gone: &RemovedMail) {
        self.mails -= 1;
        let ended = match gone.place.role {
            Role::Only => Some((gone.place, gone.parts.clone())),
            Role::First | Role::Other => {
                let answering = owner_of_mail(gone.letter, self.cores.len());
                let RecoveredCore { index, delivery_refs, .. } = &mut self.cores[answering];
                let is_over = delivery_refs.release(gone.letter);
                if is_over { index.remove_unlinked(gone.letter) } else { None }
            }
        };
        if let Some((place, parts)) = ended
            && let Some(location) = Location::from_bits(place.location)
        {
            self.reader.died(location, place.record_bytes as usize);
            free_parts(self.reader, parts.as_deref().unwrap_or_default());
        }
    }

    /// Enters the notes of existing mails; notes of mails that a full inbox has dropped are left out.
    fn enter_notes(&mut self) -> Vec<RecoveredNote> {
        let mut noted = Vec::new();
        for (marker, mut of) in std::mem::take(&mut self.noted) {
            let Marker { location, payload_bytes, .. } = marker;
            let answering = owner_of_mail(of.id, self.cores.len());
            let RecoveredCore { index, notes, .. } = &mut self.cores[answering];
            let Some(place) = index.place(of.id, 0) else { continue };
            // An unreadable note is dropped.
            let Ok(read) = self.reader.read(location, payload_bytes as usize) else { continue };
            of.note = Note::decode(marker.hash, read.payload());
            of.is_let_go = place.is_let_go;
            notes.set_location(of.id, location.bits(), payload_bytes);
            self.needed.insert(location);
            noted.push(of);
        }
        noted
    }
}

/// Frees the parts of a large mail.
pub(crate) fn free_parts(reader: &Reader, parts: &[Part]) {
    for Part { location, bytes } in parts {
        if let Some(location) = Location::from_bits(*location) {
            reader.died(location, *bytes as usize);
        }
    }
}
