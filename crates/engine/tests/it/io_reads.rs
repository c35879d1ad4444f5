//! Reads by helpers, from a disk in memory that can be slow, fail, return wrong bytes, or hang.
#![cfg(not(feature = "loom"))]

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use engine::{
    io::{
        Completions, Damage, Extent, PendingRead, READ_BYTES_MAX, ReadCounter, ReadError, ReadPool,
        ReadPoolConfig, ReadRefusal, Reads, Source, StartError,
    },
    sys::span::Span,
};

/// Returns the disk's byte at `at`.
fn byte(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

#[derive(Default)]
struct Disk {
    bytes: u64,
    /// Number of reads of each block.
    reads: Mutex<HashMap<(u64, usize), usize>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    fails: AtomicBool,
    damaged: AtomicBool,
    /// True while reads must wait.
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Disk {
    fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, ..Self::default() })
    }

    fn shut(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }
}

impl Source for Disk {
    fn block_bytes(&self) -> usize {
        512
    }

    fn read(&self, at: u64, into: Span<'_>) -> io::Result<usize> {
        assert!(
            at.is_multiple_of(512) && into.len().is_multiple_of(512),
            "{at} {} is not aligned",
            into.len()
        );
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(now, Ordering::SeqCst);
        *self.reads.lock().unwrap().entry((at, into.len())).or_default() += 1;
        drop(self.opened.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let there = (self.bytes.saturating_sub(at) as usize).min(into.len());
        let bytes: Vec<u8> = (at..at + there as u64).map(byte).collect();
        into.slice(0..there).write_from(&bytes);
        Ok(there)
    }

    fn verify(&self, at: u64, bytes: Span<'_>) -> Result<(), Damage> {
        let expected: Vec<u8> = (at..at + bytes.len() as u64).map(byte).collect();
        assert!(bytes.eq(&expected), "verify is shown other bytes than were asked for");
        if self.damaged.load(Ordering::SeqCst) {
            Err(Damage { at: at + 3, rule: "checksum" })
        } else {
            Ok(())
        }
    }
}

fn start(disk: &Arc<Disk>, config: &ReadPoolConfig) -> (ReadPool, Reads, Completions) {
    let (pool, mut ends) = ReadPool::start(config, vec![Arc::clone(disk) as Arc<dyn Source>]).unwrap();
    let (reads, completions) = ends.remove(0);
    (pool, reads, completions)
}

/// Runs a core: `main` beside the task that handles the answers.
fn core<T>(reads: &Reads, completions: &mut Completions, main: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let settling = async {
            let mut messages = Vec::new();
            loop {
                completions.next(&mut messages).await;
                reads.settle(&mut messages);
                assert!(messages.is_empty());
            }
        };
        tokio::select! {
            done = main => done,
            () = settling => unreachable!(),
        }
    })
}

fn extent(at: u64, bytes: u32) -> Extent {
    Extent { source: 0, at, bytes }
}

async fn bytes(pending: PendingRead) -> Result<Vec<u8>, ReadError> {
    let block = pending.settled().await?;
    let mut out = Vec::new();
    block.span().copy_to(&mut out);
    Ok(out)
}

#[test]
fn reads_around_block_boundaries_are_exact() {
    let disk = Disk::new(1 << 21);
    let (pool, reads, mut completions) = start(&disk, &ReadPoolConfig { helpers: 2, ..Default::default() });
    core(&reads, &mut completions, async {
        for at in [0, 1, 511, 512, 513, 4095, 70_000] {
            for len in [1, 2, 511, 512, 513, 1024, 30_000, 300_000] {
                let read = bytes(reads.read(extent(at, len)).unwrap()).await.unwrap();
                assert!(read.iter().copied().eq((at..at + u64::from(len)).map(byte)), "{len} at {at}");
            }
        }
        for bad in [0, READ_BYTES_MAX as u32 + 1, READ_BYTES_MAX as u32] {
            assert_eq!(reads.read(extent(7, bad)).unwrap_err(), ReadRefusal::Length(bad));
        }
        assert_eq!(reads.read(extent(u64::MAX - 3, 100)).unwrap_err(), ReadRefusal::Length(100));
    });
    assert_eq!(pool.buffer_bytes(), 0, "every buffer came back");
    assert_eq!(pool.counters().total(ReadCounter::Begun), 56);
}

#[test]
fn one_read_serves_all_who_wait_for_it() {
    let disk = Disk::new(1 << 20);
    let (pool, reads, mut completions) = start(&disk, &ReadPoolConfig { helpers: 2, ..Default::default() });
    core(&reads, &mut completions, async {
        disk.shut(true);
        let same: Vec<PendingRead> = (0..50).map(|_| reads.read(extent(4096, 1000)).unwrap()).collect();
        let gone = reads.read(extent(4096, 1000)).unwrap();
        drop(gone);
        let other = reads.read(extent(4096, 999)).unwrap();
        disk.shut(false);
        for pending in same {
            assert_eq!(bytes(pending).await.unwrap().len(), 1000);
        }
        assert_eq!(bytes(other).await.unwrap().len(), 999);
        // Results are not cached: a later request reads again.
        bytes(reads.read(extent(4096, 1000)).unwrap()).await.unwrap();
    });
    assert_eq!(disk.reads.lock().unwrap()[&(4096, 1024)], 3);
    let counters = pool.counters();
    assert_eq!((counters.total(ReadCounter::Joined), counters.total(ReadCounter::Begun)), (50, 3));
}

#[test]
fn what_waits_is_bounded_and_order_is_kept() {
    let disk = Disk::new(1 << 20);
    let config = ReadPoolConfig { helpers: 3, depth: 2, waiting_max: 5, ..Default::default() };
    let (pool, reads, mut completions) = start(&disk, &config);
    let counters = pool.counters();
    core(&reads, &mut completions, async {
        disk.shut(true);
        let pending: Vec<PendingRead> = (0..11).map(|n| reads.read(extent(n * 4096, 100)).unwrap()).collect();
        assert_eq!(reads.read(extent(20 * 4096, 100)).unwrap_err(), ReadRefusal::Queue);
        // Joining a read takes no place in the queue.
        let joined = reads.read(extent(0, 100)).unwrap();
        assert_eq!((counters.total(ReadCounter::UnderWay), counters.total(ReadCounter::Waiting)), (6, 5));
        disk.shut(false);
        for pending in pending.into_iter().chain([joined]) {
            assert_eq!(bytes(pending).await.unwrap().len(), 100);
        }
        assert!(reads.read(extent(20 * 4096, 100)).is_ok(), "there is room again");
    });
    assert!(disk.most_under_way.load(Ordering::SeqCst) <= 3);
    assert_eq!(counters.total(ReadCounter::RefusedQueue), 1);
    assert_eq!(counters.total(ReadCounter::Waiting), 0);
}

#[test]
fn buffers_are_bounded_and_held_by_blocks() {
    let disk = Disk::new(1 << 20);
    let config = ReadPoolConfig { buffer_bytes: 0, ..Default::default() };
    let (pool, reads, mut completions) = start(&disk, &config);
    core(&reads, &mut completions, async {
        // With the minimum bound there is one buffer of the largest size.
        let block = reads.read(extent(0, 400_000)).unwrap().settled().await.unwrap();
        assert_eq!(reads.read(extent(1, 400_000)).unwrap_err(), ReadRefusal::Buffers);
        assert_eq!(pool.buffer_bytes(), READ_BYTES_MAX);
        let (moved, clone) = (block.clone(), block);
        let sum = std::thread::spawn(move || {
            let mut out = Vec::new();
            moved.span().copy_to(&mut out);
            out.len()
        });
        assert_eq!(sum.join().unwrap(), 400_000);
        assert_eq!(reads.read(extent(1, 400_000)).unwrap_err(), ReadRefusal::Buffers);
        drop(clone);
        assert!(reads.read(extent(1, 400_000)).is_ok());
    });
    assert_eq!(pool.counters().total(ReadCounter::RefusedBuffers), 2);
}

#[test]
fn a_failed_read_fails_only_its_waiters() {
    let disk = Disk::new(10_000);
    let (pool, reads, mut completions) = start(&disk, &ReadPoolConfig { helpers: 1, ..Default::default() });
    core(&reads, &mut completions, async {
        disk.fails.store(true, Ordering::SeqCst);
        let (one, two) = (reads.read(extent(512, 10)).unwrap(), reads.read(extent(512, 10)).unwrap());
        for error in [bytes(one).await.unwrap_err(), bytes(two).await.unwrap_err()] {
            assert!(matches!(error, ReadError::Disk { os: Some(5), .. }), "{error:?}");
            assert!(error.to_string().starts_with("cannot read 10 bytes at 512 from the disk: "), "{error}");
        }
        disk.fails.store(false, Ordering::SeqCst);
        let short = bytes(reads.read(extent(9_990, 20)).unwrap()).await.unwrap_err();
        assert_eq!(short, ReadError::Short { extent: extent(9_990, 20), got: 10 });
        let beyond = bytes(reads.read(extent(20_000, 20)).unwrap()).await.unwrap_err();
        assert_eq!(beyond, ReadError::Short { extent: extent(20_000, 20), got: 0 });
        disk.damaged.store(true, Ordering::SeqCst);
        let damaged = bytes(reads.read(extent(100, 20)).unwrap()).await.unwrap_err();
        assert_eq!(damaged.to_string(), "20 bytes at 100 are damaged: checksum at byte 103");
        disk.damaged.store(false, Ordering::SeqCst);
        assert_eq!(bytes(reads.read(extent(9_990, 10)).unwrap()).await.unwrap().len(), 10);
    });
    let counters = pool.counters();
    assert_eq!((counters.total(ReadCounter::Failed), counters.total(ReadCounter::Damaged)), (3, 1));
    assert_eq!(pool.buffer_bytes(), 0);
}

#[test]
fn a_hung_disk_holds_buffers_but_no_waiter() {
    let disk = Disk::new(1 << 20);
    let config = ReadPoolConfig { helpers: 1, wait_ms_max: 300, ..Default::default() };
    let (pool, reads, mut completions) = start(&disk, &config);
    core(&reads, &mut completions, async {
        disk.shut(true);
        let slow = extent(0, 100);
        let error = bytes(reads.read(slow).unwrap()).await.unwrap_err();
        assert_eq!(error, ReadError::TooSlow(slow));
        assert!(pool.buffer_bytes() > 0, "the helper still writes to it");
        // A later request does not get the late result of the first, but a read of its own.
        let again = reads.read(slow).unwrap();
        disk.shut(false);
        assert_eq!(bytes(again).await.unwrap().len(), 100);
    });
    assert_eq!(pool.counters().total(ReadCounter::TooSlow), 1);
    assert_eq!(pool.buffer_bytes(), 0);
    assert_eq!(disk.reads.lock().unwrap()[&(0, 512)], 2);
}

/// Begins twenty reads at once, the first at `from`, and compares what each of them reads.
async fn read_twenty(reads: &Reads, from: u64) {
    let pending: Vec<(u64, PendingRead)> =
        (0..20).map(|n| (from + n * 3_000, reads.read(extent(from + n * 3_000, 2_000)).unwrap())).collect();
    for (at, pending) in pending {
        assert!(bytes(pending).await.unwrap().iter().copied().eq((at..at + 2_000).map(byte)));
    }
}

#[test]
fn two_cores_share_helpers_without_mixing_answers() {
    let disk = Disk::new(1 << 22);
    let config = ReadPoolConfig { cores: 2, helpers: 3, depth: 2, ..Default::default() };
    let (pool, ends) = ReadPool::start(&config, vec![Arc::clone(&disk) as Arc<dyn Source>]).unwrap();
    std::thread::scope(|scope| {
        for (core_number, (reads, mut completions)) in ends.into_iter().enumerate() {
            scope.spawn(move || {
                core(&reads, &mut completions, async {
                    for round in 0..40_u64 {
                        read_twenty(&reads, round * 31_000 + core_number as u64 * 7).await;
                    }
                });
            });
        }
    });
    assert_eq!(pool.counters().total(ReadCounter::Begun), 1600);
    assert_eq!(pool.latencies().map(|latency| latency.read().count()), [1600, 1600]);
}

#[test]
fn what_cannot_be_started_is_said() {
    let disk = || vec![Disk::new(1) as Arc<dyn Source>];
    let config = ReadPoolConfig::default();
    for (config, sources) in [
        (ReadPoolConfig { cores: 0, ..config.clone() }, disk()),
        (ReadPoolConfig { helpers: 0, ..config.clone() }, disk()),
        (ReadPoolConfig { depth: 0, ..config.clone() }, disk()),
        (config.clone(), vec![]),
    ] {
        assert!(matches!(ReadPool::start(&config, sources), Err(StartError::None { .. })));
    }
}
