//! The addresses of an origin: looked up by a thread of their own, when somebody needs them and they are old.
//!
//! ```text
//!  connect ─▶ addresses known? ─ yes ─▶ used at once; older than REFRESH_AFTER: the thread is told to look again
//!                              └ no ──▶ waits for the thread, at most for the time to connect
//! ```
//! The system's look-up (`getaddrinfo`: the hosts file, then DNS) blocks for as long as its servers take. On a thread of
//! its own it holds up no read of the disk; and where it fails, the last good answer is used on. An origin that is given
//! by its address needs no thread.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use engine::cores::clock;
use tokio::{sync::watch, time::timeout};

use super::OriginError;

/// Addresses older than this are looked up again when they are used.
const REFRESH_AFTER: Duration = Duration::from_secs(30);
/// After a failure it is tried again so much later at the earliest.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Addresses that are kept of one answer.
const ADDRESSES_MAX: usize = 16;

/// What is known of an origin's addresses.
#[derive(Debug, Clone)]
struct Known {
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
    known: watch::Receiver<Known>,
    /// Wakes the thread; one waiting word is enough.
    wake: Option<SyncSender<()>>,
}

impl Resolver {
    /// For a host; a thread is started where it is given by name.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn new(host: &str, port: u16) -> std::io::Result<Arc<Self>> {
        let none = Known { addresses: Arc::from([]), again_at: None, look_ups: 0 };
        if let Ok(address) = host.parse::<IpAddr>() {
            let addresses = Arc::from([SocketAddr::new(address, port)]);
            let (_, known) = watch::channel(Known { addresses, ..none });
            return Ok(Arc::new(Self { host: host.to_owned(), known, wake: None }));
        }
        let (told, known) = watch::channel(none);
        let (wake, woken) = sync_channel(1);
        let name = host.to_owned();
        // It ends when the last core has dropped its end of `wake`.
        thread::Builder::new()
            .name("resolve".to_owned())
            .spawn(move || look_up(&name, port, &woken, &told))?;
        Ok(Arc::new(Self { host: host.to_owned(), known, wake: Some(wake) }))
    }

    /// For what has no name: it has no addresses, and never will.
    pub(super) fn of_nobody() -> Arc<Self> {
        let (_, known) = watch::channel(Known { addresses: Arc::from([]), again_at: None, look_ups: 0 });
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

/// Looks the name up whenever it is told to.
fn look_up(host: &str, port: u16, woken: &Receiver<()>, told: &watch::Sender<Known>) {
    while woken.recv().is_ok() {
        let found: Result<Vec<SocketAddr>, _> =
            (host, port).to_socket_addrs().map(|found| found.take(ADDRESSES_MAX).collect());
        told.send_modify(|known| {
            known.look_ups += 1;
            match found {
                Ok(found) if !found.is_empty() => {
                    known.addresses = in_turn(found).into();
                    known.again_at = Some(clock::now() + REFRESH_AFTER);
                }
                Ok(_) | Err(_) => known.again_at = Some(clock::now() + RETRY_AFTER),
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
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let a = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let found = vec![a("[::1]:1"), a("[::2]:1"), a("[::3]:1"), a("127.0.0.1:1")];
        assert_eq!(in_turn(found), [a("[::1]:1"), a("127.0.0.1:1"), a("[::2]:1"), a("[::3]:1")]);
        assert_eq!(in_turn(Vec::new()), []);
    }

    #[tokio::test]
    async fn a_name_is_looked_up_and_a_bad_one_is_said() {
        let at_most = Duration::from_secs(20);
        let good = Resolver::new("localhost", 80).expect("a thread");
        let found = good.addresses(at_most).await.expect("found");
        assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
        let bad = Resolver::new("nobody.invalid", 80).expect("a thread");
        let error = bad.addresses(at_most).await.expect_err("no such name");
        assert_eq!(error, OriginError::Unresolved("nobody.invalid".to_owned()));
    }
}
