//! TLS and WebSocket handshakes in progress on a core, and PROXY headers that have not arrived completely.
//!
//! A core has at most [`HANDSHAKES_MAX`] of them. Each further handshake displaces the oldest one of the
//! client that has the most. An honest handshake takes a few round trips, so connections that stay silent are
//! displaced first, whether they come from one address or from many. A core searches the table only when it
//! is full.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    rc::Rc,
};

use engine::{accounts::ClientKey, network::Network};
use tokio::sync::Notify;

/// Maximum number of handshakes in progress on a core.
pub(crate) const HANDSHAKES_MAX: usize = 1024;

/// Handshakes in progress on a core, from the oldest to the newest.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    under_way: BTreeMap<u64, (ClientKey, Rc<Notify>)>,
    last: u64,
}

/// A handshake in progress. [`Handshakes::end`] removes it.
#[derive(Debug)]
pub(crate) struct Handshake {
    number: u64,
    cut: Rc<Notify>,
}

impl Handshake {
    /// Waits until another handshake displaces this one.
    pub(crate) async fn cut(&self) {
        self.cut.notified().await;
    }
}

impl Handshakes {
    /// Begins a handshake with a client at this address. Returns the handshake, and whether another one was
    /// displaced. In `shared` networks each connection counts as a separate client.
    pub(crate) fn begin(&mut self, address: IpAddr, shared: &[Network]) -> (Handshake, bool) {
        self.last += 1;
        let is_full = self.under_way.len() >= HANDSHAKES_MAX;
        if is_full {
            self.make_room();
        }
        let cut = Rc::new(Notify::new());
        let client = ClientKey::of_connection(address, self.last, shared);
        self.under_way.insert(self.last, (client, Rc::clone(&cut)));
        (Handshake { number: self.last, cut }, is_full)
    }

    /// Removes a handshake that has completed, failed or timed out.
    pub(crate) fn end(&mut self, handshake: &Handshake) {
        self.under_way.remove(&handshake.number);
    }

    /// Returns the number of handshakes in progress.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Displaces the oldest handshake of the client that has the most. Returns whether there was one.
    pub(crate) fn make_room(&mut self) -> bool {
        let mut counts: HashMap<ClientKey, usize> = HashMap::new();
        for (client, _) in self.under_way.values() {
            *counts.entry(*client).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let victim = self.under_way.iter().find(|(_, (client, _))| counts[client] == most);
        let number = victim.map(|(number, _)| *number);
        let Some((_, cut)) = number.and_then(|number| self.under_way.remove(&number)) else { return false };
        cut.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn is_cut(handshake: &Handshake) -> bool {
        let mut cut = Box::pin(handshake.cut());
        cut.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn idle_connections_make_room_for_handshakes() {
        let mut handshakes = Handshakes::default();
        let honest: Vec<Handshake> = (1..=10).map(|last| handshakes.begin(address(last), &[]).0).collect();
        let mut idle: Vec<Handshake> = Vec::new();
        for _ in 0..3 * HANDSHAKES_MAX {
            let (handshake, _) = handshakes.begin(address(200), &[]);
            idle.push(handshake);
            assert!(handshakes.under_way.len() <= HANDSHAKES_MAX);
        }
        assert!(!honest.iter().any(is_cut), "their addresses have one each");
        let cut = 2 * HANDSHAKES_MAX + honest.len();
        assert!(idle[..cut].iter().all(is_cut) && !idle[cut..].iter().any(is_cut), "the oldest");
        for handshake in honest.iter().chain(&idle) {
            handshakes.end(handshake);
        }
        assert!(handshakes.under_way.is_empty());
    }

    /// On loopback each connection counts as a client, so the oldest handshake is displaced; an honest
    /// handshake has completed by then.
    #[test]
    fn on_loopback_the_oldest_makes_room() {
        let mut handshakes = Handshakes::default();
        let here = IpAddr::from([127, 0, 0, 1]);
        let all: Vec<Handshake> = (0..HANDSHAKES_MAX + 5).map(|_| handshakes.begin(here, &[]).0).collect();
        assert!(all[..5].iter().all(is_cut) && !all[5..].iter().any(is_cut));
    }

    /// In a shared network each connection counts as a client, too.
    #[test]
    fn in_a_shared_network_the_oldest_makes_room() {
        let shared: [Network; 1] = ["192.0.2.0/24".parse().expect("a network")];
        let mut handshakes = Handshakes::default();
        let other = handshakes.begin([198, 51, 100, 1].into(), &shared).0;
        let all: Vec<Handshake> =
            (0..HANDSHAKES_MAX + 5).map(|_| handshakes.begin(address(1), &shared).0).collect();
        // No client has more than one handshake, so the oldest is displaced, whatever its address.
        assert!(is_cut(&other));
        assert!(all[..5].iter().all(is_cut) && !all[5..].iter().any(is_cut));
    }
}
