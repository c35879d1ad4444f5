//! The skeleton of a server: a loop on each processor, rings between the loops and to the threads outside,
//! the count of loops that accept connections, and the drain.
//!
//! ```text
//! ServiceSetup::new ─▶ rings ─▶ seeds of the loops ─▶ ServiceSetup::start ─▶ Service ─▶ drain
//!   each loop: set up ─▶ Stage::serve (accepts) ─▶ Stage::drain (no new clients) ─▶ end
//! ```

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinHandle;

use super::{
    CoreContext, Cores, CoresConfig, available,
    listener::Balance,
    mesh::{Endpoint, Mesh, Receiver, Sender},
    run::{CoreFailure, DrainReport, Outcome, StartError},
};
use crate::meter::Registry;

/// Interval at which a loop that drains looks whether its clients are gone.
const DRAIN_EVERY: Duration = Duration::from_millis(10);

/// Parts of a server whose loops have not started.
#[derive(Debug)]
pub struct ServiceSetup {
    processors: Vec<usize>,
    /// Registry of the server's counters.
    pub registry: Registry,
    /// Start and end of the loops.
    pub stage: Arc<Stage>,
}

/// Rings of a server.
#[derive(Debug)]
pub struct Rings<M> {
    /// Rings of each loop.
    pub endpoints: Vec<Endpoint<M>>,
    /// Sender for threads outside the loops.
    pub outside: Sender<M>,
    /// Receiver of messages from the loops to those threads.
    pub to_outside: Receiver<M>,
}

impl ServiceSetup {
    /// Prepares one loop for each of `processors`. If that list is empty, prepares one for each available
    /// processor, at most `loops_max`; a named list is not cut.
    ///
    /// # Errors
    /// Returns the system's error if the processors cannot be listed.
    pub fn new(processors: &[usize], loops_max: usize) -> io::Result<Self> {
        let processors = if processors.is_empty() {
            available()?.into_iter().take(loops_max).collect()
        } else {
            processors.to_vec()
        };
        let stage = Arc::new(Stage { balance: Balance::new(processors.len()), ready: AtomicUsize::new(0) });
        Ok(Self { processors, registry: Registry::new(), stage })
    }

    /// Creates the rings, each with room for `messages` messages, and registers their counters.
    ///
    /// # Errors
    /// Returns the system's error if a loop's wake-up handle cannot be created.
    pub fn rings<M: Send + 'static>(&mut self, messages: usize) -> io::Result<Rings<M>> {
        let mesh = Mesh::new(self.loops(), 1, messages)?;
        self.registry.register(mesh.counters());
        let mut endpoints = mesh.into_endpoints();
        let Some(outside) = endpoints.pop() else { unreachable!("there is one endpoint for the outside") };
        let (outside, to_outside) = outside.split();
        Ok(Rings { endpoints, outside, to_outside })
    }

    /// Returns the number of loops.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.processors.len()
    }

    /// Starts a loop for each seed.
    ///
    /// # Errors
    /// Returns a [`StartError`] if a loop cannot be started.
    pub fn start<P, F>(
        mut self,
        name: &'static str,
        seeds: Vec<P>,
        run: impl Fn(CoreContext, P) -> F + Send + Sync + 'static,
    ) -> Result<Service, StartError>
    where
        P: Send + 'static,
        F: Future<Output: Outcome> + 'static,
    {
        let loops = self.loops();
        let config = CoresConfig { cores: self.processors, name, ..CoresConfig::default() };
        let cores = Cores::start_each(config, seeds, run)?;
        self.registry.register(cores.lateness());
        Ok(Service { cores, registry: Arc::new(self.registry), stage: self.stage, loops })
    }
}

/// State that the loops of a server share: how many accept connections, and how many connections each has.
#[derive(Debug)]
pub struct Stage {
    /// Connections of each loop.
    pub balance: Arc<Balance>,
    /// Number of loops that accept connections.
    ready: AtomicUsize,
}

impl Stage {
    /// Serves until the server is asked to stop, and calls `on_stop` then. `accepting` are the tasks that
    /// accept connections; they have ended, and their listeners are closed, when the function returns.
    pub async fn serve(&self, context: &CoreContext, accepting: Vec<JoinHandle<()>>, on_stop: impl FnOnce()) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        context.shutdown.requested().await;
        on_stop();
        accepting.iter().for_each(JoinHandle::abort);
        for task in accepting {
            // The task has been aborted; after this await its listener is closed.
            let _ = task.await;
        }
        self.ready.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until no loop has a client any more, because a client of another loop may still need this loop,
    /// and until nothing else is left on this one. `is_done` is called again and again, to end idle clients
    /// and to return whether nothing is left.
    pub async fn drain(&self, mut is_done: impl FnMut() -> bool) {
        while !(is_done() && self.balance.total() == 0) {
            tokio::time::sleep(DRAIN_EVERY).await;
        }
    }
}

/// Loops of a server that runs. Dropping it stops them at once.
#[derive(Debug)]
pub struct Service {
    cores: Cores,
    registry: Arc<Registry>,
    stage: Arc<Stage>,
    loops: usize,
}

impl Service {
    /// Returns all counters, gauges and histograms.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    /// Returns the number of loops.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.loops
    }

    /// Returns whether every loop accepts connections.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.stage.ready.load(Ordering::Acquire) == self.loops
    }

    /// Returns a future that completes once a loop has ended. A loop ends by itself only when it fails;
    /// [`drain`](Self::drain) then returns the reason.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.cores.ended()
    }

    /// Asks the loops to stop accepting and to end once their clients are gone; cuts them off after
    /// `at_most`. Blocks.
    ///
    /// # Errors
    /// Returns a [`CoreFailure`] if a loop has failed before, or fails during the drain.
    pub fn drain(&mut self, at_most: Duration) -> Result<DrainReport, CoreFailure> {
        self.cores.drain(at_most)
    }
}
