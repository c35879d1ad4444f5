//! The accelerator as a member of a cluster: purges from the cluster are applied on its cores, and local
//! purges are broadcast.
//!
//! ```text
//!  the admin server, a visitor's PURGE ──▶ here, then ClusterService ──▶ cluster ──▶ the other accelerators
//!  the other accelerators ──▶ cluster ──▶ PurgeApplier ──▶ the accelerator's cores
//! ```

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use cache::{
    BroadcastFuture, ClusterHandle, Invalidate, PeerAt, PurgeBroadcast, PurgeError, lease::Membership,
};
use cluster::{
    Cluster, ClusterStatus, Config, ExecuteError, LiveInstance, OnChange, Outcome, Purge, PurgeExecutor,
    PurgeRequestError, PurgeSelection, Scope, Vault,
};
use engine::{cold_mutex::ColdMutex, meter::Source};
use tokio::sync::oneshot;

use crate::{admin::Purger, failure::Failure};

/// Timeout for publishing a purge that need not be complete on every accelerator.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// An accelerator that belongs to a cluster.
pub(crate) trait ClusterMember: Purger {
    /// Sets the accelerators among which the cache keys are divided from now on.
    fn share_keys_with(&self, live: &[PeerAt]);
}

/// An accelerator's membership of its cluster.
pub(crate) struct ClusterService {
    config: Config,
    membership: Arc<Membership>,
    /// `None` before [`ClusterService::begin`] and after the cluster was left.
    cluster: ColdMutex<Option<Cluster>>,
}

impl ClusterService {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self {
            config,
            membership: Arc::new(Membership::without_lease()),
            cluster: ColdMutex::new(None),
        })
    }

    /// Returns the handle with which the accelerator is started.
    pub(crate) fn cluster_handle(self: &Arc<Self>) -> ClusterHandle {
        let abroad = Arc::clone(self) as Arc<dyn PurgeBroadcast>;
        ClusterHandle { membership: Arc::clone(&self.membership), abroad: Some(abroad) }
    }

    /// Starts to connect to the cluster.
    pub(crate) fn begin(&self, accelerator: Weak<dyn ClusterMember>) -> Result<(), Failure> {
        let has_peers = !self.config.address.is_empty();
        let carrier =
            Arc::new(PurgeApplier { accelerator, membership: Arc::clone(&self.membership), has_peers });
        let cluster = Cluster::start(self.config.clone(), carrier)
            .map_err(|error| Failure::Failed(format!("the cluster: {error}")))?;
        *self.cluster.lock() = Some(cluster);
        Ok(())
    }

    fn ask<T>(&self, ask: impl FnOnce(&Cluster) -> T) -> Option<T> {
        self.cluster.lock().as_ref().map(ask)
    }

    /// Returns whether the accelerators share certificates in a vault.
    pub(crate) fn has_vault(&self) -> bool {
        self.config.vault.is_some()
    }

    /// Opens the vault; `None` if there is none, or if the cluster was left.
    pub(crate) fn open_vault(&self, hears: OnChange) -> Option<Vault> {
        self.ask(|cluster| cluster.open_vault(hears)).flatten()
    }

    /// Leaves the cluster. Blocks until the cluster has been notified, for at most half a second.
    pub(crate) fn leave(&self) {
        let cluster = self.cluster.lock().take();
        drop(cluster);
    }

    pub(crate) fn counters(&self) -> Option<Arc<dyn Source>> {
        self.ask(Cluster::counters)
    }

    pub(crate) fn status(&self) -> Option<(ClusterStatus, Option<u64>)> {
        self.ask(|cluster| (cluster.status(), self.membership.lease_left_ms()))
    }

    /// Returns the startup line that names the cluster's servers.
    pub(crate) fn announcement(&self) -> String {
        let servers: Vec<_> =
            self.config.servers.iter().map(|server| cluster::without_secret(server)).collect();
        format!("cache: {} of the accelerators at {}\n", self.config.name, servers.join(", "))
    }

    /// Broadcasts a local purge, and blocks until the condition of `scope` is met.
    pub(crate) fn publish_and_wait(
        &self,
        what: &Invalidate,
        is_soft: bool,
        scope: Scope,
    ) -> Result<Outcome, PurgeRequestError> {
        let answer = self.begin_to_tell(what, is_soft, scope);
        answer.and_then(|answer| answer.blocking_recv().ok()).unwrap_or(Err(PurgeRequestError::Stopping))
    }

    fn begin_to_tell(
        &self,
        what: &Invalidate,
        is_soft: bool,
        scope: Scope,
    ) -> Option<oneshot::Receiver<Result<Outcome, PurgeRequestError>>> {
        // An instance of an older version purges only the exact URL that it receives, so the URL is published
        // with both schemes. Instances apply purges in order, so one that has applied the last URL has
        // applied the others too.
        if let Invalidate::Url(url) = what {
            for what in cache::urls_of_page(url).into_iter().skip(1).map(PurgeSelection::Url) {
                let told = |cluster: &Cluster| {
                    cluster.request_purge(Purge { what, is_soft }, true, Scope::Told, TOLD_WITHIN)
                };
                drop(self.ask(told));
            }
        }
        let what = match what {
            Invalidate::Url(url) => PurgeSelection::Url(url.clone()),
            Invalidate::Tags(tags) => PurgeSelection::Tags(tags.clone()),
            Invalidate::Ban(ban) => PurgeSelection::Ban(ban.clone()),
            Invalidate::Tagged => PurgeSelection::Tagged,
            Invalidate::All | Invalidate::Doubted => PurgeSelection::All,
        };
        self.ask(|cluster| {
            let within = match scope {
                Scope::Everywhere => cluster.settle_time(),
                Scope::Told => TOLD_WITHIN,
            };
            cluster.request_purge(Purge { what, is_soft }, true, scope, within)
        })
    }
}

impl PurgeBroadcast for ClusterService {
    fn broadcast(&self, what: Invalidate, is_soft: bool) -> BroadcastFuture {
        let answer = self.begin_to_tell(&what, is_soft, Scope::Told);
        Box::pin(async move {
            let answer = match answer {
                Some(answer) => answer.await.unwrap_or(Err(PurgeRequestError::Stopping)),
                None => Err(PurgeRequestError::Stopping),
            };
            answer.map(|_| ()).map_err(|refused| refused.to_string())
        })
    }
}

/// Applies the cluster's purges to the accelerator.
struct PurgeApplier {
    accelerator: Weak<dyn ClusterMember>,
    membership: Arc<Membership>,
    /// True if keys are shared with peers, which may still answer with objects that they have not purged yet.
    has_peers: bool,
}

impl PurgeApplier {
    fn invalidate(&self, what: &Invalidate, is_soft: bool) -> Result<(), ExecuteError> {
        let stopping = || ExecuteError::NotNow("the server is stopping".to_owned());
        let accelerator = self.accelerator.upgrade().ok_or_else(stopping)?;
        let outcome = match what {
            Invalidate::Url(url) if !is_soft => accelerator.purge(url).map(|_| ()),
            what => accelerator.invalidate(what, is_soft),
        };
        outcome.map_err(|error| match error {
            PurgeError::NotAUrl(_) | PurgeError::NotABan(_) => ExecuteError::NotUnderstood(error.to_string()),
            PurgeError::NotWritten | PurgeError::NoAnswer => ExecuteError::NotNow(error.to_string()),
        })
    }
}

impl PurgeExecutor for PurgeApplier {
    fn carry_out(&self, purge: &Purge) -> Result<(), ExecuteError> {
        let what = match &purge.what {
            PurgeSelection::Url(url) => Invalidate::Url(url.clone()),
            PurgeSelection::Tags(tags) => Invalidate::Tags(tags.clone()),
            PurgeSelection::Ban(ban) => Invalidate::Ban(ban.clone()),
            PurgeSelection::Tagged => Invalidate::Tagged,
            PurgeSelection::All => Invalidate::All,
        };
        self.invalidate(&what, purge.is_soft)
    }

    fn mark_all_unverified(&self) -> Result<(), ExecuteError> {
        self.invalidate(&Invalidate::Doubted, true)
    }

    fn set_lease(&self, boot_ms: Option<u64>) {
        match boot_ms {
            Some(boot_ms) => self.membership.set_lease(boot_ms),
            None => self.membership.drop_lease(),
        }
    }

    fn note_begun(&self, generation: u64, sequence: u64) {
        self.membership.note_begun(generation, sequence);
    }

    fn note_applied(&self, generation: u64, sequence: u64) {
        self.membership.note_applied(generation, sequence);
    }

    fn repeats_own_purges(&self) -> bool {
        self.has_peers
    }

    fn members_changed(&self, live: &[LiveInstance]) {
        let Some(accelerator) = self.accelerator.upgrade() else { return };
        let at = |live: &LiveInstance| PeerAt { name: live.name.clone(), address: live.address.clone() };
        accelerator.share_keys_with(&live.iter().map(at).collect::<Vec<_>>());
    }
}
