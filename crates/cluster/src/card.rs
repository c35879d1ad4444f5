//! Heartbeat of an instance: one JSON object in the bucket, under the instance's name.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::LEASE_MAX;

/// Format version that this program writes.
const VERSION: u32 = 1;

/// Heartbeat of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heartbeat {
    pub(crate) v: u32,
    /// Random number that identifies the process.
    pub(crate) instance: String,
    /// Generation of the stream to which `applied` refers; a stream that replaces another of the same name
    /// has a higher generation.
    pub(crate) generation: u64,
    /// Sequence number up to which the instance has applied all purges.
    pub(crate) applied: u64,
    pub(crate) lease_ms: u64,
    /// True if the instance serves stored objects even after its lease has expired.
    #[serde(default)]
    pub(crate) serves_on: bool,
    /// True once the instance has stopped and no longer serves anything.
    #[serde(default)]
    pub(crate) left: bool,
    /// Number of times that the heartbeat was written.
    pub(crate) written: u64,
    /// Version of the instance's program.
    #[serde(default)]
    pub(crate) version: String,
    /// Address at which peers reach the instance; empty if there is none.
    #[serde(default)]
    pub(crate) address: String,
}

impl Heartbeat {
    pub(crate) fn new(instance: String, lease: Duration, serves_on: bool, address: String) -> Self {
        Self {
            v: VERSION,
            instance,
            generation: 0,
            applied: 0,
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            serves_on,
            left: false,
            written: 0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address,
        }
    }

    /// Returns the instance's lease, capped at [`LEASE_MAX`]. A heartbeat of another format version counts as
    /// having the longest lease.
    pub(crate) fn lease_ms(&self) -> u64 {
        let longest = u64::try_from(LEASE_MAX.as_millis()).unwrap_or(u64::MAX);
        if self.v == VERSION { self.lease_ms.min(longest) } else { longest }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // A struct of text and numbers always serialises.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Parses a heartbeat. `None` means that it is unreadable, though an instance with this name exists.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_round_trips_with_bounded_lease() {
        let card = Heartbeat::new("i".into(), Duration::from_secs(3), true, "a:1".into());
        assert_eq!(Heartbeat::of_bytes(&card.to_bytes()), Some(card.clone()));
        assert_eq!(card.lease_ms(), 3_000);
        let old = String::from_utf8(card.to_bytes()).expect("text").replace("\"v\":1", "\"v\":2");
        assert_eq!(Heartbeat::of_bytes(old.as_bytes()).map(|card| card.lease_ms()), Some(60_000));
        let long = Heartbeat::new("i".into(), Duration::from_secs(3_600), false, String::new());
        assert_eq!(long.lease_ms(), 60_000);
        assert_eq!(Heartbeat::of_bytes(b"?"), None);
    }
}
