//! The access log: a thread that reads the rings and appends a line for each request to a file.
//!
//! ```text
//!  rings ──▶ read ─▶ a line ─▶ LineFile: pending lines ─▶ write ─▶ FILE, FILE.1, …
//!                                    │ the disk is full: logged once, retried each second, later lines dropped and counted
//! ```
//! No loop waits for the thread: records that it reads too slowly are overwritten, and counted.

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
    failure::{Failure, failed, fault},
    settings::Settings,
};

/// Pauses of the thread: after a pass that found records, and after a pass that found none. A hundred
/// thousand requests per second fill a ring of 4 MiB in a tenth of a second; more frequent wake-ups would
/// cost more CPU time than the lines themselves.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_IDLE: Duration = Duration::from_millis(50);
/// Pause after a failed write.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of records that are read from one ring before the next ring, and of batches that are read
/// before the file is written.
const BATCH: usize = 256;
const BATCHES_MAX: usize = 64;
/// Number of bytes of lines that are collected before a write.
const WRITE_BYTES: usize = 128 << 10;
const _: () = assert!(WRITE_BYTES < WAITING_BYTES_MAX);

/// Counters of the access log.
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
                "Requests missing from the access log because it was slower than the loops.",
                Unit::None,
                |of: &Self| of.overrun.load(Relaxed),
            ),
            counter(
                "access_log_dropped",
                "Access log lines dropped while the file could not be written.",
                Unit::None,
                |of: &Self| of.dropped.load(Relaxed),
            ),
            counter(
                "access_log_failures",
                "Failed writes and openings of the access log's file.",
                Unit::None,
                |of: &Self| of.failures.load(Relaxed),
            ),
            counter("access_log_rotations", "Rotations of the access log.", Unit::None, |of: &Self| {
                of.rotations.load(Relaxed)
            }),
        ];
        families.extend(figures.iter().map(|figure| figure.family(self)));
    }
}

/// Requests to the thread.
#[derive(Debug, Default)]
struct WriterSignals {
    reopen: AtomicBool,
    stop: AtomicBool,
}

/// A running access log. Dropping it writes all pending lines and ends the thread.
pub(crate) struct AccessLog {
    told: Arc<WriterSignals>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Opens the file and starts the thread, if an access log is configured.
    ///
    /// # Errors
    /// Returns `Failure::Configuration` if the file cannot be opened.
    pub(crate) fn start(settings: &Settings, journal: &Journal) -> Result<Option<Self>, Failure> {
        let rules = &settings.log_rules;
        let Some(path) = &rules.access_log else { return Ok(None) };
        let file = LineFile::open(path, rules.rotate, rules.keep, today()).map_err(|error| {
            let message = format!("{}: {error}; a file that can be appended to is needed", path.display());
            fault("access-log", message)
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
            .map_err(failed("cannot start the access log"))?;
        Ok(Some(Self { told, counts, thread: Some(thread) }))
    }

    /// Makes the thread reopen the file after it was moved away.
    pub(crate) fn reopen(&self) {
        self.told.reopen.store(true, Relaxed);
        self.wake();
    }

    /// Returns the counters of the access log.
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
            // The result does not matter: a panic of the thread has already ended the process.
            let _ = thread.join();
        }
    }
}

fn today() -> u64 {
    clock::unix_s() / 86_400
}

/// State of the thread.
struct LogWriter {
    reader: JournalReader,
    format: Format,
    path: PathBuf,
    file: LineFile,
    told: Arc<WriterSignals>,
    counts: Arc<Counts>,
    recent: LineCache,
    /// Time of the last failed write. While it is set, further failures are not logged.
    failed_at: Option<Instant>,
}

impl LogWriter {
    fn run(mut self) {
        let mut record = Vec::new();
        loop {
            // The flag is loaded before the rings are read, so that records written before the stop are still
            // read.
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

    /// Reads a batch of records and formats them as lines.
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

    /// Writes the collected lines; with `is_last` even if the last write failed less than a second ago.
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

    /// Reopens the file; on failure the old file stays in use.
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

    /// Counts a failure. Logs only the first of several consecutive failures, and the recovery.
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
