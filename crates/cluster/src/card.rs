//! What an instance says of itself in the bucket, under its name: one JSON object.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::LEASE_MAX;

/// The version that this one writes.
const VERSION: u32 = 1;

/// An instance's card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heartbeat {
    pub(crate) v: u32,
    /// Which process it is: a random number.
    pub(crate) instance: String,
    /// Which of the streams that were under this name its sequence is of.
    pub(crate) generation: u64,
    /// It has carried out everything up to this.
    pub(crate) applied: u64,
    pub(crate) lease_ms: u64,
    /// It serves what is stored although its lease is out.
    #[serde(default)]
    pub(crate) serves_on: bool,
    /// It has stopped, and serves nothing any more.
    #[serde(default)]
    pub(crate) left: bool,
    /// How often it has written this.
    pub(crate) written: u64,
    /// Its program's.
    #[serde(default)]
    pub(crate) version: String,
    /// Where peers reach it; empty: nowhere.
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

    /// Its lease. Nobody's is longer than that: what a card says beyond is not believed, nor is one of another version.
    pub(crate) fn lease_ms(&self) -> u64 {
        let longest = u64::try_from(LEASE_MAX.as_millis()).unwrap_or(u64::MAX);
        if self.v == VERSION { self.lease_ms.min(longest) } else { longest }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Text and numbers alone: it cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `None`: it is none, but somebody's all the same.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_no_lease_is_believed_beyond_the_longest() {
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
