//! The log on a real file: written by its helpers, read, reopened; and the files that it must refuse.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::Path,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use engine::log::{
    AppendRefusal, FileOptions, FoundRecord, Header, Kind, Log, LogRecovery, NewRecord, OpenError, Options,
    ReadError, RecoveryReport, format::BLOCK_BYTES,
};

const DATA: Kind = Kind(1);

fn options(bytes: u64) -> Options {
    Options {
        file: FileOptions {
            purpose: "test",
            bytes,
            segment_bytes: Some(256 << 10),
            ..FileOptions::default()
        },
        flush: Duration::from_millis(5),
        ..Options::default()
    }
}

fn open(path: &Path, bytes: u64) -> (Log, Vec<FoundRecord>, RecoveryReport) {
    let mut found = Vec::new();
    let (log, recovered) = Log::open(path, options(bytes))
        .unwrap()
        .recover(2, |record| {
            found.push(*record);
            true
        })
        .unwrap();
    (log, found, recovered)
}

fn new(hash: u64) -> NewRecord {
    NewRecord { kind: DATA, hash, tag: hash * 3, target: None }
}

fn body(hash: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (hash.wrapping_mul(31).wrapping_add(i * 7 + i / 253)) as u8).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn appended_records_are_read_after_every_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let lens = [0, 1, 15, 16, 4000, 65_535, 65_536, 65_537, 200_000];
    {
        let (log, found, recovered) = open(&path, 8 << 20);
        assert_eq!((found.len(), recovered), (0, RecoveryReport::default()));
        let mut writer = log.writer(0, 3);
        let mut kept = Vec::new();
        for (number, len) in lens.into_iter().enumerate() {
            let bytes = body(number as u64, len);
            let (first, rest) = bytes.split_at(len / 3);
            let appended = writer.append(new(number as u64), &[first, rest]).unwrap();
            let record = log.reader().read(appended.location, len).unwrap();
            assert_eq!(record.payload(), bytes, "from the buffer, {len} bytes");
            kept.push((appended, bytes));
        }
        writer.make_durable();
        let (last, _) = kept.last().unwrap();
        runtime().block_on(writer.progress().durable(last.ticket)).unwrap();
        assert!(kept.iter().all(|(appended, _)| writer.progress().is_written(appended.ticket)));
        for (appended, bytes) in &kept {
            let reader = log.reader();
            assert_eq!(reader.read(appended.location, bytes.len()).unwrap().payload(), bytes);
            for range in [0..0, 0..bytes.len(), bytes.len() / 3..bytes.len() / 2, bytes.len()..bytes.len()] {
                let mut part = vec![9; 3];
                reader.read_range(appended.location, bytes.len(), range.clone(), &mut part).unwrap();
                assert_eq!(part, bytes[range]);
            }
        }
        let replaced = kept[4].0.location;
        writer.append(NewRecord { target: Some(replaced), ..new(4) }, &[b"anew"]).unwrap();
        log.reader().died(replaced, kept[4].1.len());
        let deleted = kept[2].0.location;
        writer.delete(deleted).unwrap();
        log.reader().died(deleted, kept[2].1.len());
        let usage = log.usage();
        assert_eq!((usage.write_errors, usage.read_errors, usage.damaged_records), (0, 0, 0));
        drop(writer);
    }
    for round in 0..2 {
        let (log, mut found, recovered) = open(&path, 8 << 20);
        // The dropped writer sealed its segment, so nothing is left to roll forward.
        assert_eq!(recovered.segments_rolled, 0, "round {round}: {recovered:?}");
        assert_eq!((recovered.records, recovered.ended), (lens.len() as u64 - 1, 2));
        found.sort_by_key(|record| record.hash);
        let hashes: Vec<u64> = found.iter().map(|record| record.hash).collect();
        assert_eq!(hashes, [0, 1, 3, 4, 5, 6, 7, 8]);
        for record in found {
            let bytes = match record.hash {
                4 => b"anew".to_vec(),
                other => body(other, lens[other as usize]),
            };
            assert_eq!((record.tag, record.class, record.kind), (record.hash * 3, 3, DATA));
            let read = log.reader().read(record.location, record.payload_bytes as usize).unwrap();
            assert_eq!(read.payload(), bytes);
        }
    }
}

#[test]
fn a_deferrable_append_waits_for_a_spare_buffer() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { unwritten_bytes_max: 4 * (256 << 10), ..options(8 << 20) };
    let opening = Log::open(&directory.path().join("store"), options).unwrap();
    let (mut log, _) = opening.recover_stepped(|_| true).unwrap();
    let mut writer = log.writer(0, 0);
    let reader = log.reader();
    let bytes = body(1, 200_000);
    // The log has five buffers; each record fills one.
    for _ in 0..4 {
        let mut filling = writer.begin_if_spare(new(1), bytes.len()).unwrap();
        filling.write(&bytes);
        writer.finish(filling);
    }
    let mut room = pin!(reader.room());
    let mut is_made = || room.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert_eq!(writer.begin_if_spare(new(1), bytes.len()).unwrap_err(), AppendRefusal::Busy);
    // A record that fits into the open segment needs no further buffer.
    drop(writer.begin_if_spare(new(1), 1000).unwrap());
    assert_eq!(log.usage().buffers_taken, 4);
    writer.append(new(2), &[&bytes]).unwrap();
    assert_eq!(writer.begin_if_spare(new(1), 1000).unwrap_err(), AppendRefusal::Busy);
    assert_eq!(writer.append(new(2), &[&bytes]).unwrap_err(), AppendRefusal::Busy);
    assert!(!is_made());
    log.turn();
    assert!(is_made());
    drop(writer.begin_if_spare(new(1), bytes.len()).unwrap());
    assert_eq!(log.usage().buffers_taken, 2);
}

#[test]
fn a_record_grows_in_pieces_beside_others() {
    let directory = tempfile::tempdir().unwrap();
    let (log, ..) = open(&directory.path().join("store"), 8 << 20);
    let mut writer = log.writer(0, 0);
    let bytes = body(5, 150_000);
    let mut one = writer.begin(new(1), 100).unwrap();
    let mut at = 0;
    let mut between = Vec::new();
    while at < bytes.len() {
        if one.room() == one.len() {
            let room = one.room() + 1;
            writer.extend(&mut one, room).unwrap();
        }
        if at % 3 == 0 {
            between.push(writer.append(new(2), &[b"between"]).unwrap());
        }
        let span = one.span();
        let now = span.len().min(bytes.len() - at).min(7001);
        if at % 2 == 0 {
            span.slice(0..now).write_from(&bytes[at..at + now]);
            one.written(now);
        } else {
            assert_eq!(one.write(&bytes[at..at + now]), now);
        }
        at += now;
    }
    let dropped = writer.begin(new(3), 1000).unwrap();
    let location = writer.finish(one).location;
    drop(dropped);
    assert_eq!(log.reader().read(location, bytes.len()).unwrap().payload(), bytes);
    for appended in &between {
        assert_eq!(log.reader().read(appended.location, 7).unwrap().payload(), b"between");
    }
    let max = writer.payload_bytes_max();
    assert_eq!(writer.append(new(4), &[&vec![1; max + 1]]), Err(AppendRefusal::TooLarge));
    let largest = writer.append(new(4), &[&vec![1; max]]).unwrap();
    assert_eq!(log.reader().read(largest.location, max).unwrap().payload(), vec![1; max]);
}

#[test]
fn segments_in_which_nothing_lives_are_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let (log, ..) = open(&path, 2 << 20);
    let mut writer = log.writer(0, 0);
    let reader = log.reader();
    let keeper = writer.append(new(7), &[b"kept for good"]).unwrap();
    let mut last = None;
    // Appends sixteen times what the file holds.
    let mut appended = 0u64;
    let mut tries = 0u64;
    while appended < 640 {
        match writer.append(new(100 + appended), &[&body(appended, 50_000)]) {
            Ok(now) => {
                if let Some(before) = last.replace(now.location) {
                    reader.died(before, 50_000);
                }
                appended += 1;
            }
            Err(AppendRefusal::Busy | AppendRefusal::Full) => {
                tries += 1;
                assert!(tries < 1_000_000, "nothing is ever freed: {:?}", log.usage());
                std::thread::yield_now();
            }
            Err(AppendRefusal::TooLarge) => panic!("50 kB are too large"),
        }
    }
    assert!(log.usage().frees > 50, "{:?}", log.usage());
    assert_eq!(reader.read(keeper.location, 13).unwrap().payload(), b"kept for good");
    let last = last.unwrap();
    assert_eq!(reader.read(last, 50_000).unwrap().payload(), body(639, 50_000));
    drop(writer);
    drop((log, reader));
    let (log, found, _) = open(&path, 2 << 20);
    let hashes: Vec<u64> = found.iter().map(|record| record.hash).collect();
    assert!(hashes.contains(&7) && hashes.contains(&739), "{hashes:?}");
    let gone = engine::log::Location::from_bits(keeper.location.bits() ^ 1 << 45).unwrap();
    assert!(matches!(log.reader().read(gone, 13), Err(ReadError::Gone(_))));
}

#[test]
fn what_is_not_ours_is_said_and_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let refused = |options: Options| Log::open(&path, options).unwrap_err();
    // Files that are too small or not a store are refused.
    let small = refused(options(300_000)).to_string();
    assert!(small.contains("293KiB") && small.contains("at least 1088KiB"), "{small}");
    assert!(!path.exists());
    fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
    assert!(matches!(refused(options(2 << 20)), OpenError::Foreign { .. }));
    assert_eq!(fs::read(&path).unwrap(), vec![b'x'; 1 << 20], "a foreign file was changed");
    fs::write(&path, b"").unwrap();
    assert!(matches!(refused(options(2 << 20)), OpenError::Foreign { .. }));
    fs::remove_file(&path).unwrap();

    drop(open(&path, 2 << 20).0);
    let purpose =
        Options { file: FileOptions { purpose: "mail", ..options(2 << 20).file }, ..options(2 << 20) };
    let words = refused(purpose).to_string();
    assert!(words.contains("\"test\"") && words.contains("\"mail\""), "{words}");
    assert!(matches!(refused(options(1_200_000)), OpenError::Shrinks { .. }));
    let whole = fs::read(&path).unwrap();

    // A single damaged header is repaired; a file with two is refused.
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&[0xff], 20).unwrap();
    drop(open(&path, 2 << 20).0);
    assert_eq!(fs::read(&path).unwrap()[..BLOCK_BYTES], whole[..BLOCK_BYTES], "mended from the other");
    file.write_all_at(&[0xff], 20).unwrap();
    file.write_all_at(&[0xff], BLOCK_BYTES as u64 + 20).unwrap();
    assert!(matches!(refused(options(2 << 20)), OpenError::Damaged { .. }));

    // A file of another version is refused.
    let mut newer = whole[..128].to_vec();
    newer[8] = 9;
    let checksum = crc32c::crc32c(&newer[..124]);
    newer[124..].copy_from_slice(&checksum.to_le_bytes());
    for block in 0..2 {
        file.write_all_at(&newer, block * BLOCK_BYTES as u64).unwrap();
    }
    let words = refused(options(2 << 20)).to_string();
    assert!(words.contains("version 9") && words.contains("versions 1 to 2"), "{words}");

    // A required feature in either copy of the header is refused, because the copies are written one after
    // the other.
    let newer = Header { must_know: 1 << 31, ..Header::decode(whole[..128].first_chunk().unwrap()).unwrap() };
    for block in 0..2 {
        fs::write(&path, &whole).unwrap();
        file.write_all_at(&newer.encode(), block * BLOCK_BYTES as u64).unwrap();
        let words = refused(options(2 << 20)).to_string();
        assert!(words.contains("newer program") && words.contains("0x80000000"), "{words}");
    }

    fs::write(&path, &whole).unwrap();
    file.set_len(1 << 20).unwrap();
    let words = refused(options(2 << 20)).to_string();
    assert!(words.contains("1MiB") && words.contains("1856KiB"), "{words}");
}

#[test]
fn version_1_files_open_only_where_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    drop(open(&path, 2 << 20).0);
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut bytes = [0; 128];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let header = Header { version: 1, hash_seed: 0, ..Header::decode(&bytes).unwrap() };
    for block in 0..2 {
        file.write_all_at(&header.encode(), block * BLOCK_BYTES as u64).unwrap();
    }
    let whole = fs::read(&path).unwrap();
    // A cache can refetch its objects, so it refuses an old version. The refusal comes before the file grows
    // to the requested size.
    let outgrown =
        Options { file: FileOptions { version_min: 2, ..options(4 << 20).file }, ..options(4 << 20) };
    let words = Log::open(&path, outgrown).unwrap_err().to_string();
    assert!(
        words.contains("version 1") && words.contains("remove the file") && words.contains("--store"),
        "{words}"
    );
    assert_eq!(fs::read(&path).unwrap(), whole, "a file that was refused was changed");

    let (log, ..) = open(&path, 2 << 20);
    let mut writer = log.writer(0, 0);
    writer.append(new(1), &[b"in a file of version 1"]).unwrap();
    drop((writer, log));
    let (_, found, _) = open(&path, 2 << 20);
    assert_eq!(found.len(), 1);
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(Header::decode(&bytes), Ok(header), "an older program can still open it");
}

#[test]
fn a_log_file_is_locked_and_can_grow() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let (log, ..) = open(&path, 2 << 20);
    let second = Log::open(&path, options(2 << 20)).unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    let mut writer = log.writer(0, 0);
    writer.append(new(1), &[b"small"]).unwrap();
    drop((writer, log));
    let (log, found, _) = open(&path, 4 << 20);
    assert_eq!(found.len(), 1);
    assert_eq!(log.usage().capacity_bytes, 15 * (256 << 10));
    assert!(fs::metadata(&path).unwrap().len() > 3 << 20);
}

#[test]
fn a_full_disk_is_reported_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let error = Log::open(
        &path,
        Options { file: FileOptions { segment_bytes: None, ..options(8 << 40).file }, ..options(0) },
    )
    .unwrap_err();
    assert!(matches!(error, OpenError::DiskFull { .. } | OpenError::Io { .. }), "{error}");
    assert!(error.to_string().contains("store"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}

/// The free space is checked before anything is allocated: until `fallocate` fails for lack of space, other
/// writers on the disk would find it full.
#[test]
fn a_store_beyond_the_disk_allocates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let room = rustix::fs::statvfs(directory.path()).unwrap();
    let free = room.f_bavail * room.f_frsize;
    let path = directory.path().join("store");
    let bytes = (free + (free / 8)).next_multiple_of(1 << 30);
    let file = FileOptions { segment_bytes: None, ..options(bytes).file };
    let error = Log::open(&path, Options { file, ..options(0) }).unwrap_err();
    assert!(matches!(error, OpenError::DiskFull { .. }), "{error}");
    assert!(!error.to_string().contains(" bytes"), "{error}");
    let after = rustix::fs::statvfs(directory.path()).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
    assert!(after.f_bavail * after.f_frsize > free / 2, "nothing was allocated");
}

#[test]
fn a_log_without_a_file_works_alike() {
    let (log, _) = LogRecovery::anonymous(options(2 << 20)).unwrap().recover(1, |_| true).unwrap();
    let mut writer = log.writer(0, 0);
    let appended = writer.append(new(1), &[b"in memory"]).unwrap();
    writer.make_durable();
    runtime().block_on(writer.progress().durable(appended.ticket)).unwrap();
    writer.seal();
    assert_eq!(log.reader().read(appended.location, 9).unwrap().payload(), b"in memory");
}

#[test]
fn concurrent_waiters_share_a_write() {
    let directory = tempfile::tempdir().unwrap();
    let (log, ..) = open(&directory.path().join("store"), 8 << 20);
    let mut writer = log.writer(0, 0);
    runtime().block_on(async {
        for round in 0..200u64 {
            let first = writer.append(new(round), &[b"a"]).unwrap();
            let second = writer.append(new(round), &[b"b"]).unwrap();
            writer.flush();
            let progress = writer.progress();
            let (a, b) = tokio::join!(progress.written(first.ticket), progress.written(second.ticket));
            assert_eq!((a, b), (Ok(()), Ok(())));
        }
    });
    assert!(log.usage().writes <= 400, "{:?}", log.usage());
}

#[test]
fn identical_bytes_in_the_current_segment_are_found() {
    let (log, _) = LogRecovery::anonymous(options(2 << 20)).unwrap().recover(1, |_| true).unwrap();
    let mut writer = log.writer(0, 0);
    let bytes = body(1, 5000);
    let first = writer.append(new(1), &[b"head", &bytes]).unwrap().location;
    assert!(writer.has_beside(first, 4, &bytes, 100));
    assert!(writer.has_beside(first, 5, &bytes[1..], 100));
    assert!(!writer.has_beside(first, 4, &body(2, 5000), 100), "other bytes");
    assert!(!writer.has_beside(first, 4, &[0; 1 << 20], 100), "beyond what was appended");
    let last_byte = [&bytes[..4999], &[!bytes[4999]]].concat();
    assert!(!writer.has_beside(first, 4, &last_byte, 100));
    // A record that does not fit here goes to the next segment.
    assert!(!writer.has_beside(first, 4, &bytes, writer.payload_bytes_max()));
    // The bytes of a dead record stay as long as the segment.
    writer.delete(first).unwrap();
    log.reader().died(first, 5004);
    assert!(writer.has_beside(first, 4, &bytes, 100));
    writer.seal();
    assert!(!writer.has_beside(first, 4, &bytes, 100));
    writer.append(new(2), &[b"in the next"]).unwrap();
    assert!(!writer.has_beside(first, 4, &bytes, 100));
}

#[test]
fn a_loop_may_write_its_own_records() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let (log, ..) = open(&path, 8 << 20);
    let mut writer = log.writer(0, 0);
    let runtime = runtime();
    let mut here = 0;
    for id in 0..2000 {
        let appended = writer.append(new(id), &[&body(id, 700)]).unwrap();
        here += u32::from(writer.write_here());
        runtime.block_on(writer.progress().written(appended.ticket)).unwrap();
    }
    assert!(here > 100, "only {here} of 2000 were written here");
    drop(writer);
    drop(log);
    let (log, found, _) = open(&path, 8 << 20);
    assert_eq!(found.len(), 2000);
    for record in found {
        let read = log.reader().read(record.location, 700).unwrap();
        assert_eq!(read.payload(), body(record.hash, 700));
    }
}
