//! The access log: a thread that reads the rings and appends a line for each request to a file.
//!
//! ```text
//!  rings ──▶ read ─▶ a line ─▶ LineFile: what waits ─▶ write ─▶ FILE, FILE.1, …
//!                                    │ the disk is full: said once, tried again each second, later lines dropped and counted
//! ```
//! No loop waits for it: what it is too slow for is written over, and counted.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use engine::{
    cores::clock,
    journal::{Journal, JournalReader},
    meter::{Family, Source, Unit, counter},
};
use wire::transaction::{
    Kind, Record,
    show::{Format, LineCache},
};

use super::files::{LineFile, WAITING_BYTES_MAX};
use crate::{
    failure::{Failure, Fault},
    services::operation::failed,
    settings::Settings,
};

/// How long is waited after there was something, and after there was nothing. A hundred thousand requests a second fill a ring
/// of 4 MiB in a tenth of one; to wake up more often would cost more than the lines.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_IDLE: Duration = Duration::from_millis(50);
/// How long is waited after a write that failed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Records of a ring that are taken before the next ring's; and how often, before the file is looked after.
const BATCH: usize = 256;
const BATCHES_MAX: usize = 64;
/// Bytes of lines that are gathered before they are written.
const WRITE_BYTES: usize = 128 << 10;
const _: () = assert!(WRITE_BYTES < WAITING_BYTES_MAX);

/// What it counts.
#[derive(Debug, Default)]
struct Counts {
    lines: AtomicU64,
    overrun: AtomicU64,
    dropped: AtomicU64,
    failures: AtomicU64,
    rotations: AtomicU64,
}

impl Source for Counts {
    fn collect(&self, families: &mut Vec<Family>) {
        let figures = [
            counter("access_log_lines", "Lines written to the access log.", Unit::None, |of: &Self| {
                of.lines.load(Relaxed)
            }),
            counter(
                "access_log_overrun",
                "Requests that the access log missed, because it was slower than the loops.",
                Unit::None,
                |of: &Self| of.overrun.load(Relaxed),
            ),
            counter(
                "access_log_dropped",
                "Lines that were dropped while the access log's file could not be written.",
                Unit::None,
                |of: &Self| of.dropped.load(Relaxed),
            ),
            counter(
                "access_log_failures",
                "Writes and openings of the access log's file that failed.",
                Unit::None,
                |of: &Self| of.failures.load(Relaxed),
            ),
            counter(
                "access_log_rotations",
                "Files of the access log that were set aside.",
                Unit::None,
                |of: &Self| of.rotations.load(Relaxed),
            ),
        ];
        families.extend(figures.iter().map(|figure| figure.family(self)));
    }
}

/// What it is told.
#[derive(Debug, Default)]
struct WriterSignals {
    reopen: AtomicBool,
    stop: AtomicBool,
}

/// A running access log. Dropped, it writes what there is and ends.
pub(crate) struct AccessLog {
    told: Arc<WriterSignals>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Opens the file and starts the thread, if there is to be one.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn start(settings: &Settings, journal: &Journal) -> Result<Option<Self>, Failure> {
        let rules = &settings.log_rules;
        let Some(path) = &rules.access_log else { return Ok(None) };
        let file = LineFile::open(path, rules.rotate, rules.keep, today()).map_err(|error| {
            let message = format!("{}: {error}; a file is wanted that can be appended to", path.display());
            Failure::Configuration(vec![Fault { place: "access-log".to_owned(), message }])
        })?;
        let (told, counts) = (Arc::<WriterSignals>::default(), Arc::<Counts>::default());
        let writer = LogWriter {
            reader: journal.reader(),
            format: rules.format.format(),
            path: path.clone(),
            file,
            told: Arc::clone(&told),
            counts: Arc::clone(&counts),
            recent: LineCache::default(),
            failed_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run())
            .map_err(failed("the access log cannot start"))?;
        Ok(Some(Self { told, counts, thread: Some(thread) }))
    }

    /// Has the file opened again, after somebody has moved it away.
    pub(crate) fn reopen(&self) {
        self.told.reopen.store(true, Relaxed);
        self.wake();
    }

    /// What it counts.
    pub(crate) fn counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.counts) as Arc<dyn Source>
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.told.stop.store(true, Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has ended the process already.
            let _ = thread.join();
        }
    }
}

fn today() -> u64 {
    clock::unix_s() / 86_400
}

/// The thread's.
struct LogWriter {
    reader: JournalReader,
    format: Format,
    path: PathBuf,
    file: LineFile,
    told: Arc<WriterSignals>,
    counts: Arc<Counts>,
    recent: LineCache,
    /// When a write failed last; then it is said that it does, once.
    failed_at: Option<Instant>,
}

impl LogWriter {
    fn run(mut self) {
        let mut record = Vec::new();
        loop {
            // First: what is written before a stop is said is read after it.
            let is_last = self.told.stop.load(Relaxed);
            if self.told.reopen.swap(false, Relaxed) {
                self.reopen();
            }
            let (mut read, mut total) = (0, 0);
            for _ in 0..BATCHES_MAX {
                read = self.read(&mut record);
                total += read;
                let is_enough = self.file.waiting_bytes() >= WRITE_BYTES && self.failed_at.is_none();
                if read == 0 || is_enough {
                    break;
                }
            }
            self.write(is_last);
            if is_last && total == 0 {
                return;
            }
            self.counts.overrun.store(self.reader.lost(), Relaxed);
            if read == 0 && !is_last {
                std::thread::park_timeout(if total > 0 { PAUSE } else { PAUSE_IDLE });
            }
        }
    }

    /// Reads some records and makes lines of them.
    fn read(&mut self, record: &mut Vec<u8>) -> usize {
        let Self { reader, format, recent, file, counts, .. } = self;
        let mut dropped = 0;
        let read = reader.read(record, BATCH, |bytes| {
            if let Some(record) = Record::read(bytes).filter(|record| record.kind == Kind::Client) {
                dropped += u64::from(!file.append(|out| _ = format.append(&record, recent, out)));
            }
        });
        if dropped > 0 {
            counts.dropped.fetch_add(dropped, Relaxed);
        }
        read
    }

    /// Writes what was gathered; `is_last`: whatever became of the try before.
    fn write(&mut self, is_last: bool) {
        let is_too_soon = self.failed_at.is_some_and(|at| at.elapsed() < FAILED_PAUSE);
        if self.file.waiting_bytes() == 0 || (is_too_soon && !is_last) {
            return;
        }
        let (written, outcome) = self.file.write(today());
        self.counts.lines.fetch_add(written.lines, Relaxed);
        self.counts.rotations.fetch_add(written.rotations, Relaxed);
        self.said(outcome);
    }

    /// Opens the file again; the one before is better than none.
    fn reopen(&mut self) {
        match self.file.reopen() {
            Ok(given_up) => {
                self.counts.dropped.fetch_add(given_up, Relaxed);
                tracing::info!("SIGUSR1: access log reopened");
            }
            Err(error) => {
                self.counts.failures.fetch_add(1, Relaxed);
                tracing::error!(%error, file = %self.path.display(), "cannot reopen the access log");
            }
        }
        self.failed_at = None;
    }

    /// Counts a failure, and says the first of several, and their end.
    fn said(&mut self, outcome: io::Result<()>) {
        match outcome {
            Ok(()) => {
                if self.failed_at.take().is_some() {
                    let dropped = self.counts.dropped.load(Relaxed);
                    tracing::info!(dropped, "access log writable again");
                }
            }
            Err(error) => {
                self.counts.failures.fetch_add(1, Relaxed);
                if self.failed_at.is_none() {
                    tracing::error!(
                        %error, file = %self.path.display(),
                        "cannot write the access log: lines are buffered, then dropped and counted",
                    );
                }
                self.failed_at = Some(Instant::now());
            }
        }
    }
}
