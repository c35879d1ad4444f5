//! The accelerator as a service of the program.

use std::{
    collections::BTreeSet, future::Future, net::SocketAddr, path::PathBuf, pin::Pin, sync::Arc,
    time::Duration,
};

use cache::{
    Authorities, BanSeen, ByHand, Config, ExplainError, Explanation, Invalidate, MemberSaid, Objects,
    ObjectsError, Origin, PeerAt, PeerSeen, PurgeError, PurgeResult, RequestOf, Server, TlsError,
};
use cluster::{ClusterStatus, Outcome, PurgeRequestError, Scope};
use engine::{
    cold_mutex::ColdMutex,
    journal::Journal,
    meter::{Registry, Source},
};

use crate::{
    admin::{OperatorView, Purger, stat::Report},
    failure::{Failure, Fault},
    machine::{self, descriptors},
    services::{
        certificates::{CertificateStatus, Certificates},
        cluster_cert_store::ClusterCertStore,
        cluster_service::{ClusterMember, ClusterService},
        savings::SavingsLine,
        shell::{ConfigApply, ServerHandle, Service, StopMessages},
    },
    settings::{Section, Setting, Settings, units::size_text},
};

/// Function that chooses the origin for a configuration that names none.
pub(crate) type OriginChoice = Box<dyn Fn(&Settings) -> Option<Origin> + Send + Sync>;

/// The accelerator that the program runs.
pub(crate) struct Accelerator {
    running: ServerHandle<Server>,
    addresses: Vec<SocketAddr>,
    /// Description of the origin, for the startup announcement and the log.
    in_front_of: String,
    memory_bytes: u64,
    store: Option<(PathBuf, u64)>,
    /// Certificates of the process; `None` without TLS.
    certificates: Option<Arc<Certificates>>,
    /// Function that returns the origin for hosts that no site names.
    origin_of: OriginChoice,
    /// Periodic report of savings, locked once in ten seconds; `None` if the accelerator is one of several
    /// servers.
    savings: Option<ColdMutex<SavingsLine>>,
    /// Cluster to which the accelerator belongs.
    clustered: Option<Arc<ClusterService>>,
}

impl Accelerator {
    /// Starts the accelerator. With `tells_savings` it periodically prints its savings on stdout. With
    /// `certificates`, clients can also connect over TLS, and missing certificates are obtained from now on.
    ///
    /// # Errors
    /// Returns a `Failure` that says what prevents the start.
    pub(crate) fn start(
        settings: &Settings,
        origin_of: OriginChoice,
        certificates: Option<Arc<Certificates>>,
        journal: Option<&Arc<Journal>>,
        in_front_of: String,
        tells_savings: bool,
    ) -> Result<Arc<Self>, Failure> {
        let config = settings.accelerator(origin_of(settings))?;
        let memory_bytes = config.memory_bytes;
        let mut config = Config {
            tls: certificates.as_ref().map(|certificates| certificates.tls.clone()),
            challenges: certificates.as_ref().and_then(|certificates| certificates.challenges.clone()),
            ..config
        };
        check_authorities(&config).map_err(|fault| Failure::Configuration(vec![fault]))?;
        let cores = machine::cores(&config.cores);
        descriptors::fit(&mut config, descriptors::raise(), cores);
        let clustered = settings.cluster.config(settings.cache.store.as_ref(), settings.peers.told_address());
        let clustered =
            clustered.map_err(|fault| Failure::Configuration(vec![fault]))?.map(ClusterService::new);
        let among = clustered.as_ref().map(ClusterService::cluster_handle).unwrap_or_default();
        let store = config.store.clone().map(|path| (path, config.store_bytes));
        let server = Server::start_among(config, journal, among)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        let accelerator = Arc::new(Self {
            addresses: server.addresses(),
            running: ServerHandle::new(server),
            in_front_of,
            memory_bytes,
            store,
            origin_of,
            certificates,
            savings: tells_savings.then(ColdMutex::default),
            clustered,
        });
        if let Some(clustered) = &accelerator.clustered {
            clustered.begin(Arc::<Self>::downgrade(&accelerator))?;
        }
        if let Some(certificates) = &accelerator.certificates {
            let share = accelerator.clustered.as_ref().and_then(ClusterCertStore::of);
            if share.is_none() && accelerator.clustered.is_some() && certificates.are_obtained() {
                tracing::warn!(
                    "each accelerator of the cluster obtains certificates of its own; set cluster-secret to share them"
                );
            }
            certificates.begin(share)?;
        }
        Ok(accelerator)
    }

    /// Returns the cluster's counters.
    pub(crate) fn cluster_counters(&self) -> Option<Arc<dyn Source>> {
        self.clustered.as_ref().and_then(|clustered| clustered.counters())
    }

    /// Returns the addresses on which clients connect.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// Settings that take effect only after a restart, in addition to those of the cluster, of peers and of the
/// certificate authority: listening addresses, the store, and the resources that are reserved at startup.
const ONLY_AT_START: &[&str] = &[
    "listen",
    "listen-unix",
    "tls-listen",
    "memory",
    "memory-limit",
    "store",
    "store-size",
    "paging",
    "store-admission",
    "name",
    "compress",
    "compress-types",
    "compress-bytes-min",
    "compress-bytes-max",
    "request-head-bytes-max",
    "origin-idle-time-max",
    "origin-connections-max",
    "origin-queue-max",
    "origin-lasting-max",
    "origin-stream-bytes-max",
    "origin-streams-bytes-max",
    "resolver",
    "client-bytes-max",
];

/// Checks that the CA files for client certificates can be read.
pub(crate) fn check_authorities(config: &Config) -> Result<(), Fault> {
    let of_sites = config.sites.iter().map(|site| &site.rules);
    let asked =
        [&config.rules].into_iter().chain(of_sites).filter_map(|rules| rules.client_certificates.as_ref());
    asked.map(|asked| asked.authorities.as_path()).collect::<BTreeSet<_>>().into_iter().try_for_each(|file| {
        let fault = |error: TlsError| Fault { place: "tls-client-ca".to_owned(), message: error.to_string() };
        Authorities::read(file).map(|_| ()).map_err(fault)
    })
}

impl OperatorView for Accelerator {
    fn registry(&self) -> Arc<Registry> {
        self.running.registry()
    }

    fn is_ready(&self) -> bool {
        self.running.is_ready()
    }

    fn certificates(&self) -> Vec<CertificateStatus> {
        self.certificates.as_ref().map(|certificates| certificates.statuses()).unwrap_or_default()
    }
}

impl Purger for Accelerator {
    fn purge(&self, url: &str) -> Result<PurgeResult, PurgeError> {
        self.running.ask(|server| server.purge(url)).unwrap_or(Err(PurgeError::NoAnswer))
    }

    fn note_changes(&self, tags: &[String], is_deletion: bool) -> Result<(), PurgeError> {
        let noted = self.running.ask(|server| server.note_changes(tags, is_deletion));
        noted.unwrap_or(Err(PurgeError::NoAnswer))
    }

    fn invalidate(&self, what: &Invalidate, is_soft: bool) -> Result<(), PurgeError> {
        let outcome = self.running.ask(|server| server.invalidate(what, is_soft));
        outcome.unwrap_or(Err(PurgeError::NoAnswer))
    }

    fn broadcast_purge(
        &self,
        what: &Invalidate,
        is_soft: bool,
        scope: Scope,
    ) -> Option<Result<Outcome, PurgeRequestError>> {
        self.clustered.as_ref().map(|clustered| clustered.publish_and_wait(what, is_soft, scope))
    }

    fn cluster(&self) -> Option<(ClusterStatus, Option<u64>)> {
        self.clustered.as_ref().and_then(|clustered| clustered.status())
    }

    fn peers(&self) -> Vec<PeerSeen> {
        self.running.ask(Server::peers).unwrap_or_default()
    }

    fn bans(&self) -> Result<Vec<BanSeen>, PurgeError> {
        self.running.ask(Server::bans).unwrap_or(Err(PurgeError::NoAnswer))
    }

    fn objects(&self, expression: Option<&str>, rows_max: usize) -> Result<Objects, ObjectsError> {
        let answer = self.running.ask(|server| server.objects(expression, rows_max));
        answer.unwrap_or(Err(ObjectsError::NoAnswer))
    }

    fn origins(&self) -> Vec<MemberSaid> {
        self.running.ask(Server::origins).unwrap_or_default()
    }

    fn set_origin(&self, server: &str, by_hand: ByHand) -> bool {
        self.running.ask(|running| running.set_origin(server, by_hand)).unwrap_or(false)
    }

    fn explain(&self, request: &RequestOf) -> Result<Explanation, ExplainError> {
        self.running.ask(|server| server.explain(request)).unwrap_or(Err(ExplainError::NoAnswer))
    }
}

impl ClusterMember for Accelerator {
    fn share_keys_with(&self, live: &[PeerAt]) {
        let outcome = self.running.ask(|server| server.set_peers(live));
        if let Some(Err(error)) = outcome {
            tracing::warn!(%error, "cannot get the status of the other instances of the cluster");
        }
    }
}

impl Service for Accelerator {
    fn announcement(&self) -> String {
        let mut text = String::new();
        for (address, scheme) in self.addresses.iter().zip(["http", "https"]) {
            text.push_str(&format!("cache: listening on {scheme}://{address}\n"));
        }
        text.extend(self.certificates.as_ref().and_then(|certificates| certificates.announcement()));
        let memory = size_text(self.memory_bytes);
        text.push_str(&format!("cache: in front of {}, with {memory} of memory\n", self.in_front_of));
        if let Some((path, bytes)) = &self.store {
            let size = size_text(*bytes);
            text.push_str(&format!("cache: stores objects in {}, {size}\n", path.display()));
        }
        text.extend(self.clustered.as_ref().map(|clustered| clustered.announcement()));
        if let Some(address) = self.running.ask(Server::peers_address).flatten() {
            text.push_str(&format!("cache: listening for peers on {address}\n"));
        }
        text
    }

    fn section(&self) -> Section {
        Section::Cache
    }

    fn follows(&self, setting: &Setting) -> bool {
        let has_tls = self.certificates.is_some() || !setting.key.starts_with("tls-");
        if setting.key == "acme-domain" {
            return self.certificates.as_ref().is_some_and(|certificates| certificates.are_obtained());
        }
        has_tls
            && !["acme-", "cluster", "peers-"].iter().any(|start| setting.key.starts_with(start))
            && !ONLY_AT_START.contains(&setting.key)
    }

    fn check(&self, settings: &Settings) -> Result<ConfigApply<'_>, Fault> {
        let config = settings.accelerator((self.origin_of)(settings)).map_err(Failure::into_fault)?;
        check_authorities(&config)?;
        let prepared = self.running.ask(|server| server.prepare(config));
        let prepared = prepared
            .transpose()
            .map_err(|error| Fault { place: "cache".to_owned(), message: error.to_string() })?;
        let show = self.certificates.as_ref().map(|certificates| certificates.check(settings)).transpose()?;
        Ok(Box::new(move || {
            let Some(prepared) = prepared else { return Ok(None) };
            if let Some(Err(error)) = self.running.ask(|server| server.activate(prepared)) {
                return Err(error.to_string());
            }
            Ok(show.map(|show| show()))
        }))
    }

    fn remark(&self) -> Option<String> {
        if let Some(certificates) = &self.certificates {
            certificates.follow();
        }
        let mut savings = self.savings.as_ref()?.lock();
        savings.line(&Report::new(&self.registry().snapshot(), true, 0)).map(|line| line + "\n")
    }

    fn until_loop_fails(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.running.ended())
    }

    fn begin_drain(&self) {
        self.running.begin_drain();
    }

    fn drain(&self, at_most: Duration) -> Result<bool, Failure> {
        let drained = self.running.drain(at_most);
        if let Some(clustered) = &self.clustered {
            clustered.leave();
        }
        drained
    }

    /// Drains after mail, because the accelerator may be the proxy in front of mail's pages.
    fn stage(&self) -> u8 {
        1
    }

    fn words(&self, at_most: Duration) -> StopMessages {
        StopMessages {
            stopping: format!("no new requests; those under way have up to {at_most:?}"),
            whole: "all requests were answered",
            cut: "time limit reached before all requests were answered",
        }
    }
}
