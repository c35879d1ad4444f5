//! How much of a number of places each client has, so that one client cannot make all others wait.
//!
//! *A share binds only under want:* while at most half of the places are in use, nobody is refused. Beyond, a client has a
//! quarter of them at most. *Bounds:* an entry for each client that has a place, so as many as there are places.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, PoisonError},
};

use engine::accounts::ClientKey;
use tokio::sync::Notify;

#[expect(
    clippy::disallowed_types,
    reason = "a miss's path, of one core: held for the time of a lookup, never waited for"
)]
type Lock<T> = std::sync::Mutex<T>;

/// One in so many of the places is a client's under want.
const SHARE: usize = 4;

/// The client that an exchange is counted for; `None`: nobody in particular, who has no share of its own, such as this
/// machine itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(Option<ClientKey>);

impl Client {
    /// Nobody in particular.
    pub(crate) const NOBODY: Self = Self(None);

    /// The client at an address, by its key in the accounts.
    pub(crate) fn at(address: IpAddr, key: ClientKey) -> Self {
        Self((!address.to_canonical().is_loopback()).then_some(key))
    }
}

/// The places, and how many of them each client has.
pub(super) struct Shares {
    pub(super) max: usize,
    used: Arc<Lock<Usage>>,
}

#[derive(Default)]
struct Usage {
    max: usize,
    all: usize,
    by_client: HashMap<ClientKey, ClientPlaces>,
}

/// The places of one client.
#[derive(Default)]
struct ClientPlaces {
    places: usize,
    /// Requests that wait for the client's share.
    waiting: usize,
    /// Wakes one of them to look again.
    freed: Arc<Notify>,
}

impl Usage {
    fn is_scarce(&self) -> bool {
        self.all >= self.max.div_ceil(2)
    }

    /// Places of a client at most, under want.
    fn most(&self) -> usize {
        (self.max / SHARE).max(1)
    }

    /// Counts a place as the client's, if it may have one more.
    fn take(&mut self, Client(key): Client) -> bool {
        if let Some(key) = key {
            let (is_scarce, most) = (self.is_scarce(), self.most());
            let of = self.by_client.entry(key).or_default();
            if of.places >= most && is_scarce {
                return false;
            }
            of.places += 1;
        }
        self.all += 1;
        true
    }

    fn give_back(&mut self, client: Client) {
        self.all -= 1;
        // A client that waits has its share already, and may have more as soon as half of all places are free.
        if self.all + 1 == self.max.div_ceil(2) {
            self.by_client.values().filter(|of| of.waiting > 0).for_each(|of| of.freed.notify_one());
        }
        self.change(client, |of| {
            of.places -= 1;
            of.freed.notify_one();
        });
    }

    /// Changes the places of a client; one without places and without waiting requests is forgotten.
    fn change(&mut self, Client(key): Client, change: impl FnOnce(&mut ClientPlaces)) {
        if let Some(key) = key
            && let Some(of) = self.by_client.get_mut(&key)
        {
            change(of);
            if of.places == 0 && of.waiting == 0 {
                self.by_client.remove(&key);
            }
        }
    }
}

fn with<R>(used: &Lock<Usage>, with: impl FnOnce(&mut Usage) -> R) -> R {
    with(&mut used.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A place that a client has, while it has it.
pub(super) struct Share {
    used: Arc<Lock<Usage>>,
    client: Client,
}

impl Drop for Share {
    fn drop(&mut self) {
        with(&self.used, |used| used.give_back(self.client));
    }
}

/// A request that waits for its client's share, while it does.
struct Waiting<'a> {
    used: &'a Lock<Usage>,
    client: Client,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        with(self.used, |used| used.change(self.client, |of| of.waiting -= 1));
    }
}

impl Shares {
    /// Shares of so many places.
    pub(super) fn new(max: usize) -> Self {
        Self { max, used: Arc::new(Lock::new(Usage { max, ..Usage::default() })) }
    }

    /// Places in use.
    pub(super) fn used(&self) -> usize {
        with(&self.used, |used| used.all)
    }

    /// Counts a place as the client's; `None`: the client has its share already, and more than half of all places are in
    /// use. The pool decides whether there is a place at all.
    pub(super) fn take(&self, client: Client) -> Option<Share> {
        let is_taken = with(&self.used, |used| used.take(client));
        is_taken.then(|| Share { used: Arc::clone(&self.used), client })
    }

    /// Waits for a place that the client may have.
    pub(super) async fn wait(&self, client: Client) -> Share {
        let freed = with(&self.used, |used| {
            client.0.map(|key| {
                let of = used.by_client.entry(key).or_default();
                of.waiting += 1;
                Arc::clone(&of.freed)
            })
        });
        let _waiting = Waiting { used: &self.used, client };
        loop {
            match (self.take(client), &freed) {
                (Some(share), _) => return share,
                // `freed` remembers a place that is given back in between.
                (None, Some(freed)) => freed.notified().await,
                (None, None) => unreachable!("nobody in particular has no share to wait for"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Client {
        let address = text.parse().expect("an address");
        Client::at(address, ClientKey::of(address))
    }

    fn take(shares: &Shares, client: Client, most: usize) -> Vec<Share> {
        (0..most).map_while(|_| shares.take(client)).collect()
    }

    #[test]
    fn a_share_binds_only_under_want() {
        let shares = Shares::new(64);
        let (one, other) = (client("192.0.2.1"), client("192.0.2.2"));
        let mut of_one = take(&shares, one, 100);
        assert_eq!(of_one.len(), 32, "alone it has half before anybody could want");
        assert_eq!(take(&shares, other, 100).len(), 16, "a quarter for each other one");
        of_one.truncate(15);
        let of_other = take(&shares, other, 10);
        assert_eq!((of_other.len(), take(&shares, one, 3).len()), (10, 3));
        assert_eq!(shares.used(), 25);
        drop((of_one, of_other));
        assert_eq!(shares.used(), 0);
        assert!(with(&shares.used, |used| used.by_client.is_empty()));
    }

    #[test]
    fn a_subscriber_of_ipv6_is_one_client() {
        let shares = Shares::new(64);
        let held = take(&shares, client("2001:db8:0:1::1"), 100);
        assert!(held.len() == 32 && shares.take(client("2001:db8:0:1:ffff::2")).is_none());
        assert!(shares.take(client("2001:db8:0:2::1")).is_some());
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_eq!(take(&shares, client("127.0.0.1"), 100).len(), 100, "this machine has no share");
    }

    #[tokio::test]
    async fn whoever_waits_for_a_share_gets_it_when_it_is_free() {
        let shares = Shares::new(4);
        let one = client("192.0.2.1");
        let mut held = take(&shares, one, 100);
        assert_eq!(held.len(), 2);
        let waiting = shares.wait(one);
        tokio::pin!(waiting);
        let is_pending = futures_poll(waiting.as_mut()).await;
        assert!(is_pending);
        held.clear();
        drop(waiting.await);
        assert_eq!(shares.used(), 0);
        assert!(with(&shares.used, |used| used.by_client.is_empty()));
    }

    /// Polls once; whether it is not ready.
    async fn futures_poll(mut future: std::pin::Pin<&mut impl Future>) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }
}
