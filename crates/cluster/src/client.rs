//! The cluster as the program holds it: a thread, and the way to it.

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

/// Helpers that carry out purges and write the position.
const HELPERS: usize = 2;
/// Buckets of what instances share.
const VAULTS_MAX: usize = 1;

/// Why it could not be started. That the cluster cannot be reached is no reason.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Where it keeps how far it is.
    #[error("cannot keep how far it is: {0}")]
    Position(io::Error),
    /// The thread, or its runtime.
    #[error("cannot start its thread: {0}")]
    Thread(io::Error),
}

/// How it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) words: String,
    pub(crate) is_joined: bool,
}

/// What the thread, those who wait for purges on it, and who looks from outside share.
pub(crate) struct Common {
    pub(crate) config: Config,
    pub(crate) instance: String,
    pub(crate) counts: Arc<Counts>,
    pub(crate) view: watch::Sender<InstanceTable>,
    /// The connection, while there is one that stream and bucket were found by.
    pub(crate) open: watch::Sender<Option<Context>>,
    pub(crate) state: watch::Sender<State>,
    /// Where it is told that a purge was carried out; empty: nowhere yet.
    pub(crate) inbox: watch::Sender<String>,
    /// How what instances share is, where anything is.
    pub(crate) vault: watch::Sender<Option<String>>,
    /// A card is wanted now.
    pub(crate) renew: Notify,
    /// The stream is not what it was.
    pub(crate) doubt: Notify,
    applied: AtomicU64,
    generation: AtomicU64,
    numbers: AtomicU64,
}

impl Common {
    /// The clock by which others are judged: it stands still while the machine sleeps.
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

    pub(crate) fn is_at(&self, position: Position) {
        self.applied.store(position.applied, Ordering::Release);
        self.generation.store(position.generation, Ordering::Release);
    }
}

/// See the module. Dropped, it leaves the cluster.
pub struct Cluster {
    common: Arc<Common>,
    wishes: Option<mpsc::Sender<PurgeRequest>>,
    vaults: mpsc::Sender<vault::VaultTask>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts the thread, which connects and joins in its own time. Until it has, nothing that is stored is served.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: Config, server: Arc<dyn PurgeExecutor>) -> Result<Self, StartError> {
        let number = || engine::random::number().map_err(StartError::Thread);
        let instance = u128::from(number()?) << 64 | u128::from(number()?);
        let opened = config.position.as_deref().map(|path| PositionFile::open(path, instance));
        let opened = opened.transpose().map_err(StartError::Position)?;
        let state = State { words: "it is connecting to the cluster".to_owned(), is_joined: false };
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

    /// Tells the others of a purge; the answer comes when that, or what else was asked for, is done, or the time is up.
    /// `is_carried_out`: it holds here already.
    pub fn tell(
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
            // Its receiver is in our hand.
            let _ = wish.reply.send(Err(refused));
        }
        answer
    }

    /// Opens what instances share; `hears` is told of all that is there, and of each change. `None`: nothing is to be.
    pub fn open_vault(&self, hears: OnChange) -> Option<Vault> {
        let config = self.common.config.vault.clone()?;
        let (vault, keeper) = vault::VaultTask::new(Arc::clone(&self.common), config, hears)?;
        self.vaults.try_send(keeper).ok().map(|()| vault)
    }

    /// How it is, and who else is there.
    #[must_use]
    pub fn look(&self) -> ClusterStatus {
        let common = &self.common;
        let State { words, is_joined } = common.state.borrow().clone();
        let instances = common.view.borrow().seen(common.config.name.as_str(), common.now_ms());
        ClusterStatus {
            state: words,
            is_joined,
            applied: common.applied(),
            generation: common.generation(),
            vault: common.vault.borrow().clone(),
            instances,
        }
    }

    /// The time that a purge has to hold everywhere: an instance may be waited for until its lease is out.
    #[must_use]
    pub fn everywhere_within(&self) -> Duration {
        self.common.config.lease * 2 + Duration::from_secs(5)
    }

    /// What is counted.
    #[must_use]
    pub fn counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.common.counts) as Arc<dyn Source>
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.wishes = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
