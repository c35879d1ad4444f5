//! How many connections each client address holds, over all cores.
//!
//! Written when a connection comes and goes, not on a request's path; only where a limit is set at all. The counts
//! are in a fixed table of atomics, a hash of the address choosing the place: two addresses that share one share
//! their limit, which errs on the safe side and needs neither a lock nor memory that a client can make grow.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Places in the table; with 10,000 addresses about one in seven shares its place.
const PLACES: usize = 64 * 1024;

/// Connections by client address.
#[derive(Debug)]
pub(crate) struct Clients {
    counts: Box<[AtomicU32]>,
    /// Seeded, so that no client can aim at another's place.
    seed: RandomState,
    per_client_max: u32,
}

/// One connection of a client; the place is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    clients: Arc<Clients>,
    /// `None`: there is no limit, and nothing is counted.
    place: Option<usize>,
}

impl Clients {
    /// `per_client_max` 0: no limit.
    pub(crate) fn new(per_client_max: usize) -> Arc<Self> {
        let places = if per_client_max == 0 { 0 } else { PLACES };
        Arc::new(Self {
            counts: (0..places).map(|_| AtomicU32::new(0)).collect(),
            seed: RandomState::new(),
            per_client_max: u32::try_from(per_client_max).unwrap_or(u32::MAX),
        })
    }

    /// Takes a place for one more connection; `None` if the client has its share already.
    pub(crate) fn admit(self: &Arc<Self>, client: IpAddr) -> Option<Held> {
        if self.counts.is_empty() {
            return Some(Held { clients: Arc::clone(self), place: None });
        }
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose the place")]
        let place = self.seed.hash_one(client) as usize % PLACES;
        let count = &self.counts[place];
        if count.fetch_add(1, Ordering::Relaxed) >= self.per_client_max {
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Held { clients: Arc::clone(self), place: Some(place) })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.clients.counts[place].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_share_and_its_place_back() {
        let clients = Clients::new(2);
        let address = IpAddr::from([127, 0, 0, 1]);
        let first = clients.admit(address).expect("first");
        let _second = clients.admit(address).expect("second");
        assert!(clients.admit(address).is_none());
        drop(first);
        assert!(clients.admit(address).is_some());
    }

    #[test]
    fn no_limit_holds_no_table() {
        let clients = Clients::new(0);
        let held: Vec<_> = (0..1000).map(|_| clients.admit(IpAddr::from([10, 0, 0, 1]))).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(clients.counts.is_empty());
    }
}
