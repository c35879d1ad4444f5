//! State of one core: its shard of the store, its running fetches, its connections to origins, its scratch
//! buffers.
//!
//! All of this is plain memory of the core's thread, accessed through a thread-local: a task holds no reference
//! to it across an `.await`, so a reload can replace the configuration between two turns. Borrows are short and
//! never nest into a call that borrows again.

pub(crate) mod direct_mapped_table;
pub(crate) mod housekeeping;
pub(crate) mod identity_hasher;
mod install;
pub(crate) mod memory_need;
mod messages;
mod parts;
pub(crate) mod store_file;
#[cfg(test)]
pub(crate) mod test_core;
mod upstreams;

use std::{
    cell::{Cell, RefCell, RefMut},
    ops::Deref,
    rc::Rc,
    sync::Arc,
};

use engine::{
    cores::{clock, mesh::Sender},
    store::{BodyLength, Hash, InsertRefusal, NewObject, Shard},
};
use wire::http1::{head::RequestHead, url::Scheme};

use crate::{
    body::growing::Window,
    config::Config,
    counters::Counter,
    error_page::Fault,
    fetch::response::Response,
    head::{
        response_head::{Flags, StoredMeta},
        sent_fields::Manner,
    },
    origin,
    policy::RequestFacts,
    purging::bans::Subject,
    request::{
        Request,
        active_config::ActiveConfig,
        client_auth::{self, ClientAuth, ClientStanding},
        key,
        lookup_key::LookupKey,
    },
    site::{SiteId, Sites},
};

pub(crate) use install::CoreSetup;
pub(crate) use messages::{
    CoreBusy, HeadAnswer, Message, RING_PAUSE, RING_WAIT_MAX, StoreRequest, ToCode, UnlinkOutcome,
};
use parts::{Budgets, Buffers, Clients, Fetches, Names, Observers, Origins, Purges, Storage};
pub(crate) use parts::{FileReads, Scratch};
pub(crate) use upstreams::{OfCore, SiteUpstreams, count_http2};

/// State of one core together with a configuration: the active one, or an older one for a request that began
/// with it.
pub(crate) struct Core {
    own: Rc<Own>,
    pub(crate) in_force: Arc<ActiveConfig>,
    /// Configuration of `in_force`.
    pub(crate) config: Arc<Config>,
    /// Sites of `in_force`.
    pub(crate) sites: Arc<Sites>,
}

impl Deref for Core {
    type Target = Own;

    #[inline]
    fn deref(&self) -> &Own {
        &self.own
    }
}

/// State of a core that does not depend on the configuration and lasts as long as the core runs.
pub(crate) struct Own {
    pub(crate) index: usize,
    pub(crate) names: Names,
    pub(crate) sender: Sender<Message>,
    pub(crate) is_draining: Cell<bool>,
    pub(crate) storage: Storage,
    pub(crate) fetches: Fetches,
    pub(crate) origins: Origins,
    pub(crate) purges: Purges,
    pub(crate) clients: Clients,
    pub(crate) budgets: Budgets,
    pub(crate) buffers: Buffers,
    pub(crate) observers: Observers,
}

thread_local! {
    /// The thread's core: borrowed while code runs on it, and replaced between two turns when another
    /// configuration becomes active.
    static CORE: RefCell<Option<Core>> = const { RefCell::new(None) };
}

/// Converts seconds since the UNIX epoch to the store's 32 bits, which last until the year 2106.
pub(crate) fn store_s(unix_s: u64) -> u32 {
    u32::try_from(unix_s).unwrap_or(u32::MAX)
}

/// A core combined with the configuration that was active when a request began.
pub(crate) enum Under<'c> {
    /// The configuration is still active.
    Now(&'c Core),
    /// Another configuration is active now.
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
    /// Makes a configuration the active one on this thread's core. No task of the core runs at that moment.
    pub(crate) fn activate(in_force: Arc<ActiveConfig>) {
        CORE.with_borrow_mut(|cell| {
            if let Some(core) = cell {
                *core = Self::of(Rc::clone(&core.own), in_force);
            }
        });
        with_core(|core| {
            core.origins.pool.borrow_mut().close_old();
            core.keep_probing();
        });
    }

    /// Starts and stops the probes of origins' servers as configured; each server is probed once, by the
    /// first core.
    fn keep_probing(&self) {
        if self.index != 0 {
            return;
        }
        let mut probes = self.origins.probes.borrow_mut();
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
                tokio::task::spawn_local(origin::probe(Arc::clone(member), count_http2, count_probe))
                    .abort_handle()
            });
        }
    }

    /// Returns the core under the configuration with which a request began.
    #[inline]
    pub(crate) fn of_request(&self, request: &Request) -> Under<'_> {
        if Arc::ptr_eq(&self.in_force, &request.in_force) {
            return Under::Now(self);
        }
        Under::Before(Box::new(Self::of(Rc::clone(&self.own), Arc::clone(&request.in_force))))
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.observers.counters.add(counter, 1);
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, by: u64) {
        self.observers.counters.add(counter, by);
    }

    #[inline]
    pub(crate) fn gauge(&self, counter: Counter, value: u64) {
        self.observers.counters.set(counter, value);
    }

    /// Wakes the answers that wait for room for parts of an object in the file.
    pub(crate) fn tell_of_parts_room(&self) {
        if let Some(file) = &self.storage.file {
            file.parts_freed.notify_waiters();
        }
    }

    /// Borrows this core's shard of the store to change it, and schedules housekeeping.
    #[inline]
    pub(crate) fn shard_mut(&self) -> RefMut<'_, Shard> {
        self.storage.rounds.stir();
        self.storage.shard.borrow_mut()
    }

    /// Returns the number of seconds for which browsers must use only https, if the key is an https address
    /// of a site with HSTS.
    #[inline]
    pub(crate) fn hsts_s(&self, key: &[u8], site: SiteId) -> Option<u64> {
        let hsts = self.sites.rules(site).hsts?;
        (key::scheme(key) == Scheme::Https).then_some(hsts.as_secs())
    }

    /// Returns the store's time in whole seconds.
    pub(crate) fn store_now_s(&self) -> u32 {
        store_s(clock::unix_s())
    }

    /// Returns the time that decides whether stored objects have expired, in whole seconds. A jump of the
    /// system clock is followed only after it has lasted for a while.
    pub(crate) fn expiry_now_s(&self) -> u32 {
        store_s(self.storage.expiry_clock.unix_s())
    }

    /// Gathers the facts about a request that policy needs, under its primary key.
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

    /// Returns the maximum bytes of a request's body for a site.
    pub(crate) fn body_bytes_max(&self, site: SiteId) -> u64 {
        self.sites.rules(site).body_bytes_max.unwrap_or(self.config.limits.request_body_bytes_max)
    }

    /// Returns the rules for sending a site's requests to its origin.
    pub(crate) fn manner(&self, site: SiteId) -> Manner<'_> {
        let table = &self.sites.table;
        let (rules, ours) = (table.rules(site), table.certificate_fields());
        Manner { pseudonym: &self.names.pseudonym, rules, ours, is_to_peer: false, has_range_tag: false }
    }

    /// Checks a client's certificate against the rules of a site.
    #[inline]
    pub(crate) fn standing(&self, site: SiteId, came: &ClientAuth, now_s: u64) -> ClientStanding {
        match &self.sites.rules(site).client_certificates {
            None => ClientStanding::Anybody,
            Some(asks) => client_auth::judge(asks, self.sites.authorities(site), came, now_s),
        }
    }

    /// Counts a request that causes work for its origin; returns the fault to answer if the budget of its
    /// class is spent.
    pub(crate) fn admit_work(&self, request: &Request) -> Result<(), Fault> {
        if request.is_of_peer {
            // The peer that has the client has already counted the request.
            return Ok(());
        }
        let (rules, address) = (&self.config.crawlers, request.visitor.address);
        self.in_force.work.admit(rules, &request.head(), address, clock::monotonic_ms()).map_err(|counter| {
            self.count(counter);
            Fault::WorkTooMuch
        })
    }

    /// Gathers the facts for a fetch on behalf of a request; the fetch has no body.
    pub(crate) fn facts_of(&self, request: &Request) -> RequestFacts {
        self.facts(&request.head(), false, request.keyed(), request.primary())
    }

    /// Returns whether the response may still answer the request: no purge since the response's fetch began
    /// matches it.
    pub(crate) fn is_still_good(&self, response: &Response, request: &Request) -> bool {
        let address = self.storage.store.hash(request.primary());
        let head = request.head();
        let Response { head: stored, meta, tags, fetched_ms, .. } = response;
        let subject = Subject { key: request.primary(), head: stored, meta, asker: Some(&head.headers) };
        self.purges.invalidations.are_about_others(address, tags, *fetched_ms, &subject)
    }

    /// Stores the field names by which an address varies, and returns the generation of its variants. If the
    /// same names are already stored under the key, they are kept, so that earlier variants are still found.
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

    /// Returns the generation of an address's variants if the address varies by these names, and keeps the
    /// names at least until `expires_s`.
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

    /// Sends a message to another core; returns it if that core's ring is full.
    pub(crate) fn give(&self, to: usize, message: Message) -> Result<(), Message> {
        let given = self.sender.send(to, message);
        self.sender.flush();
        given
    }

    /// Creates the window of a body that is passed through.
    pub(crate) fn window(&self) -> Arc<Window> {
        Window::new(&self.budgets.passing)
    }

    /// Returns an identifier for one request, by which the request can be found in the log: hexadecimal,
    /// unlikely to repeat within a year.
    pub(crate) fn request_id(&self) -> String {
        let number = self.names.requests.get();
        self.names.requests.set(number + 1);
        format!("{:x}-{:x}-{number:x}", self.names.started_ms, self.index)
    }
}

/// Runs `with` on the core of this thread.
///
/// # Panics
/// Panics on a thread that is not a core, which is a bug.
#[inline]
pub(crate) fn with_core<R>(with: impl FnOnce(&Core) -> R) -> R {
    CORE.with_borrow(|cell| match cell {
        Some(core) => with(core),
        None => unreachable!("this thread is no core of the accelerator"),
    })
}

/// Runs `with` on the core of this thread, under the configuration with which a request began.
#[inline]
pub(crate) fn with_core_of<R>(request: &Request, with: impl FnOnce(&Core) -> R) -> R {
    with_core(|core| with(&core.of_request(request)))
}
