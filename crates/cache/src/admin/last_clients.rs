//! Whom a stored object answered last, for the operator who asks why.
//!
//! A hit notes its client in a line of its own core ([`direct_mapped_table`](crate::core::direct_mapped_table)): nothing that others read is written, and
//! who asks looks at what each core has noted. What has lost its place was not asked for lately, or meets another there.

use std::net::IpAddr;

use engine::store::Hash;

use crate::core::direct_mapped_table::DirectMappedTable;

/// Objects whose last client a core remembers.
const PLACES: usize = 512;

/// A client, and when it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastClient {
    /// Seconds since 1970.
    pub(crate) at_s: u64,
    pub(crate) address: IpAddr,
}

/// The last client of each object, as far as one core has answered it.
pub(crate) struct LastClients(DirectMappedTable<Option<LastClient>>);

impl Default for LastClients {
    fn default() -> Self {
        Self(DirectMappedTable::new(PLACES))
    }
}

impl LastClients {
    /// A client is answered with an object.
    #[inline]
    pub(crate) fn note(&self, hash: Hash, address: IpAddr, now_s: u64) {
        self.0.set(hash, Some(LastClient { at_s: now_s, address }));
    }

    /// Whom it answered last, if that is known.
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
