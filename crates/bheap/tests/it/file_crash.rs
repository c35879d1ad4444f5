//! A process that is killed at any moment, twenty times over: the last checkpoint is found complete.
//!
//! `BHEAP_CRASH_ROUNDS` sets the number of rounds. (Failures of the *machine* are tested on a faulty disk,
//! beside the code: after a kill the kernel still has all written bytes.)
#![cfg(feature = "std")]

use crate::random::Random;
use bheap::BinaryHeap;
use bheap::file::FileHeap;
use bheap::layout::PageLayout;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

type Item = (u64, u64);
const CHILD: &str = "BHEAP_CRASH_CHILD";
const CAPACITY: usize = 60_000;
/// Number of checkpoints after which the child ends by itself, in case its parent has died.
const CHECKPOINTS_MAX: u64 = 5_000;

enum Operation {
    Push(Item),
    Pop,
    PopPush(Item),
}

/// Returns the operations between checkpoint `number − 1` and `number`: equal in the child and in the
/// parent's twin.
fn operations(number: u64) -> impl Iterator<Item = Operation> {
    let mut random = Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (count, pushes) = (random.below(6_000), random.below(101));
    (0..count).map(move |at| {
        let item = (random.below(1 << 40), number << 20 | at);
        match random.below(100) {
            0..20 => Operation::PopPush(item),
            _ if random.below(100) < pushes => Operation::Push(item),
            _ => Operation::Pop,
        }
    })
}

fn layout() -> PageLayout {
    PageLayout::for_page_bytes::<Item>(4096).unwrap()
}

/// Runs until it is killed; prints the number of each checkpoint before and after it.
fn child(path: &Path) {
    let mut queue = FileHeap::<Item, _>::open(path, layout()).unwrap();
    let mut out = std::io::stdout();
    for number in queue.sequence() + 1..=queue.sequence() + CHECKPOINTS_MAX {
        for operation in operations(number) {
            match operation {
                Operation::Push(item) => drop(queue.push(item)),
                Operation::Pop => drop(queue.pop()),
                Operation::PopPush(item) => drop(queue.pop_push(item)),
            }
        }
        writeln!(out, "\ntrying {number}").unwrap();
        queue.checkpoint().unwrap();
        writeln!(out, "\nreached {number}").unwrap();
    }
}

fn advance(twin: &mut BinaryHeap<Item>, number: u64) {
    for operation in operations(number) {
        match operation {
            Operation::Push(item) if twin.len() < CAPACITY => twin.push(item),
            Operation::Push(_) => {}
            Operation::Pop => drop(twin.pop()),
            Operation::PopPush(_) if twin.is_empty() => {}
            Operation::PopPush(item) => drop(twin.pop_push(item)),
        }
    }
}

fn sorted(items: impl Iterator<Item = Item>) -> Vec<Item> {
    let mut items: Vec<Item> = items.collect();
    items.sort_unstable();
    items
}

#[test]
fn the_last_checkpoint_comes_back_after_kill_9() {
    if let Some(path) = std::env::var_os(CHILD) {
        return child(Path::new(&path));
    }
    let rounds: u32 = std::env::var("BHEAP_CRASH_ROUNDS").ok().map_or(20, |n| n.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    drop(FileHeap::<Item, _>::create(&path, layout(), CAPACITY).unwrap());
    let mut twin = BinaryHeap::new();
    let mut sequence = 0;
    let mut random = Random(0x0123_4567_89AB_CDEF ^ u64::from(std::process::id()));
    let (mut in_checkpoint, mut between) = (0, 0);
    for round in 0..rounds {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file_crash::the_last_checkpoint_comes_back_after_kill_9", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (mut tried, mut reached) = (sequence, sequence);
        let mut note = |line: String| {
            match line.split_once(' ') {
                Some(("trying", number)) => tried = number.parse().unwrap(),
                Some(("reached", number)) => reached = number.parse().unwrap(),
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

        let queue = FileHeap::<Item, _>::open(&path, layout()).unwrap();
        let found = queue.sequence();
        assert!((reached..=tried.max(reached)).contains(&found), "{found} is not of {reached}..={tried}");
        for number in sequence + 1..=found {
            advance(&mut twin, number);
        }
        sequence = found;
        assert!(queue.heap().is_ordered());
        assert_eq!(sorted(queue.iter()), sorted(twin.iter().copied()), "round {round}, checkpoint {found}");
        if tried > reached { in_checkpoint += 1 } else { between += 1 }
    }
    eprintln!(
        "{rounds} kills: {in_checkpoint} in a checkpoint, {between} between; {sequence} checkpoints, {} items",
        twin.len()
    );
}
