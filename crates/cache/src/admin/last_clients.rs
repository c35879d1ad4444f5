//! The last client of each stored object, shown to an operator who asks for an explanation.
//!
//! A hit records its client in a table of its own core
//! ([`direct_mapped_table`](crate::core::direct_mapped_table)), so it writes no memory that cores share; a
//! query reads the table of each core. A missing entry means that the object was not requested lately, or
//! that another object has taken its slot.

use std::net::IpAddr;

use engine::store::Hash;

use crate::core::direct_mapped_table::DirectMappedTable;

/// Number of objects per core whose last client is remembered.
const PLACES: usize = 512;

/// A client, and the time at which it was last answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastClient {
    /// Unix time in seconds.
    pub(crate) at_s: u64,
    pub(crate) address: IpAddr,
}

/// For each object that one core has served, the client that got it last.
pub(crate) struct LastClients(DirectMappedTable<Option<LastClient>>);

impl Default for LastClients {
    fn default() -> Self {
        Self(DirectMappedTable::new(PLACES))
    }
}

impl LastClients {
    /// Records that a client was answered with an object.
    #[inline]
    pub(crate) fn note(&self, hash: Hash, address: IpAddr, now_s: u64) {
        self.0.set(hash, Some(LastClient { at_s: now_s, address }));
    }

    /// Returns the client that was last answered with the object, if known.
    pub(crate) fn of(&self, hash: Hash) -> Option<LastClient> {
        self.0.get(hash).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_client_is_remembered() {
        let askers = LastClients::default();
        let (one, other) = (Hash::seeded(b"one", 0), Hash::seeded(b"other", 0));
        let clients: [IpAddr; 2] = [[10, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()];
        assert_eq!(askers.of(one), None);
        askers.note(one, clients[0], 5);
        askers.note(one, clients[1], 6);
        assert_eq!(askers.of(one), Some(LastClient { at_s: 6, address: clients[1] }));
        assert_eq!(askers.of(other), None);
    }
}
