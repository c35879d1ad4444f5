//! The threads that wait for the disk, so that no loop has to.
//!
//! ```text
//! write(writer):  appended = n ─▶ all dirty blocks of its buffers ─▶ file ─▶ written = n, one wake-up
//!                 a sealed buffer, completely written: segment sealed, buffer freed
//! sync:           read `written` of every writer ─▶ fdatasync ─▶ durable = the value read
//! ```
//! Each step is a function that a test can call directly. A thread runs its step when its bell rings, and at
//! the latest after the interval, for as long as work is pending: a record that is not written yet, a disk
//! that refused a write, a segment that could not be freed. Otherwise the thread sleeps until it is woken: an
//! append then begins the interval, with one wake-up for all appends of an interval.

use std::{
    io,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{LogState, bell::Bell, reap::Reaper, table::NO_BUFFER};

/// Helper threads of a log; no threads in a test that runs the steps itself.
#[derive(Debug)]
pub(super) struct Helpers {
    shared: Arc<LogState>,
    stop: Arc<AtomicBool>,
    /// Reaper, which frees dead segments; `None` if a thread runs it.
    reaper: Option<Reaper>,
    threads: Vec<JoinHandle<()>>,
}

impl Helpers {
    /// Creates helpers without threads; [`Helpers::turn`] runs the steps.
    pub(super) fn none(shared: Arc<LogState>, reaper: Reaper) -> Self {
        Self { shared, stop: Arc::default(), reaper: Some(reaper), threads: Vec::new() }
    }

    /// Starts the helper threads.
    ///
    /// # Errors
    /// Returns the system's error if it refuses a thread.
    pub(super) fn start(shared: Arc<LogState>, mut reaper: Reaper, interval: Duration) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut helpers =
            Self { shared: Arc::clone(&shared), stop: Arc::clone(&stop), reaper: None, threads: Vec::new() };
        for number in 0..shared.bells.len() {
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
            helpers.run(format!("log-write-{number}"), move || {
                let bell = &shared.bells[number];
                bell.wake_this_thread();
                let writers = || (number..shared.reaper()).step_by(shared.bells.len());
                while !stop.load(Acquire) {
                    let was_rung = bell.wait(interval);
                    writers().for_each(|writer| shared.write(writer));
                    // After an interval without a ring of the bell, the helper rests until an append wakes
                    // it.
                    if !was_rung {
                        bell.rest(|| writers().any(|writer| shared.progress[writer].wants_write()));
                    }
                }
            })?;
        }
        let (of_sync, stop_sync) = (Arc::clone(&shared), Arc::clone(&stop));
        helpers.run("log-sync".into(), move || {
            of_sync.sync_bell.wake_this_thread();
            while !stop_sync.load(Acquire) {
                // No sync can be left pending here: a thread that writes records which must be synced rings
                // this bell, and a failed sync is not retried.
                of_sync.sync_bell.rest(|| false);
                of_sync.sync_bell.wait(interval);
                while of_sync.progress.iter().any(|progress| progress.wants_sync()) {
                    if of_sync.sync().is_err() {
                        break;
                    }
                }
            }
        })?;
        helpers.run("log-reap".into(), move || {
            shared.reap_bell.wake_this_thread();
            while !stop.load(Acquire) {
                shared.reap_bell.wait(interval);
                let is_done = reaper.turn();
                shared.reap_bell.rest(|| !is_done);
            }
        })?;
        Ok(helpers)
    }

    fn run(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// Runs one step of each kind; tests control the order by calling this repeatedly.
    pub(super) fn turn(&mut self) {
        for writer in 0..self.shared.reaper() {
            self.shared.write(writer);
        }
        if self.shared.progress.iter().any(|progress| progress.wants_sync()) {
            let _ = self.shared.sync();
        }
        if let Some(reaper) = &mut self.reaper {
            let _ = reaper.turn();
        }
    }

    /// Stops the threads without finishing their pending tasks.
    pub(super) fn abandon(&mut self) {
        self.stop.store(true, Release);
        let shared = &self.shared;
        shared.bells.iter().chain([&shared.sync_bell, &shared.reap_bell]).for_each(Bell::ring);
        for thread in self.threads.drain(..) {
            // A panic of a helper has already ended the process (through the program's panic hook) or failed
            // its test.
            let _ = thread.join();
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.abandon();
        for writer in 0..self.shared.progress.len() {
            self.shared.write(writer);
        }
        // A writer that waits for durability sees the failure, so the result can be ignored here.
        let _ = self.shared.sync();
    }
}

impl LogState {
    /// Writes out everything that a writer has appended.
    pub(super) fn write(&self, writer: usize) {
        let progress = &self.progress[writer];
        if !progress.enter() {
            // The writer's own thread is writing, which takes only as long as a copy in memory.
            self.ask_to_write(writer);
            return;
        }
        self.write_entered(writer);
        progress.leave();
    }

    /// Writes a writer's open segment into the page cache, on the writer's own thread. Returns `false` if a
    /// helper must do it instead: it is already writing, a sealed segment is pending, or the disk refuses.
    pub(super) fn write_here(&self, writer: usize) -> bool {
        let progress = &self.progress[writer];
        if !progress.enter() {
            return false;
        }
        let appended = progress.appended();
        let is_written = self.buffers.of(writer).all(|buffer| {
            self.buffers.buffer(buffer).is_sealed.load(Acquire) == 0 && self.write_dirty(buffer, true).is_ok()
        });
        if is_written {
            progress.set_written(appended);
        }
        progress.leave();
        is_written
    }

    fn write_entered(&self, writer: usize) {
        let progress = &self.progress[writer];
        // Read before the dirty marks are taken, so everything appended up to this number is marked.
        let appended = progress.appended();
        let mut failed = None;
        for buffer in self.buffers.of(writer) {
            let of = self.buffers.buffer(buffer);
            // The flag is read before the marks are taken: a buffer that is sealed now gets no marks after this.
            let is_sealed = of.is_sealed.load(Acquire) != 0;
            let done = self
                .write_dirty(buffer, false)
                .and_then(|()| if is_sealed { self.complete(buffer) } else { Ok(()) });
            match done {
                Ok(()) => {}
                Err(error) => {
                    self.count.write_errors.fetch_add(1, Relaxed);
                    failed = Some(error);
                }
            }
        }
        match failed {
            None => {
                progress.set_written(appended);
                if progress.wants_sync() {
                    self.sync_bell.ring();
                }
            }
            Some(error) => {
                tracing::error!(%error, "cannot write to the store; trying again");
                progress.set_failing(&error);
            }
        }
    }

    fn write_dirty(&self, buffer: usize, is_cached: bool) -> io::Result<()> {
        let bytes = self.buffers.write_dirty(buffer, |at, words| {
            // Read after the marks were taken: marks are set after the segment's number, so this cannot be
            // the number of an earlier use.
            let segment = self.buffers.buffer(buffer).segment.load(Acquire);
            let at = self.table.start(segment) + at as u64;
            if is_cached { self.disk.write_cached(at, words) } else { self.disk.write(at, words) }
        })?;
        if bytes > 0 {
            self.count.writes.fetch_add(1, Relaxed);
            self.count.written_bytes.fetch_add(bytes as u64, Relaxed);
        }
        Ok(())
    }

    /// Adds the table of contents to a segment whose records are in the file, and releases its buffer.
    ///
    /// The footer states that the records need no further check, so it is written after them; if records must
    /// survive a loss of power, it is written after a sync.
    fn complete(&self, buffer: usize) -> io::Result<()> {
        if self.must_sync {
            self.sync()?;
        }
        self.buffers.add_footer(buffer);
        self.write_dirty(buffer, false)?;
        let segment = self.buffers.buffer(buffer).segment.load(Acquire);
        self.table.segment(segment).buffer.store(NO_BUFFER, Release);
        self.buffers.release(buffer);
        if self.table.seal(segment) {
            self.reap_bell.ring();
        }
        self.room.notify_waiters();
        Ok(())
    }

    /// Makes all written records durable, for all writers at once.
    ///
    /// A failed sync is not retried: after a failure the kernel may count the lost pages as clean, so that a
    /// later success would prove nothing.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.count.sync_errors.load(Relaxed) > 0 {
            return Err(io::Error::other("an earlier sync failed"));
        }
        let written: smallvec::SmallVec<[u64; 16]> =
            self.progress.iter().map(|progress| progress.written_now()).collect();
        self.count.syncs.fetch_add(1, Relaxed);
        match self.disk.sync() {
            Ok(()) => {
                for (progress, written) in self.progress.iter().zip(written) {
                    progress.set_durable(written);
                }
                Ok(())
            }
            Err(error) => {
                self.count.sync_errors.fetch_add(1, Relaxed);
                tracing::error!(%error, "cannot sync the store to disk");
                self.progress.iter().for_each(|progress| progress.set_sync_failed());
                Err(error)
            }
        }
    }
}
