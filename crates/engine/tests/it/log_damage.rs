//! Damage, and disks that refuse: no wrong bytes, no hang, always an answer.

use std::{collections::HashMap, io, sync::Arc};

use engine::log::{
    AppendRefusal, DurabilityError, FileOptions, FoundRecord, Header, Kind, Location, Log, LogRecovery,
    NewRecord, Options, ReadError, RecoveryReport,
    format::SEGMENTS_AT,
    simulated::{Faults, SimulatedDisk},
};

const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u64 = 8;

fn options() -> Options {
    Options {
        file: FileOptions {
            purpose: "damage",
            bytes: SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES,
            segment_bytes: Some(SEGMENT_BYTES as u32),
            ..FileOptions::default()
        },
        unwritten_bytes_max: 3 * SEGMENT_BYTES,
        ..Options::default()
    }
}

fn disk() -> SimulatedDisk {
    SimulatedDisk::new(SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES)
}

fn new(hash: u64, target: Option<Location>) -> NewRecord {
    NewRecord { kind: Kind(7), hash, tag: !hash, target }
}

fn payload(id: u64) -> Vec<u8> {
    (0..id * 37 % 1900).map(|at| (id * 7 + at * 13 + at / 251) as u8).collect()
}

fn start(disk: &SimulatedDisk, header: Option<Header>) -> (Log, Header, Vec<FoundRecord>, RecoveryReport) {
    let opening = LogRecovery::on(Arc::new(disk.clone()), header, options()).unwrap();
    let header = *opening.header();
    let mut found = Vec::new();
    let (log, recovered) = opening
        .recover_stepped(|record| {
            found.push(*record);
            true
        })
        .unwrap();
    (log, header, found, recovered)
}

/// Returns a disk with records, some of them ended; the live records, and the ended ones.
fn written(is_clean: bool) -> (SimulatedDisk, Header, Vec<u64>, Vec<u64>) {
    let disk = disk();
    let (mut log, header, ..) = start(&disk, None);
    let mut writer = log.writer(0, 1);
    let mut places = HashMap::new();
    let mut ended = Vec::new();
    for id in 1..=250u64 {
        let target = (id % 5 == 0).then(|| id - 3);
        let appended = writer.append(new(id, target.map(|id| places[&id])), &[&payload(id)]).unwrap();
        places.insert(id, appended.location);
        if let Some(target) = target {
            log.reader().died(places[&target], payload(target).len());
            ended.push(target);
        }
        if id % 50 == 0 {
            writer.delete(places[&(id - 1)]).unwrap();
            log.reader().died(places[&(id - 1)], payload(id - 1).len());
            ended.push(id - 1);
        }
        log.turn();
    }
    if is_clean {
        drop(writer);
        log.turn();
    }
    log.crash();
    let living = (1..=250).filter(|id| !ended.contains(id)).collect();
    (disk.after_kill(), header, living, ended)
}

#[test]
fn no_flipped_bit_ever_gives_a_wrong_byte() {
    let flips = std::env::var("LOG_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(400u64);
    let (mut lost, mut seen) = (0, 0);
    for is_clean in [true, false] {
        let (disk, header, living, ended) = written(is_clean);
        let bytes = disk.bytes();
        let used = bytes[SEGMENTS_AT as usize..].iter().filter(|byte| **byte != 0).count();
        assert!(used > 100_000, "only {used} bytes are used");
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..flips / 2 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let bit = random % (8 * bytes.len() as u64);
            let damaged = disk.after_kill();
            damaged.flip(bit);
            let (log, _, found, recovered) = start(&damaged, Some(header));
            let mut whole = 0;
            for record in &found {
                match log.reader().read(record.location, record.payload_bytes as usize) {
                    Ok(read) => {
                        assert_eq!(
                            read.payload(),
                            payload(record.hash),
                            "bit {bit} of record {}",
                            record.hash
                        );
                        whole += 1;
                    }
                    Err(ReadError::Damaged(_)) => seen += 1,
                    Err(error) => panic!("bit {bit}: {error}"),
                }
                assert_eq!(record.tag, !record.hash, "bit {bit}");
                // In a segment that was still open a deletion may be lost with its own record, which is
                // reported as torn.
                let came_back = ended.contains(&record.hash);
                assert!(!came_back || !is_clean, "bit {bit} brought {} back: {recovered:?}", record.hash);
            }
            // At most one segment's records are lost, if its start was hit.
            assert!(whole + 120 >= living.len(), "bit {bit} lost {} records", living.len() - whole);
            lost += living.len().saturating_sub(whole);
        }
    }
    assert!(lost > 0 && seen > 0, "no flip hit anything: {lost} lost, {seen} seen");
}

#[test]
fn an_unreadable_record_fails_only_its_reads() {
    let (disk, header, living, _) = written(true);
    let (log, _, found, _) = start(&disk, Some(header));
    assert_eq!(found.len(), living.len());
    let record = found.iter().find(|record| record.payload_bytes > 1000).unwrap();
    disk.set_faults(Faults {
        unreadable: Some(record.location.offset() + 100..record.location.offset() + 101),
        ..Faults::default()
    });
    let error = log.reader().read(record.location, record.payload_bytes as usize).unwrap_err();
    assert!(matches!(&error, ReadError::Io { source, .. } if source.raw_os_error() == Some(5)), "{error}");
    assert_eq!(log.usage().read_errors, 1);
    let other =
        found.iter().find(|other| other.location.offset() > record.location.offset() + 10_000).unwrap();
    assert!(log.reader().read(other.location, other.payload_bytes as usize).is_ok());
    // At a start only this segment is taken out of use.
    let segment = (record.location.offset() - SEGMENTS_AT) / SEGMENT_BYTES;
    let at = SEGMENTS_AT + segment * SEGMENT_BYTES;
    let again = disk.after_kill();
    again.set_faults(Faults { unreadable: Some(at..at + 1), ..Faults::default() });
    let (_, _, rest, recovered) = start(&again, Some(header));
    assert_eq!(recovered.segments_damaged, 1);
    assert!(!rest.is_empty() && rest.len() < found.len());
}

#[test]
fn a_disk_that_cannot_write_refuses_and_recovers() {
    let disk = disk();
    let (mut log, ..) = start(&disk, None);
    let mut writer = log.writer(0, 1);
    let progress = writer.progress();
    let first = writer.append(new(1, None), &[b"first"]).unwrap();
    log.turn();
    assert!(progress.is_written(first.ticket) && !progress.is_durable(first.ticket));
    disk.set_faults(Faults { write: Some(5), ..Faults::default() });
    let second = writer.append(new(2, None), &[b"second"]).unwrap();
    log.turn();
    assert!(!progress.is_written(second.ticket));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(progress.written(second.ticket)), Err(DurabilityError::Failing(5)));
    assert_eq!(log.reader().read(second.location, 6).unwrap().payload(), b"second");
    // Once the bound on unwritten bytes is reached, appends are refused at once.
    let mut refused = None;
    for id in 3..2000 {
        match writer.append(new(id, None), &[&[0; 1000]]) {
            Ok(_) => log.turn(),
            Err(error) => {
                refused = Some((id, error));
                break;
            }
        }
    }
    let (id, error) = refused.unwrap();
    assert!(matches!(error, AppendRefusal::Busy | AppendRefusal::Full), "{error}");
    assert!(id < 400, "{id} records of 1 kB were taken and none could be written");
    // Everything is written as soon as the disk accepts writes again.
    disk.set_faults(Faults::default());
    log.turn();
    assert!(progress.is_written(writer.last()));
    assert_eq!(runtime.block_on(progress.written(second.ticket)), Ok(()));
    assert_eq!(log.reader().read(first.location, 5).unwrap().payload(), b"first");
    writer.append(new(9, None), &[b"third"]).unwrap();

    // A failed sync is final, because it is unknown what was lost.
    disk.set_faults(Faults { sync: Some(5), ..Faults::default() });
    writer.make_durable();
    log.turn();
    disk.set_faults(Faults::default());
    log.turn();
    assert_eq!(runtime.block_on(progress.durable(writer.last())), Err(DurabilityError::SyncFailed));
}

/// A disk that is shorter than the log gives an error on reading, not a signal.
#[test]
fn a_shrunken_disk_gives_a_read_error() {
    let (disk, header, ..) = written(true);
    let (log, _, found, _) = start(&disk, Some(header));
    let last = found.iter().max_by_key(|record| record.location.offset()).unwrap();
    // Equivalent to a truncated file: reads beyond its end fail.
    disk.set_faults(Faults { unreadable: Some(SEGMENTS_AT..u64::MAX), ..Faults::default() });
    let error = log.reader().read(last.location, last.payload_bytes as usize).unwrap_err();
    assert!(
        matches!(error, ReadError::Io { ref source, .. } if source.kind() != io::ErrorKind::NotFound),
        "{error}"
    );
}

/// After a clean stop a start reads 32 bytes for each record, twice for segments with records that end
/// others.
#[test]
fn a_start_reads_tables_and_not_records() {
    let options = || Options {
        file: FileOptions {
            purpose: "damage",
            bytes: 16 << 20,
            segment_bytes: Some(1 << 20),
            ..FileOptions::default()
        },
        unwritten_bytes_max: 4 << 20,
        ..Options::default()
    };
    let disk = SimulatedDisk::new(16 << 20);
    let opening = LogRecovery::on(Arc::new(disk.clone()), None, options()).unwrap();
    let header = *opening.header();
    let (mut log, _) = opening.recover_stepped(|_| true).unwrap();
    let mut writer = log.writer(0, 1);
    let records = 12_000;
    let mut last = None;
    for id in 0..records {
        let target = last.filter(|_| id % 10 == 0);
        last = Some(writer.append(new(id, target), &[&[7; 1000]]).unwrap().location);
        if id % 500 == 0 {
            log.turn();
        }
    }
    drop(writer);
    log.turn();
    log.crash();
    let disk = disk.after_kill();
    let opening = LogRecovery::on(Arc::new(disk.clone()), Some(header), options()).unwrap();
    let mut found = 0;
    let (_log, recovered) = opening
        .recover(2, |_| {
            found += 1;
            true
        })
        .unwrap();
    assert_eq!(
        (found, recovered.ended, recovered.segments_rolled),
        (records - records / 10 + 1, records / 10 - 1, 0)
    );
    assert!(disk.read_bytes() < records * 64 + 16 * 1024, "{} bytes were read", disk.read_bytes());
}
