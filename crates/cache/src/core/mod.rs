//! What one core owns: its share of the store, its fetches under way, its connections to the origin, its scratch.
//!
//! All of it is plain memory of the core's thread, found through a thread-local, so that the tasks that use it hold no
//! reference across an `.await` and stay `Send` as tokio wants them. Borrows are short and never nest into a call that
//! borrows again.

pub(crate) mod direct_mapped_table;
pub(crate) mod housekeeping;
pub(crate) mod identity_hasher;
mod install;
pub(crate) mod memory_need;
mod messages;
pub(crate) mod store_file;
#[cfg(test)]
pub(crate) mod test_core;
mod upstreams;

pub(crate) use install::CoreSetup;
pub(crate) use messages::{
    CoreBusy, HeadAnswer, Message, RING_PAUSE, RING_WAIT_MAX, StoreRequest, ToCode, UnlinkOutcome,
};
use std::{
    cell::{Cell, OnceCell, RefCell, RefMut},
    collections::HashMap,
    net::IpAddr,
    ops::Deref,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
pub(crate) use upstreams::{OfCore, SiteUpstreams, count_http2};

use engine::{
    accounts::Accounts,
    cores::{
        Rounds, SteadyClock, behind::BackgroundBudget, clock, fair::TurnScheduler, listener::Balance,
        mesh::Sender, watch::Watches,
    },
    holding::ClientMemoryBudget,
    io::Reads,
    log,
    meter::CoreCounters,
    store::{BodyLength, Hash, InsertRefusal, NewObject, Reader, Shard, Store},
    sys::lend::Lender,
    tls::session::Session,
};
use tokio::{sync::Notify, task::AbortHandle};
use wire::http1::{
    head::{HeaderSlots, RequestHead},
    url::Scheme,
};

use crate::{
    admin::{cookie_names::CookieNames, cookie_samples::Samples, last_clients::LastClients},
    body::{
        growing::{PassingBudget, Window},
        parts_in_memory::PartsInMemory,
    },
    client::{
        http2::{self, Multiplexes},
        limits::rates::TooMany,
        tls_terms::TlsTerms,
        transport,
    },
    config::Config,
    core::direct_mapped_table::DirectMappedTable,
    counters::Counter,
    encoding::codec_pool::Coders,
    error_page::Fault,
    fetch::{
        in_flight::InFlight, query_shares::Queries, refresh_throttle::RefreshThrottle, response::Response,
        variants::Variants,
    },
    head::{
        response_head::{Flags, Identity, StoredMeta},
        sent_fields::Manner,
    },
    log::transaction::Draft,
    origin::{self, MemberId, Pool},
    peers::{Peers, purge_broadcast::ClusterHandle},
    policy::RequestFacts,
    purging::{bans::Subject, invalidations::Invalidations, purge_log::Book},
    request::{
        Request,
        active_config::ActiveConfig,
        client_auth::{self, ClientAuth, ClientStanding},
        key,
        lookup_key::LookupKey,
    },
    site::{SiteId, Sites},
};

/// How a core reads what is on the store's file.
pub(crate) struct FileReads {
    pub(crate) reads: Reads,
    /// Empty while the file is being read at the start.
    pub(crate) log: OnceCell<log::Reader>,
    /// Reads of large objects that wait for the disk on threads of their own.
    pub(crate) large: Cell<usize>,
    /// Answers that are stored in parts while they pass.
    pub(crate) storing: Cell<usize>,
    /// Parts that clients are being sent, now.
    pub(crate) parts: RefCell<PartsInMemory>,
    /// Most parts for which clients have room in memory ([`PartsRoom`](crate::client::limits::request_tasks::PartsRoom)).
    pub(crate) parts_max: usize,
    /// Wakes answers that wait for such room.
    pub(crate) parts_freed: Arc<Notify>,
}

/// Buffers of the thread: idle connections hold none.
pub(crate) struct Scratch {
    /// What was read from a client; as long as the largest head, and at least [`READ_BYTES`].
    pub(crate) read: Vec<u8>,
    /// A stored head that is not sent as it is.
    pub(crate) head: Vec<u8>,
    /// Answers on their way out.
    pub(crate) out: Vec<u8>,
    /// Where the headers of the request are.
    pub(crate) slots: HeaderSlots,
    /// The key of the request.
    pub(crate) key: Vec<u8>,
    /// What the log will say of the answers.
    pub(crate) drafts: Vec<Draft>,
}

/// Bytes read from a client at once: many pipelined requests, and cheap enough to keep one for each core.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// Room for answers from the start, so that no hit makes it grow: what is gathered, and one answer more.
const OUT_BYTES: usize = 512 * 1024;

/// Milliseconds for which requests for an object do not wait for its fetch, after some have waited for one in vain.
const VAIN_MS: u64 = 60_000;

/// Milliseconds within which the second change of version of an object in blocks leaves a note, by which it is passed.
const VERSIONS_DIFFER_MS: u64 = 600_000;

/// How often a core's housekeeping runs while there is something to look after: deadlines, expiries, eviction ahead of
/// need.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);

/// One core's part of the accelerator, under what is in force there; or under what was, for a request that is older.
pub(crate) struct Core {
    own: Rc<Own>,
    pub(crate) in_force: Arc<ActiveConfig>,
    /// That of `in_force`.
    pub(crate) config: Arc<Config>,
    /// Likewise.
    pub(crate) sites: Arc<Sites>,
}

impl Deref for Core {
    type Target = Own;

    #[inline]
    fn deref(&self) -> &Own {
        &self.own
    }
}

/// What a core has for as long as it runs.
pub(crate) struct Own {
    pub(crate) index: usize,
    /// Whether what is stored may be served, and who else is told of purges.
    pub(crate) among: ClusterHandle,
    /// The name in Via and Cache-Status, ready to be copied.
    pub(crate) identity: Identity,
    /// Our name in the Via of requests: no other instance has it.
    pub(crate) pseudonym: Arc<str>,
    pub(crate) store: Arc<Store>,
    pub(crate) reader: Reader,
    /// To change it: [`Core::shard_mut`].
    pub(crate) shard: RefCell<Shard>,
    /// What is fetched to be stored comes behind what is ready to be answered.
    pub(crate) behind: Arc<BackgroundBudget>,
    /// When housekeeping comes by.
    pub(crate) rounds: Arc<Rounds>,
    expiry_clock: SteadyClock,
    /// `None` where the store is in memory alone.
    pub(crate) file: Option<FileReads>,
    pub(crate) in_flight: RefCell<InFlight>,
    /// Connections to origins.
    pub(crate) pool: RefCell<Pool>,
    /// Who probes origins' servers; the first core's alone.
    probes: RefCell<HashMap<MemberId, AbortHandle>>,
    /// What is agreed upon with clients under TLS; `None` where there is none.
    pub(crate) terms: Option<Arc<TlsTerms>>,
    pub(crate) samples: RefCell<Samples>,
    pub(crate) cookie_names: RefCell<CookieNames>,
    pub(crate) lately: RefreshThrottle,
    /// Objects whose fetch some requests have waited for in vain. For [`VAIN_MS`] no request waits for another's fetch:
    /// each asks the origin itself.
    pub(crate) vain: RefreshThrottle,
    /// Objects in blocks for which a block came in another version. The next time within [`VERSIONS_DIFFER_MS`] leaves
    /// a note.
    pub(crate) versions_differ: RefreshThrottle,
    /// Other accelerators that share keys with this one.
    pub(crate) peers: Option<Arc<Peers>>,
    /// When they were asked for an address, by its hash.
    pub(crate) asked_of_peers: DirectMappedTable<u64>,
    /// Whether a visitor of ours has changed what is at an address, by its hash, and no peer was told yet.
    pub(crate) changed_here: DirectMappedTable<bool>,
    /// Whom objects answered last here.
    pub(crate) askers: LastClients,
    /// Twins that the owner was told to have made.
    pub(crate) coded_lately: RefreshThrottle,
    /// `None` in a test of a core by itself: nothing is coded.
    pub(crate) coders: Option<Coders>,
    /// How many variants of an address were stored.
    pub(crate) variants: Variants,
    /// The part of the store that the queries of each path have taken.
    pub(crate) queries: Queries,
    pub(crate) invalidations: Invalidations,
    pub(crate) book: Arc<Book>,
    pub(crate) sender: Sender<Message>,
    pub(crate) scratch: RefCell<Scratch>,
    /// For clients under TLS.
    pub(crate) secured: RefCell<transport::Scratch>,
    /// For clients that speak HTTP/2.
    pub(crate) http2: RefCell<http2::Scratch>,
    pub(crate) multiplexes: RefCell<Multiplexes>,
    /// The connections, the stream tasks, the request heads and the parts of large objects that each client has on this core.
    pub(crate) accounts: Accounts,
    /// Connections are limited to fewer than `connections_max`, because those that there were took all memory that they may.
    pub(crate) are_connections_fitted: Cell<bool>,
    pub(crate) watches: RefCell<Watches>,
    pub(crate) balance: Arc<Balance>,
    pub(crate) counters: CoreCounters<Counter>,
    pub(crate) draining: Cell<bool>,
    /// How large bodies are sent without a copy; `None` where the store or the kernel does not do that.
    pub(crate) lender: RefCell<Option<Lender>>,
    /// Bytes of slow readers' remainders that were copied out of the store, now.
    pub(crate) copied_bytes: Cell<usize>,
    /// What is passed on and waits for its readers.
    pub(crate) passing: Arc<PassingBudget>,
    /// Bytes that clients make us hold, now.
    pub(crate) held: ClientMemoryBudget,
    /// Turns of connections that have much to do.
    pub(crate) fair: Arc<TurnScheduler>,
    /// WebSockets that are open.
    pub(crate) pipes: Cell<u64>,
    /// Connections of HTTP/2 to origins that are open.
    pub(crate) origin_http2: Cell<u64>,
    /// Connections that are being told that there is no room for them.
    pub(crate) turning_away: Cell<usize>,
    /// Bytes that connections take, now, by their kinds.
    pub(crate) connection_memory: ClientMemoryBudget,
    /// Handshakes under way.
    pub(crate) handshakes: Cell<usize>,
    requests: Cell<u64>,
    started_ms: u64,
}

thread_local! {
    /// Borrowed for as long as something runs on it, and replaced between two turns ([`Core::rule`]).
    static CORE: RefCell<Option<Core>> = const { RefCell::new(None) };
}

/// Seconds since the UNIX epoch as the store keeps them: 32 bits reach to the year 2106.
pub(crate) fn store_s(unix_s: u64) -> u32 {
    u32::try_from(unix_s).unwrap_or(u32::MAX)
}

/// A core under what was in force when a request began.
pub(crate) enum Under<'c> {
    /// It is still.
    Now(&'c Core),
    /// It is not.
    Before(Box<Core>),
}

impl Deref for Under<'_> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        match self {
            Self::Now(core) => core,
            Self::Before(core) => core,
        }
    }
}

fn count_probe(is_good: bool) {
    with_core(|core| {
        core.count(Counter::OriginProbes);
        if !is_good {
            core.count(Counter::OriginProbesFailed);
        }
    });
}

impl Core {
    /// From now on this is in force on the core of this thread. Nothing runs on it just now.
    pub(crate) fn rule(in_force: Arc<ActiveConfig>) {
        CORE.with_borrow_mut(|cell| {
            if let Some(core) = cell {
                *core = Self::of(Rc::clone(&core.own), in_force);
            }
        });
        with_core(|core| {
            core.pool.borrow_mut().close_old();
            core.keep_probing();
        });
    }

    /// Has those servers probed that are to be; each once, by the first core.
    fn keep_probing(&self) {
        if self.index != 0 {
            return;
        }
        let mut probes = self.probes.borrow_mut();
        let wanted = || self.sites.members.all.iter().filter(|member| member.is_probed());
        probes.retain(|id, probe| {
            let is_wanted = wanted().any(|member| member.id == *id);
            if !is_wanted {
                probe.abort();
            }
            is_wanted
        });
        for member in wanted() {
            probes.entry(member.id).or_insert_with(|| {
                tokio::spawn(origin::probe(Arc::clone(member), count_http2, count_probe)).abort_handle()
            });
        }
    }

    /// The core under what a request was judged by.
    #[inline]
    pub(crate) fn of_request(&self, request: &Request) -> Under<'_> {
        if Arc::ptr_eq(&self.in_force, &request.in_force) {
            return Under::Now(self);
        }
        Under::Before(Box::new(Self::of(Rc::clone(&self.own), Arc::clone(&request.in_force))))
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.counters.add(counter, 1);
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, by: u64) {
        self.counters.add(counter, by);
    }

    #[inline]
    pub(crate) fn gauge(&self, counter: Counter, value: u64) {
        self.counters.set(counter, value);
    }

    /// Wakes the answers that wait for room for parts of an object on the file.
    pub(crate) fn tell_of_parts_room(&self) {
        if let Some(file) = &self.file {
            file.parts_freed.notify_waiters();
        }
    }

    /// This core's share of the store, to be changed: housekeeping comes by after it.
    #[inline]
    pub(crate) fn shard_mut(&self) -> RefMut<'_, Shard> {
        self.rounds.stir();
        self.shard.borrow_mut()
    }

    /// For how long browsers that ask for what has this key are to come by https alone, in seconds.
    #[inline]
    pub(crate) fn hsts_s(&self, key: &[u8], site: SiteId) -> Option<u64> {
        let hsts = self.sites.rules(site).hsts?;
        (key::scheme(key) == Scheme::Https).then_some(hsts.as_secs())
    }

    /// The store's time: whole seconds.
    pub(crate) fn store_now_s(&self) -> u32 {
        store_s(clock::unix_s())
    }

    /// The time by which stored objects expire, in whole seconds. A step of the clock counts once it has lasted.
    pub(crate) fn expiry_now_s(&self) -> u32 {
        store_s(self.expiry_clock.unix_s())
    }

    /// What policy needs to know of a request, under its primary key.
    #[inline]
    pub(crate) fn facts(
        &self,
        head: &RequestHead<'_, '_>,
        has_body: bool,
        LookupKey { site, is_known, .. }: LookupKey,
        primary: &[u8],
    ) -> RequestFacts {
        let ruled = self.sites.table.ruled(site, head, key::path(primary));
        let facts = RequestFacts::of(head, has_body, self.config.client_cache_control);
        RequestFacts { certificate: is_known, ..facts }.under(ruled)
    }

    /// Returns whether a request came over a connection on which another host's certificate was shown (RFC 9110 §7.4).
    /// Browsers send requests for several hosts over one connection of HTTP/2 (RFC 9113 §9.1.1); over HTTP/1.1 the
    /// client asks one site for another.
    #[inline]
    pub(crate) fn is_misdirected(&self, session: Option<&Session>, head: &RequestHead<'_, '_>) -> bool {
        let (Some(terms), Some(session)) = (&self.terms, session) else { return false };
        head.authority().is_some_and(|authority| !terms.may_ask_for(authority.host, session.server_name()))
    }

    /// Bytes of the longest body that a site's requests may have.
    pub(crate) fn body_bytes_max(&self, site: SiteId) -> u64 {
        self.sites.rules(site).body_bytes_max.unwrap_or(self.config.limits.request_body_bytes_max)
    }

    /// How requests of a site are put to its origin.
    pub(crate) fn manner(&self, site: SiteId) -> Manner<'_> {
        let table = &self.sites.table;
        let (rules, ours) = (table.rules(site), table.certificate_fields());
        Manner { pseudonym: &self.pseudonym, rules, ours, is_to_peer: false, has_range_tag: false }
    }

    /// What a client is to a site.
    #[inline]
    pub(crate) fn standing(&self, site: SiteId, came: &ClientAuth, now_s: u64) -> ClientStanding {
        match &self.sites.rules(site).client_certificates {
            None => ClientStanding::Anybody,
            Some(asks) => client_auth::judge(asks, self.sites.authorities(site), came, now_s),
        }
    }

    /// Counts a request of a client; the answer to one that is too many.
    #[inline]
    pub(crate) fn admit(&self, client: IpAddr) -> Result<(), Fault> {
        self.in_force.rates.admit(client, clock::monotonic_ms()).map_err(|too_many| {
            self.count(match too_many {
                TooMany::Address => Counter::ClientRequestsRefused,
                TooMany::Network => Counter::NetworkRequestsRefused,
            });
            Fault::TooManyRequests
        })
    }

    /// Counts a request that would cost its origin work; the answer to one whose class has had its share.
    pub(crate) fn admit_work(&self, request: &Request) -> Result<(), Fault> {
        if request.is_of_peer {
            // It was counted where its client came.
            return Ok(());
        }
        let (rules, address) = (&self.config.crawlers, request.visitor.address);
        self.in_force.work.admit(rules, &request.head(), address, clock::monotonic_ms()).map_err(|counter| {
            self.count(counter);
            Fault::WorkTooMuch
        })
    }

    /// The same of a fetch for a request, which has no body.
    pub(crate) fn facts_of(&self, request: &Request) -> RequestFacts {
        self.facts(&request.head(), false, request.keyed(), request.primary())
    }

    /// Whether nothing that was purged since a response's fetch began is about it: it answers who asks now, too.
    pub(crate) fn is_still_good(&self, response: &Response, request: &Request) -> bool {
        let address = self.store.hash(request.primary());
        let head = request.head();
        let Response { head: stored, meta, tags, .. } = response;
        let subject = Subject { key: request.primary(), head: stored, meta, asker: Some(&head.headers) };
        self.invalidations.are_about_others(address, tags, &subject)
    }

    /// Keeps the names by which an address varies; the answer is the generation of its variants. The same names under
    /// the same key stay as they are, so that variants stored before are still found.
    pub(crate) fn keep_spec(
        &self,
        hash: Hash,
        key: &[u8],
        spec: &[u8],
        meta: StoredMeta,
        expires_s: u32,
    ) -> Result<u64, InsertRefusal> {
        if let Some(generation) = self.extend_spec(hash, key, spec, expires_s) {
            return Ok(generation);
        }
        let mut shard = self.shard_mut();
        let body = BodyLength::Exact(0);
        let now_s = self.store_now_s();
        let new = NewObject { hash, key, head: spec, extra: &[], meta: meta.pack(), body, expires_s, now_s };
        shard.insert(new, &[], &[])?;
        match shard.lookup_owned(hash, key) {
            Some(stored) => Ok(stored.sequence()),
            None => unreachable!("it was stored a moment ago"),
        }
    }

    /// The generation of an address's variants, if it varies by these names; they are kept at least until then.
    pub(crate) fn extend_spec(&self, hash: Hash, key: &[u8], spec: &[u8], expires_s: u32) -> Option<u64> {
        let mut shard = self.shard_mut();
        let known = shard.lookup_owned(hash, key)?;
        let is_spec = StoredMeta::unpack(&known.meta()).is_some_and(|meta| meta.flags.has(Flags::VARY_SPEC));
        if !is_spec || !known.head().eq(spec) {
            return None;
        }
        let generation = known.sequence();
        if known.expires_s() < expires_s {
            shard.refresh(hash, key, expires_s);
        }
        Some(generation)
    }

    /// Gives a message to another core; it comes back if that core's ring is full.
    pub(crate) fn give(&self, to: usize, message: Message) -> Result<(), Message> {
        let given = self.sender.send(to, message);
        self.sender.flush();
        given
    }

    /// For a body that is passed on.
    pub(crate) fn window(&self) -> Arc<Window> {
        Window::new(&self.passing)
    }

    /// A number for one request, to be found again in the log: hexadecimal, unlikely to repeat in a year.
    pub(crate) fn request_id(&self) -> String {
        let number = self.requests.get();
        self.requests.set(number + 1);
        format!("{:x}-{:x}-{number:x}", self.started_ms, self.index)
    }
}

/// Runs `with` on the core of this thread.
///
/// # Panics
/// On a thread that is no core: a mistake of ours.
#[inline]
pub(crate) fn with_core<R>(with: impl FnOnce(&Core) -> R) -> R {
    CORE.with_borrow(|cell| match cell {
        Some(core) => with(core),
        None => unreachable!("this thread is no core of the accelerator"),
    })
}

/// Runs `with` on the core of this thread, under what a request was judged by.
#[inline]
pub(crate) fn with_core_of<R>(request: &Request, with: impl FnOnce(&Core) -> R) -> R {
    with_core(|core| with(&core.of_request(request)))
}
