//! The queue in a file: there again after closing, after a kill, after damage said clearly.
#![cfg(all(unix, feature = "file"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use bheap::Full;
use bheap::file::{FileError, FileQueue, Shape};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const SHAPE: Shape = Shape { page_bytes: 4096, bytes_max: 64 << 20, memory_pages: 16, tag: 7 };

fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16
}

/// Step `n` of a sequence of operations that can be repeated on any queue.
fn step(n: u64, mut push: impl FnMut(u64), pop: impl FnOnce()) {
    if n % 3 == 2 { pop() } else { push(key(n)) }
}

fn contents(queue: &FileQueue<u64>) -> Vec<u64> {
    let mut items = Vec::new();
    queue.for_each(|item| items.push(*item));
    items.sort_unstable();
    items
}

fn expected(steps: u64) -> Vec<u64> {
    let mut twin = bheap::BinaryHeap::new();
    for n in 0..steps {
        let mut popped = false;
        let mut pushed = None;
        step(n, |key| pushed = Some(key), || popped = true);
        pushed.into_iter().for_each(|key| twin.push(key));
        if popped {
            twin.pop();
        }
    }
    twin.drain().collect()
}

fn run(queue: &mut FileQueue<u64>, from: u64, to: u64) {
    for n in from..to {
        let mut popped = false;
        step(n, |key| queue.try_push(key).unwrap(), || popped = true);
        if popped {
            queue.pop().unwrap();
        }
    }
}

#[test]
fn it_is_there_again_as_the_last_commit_left_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    let mut queue = FileQueue::create(&path, SHAPE).unwrap();
    for (from, to) in [(0, 100), (100, 30_000), (30_000, 30_001), (30_001, 200_000)] {
        run(&mut queue, from, to);
        queue.commit().unwrap();
        // What comes after the commit is forgotten.
        run(&mut queue, to, to + 3000);
        drop(queue);
        queue = FileQueue::open(&path, SHAPE).unwrap();
        assert!(contents(&queue) == expected(to), "after {to} steps");
    }
    let mut last = 0;
    while let Some(item) = queue.pop().unwrap() {
        assert!(item >= last);
        last = item;
    }
    queue.commit().unwrap();
    drop(queue);
    assert!(FileQueue::<u64>::open(&path, SHAPE).unwrap().is_empty());
}

#[test]
fn a_kill_at_any_moment_leaves_a_commit() {
    if let Ok(path) = std::env::var("BHEAP_CRASH_TEST") {
        let mut queue = FileQueue::create(Path::new(&path), SHAPE).unwrap();
        for round in 1.. {
            run(&mut queue, (round - 1) * 700, round * 700);
            queue.commit().unwrap();
            println!("committed {}", round * 700);
        }
    }
    for pause_lines in [0, 1, 3, 10, 17, 40, 90] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["a_kill_at_any_moment_leaves_a_commit", "--exact", "--nocapture"])
            .env("BHEAP_CRASH_TEST", &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = 0;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        while seen <= pause_lines {
            let line = lines.next().expect("the child goes on").unwrap();
            if let Some(steps) = line.strip_prefix("committed ") {
                said = steps.parse().unwrap();
                seen += 1;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            if let Some(steps) = line.strip_prefix("committed ") {
                said = steps.parse().unwrap_or(said);
            }
        }
        let queue = FileQueue::open(&path, SHAPE).unwrap();
        let found = contents(&queue);
        // The last commit that was said, or one that ended before it could be said.
        assert!(
            found == expected(said) || found == expected(said + 700),
            "after {said} steps, {} items",
            found.len()
        );
    }
}

#[test]
fn damage_is_said_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    let mut queue = FileQueue::create(&path, SHAPE).unwrap();
    run(&mut queue, 0, 50_000);
    queue.commit().unwrap();
    drop(queue);
    let whole = fs::read(&path).unwrap();
    let copy = folder.path().join("copy");
    let mut told = 0;
    // One byte changed, in every part of the file.
    for at in (0..whole.len()).step_by(9_973).chain([0, 8, 12, 16, 20, 24, 40, 64, 72, 4096, 4104, 4168]) {
        fs::write(&copy, &whole).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&copy).unwrap();
        file.write_all_at(&[whole[at] ^ 0x40], at as u64).unwrap();
        drop(file);
        match FileQueue::<u64>::open(&copy, SHAPE) {
            // Bytes that no commit refers to, or a superblock of which the other copy is as good or older.
            Ok(queue) => {
                let found = contents(&queue);
                assert!(found == expected(50_000) || found.is_empty() && at < 2 * 4096, "byte {at}");
            }
            Err(
                FileError::Damaged(_)
                | FileError::NotAQueue
                | FileError::OtherKind(_)
                | FileError::OtherVersion(_),
            ) => told += 1,
            Err(error) => panic!("byte {at}: {error}"),
        }
        let after = fs::read(&copy).unwrap();
        assert!(after.len() == whole.len() && after.iter().zip(&whole).filter(|(a, b)| a != b).count() == 1);
    }
    assert!(told > 8, "{told} damages were told");
    // Cut short, in the middle and at the start.
    for len in [whole.len() / 3, 4096 * 3, 4096, 10, 0] {
        fs::write(&copy, &whole[..len]).unwrap();
        match FileQueue::<u64>::open(&copy, SHAPE) {
            // What was cut off was not in use.
            Ok(queue) => assert!(len >= 1 << 20 && contents(&queue) == expected(50_000), "{len} bytes"),
            Err(error) => assert!(!matches!(error, FileError::Io(_)), "{error}"),
        }
    }
    fs::write(&copy, vec![b'x'; 1 << 20]).unwrap();
    assert!(matches!(FileQueue::<u64>::open(&copy, SHAPE), Err(FileError::NotAQueue)));
}

#[test]
fn foreign_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    let queue = FileQueue::<u64>::create(&path, SHAPE).unwrap();
    assert!(matches!(FileQueue::<u64>::open(&path, SHAPE), Err(FileError::InUse)));
    assert!(matches!(FileQueue::<u64>::create(&path, SHAPE), Err(FileError::Io(_))));
    drop(queue);
    assert!(matches!(FileQueue::<u32>::open(&path, SHAPE), Err(FileError::OtherKind(_))));
    assert!(matches!(FileQueue::<u64>::open(&path, Shape { tag: 8, ..SHAPE }), Err(FileError::OtherKind(_))));
    assert!(matches!(
        FileQueue::<u64>::open(&path, Shape { page_bytes: 8192, ..SHAPE }),
        Err(FileError::OtherKind(_) | FileError::NotAQueue)
    ));
    let odd = folder.path().join("odd");
    assert!(matches!(
        FileQueue::<u64>::create(&odd, Shape { page_bytes: 5000, ..SHAPE }),
        Err(FileError::PageSize(_))
    ));
}

#[test]
fn a_full_file_gives_the_item_back_and_can_be_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    let shape = Shape { bytes_max: 8 << 20, ..SHAPE };
    let mut queue = FileQueue::create(&path, shape).unwrap();
    let mut kept = Vec::new();
    for n in 0.. {
        match queue.try_push(key(n)) {
            Ok(()) => kept.push(key(n)),
            Err(Full(item)) => {
                assert_eq!(item, key(n));
                break;
            }
        }
    }
    assert!(kept.len() > 100_000, "{}", kept.len());
    queue.commit().unwrap();
    kept.sort_unstable();
    let mut commits = 0;
    for item in kept {
        let popped = queue.pop().or_else(|error| {
            assert!(matches!(error, FileError::Full));
            commits += 1;
            queue.commit().unwrap();
            queue.pop()
        });
        assert_eq!(popped.unwrap(), Some(item));
    }
    assert!(commits < 100, "{commits} commits were needed to make room");
    queue.commit().unwrap();
}

#[test]
fn a_full_disk_is_an_error() {
    // /dev/full cannot be locked, mapped and grown: whatever fails first, it is an error.
    assert!(FileQueue::<u64>::open(Path::new("/dev/full"), SHAPE).is_err());
}

#[test]
fn heaps_live_in_mapped_files_too() {
    use bheap::file::MappedRows;
    use bheap::layout::Paged;
    use bheap::{BinaryHeap, Heap};
    let rows = MappedRows::<u64>::new(tempfile::tempfile().unwrap(), 16 << 20, Paged::INDEX_OF_ROOT).unwrap();
    let mut heap = Heap::with_rows(Paged::for_page_bytes::<u64>(4096).unwrap(), rows);
    let mut twin = BinaryHeap::new();
    for n in 0..300_000 {
        step(n, |key| heap.push(key), || ());
        step(n, |key| twin.push(key), || ());
        if n % 3 == 2 {
            assert_eq!(heap.pop(), twin.pop());
        }
    }
    assert!(heap.drain().eq(twin.drain()));
    let rows = MappedRows::<u64>::new(tempfile::tempfile().unwrap(), 4 << 20, 0).unwrap();
    let mut full = Heap::with_rows(bheap::layout::Binary, rows);
    for n in 0..4 << 20 >> 3 {
        full.push(n);
    }
    assert_eq!(full.try_push(1), Err(Full(1)));
}
