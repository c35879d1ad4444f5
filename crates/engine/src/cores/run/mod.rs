//! Starting and ending the event loops.
//!
//! ```text
//!   Cores::start ── one thread per core: pin, build the runtime ──▶ all ready? ──▶ make(context) runs as the main
//!        │                                                            │ no              future, with all tasks that it
//!        │                                                            ▼                 spawns (spawn_local)
//!        │                                                        StartError                 │
//!        ├─ drain(timeout): Shutdown::requested ─▶ main futures end ─▶ else cut ─────────────┤
//!        └─ join() ◀──────────────────────── ended, failed or panicked (which cuts the others too)
//! ```
//!
//! A panic anywhere on a core, including in a spawned task, is a bug: it ends this core and cuts all others,
//! and [`Cores::join`] reports it. (Tokio alone would put it into a `JoinHandle` that is never read.) A panic
//! hook does this and then runs the previous hook; it does nothing on other threads.

mod panics;

use std::{
    fmt::Display,
    future::Future,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::{runtime, sync::Notify};

use super::{
    behind, clock,
    lateness::{self, Lateness, Latenesses},
    processors,
};

use panics::{install_hook, text_of, watch_for_panics};

/// Maximum threads for blocking operations (DNS, file reads and writes) per core. They are not pinned.
const HELPERS_MAX: usize = 8;

/// Time after a cut within which a core must reach its next `.await` and helper threads must end.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// Configuration of the loops.
#[derive(Debug, Clone)]
pub struct CoresConfig {
    /// Processors to which the loops are pinned, one loop for each entry; a processor may occur more than
    /// once. Empty: all processors that the process may use.
    pub cores: Vec<usize>,
    /// Prefix of thread names, `NAME-INDEX`; Linux shows the first 15 bytes.
    pub name: &'static str,
    /// Maximum tasks that a loop polls before it checks for new events. The default is 61, as in tokio. With
    /// 64 and 1,000 connections and answers of 1 KiB, values of 256 and 1,024 took 1–4% less processor time
    /// per request (within the noise of that machine), but timers and new events of a flooded loop then wait
    /// for 256 or 1,024 tasks (≈ 2 and 7 ms at 7 µs per request) instead of 0.4 ms.
    pub event_interval: u32,
}

impl Default for CoresConfig {
    fn default() -> Self {
        Self { cores: Vec::new(), name: "core", event_interval: 61 }
    }
}

/// Reasons why the loops did not start. Loops that had already started are stopped.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The processor does not exist, or the process may not use it.
    #[error(
        "processor {processor} is not available: this process may use {available:?} (see taskset(1), cpusets)"
    )]
    NoSuchProcessor {
        /// Configured processor.
        processor: usize,
        /// Processors that the process may use.
        available: Vec<usize>,
    },
    /// The mask of usable processors cannot be read.
    #[error("cannot read the available processors: {0}")]
    Processors(#[source] io::Error),
    /// The kernel refused to create a thread.
    #[error("{core}: cannot start the thread: {error}")]
    Thread {
        /// Name of the loop.
        core: String,
        /// Error that the kernel returned.
        #[source]
        error: io::Error,
    },
    /// Pinning failed for a reason other than permission.
    #[error("{core}: cannot pin the thread to processor {processor}: {error}")]
    Pin {
        /// Name of the loop.
        core: String,
        /// Processor to which the loop was to be pinned.
        processor: usize,
        /// Error that the kernel returned.
        #[source]
        error: io::Error,
    },
    /// The kernel refused a resource of the runtime (epoll, eventfd).
    #[error("{core}: cannot create the event loop: {error}")]
    Runtime {
        /// Name of the loop.
        core: String,
        /// Error that the kernel returned.
        #[source]
        error: io::Error,
    },
    /// The number of per-core parts passed to the start differs from the number of cores.
    #[error("{parts} parts for {cores} cores: the numbers must be equal")]
    Parts {
        /// Number of per-core parts that were passed.
        parts: usize,
        /// Number of cores.
        cores: usize,
    },
}

/// Reasons why a core ended abnormally.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoreFailure {
    /// The core panicked: an invariant of the program is broken.
    #[error("{core} panicked: {message}")]
    Panicked {
        /// Name of the loop.
        core: String,
        /// Message and source location of the panic.
        message: String,
    },
    /// The main future returned an error.
    #[error("{core} failed: {message}")]
    Failed {
        /// Name of the loop.
        core: String,
        /// Text of the error.
        message: String,
    },
    /// The loop did not reach an `.await` within a second after it was cut. Its thread is abandoned.
    #[error("{core} did not stop in time")]
    Stuck {
        /// Name of the loop.
        core: String,
    },
}

/// Result of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainReport {
    /// Cores whose main futures had not ended by the timeout and were cut.
    pub cut: Vec<usize>,
}

impl DrainReport {
    /// Returns whether all main futures ended before the timeout.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.cut.is_empty()
    }
}

/// Result type of a main future: `()`, or a `Result` whose error stops all cores.
pub trait Outcome {
    /// Returns the error's text if this result is an error.
    fn error(self) -> Option<String>;
}

impl Outcome for () {
    fn error(self) -> Option<String> {
        None
    }
}

impl<E: Display> Outcome for Result<(), E> {
    fn error(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// A flag that any thread may set once and any thread may read or await.
#[derive(Debug, Default)]
struct Flag {
    set: AtomicBool,
    waiting: Notify,
}

impl Flag {
    fn set(&self) {
        self.set.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    async fn wait(&self) {
        let notified = self.waiting.notified();
        let mut notified = std::pin::pin!(notified);
        // Registered before the check, so that a concurrent `set` is not missed.
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }
}

/// Signal that a core should shut down: finish its current requests and accept no new ones.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<Flag>);

impl Shutdown {
    /// Waits until shutdown is requested.
    pub async fn requested(&self) {
        self.0.wait().await;
    }

    /// Returns whether shutdown is requested. Costs one load of a cache line that is not written until then.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.is_set()
    }
}

/// Context passed to the function that creates a core's main future.
#[derive(Debug, Clone)]
pub struct CoreContext {
    /// Index of the core, 0 to `cores` − 1.
    pub index: usize,
    /// Number of cores.
    pub cores: usize,
    /// Processor assigned to this core.
    pub processor: usize,
    /// True if the core is pinned to its processor; false where the system does not permit that.
    pub pinned: bool,
    /// Shutdown signal of this core.
    pub shutdown: Shutdown,
    /// Lateness of this loop, which is already being recorded.
    pub lateness: Arc<Lateness>,
}

/// State shared by the cores and the [`Cores`] value that controls them.
#[derive(Debug)]
struct Control {
    name: &'static str,
    shutdown: Vec<Arc<Flag>>,
    /// Set to drop all main futures at their current await point.
    cut: Flag,
    /// Set once at least one core has ended.
    ended: Flag,
    /// First failure of any core; later failures, which usually follow from it, are not recorded.
    failure: OnceLock<CoreFailure>,
}

impl Control {
    fn core(&self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }

    fn fail(&self, failure: CoreFailure) {
        // A later failure is usually a consequence of the first, and the first one matters.
        let _ = self.failure.set(failure);
        self.cut.set();
    }
}

/// The running loops. Dropping this cuts them without waiting.
#[derive(Debug)]
pub struct Cores {
    control: Arc<Control>,
    threads: Vec<Option<JoinHandle<()>>>,
    /// Channel on which cores report that they have ended.
    done: mpsc::Receiver<usize>,
    lateness: Arc<Latenesses>,
}

impl Cores {
    /// Starts one loop per core. `make` is called on each core's thread, once all are ready, and its future
    /// is that core's main future: it may spawn others with `tokio::task::spawn_local`, need not be `Send`,
    /// and the core ends when it ends.
    ///
    /// # Errors
    /// Returns a [`StartError`] if a loop cannot be started. Where pinning is not permitted (seccomp in some
    /// containers), the loops run unpinned after a warning.
    pub fn start<F>(
        config: CoresConfig,
        make: impl Fn(CoreContext) -> F + Send + Sync + 'static,
    ) -> Result<Self, StartError>
    where
        F: Future<Output: Outcome> + 'static,
    {
        let processors = chosen(&config)?;
        let parts = vec![(); processors.len()];
        Self::start_on(processors, &config, parts, move |context, ()| make(context))
    }

    /// Starts the loops like [`Self::start`], and passes to each core the part that it alone owns (its
    /// listener, its mesh endpoint).
    ///
    /// # Errors
    /// Returns a [`StartError`] if a loop cannot be started, or if the number of `parts` is not the number of
    /// cores.
    pub fn start_each<P, F>(
        config: CoresConfig,
        parts: Vec<P>,
        make: impl Fn(CoreContext, P) -> F + Send + Sync + 'static,
    ) -> Result<Self, StartError>
    where
        P: Send + 'static,
        F: Future<Output: Outcome> + 'static,
    {
        let processors = chosen(&config)?;
        Self::start_on(processors, &config, parts, make)
    }

    fn start_on<P, F>(
        processors: Vec<usize>,
        config: &CoresConfig,
        parts: Vec<P>,
        make: impl Fn(CoreContext, P) -> F + Send + Sync + 'static,
    ) -> Result<Self, StartError>
    where
        P: Send + 'static,
        F: Future<Output: Outcome> + 'static,
    {
        let cores = processors.len();
        if parts.len() != cores {
            return Err(StartError::Parts { parts: parts.len(), cores });
        }
        install_hook();
        let control = Arc::new(Control {
            name: config.name,
            shutdown: (0..cores).map(|_| Arc::default()).collect(),
            cut: Flag::default(),
            ended: Flag::default(),
            failure: OnceLock::new(),
        });
        let lateness: Vec<Arc<Lateness>> = (0..cores).map(|_| Arc::default()).collect();
        let make = Arc::new(make);
        let (say_done, done) = mpsc::channel();
        let (say_ready, ready) = mpsc::channel();
        let mut gates = Vec::with_capacity(cores);
        let mut threads = Vec::with_capacity(cores);
        for (index, (processor, part)) in processors.into_iter().zip(parts).enumerate() {
            let core = control.core(index);
            let context = CoreContext {
                index,
                cores,
                processor,
                pinned: false,
                shutdown: Shutdown(Arc::clone(&control.shutdown[index])),
                lateness: Arc::clone(&lateness[index]),
            };
            let (open, gate) = mpsc::channel::<()>();
            gates.push(open);
            let (make, control) = (Arc::clone(&make), Arc::clone(&control));
            let (say_ready, say_done, event_interval) =
                (say_ready.clone(), say_done.clone(), config.event_interval);
            let name = core.clone();
            let thread = std::thread::Builder::new().name(core.clone()).spawn(move || {
                watch_for_panics(name, &control);
                let (context, runtime) = match prepare(context, &control, event_interval) {
                    Ok(prepared) => prepared,
                    Err(error) => return drop(say_ready.send(Err(error))),
                };
                // The starting thread waits for this message; if that thread is gone, the gate is closed too.
                let _ = say_ready.send(Ok(()));
                drop(say_ready);
                if gate.recv().is_ok() {
                    run(&control, runtime, context.index, Arc::clone(&context.lateness), move || {
                        make(context, part)
                    });
                    control.ended.set();
                    let _ = say_done.send(index);
                }
            });
            threads.push(Some(thread.map_err(|error| StartError::Thread { core, error })?));
        }
        drop(say_ready);
        // On an error the gates are dropped, so every thread that is ready returns.
        for outcome in ready {
            outcome?;
        }
        for gate in gates {
            // A thread that has died by now has panicked, which cuts the others and is reported by `join`.
            let _ = gate.send(());
        }
        let lateness = Arc::new(Latenesses { server: config.name, cores: lateness });
        Ok(Self { control, threads, done, lateness })
    }

    /// Asks every core to end, waits up to `timeout` for their main futures, then cuts the rest: their
    /// futures and tasks are dropped at their current await point. Blocks; must not be called on a loop.
    ///
    /// # Errors
    /// Returns a [`CoreFailure`] if a core fails or panics, did so before, or is stuck.
    pub fn drain(&mut self, timeout: Duration) -> Result<DrainReport, CoreFailure> {
        for shutdown in &self.control.shutdown {
            shutdown.set();
        }
        self.wait(Some(timeout));
        let cut: Vec<usize> = self.running().collect();
        if !cut.is_empty() {
            self.control.cut.set();
            self.wait(Some(CUT_GRACE * 2));
            if let Some(index) = self.running().next() {
                return Err(CoreFailure::Stuck { core: self.control.core(index) });
            }
        }
        self.control.failure.get().map_or(Ok(DrainReport { cut }), |failure| Err(failure.clone()))
    }

    /// Waits until every core has ended by itself, by [`Self::drain`], or by a failure. Blocks. After a
    /// failure the other cores, which are cut, have at most two seconds to end.
    ///
    /// # Errors
    /// Returns the [`CoreFailure`] of the first core that failed or panicked.
    pub fn join(mut self) -> Result<(), CoreFailure> {
        self.wait(None);
        self.control.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Returns a future that is ready once at least one core has ended, for whatever reason. A program awaits
    /// it together with its signals, before it calls [`Self::drain`].
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let control = Arc::clone(&self.control);
        async move { control.ended.wait().await }
    }

    /// Returns the number of cores.
    #[must_use]
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Returns the lateness of all loops, for a [`crate::meter::Registry`].
    #[must_use]
    pub fn lateness(&self) -> Arc<Latenesses> {
        Arc::clone(&self.lateness)
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        self.threads.iter().enumerate().filter(|(_, thread)| thread.is_some()).map(|(index, _)| index)
    }

    /// Joins the threads that end within `timeout`.
    fn wait(&mut self, timeout: Option<Duration>) {
        let mut deadline = timeout.map(|timeout| clock::now() + timeout);
        while self.running().next().is_some() {
            if deadline.is_none() && self.control.failure.get().is_some() {
                deadline = Some(clock::now() + CUT_GRACE * 2);
            }
            let index = match deadline {
                None => self.done.recv().ok(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(clock::now());
                    match self.done.recv_timeout(left) {
                        Ok(index) => Some(index),
                        Err(mpsc::RecvTimeoutError::Timeout) => return,
                        Err(mpsc::RecvTimeoutError::Disconnected) => None,
                    }
                }
            };
            match index {
                Some(index) => self.reap(index),
                // Every thread has dropped its end of the channel: all have ended, some without a report.
                None => (0..self.threads.len()).for_each(|index| self.reap(index)),
            }
        }
    }

    fn reap(&mut self, index: usize) {
        let Some(thread) = self.threads[index].take() else { return };
        if let Err(panic) = thread.join() {
            let core = self.control.core(index);
            self.control.fail(CoreFailure::Panicked { core, message: text_of(panic.as_ref()) });
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.control.cut.set();
    }
}

fn chosen(config: &CoresConfig) -> Result<Vec<usize>, StartError> {
    let available = processors::available().map_err(StartError::Processors)?;
    if config.cores.is_empty() {
        return Ok(available);
    }
    match config.cores.iter().find(|processor| !available.contains(processor)) {
        Some(&processor) => Err(StartError::NoSuchProcessor { processor, available }),
        None => Ok(config.cores.clone()),
    }
}

/// Prepares a core on its own thread: performs all operations that the kernel may refuse.
fn prepare(
    mut context: CoreContext,
    control: &Arc<Control>,
    event_interval: u32,
) -> Result<(CoreContext, runtime::LocalRuntime), StartError> {
    let core = control.core(context.index);
    // Taken before pinning: helper threads start from this thread, and would otherwise inherit its pinning
    // and compete with the loop.
    let unpinned = processors::mask().map_err(StartError::Processors)?;
    match processors::pin(context.processor) {
        Ok(()) => context.pinned = true,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(%core, processor = context.processor, "CPU pinning is not permitted: threads run unpinned");
        }
        Err(error) => return Err(StartError::Pin { core, processor: context.processor, error }),
    }
    let (helper, helper_control) = (format!("{core}h"), Arc::clone(control));
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(event_interval)
        .on_thread_park(behind::note_park)
        .on_thread_unpark(lateness::woke)
        .max_blocking_threads(HELPERS_MAX)
        .thread_name(helper.clone())
        .on_thread_start(move || {
            // If this is not permitted, the helper keeps its mask, which is slower but still correct.
            let _ = processors::set_mask(&unpinned);
            watch_for_panics(helper.clone(), &helper_control);
        })
        .build_local(runtime::LocalOptions::default())
        .map_err(|error| StartError::Runtime { core, error })?;
    Ok((context, runtime))
}

/// Runs the event loop on the core's thread, from start to end.
fn run<F>(
    control: &Arc<Control>,
    runtime: runtime::LocalRuntime,
    index: usize,
    lateness: Arc<Lateness>,
    make: impl FnOnce() -> F,
) where
    F: Future<Output: Outcome> + 'static,
{
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let outcome = runtime.block_on(async {
            tokio::task::spawn_local(async move {
                let Err(error) = lateness.watch().await;
                tracing::warn!(%error, "cannot measure event loop lateness: monitoring of this loop stopped");
            });
            tokio::select! {
                biased;
                () = control.cut.wait() => None,
                outcome = make() => outcome.error(),
            }
        });
        runtime.shutdown_timeout(CUT_GRACE);
        outcome
    }));
    let core = control.core(index);
    match ended {
        Ok(None) => {}
        Ok(Some(message)) => control.fail(CoreFailure::Failed { core, message }),
        // The panic hook has usually recorded the panic with its location; this handles the case that another
        // hook replaced it.
        Err(panic) => control.fail(CoreFailure::Panicked { core, message: text_of(panic.as_ref()) }),
    }
}
