//! Free holds, counted for each consumer address.
//!
//! A consumer pays for holding (pausing) its producers by reading (`backpressure`). At its first backlog it
//! may not have read anything yet, so the first hold is free. All connections of an address together have
//! [`AT_ONCE`] free holds, and get another one every [`EVERY_MS`].

use std::collections::HashMap;

use engine::accounts::ClientKey;

/// Largest number of free holds that an address may have available.
const AT_ONCE: u64 = 4;
/// Time until an address gets another free hold.
const EVERY_MS: u64 = 5_000;
/// Largest number of addresses that are remembered. While the table is full, other addresses have no free
/// holds.
const ADDRESSES_MAX: usize = 1024;

/// Addresses that have used free holds on a core.
#[derive(Debug, Default)]
pub(crate) struct FreeHolds {
    /// Time at which an address will have all of its free holds again.
    whole_at_ms: HashMap<ClientKey, u64>,
}

impl FreeHolds {
    /// Uses a free hold of an address. Returns whether it had one.
    pub(crate) fn take(&mut self, address: ClientKey, now_ms: u64) -> bool {
        let whole_at_ms = self.whole_at_ms.get(&address).copied().unwrap_or(0).max(now_ms);
        if whole_at_ms + EVERY_MS > now_ms + AT_ONCE * EVERY_MS {
            return false;
        }
        if self.whole_at_ms.len() >= ADDRESSES_MAX {
            self.whole_at_ms.retain(|_, whole_at_ms| *whole_at_ms > now_ms);
            if self.whole_at_ms.len() >= ADDRESSES_MAX && !self.whole_at_ms.contains_key(&address) {
                return false;
            }
        }
        self.whole_at_ms.insert(address, whole_at_ms + EVERY_MS);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn address(number: u32) -> ClientKey {
        ClientKey::of(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn an_address_has_some_and_gets_more() {
        let mut holds = FreeHolds::default();
        let used =
            |holds: &mut FreeHolds, now_ms| (0..100).filter(|_| holds.take(address(1), now_ms)).count();
        assert_eq!(used(&mut holds, 1000), 4);
        assert_eq!(used(&mut holds, 1000 + EVERY_MS - 1), 0);
        assert_eq!(used(&mut holds, 1000 + 2 * EVERY_MS), 2);
        assert!(holds.take(address(2), 1000), "another one has its own");
        assert_eq!(used(&mut holds, 1000 + 100 * EVERY_MS), 4, "and no more than that");
    }

    #[test]
    fn addresses_are_bounded() {
        let mut holds = FreeHolds::default();
        let taken = (0..3000).filter(|&number| holds.take(address(number), 0)).count();
        assert_eq!((taken, holds.whole_at_ms.len()), (ADDRESSES_MAX, ADDRESSES_MAX));
        assert!(holds.take(address(5), 0), "one that is known has its others");
        assert!(holds.take(address(5000), 2 * EVERY_MS), "the others have all of theirs again");
    }
}
