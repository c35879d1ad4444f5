//! The accelerator as one of several: what the cluster says is carried out on its cores, and what is purged here is told.
//!
//! ```text
//!  the admin server, a visitor's PURGE ──▶ here, then ClusterService ──▶ cluster ──▶ the others
//!  the others ──▶ cluster ──▶ PurgeApplier ──▶ the accelerator's cores
//! ```

use std::{
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use cache::{
    BroadcastFuture, ClusterHandle, Invalidate, PeerAt, PurgeBroadcast, PurgeError, lease::Membership,
};
use cluster::{
    Cluster, ClusterStatus, Config, ExecuteError, OnChange, Outcome, Purge, PurgeExecutor, PurgeRequestError,
    PurgeSelection, Scope, Vault,
};
use engine::meter::Source;
use tokio::sync::oneshot;

use crate::{
    failure::Failure,
    services::accelerator::{Accelerator, Purger},
};

#[expect(clippy::disallowed_types, reason = "a purge's path: held for the time of a message")]
type Lock<T> = std::sync::Mutex<T>;

/// How long a purge that is only to be told waits for the cluster.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// PurgeSelection an accelerator has of its cluster.
pub(crate) struct ClusterService {
    config: Config,
    membership: Arc<Membership>,
    /// None before it is begun, and once it has left.
    cluster: Lock<Option<Cluster>>,
}

impl ClusterService {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self { config, membership: Arc::new(Membership::without_lease()), cluster: Lock::new(None) })
    }

    /// PurgeSelection the accelerator is started with.
    pub(crate) fn among(self: &Arc<Self>) -> ClusterHandle {
        let abroad = Arc::clone(self) as Arc<dyn PurgeBroadcast>;
        ClusterHandle { membership: Arc::clone(&self.membership), abroad: Some(abroad) }
    }

    /// Begins to connect.
    pub(crate) fn begin(&self, accelerator: Weak<Accelerator>) -> Result<(), Failure> {
        let has_peers = !self.config.address.is_empty();
        let carrier =
            Arc::new(PurgeApplier { accelerator, membership: Arc::clone(&self.membership), has_peers });
        let cluster = Cluster::start(self.config.clone(), carrier)
            .map_err(|error| Failure::Failed(format!("the cluster: {error}")))?;
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(cluster);
        Ok(())
    }

    fn ask<T>(&self, ask: impl FnOnce(&Cluster) -> T) -> Option<T> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
    }

    /// Whether the accelerators share more than purges.
    pub(crate) fn has_vault(&self) -> bool {
        self.config.vault.is_some()
    }

    /// Opens what they share; `None`: nothing, or the cluster has been left.
    pub(crate) fn open_vault(&self, hears: OnChange) -> Option<Vault> {
        self.ask(|cluster| cluster.open_vault(hears)).flatten()
    }

    /// Leaves the cluster. Blocks until it knows, for half a second at most.
    pub(crate) fn leave(&self) {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(cluster);
    }

    pub(crate) fn counters(&self) -> Option<Arc<dyn Source>> {
        self.ask(Cluster::counters)
    }

    pub(crate) fn look(&self) -> Option<(ClusterStatus, Option<u64>)> {
        self.ask(|cluster| (cluster.look(), self.membership.lease_left_ms()))
    }

    /// A line for the start.
    pub(crate) fn announcement(&self) -> String {
        let servers: Vec<_> =
            self.config.servers.iter().map(|server| cluster::without_secret(server)).collect();
        format!("cache: {} of the accelerators at {}\n", self.config.name, servers.join(", "))
    }

    /// Tells the others of what was purged here, and blocks until that is done, or holds everywhere.
    pub(crate) fn tell(
        &self,
        what: &Invalidate,
        is_soft: bool,
        everywhere: bool,
    ) -> Result<Outcome, PurgeRequestError> {
        let answer = self.begin_to_tell(what, is_soft, everywhere);
        answer.and_then(|answer| answer.blocking_recv().ok()).unwrap_or(Err(PurgeRequestError::Stopping))
    }

    fn begin_to_tell(
        &self,
        what: &Invalidate,
        is_soft: bool,
        everywhere: bool,
    ) -> Option<oneshot::Receiver<Result<Outcome, PurgeRequestError>>> {
        // An instance of an older version purges the URL that it is told and no more, so that it is told both schemes.
        // Purger are carried out in order: an instance that has carried out the last has carried out the others.
        if let Invalidate::Url(url) = what {
            for what in cache::urls_of_page(url).into_iter().skip(1).map(PurgeSelection::Url) {
                let told =
                    |cluster: &Cluster| cluster.tell(Purge { what, is_soft }, true, Scope::Told, TOLD_WITHIN);
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
            let (scope, within) = if everywhere {
                (Scope::Everywhere, cluster.everywhere_within())
            } else {
                (Scope::Told, TOLD_WITHIN)
            };
            cluster.tell(Purge { what, is_soft }, true, scope, within)
        })
    }
}

impl PurgeBroadcast for ClusterService {
    fn tell(&self, what: Invalidate, is_soft: bool) -> BroadcastFuture {
        let answer = self.begin_to_tell(&what, is_soft, false);
        Box::pin(async move {
            let answer = match answer {
                Some(answer) => answer.await.unwrap_or(Err(PurgeRequestError::Stopping)),
                None => Err(PurgeRequestError::Stopping),
            };
            answer.map(|_| ()).map_err(|refused| refused.to_string())
        })
    }
}

/// Carries out what the cluster says.
struct PurgeApplier {
    accelerator: Weak<Accelerator>,
    membership: Arc<Membership>,
    /// Keys are shared with others, who may answer us what they have not purged yet.
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

    fn doubt_all(&self) -> Result<(), ExecuteError> {
        self.invalidate(&Invalidate::Doubted, true)
    }

    fn lease_until(&self, boot_ms: Option<u64>) {
        match boot_ms {
            Some(boot_ms) => self.membership.lease_until(boot_ms),
            None => self.membership.serve_on(),
        }
    }

    fn begins(&self, generation: u64, sequence: u64) {
        self.membership.begins(generation, sequence);
    }

    fn has_applied(&self, generation: u64, sequence: u64) {
        self.membership.has_applied(generation, sequence);
    }

    fn carries_own_again(&self) -> bool {
        self.has_peers
    }

    fn are_there(&self, live: &[(String, String)]) {
        let Some(accelerator) = self.accelerator.upgrade() else { return };
        let at = |(name, address): &(String, String)| PeerAt { name: name.clone(), address: address.clone() };
        accelerator.share_keys_with(&live.iter().map(at).collect::<Vec<_>>());
    }
}
