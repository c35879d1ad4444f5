//! The addresses of origins: looked up by one thread for all of them, when somebody needs them and they are old.
//!
//! ```text
//!  connect ─▶ addresses known? ─ yes ─▶ used at once; older than their time to live: the name's task is woken
//!                              └ no ──▶ waits for the task, at most for the time to connect
//!  thread `resolve`: a task a name ─▶ names.rs: hosts file, DNS ─▶ ResolvedAddresses, which every core reads
//! ```
//! Where a look-up fails, or brings nothing, the last good answer is used on; that is said once, and once more when it is
//! over. *Bounds:* [`ADDRESSES_MAX`] of one answer, one look-up a name at a time. An origin that is given by its address
//! needs none of this.

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

/// Addresses are taken for new for so long at least, whatever their time to live says: each use may ask for a look-up.
const FRESH_MIN: Duration = Duration::from_secs(1);
/// And for so long at most: those of the hosts file say nothing, and within an answer's time to live no server is asked.
const FRESH_MAX: Duration = Duration::from_secs(30);
/// After a failure it is tried again so much later at the earliest.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Addresses that are kept of one answer.
pub(super) const ADDRESSES_MAX: usize = 16;

engine::counters! {
    /// What is counted of looking names up; one row, of the thread that does it.
    pub enum NameCounter {
        LookUps => Counter, "cache_origin_lookups", None, "Times that the name of an origin was looked up.";
        Failed => Counter, "cache_origin_lookups_failed", None, "Times that it could not be, or had no address: its last addresses are used on.";
        Dropped => Counter, "cache_origin_addresses_dropped", None, "Addresses of origins' names that are not used, because there are more than 16 of one.";
    }
}

/// What is known of an origin's addresses.
#[derive(Debug, Clone)]
struct ResolvedAddresses {
    /// The last good answer.
    addresses: Arc<[SocketAddr]>,
    /// When it is worth while to ask again; `None`: never asked, or never to be asked.
    again_at: Option<Instant>,
    /// Look-ups that have ended.
    look_ups: u64,
}

/// Finds the addresses of one origin, for all cores.
#[derive(Debug)]
pub(crate) struct Resolver {
    host: String,
    known: watch::Receiver<ResolvedAddresses>,
    /// Wakes the name's task; one waiting word is enough.
    wake: Option<mpsc::Sender<()>>,
}

/// A name, for the thread that looks it up.
struct Name {
    host: String,
    port: u16,
    woken: mpsc::Receiver<()>,
    told: watch::Sender<ResolvedAddresses>,
}

/// What looks names up; a thread, once there is one.
pub(crate) struct Names {
    servers: Vec<SocketAddr>,
    counters: Arc<CounterSet<NameCounter>>,
    thread: Option<mpsc::UnboundedSender<Name>>,
}

impl Names {
    /// Asks these servers of DNS; none: those of the system.
    pub(crate) fn new(servers: &[SocketAddr], counters: Arc<CounterSet<NameCounter>>) -> Self {
        Self { servers: servers.to_vec(), counters, thread: None }
    }

    /// The addresses of a host, which may be one itself.
    ///
    /// # Errors
    /// There is no thread to be had.
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
        // It has ended only where it has panicked; then it is as one whose look-ups never end.
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
            // It ends when the last core has let go of the last name.
            thread::Builder::new().name("resolve".to_owned()).spawn(move || {
                LocalSet::new().block_on(&runtime, keep_all(names, LookUps::new(servers), counters));
            })?;
            self.thread = Some(sender);
        }
        self.thread.as_ref().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

/// Threads that ask the system for names that DNS does not have.
const BLOCKING_MAX: usize = 2;

impl Resolver {
    /// For what has no name: it has no addresses, and never will.
    pub(super) fn of_nobody() -> Arc<Self> {
        let (_, known) =
            watch::channel(ResolvedAddresses { addresses: Arc::from([]), again_at: None, look_ups: 0 });
        Arc::new(Self { host: String::new(), known, wake: None })
    }

    /// Its addresses; at least one.
    pub(super) async fn addresses(&self, at_most: Duration) -> Result<Arc<[SocketAddr]>, OriginError> {
        let mut known = self.known.clone();
        let seen = {
            let now = known.borrow_and_update();
            let is_old = now.again_at.is_none_or(|again_at| clock::now() >= again_at);
            if let Some(wake) = self.wake.as_ref().filter(|_| is_old) {
                // Full: it is awake already.
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

/// Looks all names up that it is given, whenever somebody wants one.
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

/// Looks one name up whenever somebody wants it.
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
                known.addresses = in_turn(addresses).into();
            }
        });
    }
}

/// The families in turn, in the system's order (RFC 8305 §4): if one of them leads nowhere, the second address that is
/// tried is of the other.
fn in_turn(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
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
