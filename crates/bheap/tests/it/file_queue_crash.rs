//! A process with a queue of handles that is killed at any moment: its last checkpoint is found complete.
//!
//! `BHEAP_CRASH_ROUNDS` sets the number of kills; the default is twelve.
#![cfg(feature = "std")]

use crate::random::Random;
use bheap::Handle;
use bheap::file::FileTimers;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "BHEAP_QUEUE_CRASH_CHILD";
/// Number of checkpoints after which the child ends by itself, in case its parent has died.
const CHECKPOINTS_MAX: u64 = 2_000;
/// Number of queued keys from which removals outnumber insertions.
const KEYS: usize = 6_000;

/// Applies the operations between two checkpoints to the queue in the child, or to the keys alone in the
/// parent. All keys are different.
fn advance<H>(items: &mut Vec<(u64, H)>, number: u64, mut queue: impl Queue<H>) {
    let mut random = Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    // The items are sorted by key, as they are after the file was opened.
    items.sort_unstable_by_key(|(key, _)| *key);
    for at in 0..random.below(1_500) {
        let key = random.below(1 << 20) << 40 | number << 16 | at;
        let some = random.below(items.len().max(1) as u64) as usize;
        match random.below(10) {
            _ if items.is_empty() => items.push((key, queue.insert(key))),
            0..7 if items.len() < KEYS => items.push((key, queue.insert(key))),
            0 | 1 => queue.remove(items.swap_remove(some).1),
            2..4 => {
                items[some] = (key, queue.update(&items[some].1, key));
            }
            _ => {
                let least = (0..items.len()).min_by_key(|at| items[*at].0).unwrap();
                queue.pop(items.swap_remove(least));
            }
        }
    }
}

trait Queue<H> {
    fn insert(&mut self, key: u64) -> H;
    fn remove(&mut self, handle: H);
    fn update(&mut self, handle: &H, key: u64) -> H;
    fn pop(&mut self, least: (u64, H));
}

impl Queue<Handle> for &mut FileTimers<u64> {
    fn insert(&mut self, key: u64) -> Handle {
        FileTimers::insert(self, key).unwrap()
    }
    fn remove(&mut self, handle: Handle) {
        FileTimers::remove(self, handle).unwrap();
    }
    fn update(&mut self, handle: &Handle, key: u64) -> Handle {
        FileTimers::update(self, *handle, key).unwrap()
    }
    fn pop(&mut self, least: (u64, Handle)) {
        assert_eq!(FileTimers::pop(self), Some(least));
    }
}

struct KeysOnly;

impl Queue<()> for KeysOnly {
    fn insert(&mut self, _key: u64) {}
    fn remove(&mut self, _handle: ()) {}
    fn update(&mut self, _handle: &(), _key: u64) {}
    fn pop(&mut self, _least: (u64, ())) {}
}

/// Runs until it is killed; prints the number of each checkpoint before and after it.
fn child(path: &Path) {
    let mut timers = FileTimers::<u64>::open(path).unwrap();
    let mut out = std::io::stdout();
    let mut items = Vec::new();
    timers.for_each(|key, handle| items.push((key, handle)));
    let opened = timers.sequence();
    writeln!(out, "\nreached {opened}").unwrap();
    for number in opened + 1..=opened + CHECKPOINTS_MAX {
        advance(&mut items, number, &mut timers);
        writeln!(out, "\ntrying {number}").unwrap();
        timers.checkpoint().unwrap();
        writeln!(out, "\nreached {number}").unwrap();
    }
}

#[test]
fn handles_come_back_after_kill_9() {
    if let Some(path) = std::env::var_os(CHILD) {
        return child(Path::new(&path));
    }
    let rounds: u32 = std::env::var("BHEAP_CRASH_ROUNDS").ok().map_or(12, |n| n.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timers");
    let mut sequence = FileTimers::<u64>::create(&path, 100_000).unwrap().sequence();
    let mut twin: Vec<(u64, ())> = Vec::new();
    let mut random = Random(0x0123_4567_89AB_CDEF ^ u64::from(std::process::id()));
    let (mut in_checkpoint, mut between) = (0, 0);
    for round in 0..rounds {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file_queue_crash::handles_come_back_after_kill_9", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        // Each opening makes a checkpoint of its own, in which nothing changes.
        let (mut tried, mut reached) = (sequence, sequence);
        let mut opened = None;
        let mut note = |line: String| {
            match line.split_once(' ') {
                Some(("trying", number)) => tried = number.parse().unwrap(),
                Some(("reached", number)) => {
                    reached = number.parse().unwrap();
                    opened.get_or_insert(reached);
                }
                _ => return false,
            }
            true
        };
        let mut wait_for = random.below(12);
        while wait_for > 0 {
            let line = lines.next().expect("the child works until it is killed").unwrap();
            wait_for -= u64::from(note(line));
        }
        std::thread::sleep(Duration::from_micros(random.below(6_000)));
        process.kill().unwrap();
        process.wait().unwrap();
        for line in lines {
            note(line.unwrap());
        }

        let timers = FileTimers::<u64>::open(&path).unwrap();
        // The opening just now made a checkpoint, too.
        let found = timers.sequence() - 1;
        assert!((reached..=tried.max(reached) + 1).contains(&found), "{found} is not of {reached}..={tried}");
        for number in opened.unwrap_or(u64::MAX).saturating_add(1)..=found {
            advance(&mut twin, number, KeysOnly);
        }
        sequence = timers.sequence();
        timers.assert_invariants();
        let mut items = Vec::new();
        timers.for_each(|key, handle| {
            assert!(timers.contains(handle));
            items.push(key);
        });
        items.sort_unstable();
        twin.sort_unstable();
        assert!(items.iter().eq(twin.iter().map(|(key, ())| key)), "round {round}, checkpoint {found}");
        if tried > reached { in_checkpoint += 1 } else { between += 1 }
    }
    eprintln!(
        "{rounds} kills: {in_checkpoint} in a checkpoint, {between} between; {sequence} checkpoints, {} keys",
        twin.len()
    );
}
