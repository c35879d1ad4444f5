//! Addresses of origins: one thread resolves all names, when a request needs an address and the known ones
//! are old.
//!
//! ```text
//!  connect ─▶ addresses known? ─ yes ─▶ used at once; older than their time to live: the name's task is woken
//!                              └ no ──▶ waits for the task, at most for the time to connect
//!  thread `resolve`: a task per name ─▶ names.rs: hosts file, DNS ─▶ ResolvedAddresses, which every core reads
//! ```
//! If a lookup fails or returns nothing, the last good answer stays in use. This is logged once, and once
//! more when lookups succeed again. *Bounds:* [`ADDRESSES_MAX`] addresses of one answer, one lookup per name
//! at a time. An origin given by its address needs no lookup.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use engine::{
    cores::clock,
    meter::{CoreCounters, CounterSet},
};
use tokio::{
    runtime,
    sync::{mpsc, watch},
    task::{JoinSet, LocalSet},
    time::timeout,
};

use super::{
    OriginError,
    names::{Answer, LookUps},
};

/// Shortest time for which addresses count as fresh, whatever their time to live, because each use may start
/// a lookup.
const FRESH_MIN: Duration = Duration::from_secs(1);
/// Longest time for which addresses count as fresh. Answers from the hosts file have no time to live. Within
/// a DNS answer's time to live no server is asked again.
const FRESH_MAX: Duration = Duration::from_secs(30);
/// Shortest time between a failed lookup and the next.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of addresses kept from one answer.
pub(super) const ADDRESSES_MAX: usize = 16;

engine::counters! {
    /// Counters of name lookups, in a single row, because one thread makes all lookups.
    pub enum NameCounter {
        LookUps => Counter, "cache_origin_lookups", None, "DNS lookups of origins' names.";
        Failed => Counter, "cache_origin_lookups_failed", None, "DNS lookups of origins' names that failed or found no address; the last addresses stay in use.";
        Dropped => Counter, "cache_origin_addresses_dropped", None, "Addresses of origins' names left unused because a name has more than 16.";
    }
}

/// Known addresses of an origin.
#[derive(Debug, Clone)]
struct ResolvedAddresses {
    /// The last good answer.
    addresses: Arc<[SocketAddr]>,
    /// Time from which a new lookup is worthwhile; `None` before the first lookup, or if no lookup is needed.
    again_at: Option<Instant>,
    /// Lookups that have ended.
    look_ups: u64,
}

/// Addresses of one origin, for all cores.
#[derive(Debug)]
pub(crate) struct Resolver {
    host: String,
    known: watch::Receiver<ResolvedAddresses>,
    /// Wakes the name's task; one queued message is enough.
    wake: Option<mpsc::Sender<()>>,
}

/// A name, as handed to the thread that resolves it.
struct Name {
    host: String,
    port: u16,
    woken: mpsc::Receiver<()>,
    told: watch::Sender<ResolvedAddresses>,
}

/// Handle of the thread that resolves names, once it is started.
pub(crate) struct Names {
    servers: Vec<SocketAddr>,
    counters: Arc<CounterSet<NameCounter>>,
    thread: Option<mpsc::UnboundedSender<Name>>,
}

impl Names {
    /// Creates a handle that uses these DNS servers, or the system's if there are none.
    pub(crate) fn new(servers: &[SocketAddr], counters: Arc<CounterSet<NameCounter>>) -> Self {
        Self { servers: servers.to_vec(), counters, thread: None }
    }

    /// Returns a resolver for a host, which may also be given by its address.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub(super) fn resolver(&mut self, host: &str, port: u16) -> std::io::Result<Arc<Resolver>> {
        let none = ResolvedAddresses { addresses: Arc::from([]), again_at: None, look_ups: 0 };
        if let Ok(address) = host.parse::<IpAddr>() {
            let addresses = Arc::from([SocketAddr::new(address, port)]);
            let (_, known) = watch::channel(ResolvedAddresses { addresses, ..none });
            return Ok(Arc::new(Resolver { host: host.to_owned(), known, wake: None }));
        }
        let (told, known) = watch::channel(none);
        let (wake, woken) = mpsc::channel(1);
        let name = Name { host: host.to_owned(), port, woken, told };
        // The thread has ended only if it has panicked; then lookups never end.
        let _ = self.thread()?.send(name);
        Ok(Arc::new(Resolver { host: host.to_owned(), known, wake: Some(wake) }))
    }

    fn thread(&mut self) -> std::io::Result<&mpsc::UnboundedSender<Name>> {
        if self.thread.is_none() {
            let (sender, names) = mpsc::unbounded_channel();
            let (servers, counters) = (self.servers.clone(), self.counters.core(0));
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(BLOCKING_MAX)
                .thread_name("resolve-name")
                .build()?;
            // The thread ends when the last core has dropped the last name.
            thread::Builder::new().name("resolve".to_owned()).spawn(move || {
                LocalSet::new().block_on(&runtime, keep_all(names, LookUps::new(servers), counters));
            })?;
            self.thread = Some(sender);
        }
        self.thread.as_ref().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

/// Maximum number of threads that ask the system for names that DNS does not have.
const BLOCKING_MAX: usize = 2;

impl Resolver {
    /// Returns a resolver for a server without a name, which has no addresses.
    pub(super) fn of_nobody() -> Arc<Self> {
        let (_, known) =
            watch::channel(ResolvedAddresses { addresses: Arc::from([]), again_at: None, look_ups: 0 });
        Arc::new(Self { host: String::new(), known, wake: None })
    }

    /// Returns the addresses, at least one.
    pub(super) async fn addresses(&self, at_most: Duration) -> Result<Arc<[SocketAddr]>, OriginError> {
        let mut known = self.known.clone();
        let seen = {
            let now = known.borrow_and_update();
            let is_old = now.again_at.is_none_or(|again_at| clock::now() >= again_at);
            if let Some(wake) = self.wake.as_ref().filter(|_| is_old) {
                // A full channel means that the task is already awake.
                let _ = wake.try_send(());
            }
            if !now.addresses.is_empty() {
                return Ok(Arc::clone(&now.addresses));
            }
            if !is_old {
                return Err(OriginError::Unresolved(self.host.clone()));
            }
            now.look_ups
        };
        let answered = known.wait_for(|known| known.look_ups > seen);
        match timeout(at_most, answered).await {
            Ok(Ok(known)) if !known.addresses.is_empty() => Ok(Arc::clone(&known.addresses)),
            Ok(_) => Err(OriginError::Unresolved(self.host.clone())),
            Err(_) => Err(OriginError::ResolveTimeout(at_most)),
        }
    }
}

/// Starts a task for each name that is received.
async fn keep_all(
    mut names: mpsc::UnboundedReceiver<Name>,
    look_ups: LookUps,
    counters: CoreCounters<NameCounter>,
) {
    let shared = std::rc::Rc::new((look_ups, counters));
    let mut all = JoinSet::new();
    while let Some(name) = names.recv().await {
        let shared = std::rc::Rc::clone(&shared);
        all.spawn_local(async move { keep(name, &shared.0, &shared.1).await });
    }
    while all.join_next().await.is_some() {}
}

/// Resolves one name whenever its task is woken.
async fn keep(mut name: Name, look_ups: &LookUps, counters: &CoreCounters<NameCounter>) {
    let (mut fails, mut has_too_many) = (false, false);
    while name.woken.recv().await.is_some() {
        let found = look_ups.look_up(&name.host).await;
        counters.add(NameCounter::LookUps, 1);
        let now = clock::now();
        let (addresses, again_at) = match found {
            Ok(Answer { addresses, dropped, fresh_for }) => {
                if std::mem::take(&mut fails) {
                    tracing::info!(name = name.host, "origin name resolves again");
                }
                if dropped > 0 && !has_too_many {
                    tracing::warn!(
                        name = name.host,
                        dropped,
                        "origin name has too many addresses: the rest are not used"
                    );
                }
                has_too_many = dropped > 0;
                counters.add(NameCounter::Dropped, dropped as u64);
                let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, name.port));
                (Some(addresses.collect()), now + fresh_for.clamp(FRESH_MIN, FRESH_MAX))
            }
            Err(why) => {
                if !std::mem::replace(&mut fails, true) {
                    tracing::warn!(
                        name = name.host,
                        why,
                        "cannot resolve an origin's name: its last addresses stay in use"
                    );
                }
                counters.add(NameCounter::Failed, 1);
                (None, now + RETRY_AFTER)
            }
        };
        name.told.send_modify(|known| {
            known.look_ups += 1;
            known.again_at = Some(again_at);
            if let Some(addresses) = addresses {
                known.addresses = interleave_families(addresses).into();
            }
        });
    }
}

/// Interleaves the address families, in the system's order (RFC 8305 §4). If one family has no route, the
/// second attempt uses the other.
fn interleave_families(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = found.into_iter().partition(|a| a.is_ipv6() == first_is_6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut all = Vec::new();
    loop {
        let (a, b) = (first.next(), second.next());
        if a.is_none() && b.is_none() {
            return all;
        }
        all.extend(a.into_iter().chain(b));
    }
}

#[cfg(test)]
mod tests;
