//! What a start makes of the log: the index of each core, as it was.
//!
//! The log hands over each live record's place; what it says of itself is read here, by a few threads and in the order
//! of the file. Then mails are entered in the order of their arrival. What is over age is not entered; what inboxes had
//! deleted of a record that others still have stays deleted.

use std::{
    collections::{BinaryHeap, HashMap, HashSet},
    io,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use engine::{
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
        compaction::gather,
        core::{CORES_MAX, HURRIED, MAIL, NOTED, PART, UNLINKED, name_without_inbox, owner, owner_of_mail},
        delivery_refs::DeliveryRefs,
        index::{Index, IndexRules, NewEntry, RemovedMail, Role},
        record::{self, DecodeOutcome, Part},
        shared_bodies::SharedBody,
    },
};

/// A segment: the parts of large mails have room in it, and its buffers are what the log takes of memory.
pub(crate) const SEGMENT_BYTES: u32 = 16 << 20;
/// A mail's file of this version and of every later one is opened, and goes on: nobody can have its mails again. Never to
/// be raised (`tests/it/version_1.rs`).
const VERSION_MIN: u32 = 1;
/// Bytes that may wait to be written: three segments.
const UNWRITTEN_BYTES_MAX: u64 = 3 * SEGMENT_BYTES as u64;
/// Bytes of a record that are read at first: more than most have before the mail.
pub(crate) const META_BYTES_GUESSED: usize = 1024;

/// What each core begins with.
pub(crate) struct RecoveredStore {
    pub(crate) log: Log,
    pub(crate) header: Header,
    /// One for each core.
    pub(crate) writers: Vec<Writer>,
    pub(crate) cores: Vec<(Index, DeliveryRefs, Notes)>,
    /// What is said about mails.
    pub(crate) noted: Vec<RecoveredNote>,
    /// Greater than that of any mail.
    pub(crate) last_name: u64,
    pub(crate) mails: usize,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system refuses memory or threads, or the disk does.
    #[error("the store cannot be started: {0}")]
    Start(#[from] io::Error),
}

/// Opens the log and reads what is in it.
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
            "the oldest mails are dropped: the index has no memory for all that are stored (index-memory)"
        );
        for (location, payload_bytes) in older {
            reader.died(location, payload_bytes as usize);
        }
    }
    set_torn_aside(&mut records, &parts);
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
        gather(&reader, writer, config.durability, &mut records, &mut markers, is_live)?;
    }
    let rules = IndexRules { bytes_max: bytes_max / cores, ..rules(config, random::number()?) };
    let mut cores: Vec<_> =
        (0..cores).map(|_| (Index::new(rules), DeliveryRefs::default(), Notes::default())).collect();
    let entered = enter(config, now_ms, &reader, records, markers, &mut parts, &mut cores);
    // What was not whole when the process ended, and what was of mails that are over.
    for (location, payload_bytes) in parts {
        reader.died(location, payload_bytes as usize);
    }
    let EntryTotals { last_name, mails, noted } = entered;
    Ok(RecoveredStore { log, header, writers, cores, noted, last_name, mails })
}

/// Reading waits for the disk more than it computes.
const READERS_A_PROCESSOR: usize = 4;
/// Records that a reading thread takes at a time.
const RECORDS_A_BATCH: usize = 256;

fn age_ms(config: &Config) -> u64 {
    u64::try_from(config.retention.age.as_millis()).unwrap_or(u64::MAX)
}

/// The rules of the index.
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

/// A record and the mails that it is, one for each of its inboxes here.
pub(crate) struct Record {
    pub(crate) location: Location,
    pub(crate) payload_bytes: u32,
    /// Bytes of its body, if that lies in another record.
    pub(crate) body_bytes: u32,
    /// Of a large mail: where the rest is.
    pub(crate) parts: Arc<[Part]>,
    entries: Vec<(NewEntry, Inbox)>,
}

impl Record {
    fn of(stored: &record::StoredMeta<'_>, location: Location, payload_bytes: u32) -> Self {
        let parts: Arc<[Part]> = stored.parts.as_slice().into();
        let body_bytes = stored.body.map_or(0, |body| body.bytes);
        let entries = entries(stored, location, payload_bytes, &parts);
        Self { location, payload_bytes, body_bytes, parts, entries }
    }

    /// What mails are sorted by: when they arrived, and of one moment by name.
    pub(crate) fn arrival(&self) -> (u64, MailId) {
        self.entries.first().map_or((0, MailId(0)), |(entry, _)| (entry.arrived_ms, entry.id))
    }

    /// Bytes of memory of the record during recovery.
    fn bytes(&self) -> usize {
        let names = |(_, inbox): &(NewEntry, Inbox)| OF_INBOX_BYTES + inbox.local.len() + inbox.domain.len();
        RECORD_BYTES + self.parts.len() * size_of::<Part>() + self.entries.iter().map(names).sum::<usize>()
    }

    /// It is elsewhere now, with a payload of so many bytes, its body among them.
    pub(crate) fn moved_to(&mut self, location: Location, payload_bytes: u32) {
        (self.location, self.payload_bytes, self.body_bytes) = (location, payload_bytes, 0);
        for (entry, _) in &mut self.entries {
            (entry.location, entry.record_bytes) = (location.bits(), payload_bytes);
        }
    }
}

/// Sorts records in the order of arrival. Their names give that order even where the clock was set back between two
/// starts. Lowers each arrival time to that of the next younger mail, or to now: ages go by the order of arrival, and a
/// mail that a clock of tomorrow dated ends no later than those of today.
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

/// What is written about one mail of a record, apart from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marker {
    /// [`UNLINKED`], [`HURRIED`] or [`NOTED`].
    pub(crate) kind: Kind,
    pub(crate) id: MailId,
    /// Of a hurried one: when it goes. Of a noted one: its flags.
    pub(crate) hash: u64,
    pub(crate) location: Location,
    /// Of a noted one: its tags.
    pub(crate) payload_bytes: u32,
}

/// Reads the begin of a record: all that comes before the mail.
///
/// # Errors
/// As the log says; [`ReadError::Damaged`] also for what is none of ours.
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

/// Large mails of which a part is gone are none any more: the segment of the part was given up for room, which took the
/// mail with it, and is not written down.
fn set_torn_aside(records: &mut [Record], parts: &HashMap<Location, u32>) {
    let is_there = |part: &Part| {
        Location::from_bits(part.location).and_then(|location| parts.get(&location)) == Some(&part.bytes)
    };
    let mut torn = 0;
    for record in records.iter_mut().filter(|record| !record.parts.iter().all(is_there)) {
        record.entries.clear();
        torn += 1;
    }
    if torn > 0 {
        tracing::warn!(mails = torn, "incomplete large mails hidden");
    }
}

/// Reads a body out of the record that has it.
///
/// # Errors
/// As the log says.
pub(crate) fn read_body(reader: &Reader, body: &SharedBody) -> Result<Vec<u8>, ReadError> {
    let Some(location) = Location::from_bits(body.location) else {
        unreachable!("a record that names no place is not decoded")
    };
    let mut bytes = Vec::new();
    let range = body.at as usize..(body.at + body.bytes) as usize;
    reader.read_range(location, body.record_bytes as usize, range, &mut bytes)?;
    Ok(bytes)
}

/// Bytes of memory of a record during recovery, without names of inboxes; and bytes of each of its inboxes beside the
/// name.
const RECORD_BYTES: usize = 96;
const OF_INBOX_BYTES: usize = 160;
/// Records that are read may take this many times the index's memory. Among them are dead records, and records that
/// their inboxes have no room for.
const READ_TIMES_MAX: usize = 2;

/// The newest records with the oldest on top of the heap, and the bytes of memory that they take.
#[derive(Default)]
struct NewestRecords {
    records: BinaryHeap<ByAge>,
    bytes: usize,
    /// Records that were dropped for newer ones: location and payload bytes.
    older: Vec<(Location, u32)>,
}

/// Orders records by arrival: the oldest is the greatest.
struct ByAge(Record);

impl PartialEq for ByAge {
    fn eq(&self, other: &Self) -> bool {
        self.0.arrival() == other.0.arrival()
    }
}

impl Eq for ByAge {}

impl PartialOrd for ByAge {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByAge {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.arrival().cmp(&self.0.arrival())
    }
}

impl NewestRecords {
    fn take(&mut self, records: impl Iterator<Item = Record>, most: usize) {
        for record in records {
            self.bytes += record.bytes();
            self.records.push(ByAge(record));
            // The parts of a large mail that is dropped here belong to no mail in the end, and are freed with those.
            while self.bytes > most
                && let Some(ByAge(oldest)) = self.records.pop()
            {
                self.bytes -= oldest.bytes();
                self.older.push((oldest.location, oldest.payload_bytes));
            }
        }
    }
}

/// Reads all records with `threads` threads and keeps the newest, which take `most` bytes of memory. Returns them, and
/// the location and payload bytes of each dropped record.
#[expect(clippy::disallowed_types, reason = "threads that read at the start, before any loop")]
fn read_all(
    reader: &Reader,
    mails: &mut [(Location, u32)],
    threads: usize,
    most: usize,
) -> (Vec<Record>, Vec<(Location, u32)>) {
    let newest = std::sync::Mutex::new(NewestRecords::default());
    mails.sort_unstable_by_key(|(location, _)| location.offset());
    // An empty store is read by nobody.
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
                let records: Vec<Record> = batch
                    .iter()
                    .map(|&(location, payload_bytes)| {
                        let read = read_meta(reader, location, payload_bytes as usize, &mut meta);
                        match (read, record::decode(&meta)) {
                            (Ok(()), DecodeOutcome::Whole(stored)) => {
                                Record::of(&stored, location, payload_bytes)
                            }
                            // The log has reported the damage; a damaged record has no entries.
                            _ => Record {
                                location,
                                payload_bytes,
                                body_bytes: 0,
                                parts: Arc::default(),
                                entries: Vec::new(),
                            },
                        }
                    })
                    .collect();
                newest.lock().unwrap_or_else(PoisonError::into_inner).take(records.into_iter(), most);
            }
        };
        (0..threads).for_each(|_| _ = scope.spawn(work));
    });
    let NewestRecords { records, older, .. } = newest.into_inner().unwrap_or_else(PoisonError::into_inner);
    (records.into_iter().map(|ByAge(record)| record).collect(), older)
}

fn entries(
    stored: &record::StoredMeta<'_>,
    location: Location,
    payload_bytes: u32,
    parts: &Arc<[Part]>,
) -> Vec<(NewEntry, Inbox)> {
    let named: Vec<_> = stored.recipients.iter().filter(|recipient| recipient.0.0 != 0).collect();
    let letter = named.first().map_or(MailId(0), |first| first.0);
    let entry = |&&(id, local, domain, _): &&(MailId, &str, &str, &str)| {
        let inbox = Inbox { local: local.into(), domain: domain.into() };
        let entry = NewEntry {
            id,
            letter,
            inboxes: u16::try_from(named.len()).unwrap_or(u16::MAX),
            location: location.bits(),
            record_bytes: payload_bytes,
            mail_bytes: payload_bytes - u32::try_from(stored.meta_bytes).unwrap_or(0)
                + stored.elsewhere_bytes(),
            arrived_ms: stored.arrived_ms,
            parts: (!parts.is_empty()).then(|| Arc::clone(parts)),
        };
        (entry, inbox)
    };
    named.iter().map(entry).collect()
}

/// What has been entered.
struct EntryTotals {
    /// The greatest name.
    last_name: u64,
    mails: usize,
    noted: Vec<RecoveredNote>,
}

/// Enters what is live, in the order of arrival; the others' records are given up. Of `parts` those stay that are nobody's.
fn enter(
    config: &Config,
    now_ms: u64,
    reader: &Reader,
    mut records: Vec<Record>,
    markers: Vec<Marker>,
    parts: &mut HashMap<Location, u32>,
    cores: &mut [(Index, DeliveryRefs, Notes)],
) -> EntryTotals {
    let age_ms = age_ms(config);
    let unlinked: HashMap<MailId, Location> =
        markers.iter().filter(|of| of.kind == UNLINKED).map(|of| (of.id, of.location)).collect();
    // Of several about one mail the earliest end counts.
    let mut hurried: HashMap<MailId, Marker> = HashMap::new();
    for marker in markers.iter().filter(|marker| marker.kind == HURRIED) {
        let earliest = hurried.entry(marker.id).or_insert(*marker);
        if marker.hash < earliest.hash {
            *earliest = *marker;
        }
    }
    let notes: HashMap<MailId, Marker> =
        markers.iter().filter(|of| of.kind == NOTED).map(|of| (of.id, *of)).collect();
    let mut noted = Vec::new();
    let mut needed: HashSet<Location> = HashSet::new();
    let (mut last_name, mut mails) = (0, 0);
    records.sort_unstable_by_key(Record::arrival);
    let count = cores.len();
    for Record { location, payload_bytes, entries, parts: own_parts, .. } in records {
        let mut linked = 0;
        let mut first_let_go = None;
        // It answers for a mail that came into several inboxes, and was one core's to begin with or several cores'.
        let answering = entries.first().map_or(0, |(entry, _)| owner_of_mail(entry.letter, count));
        let letter = entries.first().map(|(entry, _)| entry.letter).filter(|_| entries.len() > 1);
        for (entry, inbox) in entries {
            last_name = last_name.max(name_without_inbox(entry.id));
            if entry.arrived_ms.saturating_add(age_ms) <= now_ms {
                continue;
            }
            if let Some(marker) = unlinked.get(&entry.id) {
                needed.insert(*marker);
                cores[answering].1.let_go_by(entry.letter, marker.bits());
                if entry.role() == Role::First {
                    first_let_go = Some((entry, inbox));
                }
                continue;
            }
            linked += 1;
            mails += 1;
            let id = entry.id;
            if let Some(marker) = notes.get(&id) {
                let is_letter = id == entry.letter;
                noted.push((
                    *marker,
                    RecoveredNote {
                        id,
                        inbox: inbox.clone(),
                        is_letter,
                        is_let_go: false,
                        note: Note::default(),
                    },
                ));
            }
            let (index, ..) = &mut cores[owner(&inbox, count)];
            let over = index.insert(entry, &inbox);
            // Also one whose time is up: housekeeping ends it for good, or it would be back once this is gone.
            if let Some(marker) = hurried.get(&id) {
                needed.insert(marker.location);
                index.hurry(id, marker.hash, marker.location.bits());
            }
            if let Some(gone) = over.and_then(|id| index.remove(id, Some(inbox))) {
                mails -= 1;
                let_go(reader, cores, &gone);
            }
        }
        if linked > 0 {
            for part in own_parts.iter() {
                Location::from_bits(part.location).map(|location| parts.remove(&location));
            }
        }
        match letter {
            _ if linked == 0 => reader.died(location, payload_bytes as usize),
            None => {}
            Some(letter) => {
                if let Some((first, inbox)) = first_let_go {
                    if let Some(marker) = notes.get(&letter) {
                        let note = Note::default();
                        noted.push((
                            *marker,
                            RecoveredNote { id: letter, inbox, is_letter: true, is_let_go: true, note },
                        ));
                    }
                    cores[answering].0.insert_let_go(&first);
                }
                cores[answering].1.link(letter, linked);
            }
        }
        // Mails are dropped only now: a mail of several inboxes is entered whole before any of them lets it go.
        for at in 0..count {
            while let Some(oldest) = cores[at].0.oldest_over() {
                let Some(gone) = cores[at].0.remove(oldest, None) else { break };
                mails -= 1;
                let_go(reader, cores, &gone);
            }
        }
    }
    let noted = enter_notes(reader, noted, cores, &mut needed);
    for marker in markers {
        if !needed.contains(&marker.location) {
            reader.died(marker.location, marker.payload_bytes as usize);
        }
    }
    EntryTotals { last_name, mails, noted }
}

/// Enters what is said about mails that are here; those that went meanwhile, because their inbox was full, have none.
fn enter_notes(
    reader: &Reader,
    found: Vec<(Marker, RecoveredNote)>,
    cores: &mut [(Index, DeliveryRefs, Notes)],
    needed: &mut HashSet<Location>,
) -> Vec<RecoveredNote> {
    let mut noted = Vec::new();
    for (marker, mut of) in found {
        let Marker { location, payload_bytes, .. } = marker;
        let count = cores.len();
        let (index, _, notes) = &mut cores[owner_of_mail(of.id, count)];
        let Some(place) = index.place(of.id, 0) else { continue };
        // What cannot be read is not said any more.
        let Ok(read) = reader.read(location, payload_bytes as usize) else { continue };
        of.note = Note::decode(marker.hash, read.payload());
        of.is_let_go = place.is_let_go;
        notes.written(of.id, location.bits(), payload_bytes);
        needed.insert(location);
        noted.push(of);
    }
    noted
}

/// An inbox that was full has let a mail go, which ends for good where no other has it.
fn let_go(reader: &Reader, cores: &mut [(Index, DeliveryRefs, Notes)], gone: &RemovedMail) {
    let ended = match gone.place.role {
        Role::Only => Some((gone.place, gone.parts.clone())),
        Role::First | Role::Other => {
            let count = cores.len();
            let (index, letters, _) = &mut cores[owner_of_mail(gone.letter, count)];
            let is_over = letters.let_go(gone.letter);
            if is_over { index.forget(gone.letter) } else { None }
        }
    };
    if let Some((place, parts)) = ended
        && let Some(location) = Location::from_bits(place.location)
    {
        reader.died(location, place.record_bytes as usize);
        parts_died(reader, parts.as_deref().unwrap_or_default());
    }
}

/// The parts of a large mail count no more.
pub(crate) fn parts_died(reader: &Reader, parts: &[Part]) {
    for Part { location, bytes } in parts {
        if let Some(location) = Location::from_bits(*location) {
            reader.died(location, *bytes as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;
    const DAY_MS: u64 = 24 * 3_600_000;

    fn record(name: u64, arrived_ms: u64) -> Record {
        let id = MailId(name << 14);
        let entry = NewEntry {
            id,
            letter: id,
            inboxes: 1,
            location: 0,
            record_bytes: 100,
            mail_bytes: 50,
            arrived_ms,
            parts: None,
        };
        let inbox = Inbox { local: "ann".into(), domain: "example.org".into() };
        let parts = Arc::from([]);
        Record {
            location: Location::from_bits(1 << 20).expect("a location"),
            payload_bytes: 100,
            body_bytes: 0,
            parts,
            entries: vec![(entry, inbox)],
        }
    }

    #[test]
    fn ages_go_by_order_of_arrival() {
        // A clock that was a day ahead dated the second mail; the clock was set right before the third.
        let mut records = [
            record(3, NOW_MS - 1000),
            record(1, NOW_MS - 5000),
            record(2, NOW_MS + DAY_MS),
            record(4, NOW_MS + 1),
        ];
        order_arrivals(&mut records, NOW_MS);
        let arrivals = records.iter().map(|record| record.arrival().0);
        assert_eq!(arrivals.collect::<Vec<_>>(), [NOW_MS - 5000, NOW_MS - 1000, NOW_MS - 1000, NOW_MS]);
    }
}
