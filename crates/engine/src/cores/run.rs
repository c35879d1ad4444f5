//! Starting the loops, and ending them.
//!
//! ```text
//!   Cores::start ── one thread per core: pin, build the runtime ──▶ all ready? ──▶ make(context) runs as the main
//!        │                                                            │ no              future, and with it what it
//!        │                                                            ▼                 spawns (spawn_local)
//!        │                                                        StartError                 │
//!        ├─ drain(timeout): Shutdown::requested ─▶ main futures end ─▶ else cut ─────────────┤
//!        └─ join() ◀──────────────────────── ended, failed or panicked (which cuts the others too)
//! ```
//!
//! A panic anywhere on a core, in a spawned task too, is our mistake: it ends this core and cuts all others, and
//! [`Cores::join`] names it. (Tokio by itself would put it into a `JoinHandle` that nobody reads.) A hook sees to
//! it, which also runs the hook that was there before; it does nothing on other threads.

use std::{
    any::Any,
    cell::RefCell,
    fmt::Display,
    future::Future,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Once, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::{runtime, sync::Notify};

use super::{
    clock,
    lateness::{self, Lateness, Latenesses},
    processors,
};

/// Threads for blocking work (DNS, file reads and writes) per core, at most. They are not pinned.
const HELPERS_MAX: usize = 8;

/// After the cut, a core has this long to reach its next `.await`; and helpers, to end.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// How the loops are set up.
#[derive(Debug, Clone)]
pub struct CoresConfig {
    /// One loop for each, pinned to this processor; a processor may come more than once. Empty: all that the process
    /// may use.
    pub cores: Vec<usize>,
    /// Threads are called `NAME-INDEX`; Linux shows the first 15 bytes.
    pub name: &'static str,
    /// Tasks that a loop polls before it looks for new events although tasks are ready. 61 by default, which is
    /// tokio's own: with 64 and 1,000 connections of 1 KiB answers, 256 and 1,024 spent 1–4% less processor time a
    /// request (within the noise of that machine), but a loop that is flooded then leaves its timers and what is
    /// fresh waiting for 256 or 1,024 tasks (≈ 2 and 7 ms at 7 µs a request) instead of 0.4 ms.
    pub event_interval: u32,
}

impl Default for CoresConfig {
    fn default() -> Self {
        Self { cores: Vec::new(), name: "core", event_interval: 61 }
    }
}

/// Why the loops did not start. Those that had started are stopped again.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A processor that is not there, or that the process may not use.
    #[error(
        "processor {processor} cannot be used: this process may use {available:?} (see taskset(1), cpusets)"
    )]
    NoSuchProcessor {
        /// What was asked for.
        processor: usize,
        /// What there is.
        available: Vec<usize>,
    },
    /// The mask of usable processors cannot be read.
    #[error("the usable processors cannot be read: {0}")]
    Processors(#[source] io::Error),
    /// The kernel refused a thread.
    #[error("{core}: no thread: {error}")]
    Thread {
        /// Which loop.
        core: String,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Pinning failed for another reason than permission.
    #[error("{core}: cannot be pinned to processor {processor}: {error}")]
    Pin {
        /// Which loop.
        core: String,
        /// To which processor.
        processor: usize,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// The kernel refused what a runtime needs (epoll, eventfd).
    #[error("{core}: no event loop: {error}")]
    Runtime {
        /// Which loop.
        core: String,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Not one part for each core.
    #[error("{parts} parts were given for {cores} cores")]
    Parts {
        /// How many parts.
        parts: usize,
        /// How many cores.
        cores: usize,
    },
}

/// How a core failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoreFailure {
    /// A broken invariant of ours.
    #[error("{core} panicked: {message}")]
    Panicked {
        /// Which loop.
        core: String,
        /// The panic's message and where it was.
        message: String,
    },
    /// The main future gave an error.
    #[error("{core} failed: {message}")]
    Failed {
        /// Which loop.
        core: String,
        /// The error.
        message: String,
    },
    /// The loop did not reach an `.await` within a second after it was cut. Its thread is left behind.
    #[error("{core} is stuck and did not stop")]
    Stuck {
        /// Which loop.
        core: String,
    },
}

/// How a drain went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainReport {
    /// The cores whose main futures had not ended by the timeout and were cut.
    pub cut: Vec<usize>,
}

impl DrainReport {
    /// Whether everything under way had ended before the time was up.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.cut.is_empty()
    }
}

/// What a main future may end with: `()`, or a `Result` whose error stops all cores.
pub trait Outcome {
    /// The error's text, if it is one.
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

/// Set once, by anyone; seen by all.
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
        // Registered before the look, so that a set in between is not missed.
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }
}

/// Tells a core that it should end: finish what is under way, take nothing new.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<Flag>);

impl Shutdown {
    /// Ready once the end was asked for.
    pub async fn requested(&self) {
        self.0.wait().await;
    }

    /// Whether the end was asked for. One load of a line that is not written until then.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.is_set()
    }
}

/// What a core's main future is made from.
#[derive(Debug, Clone)]
pub struct CoreContext {
    /// 0 to `cores` − 1.
    pub index: usize,
    /// How many cores there are.
    pub cores: usize,
    /// The processor that this core was given.
    pub processor: usize,
    /// Whether it is tied to it; false where the system does not permit it.
    pub pinned: bool,
    /// When to end.
    pub shutdown: Shutdown,
    /// How late this loop runs. It is being recorded already.
    pub lateness: Arc<Lateness>,
}

/// What the cores and their owner share.
#[derive(Debug)]
struct Control {
    name: &'static str,
    shutdown: Vec<Arc<Flag>>,
    /// Main futures are dropped where they stand.
    cut: Flag,
    /// At least one core has ended.
    ended: Flag,
    /// The first failure; those that follow from it do not count.
    failure: OnceLock<CoreFailure>,
}

impl Control {
    fn core(&self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }

    fn fail(&self, failure: CoreFailure) {
        // A later one is what the first brought about, as a rule; the first is the one to know.
        let _ = self.failure.set(failure);
        self.cut.set();
    }
}

/// The running loops. Dropping it cuts them without waiting.
#[derive(Debug)]
pub struct Cores {
    control: Arc<Control>,
    threads: Vec<Option<JoinHandle<()>>>,
    /// Cores say here that they have ended.
    done: mpsc::Receiver<usize>,
    lateness: Arc<Latenesses>,
}

impl Cores {
    /// Starts one loop per core. `make` is called on each core's thread, once all are ready, and its future is that
    /// core's main future: it may spawn others with `tokio::task::spawn_local`, need not be `Send`, and its end is
    /// the end of the core.
    ///
    /// # Errors
    /// [`StartError`]. Where pinning is not permitted (seccomp in some containers), the loops run unpinned after a
    /// warning.
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

    /// The same, and hands to each core the part that it alone shall own (its listener, its mesh endpoint).
    ///
    /// # Errors
    /// [`StartError`]; `parts` must be as many as there are cores.
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
                // The starter waits for us; if it has gone, so has the gate.
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
        // On an error the gates are dropped, and every thread that was ready returns.
        for outcome in ready {
            outcome?;
        }
        for gate in gates {
            // A thread that has died by now has panicked, which cuts the others and which `join` tells.
            let _ = gate.send(());
        }
        let lateness = Arc::new(Latenesses { server: config.name, cores: lateness });
        Ok(Self { control, threads, done, lateness })
    }

    /// Asks every core to end, waits up to `timeout` for their main futures, then cuts those that are left: their
    /// futures and tasks are dropped where they stand. Blocks; not to be called on a loop.
    ///
    /// # Errors
    /// [`CoreFailure`] when a core fails or panics, has done so before, or is stuck.
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

    /// Waits until every core has ended by itself, by [`Self::drain`], or by a failure. Blocks. After a failure the
    /// others, which are cut, are not waited for longer than two seconds.
    ///
    /// # Errors
    /// [`CoreFailure`]: the first core that failed or panicked.
    pub fn join(mut self) -> Result<(), CoreFailure> {
        self.wait(None);
        self.control.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Ready once at least one core has ended, for whatever reason. What a program waits for beside its signals,
    /// before it calls [`Self::drain`].
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let control = Arc::clone(&self.control);
        async move { control.ended.wait().await }
    }

    /// How many cores there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// How late each loop runs, for a [`crate::meter::Registry`].
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
                // Every thread has let go of its end: all have ended, some without a word.
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

/// On the core's thread: everything that can be refused.
fn prepare(
    mut context: CoreContext,
    control: &Arc<Control>,
    event_interval: u32,
) -> Result<(CoreContext, runtime::LocalRuntime), StartError> {
    let core = control.core(context.index);
    // Before pinning: helpers start from this thread and would inherit the pin, and then fight with the loop.
    let unpinned = processors::mask().map_err(StartError::Processors)?;
    match processors::pin(context.processor) {
        Ok(()) => context.pinned = true,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(%core, processor = context.processor, "pinning is not permitted here; running unpinned");
        }
        Err(error) => return Err(StartError::Pin { core, processor: context.processor, error }),
    }
    let (helper, helper_control) = (format!("{core}h"), Arc::clone(control));
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(event_interval)
        .on_thread_unpark(lateness::woke)
        .max_blocking_threads(HELPERS_MAX)
        .thread_name(helper.clone())
        .on_thread_start(move || {
            // Where it is not permitted, the helper stays where it is: slower, not wrong.
            let _ = processors::set_mask(&unpinned);
            watch_for_panics(helper.clone(), &helper_control);
        })
        .build_local(runtime::LocalOptions::default())
        .map_err(|error| StartError::Runtime { core, error })?;
    Ok((context, runtime))
}

/// On the core's thread: the whole life of its loop.
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
                tracing::warn!(%error, "lateness of this loop is no longer measured");
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
        // The hook has already noted it, with its place; this is for a hook that someone replaced.
        Err(panic) => control.fail(CoreFailure::Panicked { core, message: text_of(panic.as_ref()) }),
    }
}

thread_local! {
    /// On a core's thread and on its helpers': the thread's name, and the control that is told of a panic.
    static WATCHED: RefCell<Option<(String, Arc<Control>)>> = const { RefCell::new(None) };
}

fn watch_for_panics(core: String, control: &Arc<Control>) {
    WATCHED.set(Some((core, Arc::clone(control))));
}

fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            // A thread whose locals are gone is past running our code.
            let watched =
                WATCHED.try_with(|watched| watched.try_borrow().ok().and_then(|known| known.clone()));
            if let Ok(Some((core, control))) = watched {
                let place = panic.location().map(|place| format!(" ({place})")).unwrap_or_default();
                let message = format!("{}{place}", text_of(panic.payload()));
                control.fail(CoreFailure::Panicked { core, message });
            }
        }));
    });
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without text".to_owned())
}
