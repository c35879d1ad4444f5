//! Low-priority threads for work that must not delay pages or the receiving of mail.
//!
//! The kernel lets a computing thread run for some milliseconds before another thread gets the processor,
//! unless the other has a higher priority. With low priority a search does not delay pages, and on an idle
//! machine it takes no longer.

use std::{io, thread, time::Duration};

use engine::cores::{clock, give_way};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// Pool of low-priority threads for searches, which parse thousands of mails; the threads are started on
/// demand.
#[derive(Debug)]
pub(crate) struct LowPriorityPool(Option<Runtime>);

impl LowPriorityPool {
    /// Creates a pool of at most `threads_max` threads.
    pub(crate) fn new(threads_max: usize) -> Self {
        let built = Builder::new_current_thread()
            .max_blocking_threads(threads_max)
            .thread_name("mail-search")
            .on_thread_start(|| give_way("searches"))
            .build();
        if let Err(error) = &built {
            tracing::warn!(%error, "cannot create the search thread pool: searches run at normal priority");
        }
        Self(built.ok())
    }

    /// Runs work on a thread of the pool.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.0 {
            Some(runtime) => runtime.spawn_blocking(work),
            None => tokio::task::spawn_blocking(work),
        }
    }
}

impl Drop for LowPriorityPool {
    /// A drop does not wait for a running search.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts a low-priority thread, with a second one for its blocking reads, that runs a task to its end.
/// `name` is the thread's, `what` names it in the log.
///
/// # Errors
/// A thread or its event loop cannot be made.
pub(crate) fn start<F: Future<Output = ()>>(
    name: &str,
    what: &'static str,
    task: impl FnOnce() -> F + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .thread_name(format!("{name}-read"))
        .on_thread_start(move || give_way(what))
        .build()?;
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        give_way(what);
        runtime.block_on(task());
    })
}

/// Arrivals per second above which the server counts as busy.
const BUSY_ARRIVALS: u64 = 50;
/// While the server is busy, a background thread runs for 1/(`BUSY_REST` + 1) of the time.
const BUSY_REST: u32 = 33;
const SECOND_MS: u64 = 1_000;

/// Pace of a background thread: while many mails arrive, receiving has priority.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Arrivals since they were last counted.
    arrived: u64,
    since_ms: u64,
    is_busy: bool,
    begun_ns: u64,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { arrived: 0, since_ms: clock::monotonic_ms(), is_busy: false, begun_ns: 0 }
    }

    /// Counts mails that have arrived.
    pub(crate) fn note_arrivals(&mut self, count: u64) {
        self.arrived += count;
        let now_ms = clock::monotonic_ms();
        let passed_ms = now_ms.saturating_sub(self.since_ms);
        if passed_ms >= SECOND_MS {
            self.is_busy = std::mem::take(&mut self.arrived) * SECOND_MS / passed_ms > BUSY_ARRIVALS;
            self.since_ms = now_ms;
        }
    }

    /// Begins a piece of work.
    pub(crate) fn begin(&mut self) {
        self.begun_ns = clock::thread_cpu_ns();
    }

    /// Returns for how long the thread has to rest after a piece of work; `None` while the server is not busy.
    pub(crate) fn rest(&mut self) -> Option<Duration> {
        self.note_arrivals(0);
        // A sudden rush takes effect immediately, not only after a second.
        let is_busy = self.is_busy || self.arrived > BUSY_ARRIVALS;
        let worked = Duration::from_nanos(clock::thread_cpu_ns().saturating_sub(self.begun_ns));
        is_busy.then_some(worked * BUSY_REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_on_threads_that_give_way() {
        let behind = LowPriorityPool::new(1);
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let here = nice();
        assert!(behind.spawn(nice).await.unwrap() > here.min(18));
        assert_eq!(nice(), here);
    }

    #[test]
    fn a_sudden_rush_slows_at_once() {
        let mut pace = Pace::new();
        pace.begin();
        assert_eq!(pace.rest(), None);
        pace.note_arrivals(BUSY_ARRIVALS + 1);
        assert!(pace.rest().is_some());
    }
}
