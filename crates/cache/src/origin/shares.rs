//! Each client's share of a number of slots, so that one client cannot make all other clients wait.
//!
//! *A share binds only when slots are scarce:* while at most half of the slots are in use, no client is
//! refused. Above that, a client may have a quarter of the slots, and an IPv6 /48 half of them, or three
//! quarters for its clients that have few slots. The last sixteenth of the slots is reserved for clients that
//! have few. *Bounds:* an entry for each client that has a slot and for its /48, so at most twice as many
//! entries as slots.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use engine::{accounts::ClientKey, cold_mutex::ColdMutex};
use tokio::sync::Notify;

/// Divisor: while slots are scarce, a client may have 1/`SHARE` of them.
const SHARE: usize = 4;
/// Divisor: 1/`RESERVE` of the slots is reserved for clients that have few.
const RESERVE: usize = 16;
/// Divisor: a client has few slots if it has less than 1/`FEW` of all. For a /48 the limit is [`GROUP_FEW`]
/// times as high.
const FEW: usize = 64;
/// Number of client shares that a /48 may use; its clients that have few slots may use
/// [`GROUP_SHARES_OF_FEW`]. A /48 has few slots if it has less than [`GROUP_FEW`] times the limit for a
/// client.
const GROUP_SHARES: usize = 2;
const GROUP_SHARES_OF_FEW: usize = 3;
const GROUP_FEW: usize = 16;

/// The client that an exchange is charged to; `None` for requests without a share, such as those from this
/// machine itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(Option<ClientKey>);

impl Client {
    /// The client of requests that are not charged to anyone, and have no share.
    pub(crate) const NOBODY: Self = Self(None);

    /// Returns the client at an address, identified by its key in the accounts.
    pub(crate) fn at(address: IpAddr, key: ClientKey) -> Self {
        Self((!address.to_canonical().is_loopback()).then_some(key))
    }
}

/// The slots, and how many of them each client has.
pub(super) struct Shares {
    pub(super) max: usize,
    /// Used by one core, on the path of a miss: locked for a lookup, never contended.
    used: Arc<ColdMutex<Usage>>,
}

#[derive(Default)]
struct Usage {
    max: usize,
    all: usize,
    by_client: HashMap<ClientKey, ClientPlaces>,
}

/// The slots of one client.
#[derive(Default)]
struct ClientPlaces {
    places: usize,
    /// Requests that wait for a slot of the client's share.
    waiting: usize,
    /// Wakes one of the waiting requests to try again.
    freed: Arc<Notify>,
}

impl Usage {
    fn is_scarce(&self) -> bool {
        self.all >= self.max.div_ceil(2)
    }

    /// Returns the maximum number of slots of a client while slots are scarce.
    fn share_max(&self) -> usize {
        (self.max / SHARE).max(1)
    }

    /// Returns the number of slots outside the reserve.
    fn free_beyond_reserve(&self) -> usize {
        self.max - self.max / RESERVE
    }

    /// Returns the number of slots below which a client has few.
    fn small_share(&self) -> usize {
        (self.max / FEW).max(1)
    }

    /// Returns whether a client or a /48 with `places` slots may have one more. A /48 has the shares of
    /// several clients.
    fn may_have_more(&self, places: usize, shares: usize, few_shares: usize) -> bool {
        !self.is_scarce()
            || places < self.share_max() * shares
                && (self.all < self.free_beyond_reserve() || places < self.small_share() * few_shares)
    }

    fn places_of(&self, key: ClientKey) -> usize {
        self.by_client.get(&key).map_or(0, |of| of.places)
    }

    /// Takes a slot for the client, if the client may have one more.
    fn take(&mut self, client: Client) -> bool {
        let is_allowed = client.0.is_none_or(|key| {
            let places = self.places_of(key);
            let of_group = if places < self.small_share() { GROUP_SHARES_OF_FEW } else { GROUP_SHARES };
            let may_group = |group| self.may_have_more(self.places_of(group), of_group, GROUP_FEW);
            self.may_have_more(places, 1, 1) && key.group().is_none_or(may_group)
        });
        if is_allowed {
            let keys = client.0.into_iter().flat_map(|key| [Some(key), key.group()]).flatten();
            keys.for_each(|key| self.by_client.entry(key).or_default().places += 1);
            self.all += 1;
        }
        is_allowed
    }

    fn give_back(&mut self, client: Client) {
        self.all -= 1;
        let group = client.0.and_then(|key| key.group());
        let has_group_all =
            group.is_some_and(|group| self.places_of(group) >= self.share_max() * GROUP_SHARES);
        // A waiting client either has used its share, and may have more once fewer than half of all slots are
        // in use; or the client or its /48 already has more than a few slots, and may have more once the
        // reserve is free.
        let bounds = [self.max.div_ceil(2), self.free_beyond_reserve()];
        if bounds.contains(&(self.all + 1)) || has_group_all {
            self.by_client.values().filter(|of| of.waiting > 0).for_each(|of| of.freed.notify_one());
        }
        self.change(client, |of| {
            of.places -= 1;
            of.freed.notify_one();
        });
        self.change(Client(group), |of| of.places -= 1);
    }

    /// Changes a client's entry, and removes it if no slots and no waiting requests are left.
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

fn with<R>(used: &ColdMutex<Usage>, with: impl FnOnce(&mut Usage) -> R) -> R {
    with(&mut used.lock())
}

/// A client's slot, given back on drop.
pub(super) struct Share {
    used: Arc<ColdMutex<Usage>>,
    client: Client,
}

impl Drop for Share {
    fn drop(&mut self) {
        with(&self.used, |used| used.give_back(self.client));
    }
}

/// Guard that counts a request as waiting for its client's share.
struct ShareWaiter<'a> {
    used: &'a ColdMutex<Usage>,
    client: Client,
}

impl Drop for ShareWaiter<'_> {
    fn drop(&mut self) {
        with(self.used, |used| used.change(self.client, |of| of.waiting -= 1));
    }
}

impl Shares {
    /// Creates the shares of a pool of `max` slots.
    pub(super) fn new(max: usize) -> Self {
        Self { max, used: Arc::new(ColdMutex::new(Usage { max, ..Usage::default() })) }
    }

    /// Returns the number of slots in use.
    pub(super) fn used(&self) -> usize {
        with(&self.used, |used| used.all)
    }

    /// Takes a slot of the client's share; `None` if the client has used its share and more than half of all
    /// slots are in use. The pool decides whether a slot is free at all.
    pub(super) fn take(&self, client: Client) -> Option<Share> {
        let is_taken = with(&self.used, |used| used.take(client));
        is_taken.then(|| Share { used: Arc::clone(&self.used), client })
    }

    /// Waits for a slot of the client's share.
    pub(super) async fn wait(&self, client: Client) -> Share {
        let freed = with(&self.used, |used| {
            client.0.map(|key| {
                let of = used.by_client.entry(key).or_default();
                of.waiting += 1;
                Arc::clone(&of.freed)
            })
        });
        let _waiting = ShareWaiter { used: &self.used, client };
        loop {
            match (self.take(client), &freed) {
                (Some(share), _) => return share,
                // `freed` remembers a slot that is given back in between.
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
    fn a_slash_48_and_a_handful_leave_places() {
        let shares = Shares::new(256);
        let of_48: Vec<_> =
            (1..=6).map(|net| take(&shares, client(&format!("2001:db8:1:{net}::1")), 256)).collect();
        assert_eq!(of_48.iter().map(Vec::len).sum::<usize>(), 128 + 5 * 4, "half of all, and a few each");
        let others: Vec<_> =
            (1..=4).map(|last| take(&shares, client(&format!("192.0.2.{last}")), 256)).collect();
        assert_eq!(
            others.iter().map(Vec::len).sum::<usize>(),
            64 + 28 + 4 + 4,
            "of the last sixteenth a few each"
        );
        for last in 10..14 {
            assert_eq!(take(&shares, client(&format!("192.0.2.{last}")), 1).len(), 1);
        }
        let honest = client("198.51.100.1");
        assert_eq!(take(&shares, honest, 256).len(), 4, "few, while there is a reserve");
        drop((of_48, others));
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

    #[tokio::test(flavor = "local")]
    async fn a_waiter_gets_a_freed_share() {
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

    /// Polls once, and returns whether the future is pending.
    async fn futures_poll(mut future: std::pin::Pin<&mut impl Future>) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }
}
