//! Idle loops and helpers sleep in the kernel without waking, and handle a new event as fast as ever. The
//! test counts the wake-ups of the process's threads, by their names.

use std::{
    fs,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use engine::{
    cores::{Cores, CoresConfig, available},
    log::{FileOptions, Kind, Log, NewRecord, Options},
};
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which any periodic timer would fire many times.
const A_WHILE: Duration = Duration::from_millis(200);
const FLUSH: Duration = Duration::from_millis(5);

/// Counts how often threads with this name prefix have gone to sleep voluntarily since they began.
fn sleeps(name: &str) -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let of_name = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let of_name = of_name.filter(|status| status.starts_with(&format!("Name:\t{name}")));
    let sleeps = of_name.filter_map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    });
    sleeps.sum()
}

/// Waits until these threads sleep for a while without waking.
fn until_they_sleep(name: &str) {
    let start = Instant::now();
    loop {
        // Zero if the thread has not begun or not slept yet; a thread sets its name when it begins.
        let before = sleeps(name);
        thread::sleep(A_WHILE);
        if before > 0 && sleeps(name) == before {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{name} is not there or wakes all the time: {before}");
    }
}

#[test]
fn a_working_loop_measures_its_lateness() {
    let work = Arc::new(Notify::new());
    let (say, said) = mpsc::channel();
    let on_loop = Arc::clone(&work);
    let processors = available().unwrap().into_iter().take(1).collect();
    let config = CoresConfig { cores: processors, name: "idle", ..CoresConfig::default() };
    let mut cores = Cores::start(config, move |context| {
        let (work, say) = (Arc::clone(&on_loop), say.clone());
        async move {
            say.send(Arc::clone(&context.lateness)).unwrap();
            loop {
                tokio::select! {
                    () = work.notified() => {}
                    () = context.shutdown.requested() => return,
                }
            }
        }
    })
    .unwrap();
    let lateness = said.recv_timeout(PATIENCE).unwrap();
    until_they_sleep("idle-0");
    let asked = lateness.read().count();
    assert!(asked > 0, "it worked when it began");
    let start = Instant::now();
    while lateness.read().count() == asked {
        work.notify_one();
        thread::sleep(Duration::from_millis(1));
        assert!(start.elapsed() < PATIENCE, "a loop that works again is not asked");
    }
    until_they_sleep("idle-0");
    cores.drain(PATIENCE).unwrap();
}

#[test]
fn appended_bytes_are_written_within_the_interval() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        file: FileOptions {
            purpose: "test",
            bytes: 8 << 20,
            segment_bytes: Some(256 << 10),
            ..FileOptions::default()
        },
        flush: FLUSH,
        writers: 3,
        ..Options::default()
    };
    let (log, _) = Log::open(&directory.path().join("store"), options).unwrap().recover(1, |_| true).unwrap();
    let mut writers = [log.writer(0, 0), log.writer(1, 0), log.writer(2, 0)];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for round in 0..40 {
        if round % 20 == 0 {
            until_they_sleep("log-");
        }
        for (number, writer) in writers.iter_mut().enumerate() {
            let new = NewRecord { kind: Kind(1), hash: round, tag: number as u64, target: None };
            let appended = writer.append(new, &[b"nobody asks for it to be written"]).unwrap();
            // Appends while the helper is timing, while it is about to rest, and while it rests.
            thread::sleep(FLUSH * (round as u32 % 4) / 2);
            let progress = writer.progress();
            runtime.block_on(async {
                let written = tokio::time::timeout(PATIENCE, progress.written(appended.ticket)).await;
                written.expect("a helper sleeps over a record").unwrap();
            });
        }
    }
    writers[1].append(NewRecord { kind: Kind(1), hash: 1, tag: 1, target: None }, &[b"kept"]).unwrap();
    writers[1].make_durable();
    let (progress, last) = (writers[1].progress(), writers[1].last());
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, progress.durable(last)).await.expect("a sync is slept over").unwrap();
    });
    until_they_sleep("log-");
}
