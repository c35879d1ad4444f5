//! Number of connections of each client address, and of each network, over all cores.
//!
//! The counts change when a connection opens or closes, not on each request, and only if a limit is set. They
//! are in a fixed table of atomics, with the slot chosen by a hash of the address. Two addresses in one slot
//! share their limit, which errs on the safe side and needs neither a lock nor memory that a client can make
//! grow.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{
    client::limits::rates::{TooMany, network_of},
    config::Limits,
};

/// Number of slots of the table; with 10,000 addresses about one in seven shares its slot.
const PLACES: usize = 64 * 1024;

/// Numbers of connections, by address and by network.
#[derive(Debug)]
pub(crate) struct ConnectionCounts {
    of_addresses: Counts,
    of_networks: Counts,
}

/// A counted connection of a client; its counts are released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    clients: Arc<ConnectionCounts>,
    /// Slot in the table; `None` if there is no limit and nothing is counted.
    of_address: Option<usize>,
    of_network: Option<usize>,
}

impl ConnectionCounts {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            of_addresses: Counts::new(limits.connections_per_client_max),
            of_networks: Counts::new(limits.connections_per_network_max),
        })
    }

    /// Returns whether the connection limits of two configurations are the same.
    pub(crate) fn is_same(one: &Limits, other: &Limits) -> bool {
        let of = |limits: &Limits| (limits.connections_per_client_max, limits.connections_per_network_max);
        of(one) == of(other)
    }

    /// Counts one more connection. Returns an error if the client or its network already has its maximum.
    pub(crate) fn admit(self: &Arc<Self>, client: IpAddr) -> Result<ConnectionSlot, TooMany> {
        let of_address = self.of_addresses.take(client).map_err(|()| TooMany::Address)?;
        let mut held = ConnectionSlot { clients: Arc::clone(self), of_address, of_network: None };
        held.of_network = self.of_networks.take(network_of(client)).map_err(|()| TooMany::Network)?;
        Ok(held)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.clients.of_addresses.give_back(self.of_address);
        self.clients.of_networks.give_back(self.of_network);
    }
}

/// Numbers of connections in a hash table.
#[derive(Debug)]
struct Counts {
    /// Counts by slot; empty if there is no limit.
    counts: Box<[AtomicU32]>,
    /// Random seed, so that no client can target another client's slot.
    seed: RandomState,
    most: u32,
}

impl Counts {
    /// Creates the table for a limit of `most` connections; 0 means no limit.
    fn new(most: usize) -> Self {
        let places = if most == 0 { 0 } else { PLACES };
        Self {
            counts: (0..places).map(|_| AtomicU32::new(0)).collect(),
            seed: RandomState::new(),
            most: u32::try_from(most).unwrap_or(u32::MAX),
        }
    }

    fn take(&self, whose: IpAddr) -> Result<Option<usize>, ()> {
        if self.counts.is_empty() {
            return Ok(None);
        }
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose the place")]
        let place = self.seed.hash_one(whose) as usize % PLACES;
        let count = &self.counts[place];
        if count.fetch_add(1, Ordering::Relaxed) >= self.most {
            count.fetch_sub(1, Ordering::Relaxed);
            return Err(());
        }
        Ok(Some(place))
    }

    fn give_back(&self, place: Option<usize>) {
        if let Some(place) = place {
            self.counts[place].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(per_client: usize, per_network: usize) -> Limits {
        Limits {
            connections_per_client_max: per_client,
            connections_per_network_max: per_network,
            ..Limits::default()
        }
    }

    #[test]
    fn connections_per_client_are_bounded_and_freed() {
        let clients = ConnectionCounts::new(&limits(2, 0));
        let address = IpAddr::from([127, 0, 0, 1]);
        let first = clients.admit(address).expect("first");
        let _second = clients.admit(address).expect("second");
        assert_eq!(clients.admit(address).err(), Some(TooMany::Address));
        drop(first);
        assert!(clients.admit(address).is_ok());
    }

    #[test]
    fn a_network_has_a_share_of_its_own() {
        let clients = ConnectionCounts::new(&limits(1, 2));
        let address = |network: u8, host: u8| IpAddr::from([10, 0, network, host]);
        let first = clients.admit(address(1, 1)).expect("first");
        let _second = clients.admit(address(1, 2)).expect("second");
        assert_eq!(clients.admit(address(1, 3)).err(), Some(TooMany::Network));
        // A connection that was refused because of its network does not count against its address.
        drop(first);
        let _third = clients.admit(address(1, 3)).expect("there is room again");
        assert_eq!(clients.admit(address(1, 1)).err(), Some(TooMany::Network));
        assert!(clients.admit(address(2, 1)).is_ok());
    }

    #[test]
    fn no_limit_holds_no_table() {
        let clients = ConnectionCounts::new(&limits(0, 0));
        let held: Vec<_> = (0..1000).map(|_| clients.admit(IpAddr::from([10, 0, 0, 1]))).collect();
        assert!(held.iter().all(Result::is_ok));
        assert!(clients.of_addresses.counts.is_empty() && clients.of_networks.counts.is_empty());
    }
}
