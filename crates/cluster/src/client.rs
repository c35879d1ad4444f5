//! Handle to the cluster, and the thread behind it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use async_nats::jetstream::Context;
use engine::{cores::clock, meter::Source};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::{
    PurgeExecutor,
    config::Config,
    counts::{Counts, count},
    keeper,
    position::{Position, PositionFile},
    record::Purge,
    vault::{self, OnChange, Vault},
    view::{ClusterStatus, InstanceTable},
    wish::{Outcome, PurgeRequest, PurgeRequestError, Scope, WISHES_MAX},
};

/// Number of helper threads that carry out purges and save the position.
const HELPERS: usize = 2;
/// Maximum number of shared buckets.
const VAULTS_MAX: usize = 1;

/// Error that prevents the cluster from starting. An unreachable cluster is not one.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file of the purge position cannot be used.
    #[error("cannot save the purge position: {0}")]
    Position(io::Error),
    /// The thread or its runtime cannot be started.
    #[error("cannot start the cluster thread: {0}")]
    Thread(io::Error),
}

/// State of the cluster membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) words: String,
    pub(crate) is_joined: bool,
}

/// State shared by the thread, by requests that wait for purges, and by the status report.
pub(crate) struct Common {
    pub(crate) config: Config,
    pub(crate) instance: String,
    pub(crate) counts: Arc<Counts>,
    pub(crate) view: watch::Sender<InstanceTable>,
    /// The connection, while one is open and its stream and bucket have been found.
    pub(crate) open: watch::Sender<Option<Context>>,
    pub(crate) state: watch::Sender<State>,
    /// Subject for reports that a purge was carried out; empty until it is subscribed.
    pub(crate) inbox: watch::Sender<String>,
    /// Status of the shared data, if any is configured.
    pub(crate) vault: watch::Sender<Option<String>>,
    /// Signal that a heartbeat must be written now.
    pub(crate) renew: Notify,
    /// Signal that the purge stream has been replaced by another one, or reset to an older state.
    pub(crate) doubt: Notify,
    applied: AtomicU64,
    generation: AtomicU64,
    numbers: AtomicU64,
}

impl Common {
    /// Returns the time of the monotonic clock by which other instances' leases are judged; this clock stops
    /// while the machine sleeps.
    pub(crate) fn now_ms(&self) -> u64 {
        clock::monotonic_ns() / 1_000_000
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn set_position(&self, position: Position) {
        self.applied.store(position.applied, Ordering::Release);
        self.generation.store(position.generation, Ordering::Release);
    }
}

/// Membership of this instance in the cluster; dropping it leaves the cluster.
pub struct Cluster {
    common: Arc<Common>,
    wishes: Option<mpsc::Sender<PurgeRequest>>,
    vaults: mpsc::Sender<vault::VaultTask>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts the thread, which connects and joins in the background. Until it has joined, no stored object
    /// is served.
    ///
    /// # Errors
    /// [`StartError::Position`] if the position's file cannot be used, [`StartError::Thread`] if the thread
    /// cannot be started.
    pub fn start(config: Config, server: Arc<dyn PurgeExecutor>) -> Result<Self, StartError> {
        let number = || engine::random::number().map_err(StartError::Thread);
        let instance = u128::from(number()?) << 64 | u128::from(number()?);
        let opened = config.position.as_deref().map(|path| PositionFile::open(path, instance));
        let opened = opened.transpose().map_err(StartError::Position)?;
        let state = State { words: "connecting to the cluster".to_owned(), is_joined: false };
        let common = Arc::new(Common {
            config,
            instance: format!("{instance:032x}"),
            counts: Arc::default(),
            view: watch::Sender::default(),
            open: watch::Sender::default(),
            state: watch::Sender::new(state),
            inbox: watch::Sender::default(),
            vault: watch::Sender::default(),
            renew: Notify::new(),
            doubt: Notify::new(),
            applied: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
        });
        let (wishes, wished) = mpsc::channel(WISHES_MAX);
        let (vaults, opened_vaults) = mpsc::channel(VAULTS_MAX);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("cluster-help")
            .max_blocking_threads(HELPERS)
            .build()
            .map_err(StartError::Thread)?;
        let of_thread = Arc::clone(&common);
        let run = move || runtime.block_on(keeper::run(of_thread, server, opened, wished, opened_vaults));
        let thread = std::thread::Builder::new().name("cluster".to_owned()).spawn(run);
        let thread = thread.map_err(StartError::Thread)?;
        Ok(Self { common, wishes: Some(wishes), vaults, thread: Some(thread) })
    }

    /// Sends a purge to the other instances. The receiver yields the result once the condition of `scope` is
    /// met or the time limit has passed. `is_carried_out` means that the purge is already applied here.
    pub fn request_purge(
        &self,
        purge: Purge,
        is_carried_out: bool,
        scope: Scope,
        at_most: Duration,
    ) -> oneshot::Receiver<Result<Outcome, PurgeRequestError>> {
        let (reply, answer) = oneshot::channel();
        let wish = PurgeRequest { purge, is_carried_out, scope, at_most, reply };
        let Some(wishes) = &self.wishes else { return answer };
        if let Err(unsent) = wishes.try_send(wish) {
            let (wish, refused) = match unsent {
                mpsc::error::TrySendError::Full(wish) => {
                    count(&self.common.counts.refused);
                    (wish, PurgeRequestError::TooMany)
                }
                mpsc::error::TrySendError::Closed(wish) => (wish, PurgeRequestError::Stopping),
            };
            // The receiver still exists, so sending cannot fail.
            let _ = wish.reply.send(Err(refused));
        }
        answer
    }

    /// Opens the shared data; `hears` is called for each value that exists and for each change. `None` if
    /// none is configured.
    pub fn open_vault(&self, hears: OnChange) -> Option<Vault> {
        let config = self.common.config.vault.clone()?;
        let (vault, keeper) = vault::VaultTask::new(Arc::clone(&self.common), config, hears)?;
        self.vaults.try_send(keeper).ok().map(|()| vault)
    }

    /// Returns the status of this instance and of all others.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        let common = &self.common;
        let State { words, is_joined } = common.state.borrow().clone();
        let instances = common.view.borrow().instance_statuses(common.config.name.as_str(), common.now_ms());
        ClusterStatus {
            state: words,
            is_joined,
            applied: common.applied(),
            generation: common.generation(),
            vault: common.vault.borrow().clone(),
            instances,
        }
    }

    /// Returns the time within which a purge takes effect everywhere. For an unreachable instance, a purge
    /// waits until its lease has expired.
    #[must_use]
    pub fn settle_time(&self) -> Duration {
        self.common.config.lease * 2 + Duration::from_secs(5)
    }

    /// Returns the source of the counters.
    #[must_use]
    pub fn counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.common.counts) as Arc<dyn Source>
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.wishes = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already reported it.
            let _ = thread.join();
        }
    }
}
