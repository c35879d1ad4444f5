//! A log file that is damaged, or forged with valid checksums. From a damaged file a start recovers only
//! records that were appended, byte for byte; if the log was closed cleanly and one byte is damaged, no ended
//! record is recovered, and no claimed record as a record of its own. A forged file may describe any records,
//! but only within the file. Either file is a usable log: a record appended to it is found by the next start.
//!
//! The file's header decodes to what was written or is refused; with a valid checksum it encodes to the same
//! bytes again.
//!
//! The input is a kind (bit 0: closed cleanly; bit 1: forged; bit 2: the header; bit 3: its checksum is made
//! valid) and strokes: a position and the bytes written there.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use engine::log::{
    Disk, FileOptions, FoundRecord, Header, Kind, Location, Log, LogRecovery, NewRecord, Options,
    format::{
        ENTRY_BYTES, FOOTER_BYTES, Footer, HEADER_BYTES, HeaderFault, RECORD_HEADER_BYTES, RecordHeader,
        SEGMENT_HEADER_BYTES, SEGMENTS_AT, SegmentHeader, SegmentStart, TableEntry, VERSION, entry_at,
        record_bytes,
    },
    simulated::SimulatedDisk,
};

use super::cut::Cut;

const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u64 = 6;
const RECORDS: u64 = 150;
/// Most strokes of one input.
const STROKES_MAX: usize = 64;
/// Offsets of the two blocks that record the life numbers given out.
const LIVES_AT: [u64; 2] = [8192, 12288];

fn options() -> Options {
    Options {
        file: FileOptions {
            purpose: "fuzz",
            bytes: SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES,
            segment_bytes: Some(SEGMENT_BYTES as u32),
            ..FileOptions::default()
        },
        unwritten_bytes_max: 2 * SEGMENT_BYTES,
        ..Options::default()
    }
}

fn payload(id: u64) -> Vec<u8> {
    (0..id * 37 % 1900).map(|at| (id * 7 + at * 13 + at / 251) as u8).collect()
}

fn new(hash: u64, target: Option<Location>) -> NewRecord {
    NewRecord { kind: Kind(7), hash, tag: !hash, target }
}

fn start(disk: &SimulatedDisk, header: Option<Header>) -> (Log, Header, Vec<FoundRecord>) {
    let opening = LogRecovery::on(Arc::new(disk.clone()), header, options()).expect("sizes that can be");
    let (_, header) = (opening.epoch_ahead(), *opening.header());
    let mut found = Vec::new();
    let (log, recovered) = opening
        .recover_stepped(|record| {
            found.push(*record);
            true
        })
        .expect("damage is no error");
    assert_eq!((recovered.records, recovered.live), (found.len() as u64, found.len() as u64));
    (log, header, found)
}

/// A disk with records, some of which are ended.
struct Sample {
    disk: SimulatedDisk,
    header: Header,
    places: Vec<Location>,
    ended: HashSet<u64>,
    /// Records that are a piece of another record.
    claimed: HashSet<u64>,
}

/// Kind of a record that claims another.
const CLAIM: Kind = Kind(64);

fn sample(is_clean: bool) -> Sample {
    let disk = SimulatedDisk::new(SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES);
    let (mut log, header, _) = start(&disk, None);
    let mut writer = log.writer(0, 1);
    let mut places: Vec<Location> = Vec::new();
    let (mut ended, mut claims) = (HashSet::new(), Vec::new());
    for id in 1..=RECORDS {
        let is_claim = id % 11 == 0;
        let target = if is_claim { Some(id - 4) } else { (id % 5 == 0).then(|| id - 3) };
        let of_target = target.map(|id| places[id as usize - 1]);
        let new = NewRecord { kind: if is_claim { CLAIM } else { Kind(7) }, ..new(id, of_target) };
        places.push(writer.append(new, &[&payload(id)]).expect("room").location);
        match target {
            Some(target) if is_claim => claims.push((id, target)),
            target => ended.extend(target),
        }
        if id % 50 == 0 {
            writer.delete(places[id as usize - 2]).expect("room");
            ended.insert(id - 1);
        }
        log.turn();
    }
    if is_clean {
        drop(writer);
        log.turn();
    }
    log.crash();
    // A claimed piece is ended with the record that claims it.
    let (gone, there): (Vec<_>, Vec<_>) = claims.into_iter().partition(|(id, _)| ended.contains(id));
    ended.extend(gone.into_iter().map(|(_, target)| target));
    let claimed = there.into_iter().map(|(_, target)| target).filter(|id| !ended.contains(id)).collect();
    Sample { disk: disk.after_kill(), header, places, ended, claimed }
}

fn read<const N: usize>(disk: &SimulatedDisk, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    disk.read(at, &mut bytes).expect("within the disk");
    bytes
}

fn write(disk: &SimulatedDisk, at: u64, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty(), "whole words");
    let words: Vec<AtomicU64> = words.iter().map(|word| AtomicU64::new(u64::from_ne_bytes(*word))).collect();
    disk.write(at, &words).expect("within the disk");
}

/// Changes a field of one structure on the disk and makes its checksum valid.
fn forge(disk: &SimulatedDisk, sample: &Sample, cut: &mut Cut<'_>) {
    let (what, which, field, value) = (cut.u8(), cut.u16(), cut.u8(), cut.u64());
    let seed = sample.header.seed();
    let segment = u32::from(which) % SEGMENTS as u32;
    let first = SEGMENTS_AT + u64::from(segment) * SEGMENT_BYTES;
    let last = first + SEGMENT_BYTES - FOOTER_BYTES as u64;
    let footer = Footer::decode(&read(disk, last), seed, segment);
    match what % 5 {
        0 => {
            let bytes = read::<SEGMENT_HEADER_BYTES>(disk, first);
            let SegmentStart::Used(mut header) = SegmentHeader::decode(&bytes, seed, segment) else { return };
            match field % 3 {
                0 => header.life = value,
                1 => header.class = value as u8,
                _ => header.is_over = value & 1 == 1,
            }
            write(disk, first, &header.encode(seed, segment));
        }
        1 => {
            let Some(mut footer) = footer else { return };
            match field % 4 {
                0 => footer.life = value,
                1 => footer.class = value as u8,
                2 => footer.entries = value as u32,
                _ => footer.targets = value as u32,
            }
            write(disk, last, &footer.encode(seed, segment));
        }
        2 => {
            let at = sample.places[usize::from(which) % sample.places.len()].offset();
            let offset = ((at - SEGMENTS_AT) % SEGMENT_BYTES) as usize;
            let bytes = read::<RECORD_HEADER_BYTES>(disk, at);
            let Some((mut header, mut life)) = RecordHeader::decode(&bytes, seed, offset) else { return };
            match field % 7 {
                0 => header.kind = Kind(value as u8),
                1 => header.hash = value,
                2 => header.tag = value,
                3 => header.target = Location::from_bits(value),
                4 => header.payload_bytes = value as u32,
                5 => header.space_bytes = value as u32,
                _ => life = value,
            }
            write(disk, at, &header.encode(seed, life, offset));
        }
        3 => {
            let Some(mut footer) = footer else { return };
            let number = u32::from(which) / SEGMENTS as u32 % footer.entries.clamp(1, 1024);
            let at = first + entry_at(SEGMENT_BYTES as usize, number) as u64;
            let mut entry = TableEntry::decode(&read::<ENTRY_BYTES>(disk, at));
            match field % 6 {
                0 => entry.kind = Kind(value as u8),
                1 => entry.hash = value,
                2 => entry.tag = value,
                3 => entry.target = Location::from_bits(value),
                4 => entry.offset = value as u32 & 0x0fff_fff0,
                _ => entry.payload_bytes = value as u32,
            }
            write(disk, at, &entry.encode());
            let table_bytes = footer.entries as usize * ENTRY_BYTES;
            if table_bytes as u64 <= last - first {
                let mut table = vec![0; table_bytes];
                disk.read(last - table_bytes as u64, &mut table).expect("within the disk");
                footer.table_checksum = crc32c::crc32c_append(seed, &table);
                write(disk, last, &footer.encode(seed, segment));
            }
        }
        _ => {
            // The number of the last life that may have been given out, in both blocks.
            for at in LIVES_AT {
                let mut bytes = read::<24>(disk, at);
                bytes[8..16].copy_from_slice(&value.to_le_bytes());
                let sum = crc32c::crc32c_append(seed, &bytes[..16]);
                bytes[16..20].copy_from_slice(&sum.to_le_bytes());
                write(disk, at, &bytes);
            }
        }
    }
}

/// Checks the file header with some bytes changed, and perhaps a valid checksum.
fn check_header(header: &Header, is_sealed: bool, cut: &mut Cut<'_>) {
    const CHECKSUM_AT: usize = HEADER_BYTES - 4;
    let whole = header.encode();
    let mut bytes = whole;
    let mut strokes = 0;
    while cut.bool() && strokes < STROKES_MAX {
        let (at, turned) = (usize::from(cut.u8()), cut.u8());
        bytes[at % CHECKSUM_AT] ^= turned;
        strokes += 1;
    }
    if is_sealed {
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    }
    let read = Header::decode(&bytes);
    match read {
        Ok(read) => {
            assert!(bytes == whole || is_sealed || strokes > 1, "damage is taken for a header");
            assert_eq!(Header::decode(&read.encode()), Ok(read));
            assert!(read.segments > 0 && read.segment_bytes.is_power_of_two() && read.version <= VERSION);
            if bytes == whole {
                assert_eq!(read, *header);
            }
        }
        Err(HeaderFault::Version(version)) => assert!(is_sealed || strokes > 1, "{version} is no damage"),
        Err(HeaderFault::Features(features)) => assert_ne!(features, 0),
        Err(HeaderFault::Empty) => assert_eq!(bytes, [0; HEADER_BYTES]),
        Err(HeaderFault::Foreign) => assert_ne!(bytes[..8], whole[..8]),
        Err(HeaderFault::Checksum) => assert_ne!(bytes, whole),
    }
}

pub(crate) fn check(bytes: &[u8]) {
    static SAMPLES: OnceLock<[Sample; 2]> = OnceLock::new();
    let mut cut = Cut(bytes);
    let kind = cut.u8();
    let (is_clean, is_forged) = (kind & 1 == 1, kind & 2 == 2);
    let sample = &SAMPLES.get_or_init(|| [sample(false), sample(true)])[usize::from(is_clean)];
    if kind & 4 == 4 {
        return check_header(&sample.header, kind & 8 == 8, &mut cut);
    }
    let disk = sample.disk.after_kill();
    let mut strokes = 0;
    while cut.bool() && strokes < STROKES_MAX {
        strokes += 1;
        if is_forged {
            forge(&disk, sample, &mut cut);
            continue;
        }
        let at = u64::from(u32::from_le_bytes(cut.array())) % sample.header.file_bytes();
        let turned = cut.u8();
        (0..8).filter(|bit| turned >> bit & 1 == 1).for_each(|bit| disk.flip(8 * at + bit));
    }

    let (mut log, header, found) = start(&disk, Some(sample.header));
    for record in &found {
        let bytes = record_bytes(record.payload_bytes as usize) as u64;
        let at = record.location.offset();
        assert!(at >= SEGMENTS_AT && at + bytes <= header.file_bytes(), "{record:?} is not within the file");
        let read = log.reader().read(record.location, record.payload_bytes as usize);
        if is_forged {
            continue;
        }
        let id = record.hash;
        assert!((1..=RECORDS).contains(&id) && record.tag == !id, "{record:?} was never appended");
        assert!(read.is_err() || read.is_ok_and(|read| read.payload() == payload(id)), "{record:?}");
        // An end is stored twice, in a record and in a table: one damaged byte does not reach both.
        assert!(!is_clean || strokes > 1 || !sample.ended.contains(&id), "{record:?} came back");
        let is_claimed = sample.claimed.contains(&id);
        assert!(!is_clean || strokes > 1 || record.is_claimed >= is_claimed, "{record:?} is one of its own");
        assert!(strokes > 0 || record.is_claimed == is_claimed, "{record:?}");
    }
    assert!(
        strokes > 0 || found.len() as u64 == RECORDS - sample.ended.len() as u64,
        "{} found",
        found.len()
    );

    // The damaged file is a usable log, if the damage has left it space.
    let mut writer = log.writer(0, 1);
    let id = RECORDS + 1;
    let appended = writer.append(new(id, None), &[&payload(id)]);
    drop(writer);
    log.turn();
    log.crash();
    if let Ok(appended) = appended {
        let (log, _, again) = start(&disk.after_kill(), Some(header));
        assert!(again.iter().any(|record| record.location == appended.location && record.hash == id));
        let read = log.reader().read(appended.location, payload(id).len());
        assert!(read.is_ok_and(|read| read.payload() == payload(id)));
    }
}
