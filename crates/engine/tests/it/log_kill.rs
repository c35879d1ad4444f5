//! A process that appends is killed repeatedly; the next one finds everything that was acknowledged.
//!
//! `LOG_KILLS` sets how often. The child is this test itself: it appends records to the file, ends some, and
//! writes to its standard output which have been acknowledged.

use std::{
    collections::{BTreeMap, HashSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use engine::log::{AppendRefusal, FileOptions, Kind, Location, Log, NewRecord, Options};

const FILE: &str = "LOG_KILL_FILE";

fn options() -> Options {
    Options {
        file: FileOptions {
            purpose: "kill",
            bytes: 6 << 20,
            segment_bytes: Some(128 << 10),
            ..FileOptions::default()
        },
        flush: Duration::from_millis(20),
        ..Options::default()
    }
}

fn payload(id: u64) -> Vec<u8> {
    (0..id * 131 % 9000).map(|at| (id * 3 + at * 11 + at / 250) as u8).collect()
}

/// Runs as the child until it is killed. Each line of output is true by the time it can be read.
#[test]
fn child() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let mut living: BTreeMap<u64, (Location, u32)> = BTreeMap::new();
    let opening = Log::open(Path::new(&path), options()).unwrap();
    let (log, _) = opening
        .recover(2, |record| {
            living.insert(record.hash, (record.location, record.payload_bytes));
            true
        })
        .unwrap();
    let mut writer = log.writer(0, 0);
    let progress = writer.progress();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut id = living.keys().next_back().map_or(1, |last| last + 1).max(1);
    loop {
        let mut said = Vec::new();
        for _ in 0..1 + id % 7 {
            let body = payload(id);
            let new = NewRecord { kind: Kind(1), hash: id, tag: 0, target: None };
            match writer.append(new, &[&body]) {
                Ok(appended) => {
                    living.insert(id, (appended.location, body.len() as u32));
                    said.push(format!("+{id}"));
                    id += 1;
                }
                Err(AppendRefusal::Busy) => std::thread::yield_now(),
                Err(refused) => assert_eq!(refused, AppendRefusal::Full),
            }
            // Never more than fits: the oldest record, or one in the middle, is ended.
            while living.len() > 300 {
                let victim = living.keys().nth(if id.is_multiple_of(3) { 100 } else { 0 }).copied().unwrap();
                match writer.delete(living[&victim].0) {
                    Ok(_) => {
                        let (location, len) = living.remove(&victim).unwrap();
                        log.reader().died(location, len as usize);
                        said.push(format!("-{victim}"));
                    }
                    Err(_) => std::thread::yield_now(),
                }
            }
        }
        writer.flush();
        runtime.block_on(progress.written(writer.last())).unwrap();
        // A single write for all lines: a line that is read whole has been acknowledged.
        let text: String = said.into_iter().map(|line| line + "\n").collect();
        let mut out = std::io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

#[test]
fn what_was_acknowledged_survives_being_killed() {
    let kills: u64 = std::env::var("LOG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(6);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut acknowledged: BTreeMap<u64, bool> = BTreeMap::new();
    let mut found_before: HashSet<u64> = HashSet::new();
    for round in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["log_kill::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(FILE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Kills the child after this many acknowledged lines, whatever it is doing.
        let lines = 40 + round * 397 % 900;
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let mut read = 0;
        while read < lines {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "the child ended by itself");
            read += u64::from(note(&line, &mut acknowledged));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Lines written before the child died count as well.
        loop {
            line.clear();
            if out.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                break;
            }
            note(&line, &mut acknowledged);
        }
        let mut found = HashSet::new();
        let opening = Log::open(&path, options()).unwrap();
        let mut records = Vec::new();
        let (log, recovered) = opening
            .recover(2, |record| {
                records.push(*record);
                true
            })
            .unwrap();
        assert_eq!((recovered.segments_damaged, recovered.tables_damaged), (0, 0), "{recovered:?}");
        for record in records {
            assert!(found.insert(record.hash), "{} is there twice", record.hash);
            let read = log.reader().read(record.location, record.payload_bytes as usize).unwrap();
            assert_eq!(read.payload(), payload(record.hash), "record {}", record.hash);
        }
        for (id, is_there) in &acknowledged {
            assert!(*is_there || !found.contains(id), "{id} was ended and is back in round {round}");
            // A record that was appended or ended without an acknowledgement may be present or not.
            let may_be_ended = found_before.contains(id) || *is_there;
            assert!(
                !*is_there || found.contains(id) || may_be_ended && is_recent(*id, &acknowledged),
                "{id} is lost"
            );
        }
        // From here on the found records are the expected ones.
        for (id, is_there) in &mut acknowledged {
            *is_there &= found.contains(id);
        }
        for id in &found {
            acknowledged.insert(*id, true);
        }
        found_before = found;
    }
    assert!(acknowledged.len() as u64 > kills * 30, "{} records", acknowledged.len());
}

/// Returns whether the child may have ended the record after its last output: it ends only about the first
/// hundred.
fn is_recent(id: u64, acknowledged: &BTreeMap<u64, bool>) -> bool {
    acknowledged
        .iter()
        .filter(|(_, is_there)| **is_there)
        .position(|(at, _)| *at == id)
        .is_some_and(|at| at < 120)
}

/// Notes a line; returns whether it was one of the child's.
fn note(line: &str, acknowledged: &mut BTreeMap<u64, bool>) -> bool {
    let line = line.trim_end();
    let (sign, id) = line.split_at(line.len().min(1));
    match (sign, id.parse()) {
        ("+", Ok(id)) => acknowledged.insert(id, true),
        ("-", Ok(id)) => acknowledged.insert(id, false),
        _ => return false,
    };
    true
}
