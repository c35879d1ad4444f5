//! Ports that occur in keys, other than the schemes' default ports: a page may be stored under each of them.
//!
//! A purge drops a page under each of these ports at once. *Bound:* [`PORTS_MAX`]. With more ports, or if the
//! file has objects from an earlier run, a purge is also entered into every core's table, by host and path
//! ([`place`](crate::request::key::place)).

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};

use crate::request::key;

/// Maximum number of ports that are remembered.
const PORTS_MAX: usize = 8;

/// Ports that were seen in keys, for all cores; 0 for a free entry.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    seen: [AtomicU16; PORTS_MAX],
    /// Pages may be stored under ports that are not in `seen`.
    are_more: AtomicBool,
}

impl Ports {
    /// Creates the table for a store that may already have objects.
    pub(crate) fn of_earlier_objects() -> Self {
        Self { are_more: AtomicBool::new(true), ..Self::default() }
    }

    /// Records the port in a key under which an object is stored.
    pub(crate) fn note(&self, key: &[u8]) {
        let Some(port) = key::host_and_port(key).1.filter(|port| *port != 0) else { return };
        for place in &self.seen {
            let seen = place.compare_exchange(0, port, Relaxed, Relaxed);
            if seen.is_ok() || seen == Err(port) {
                return;
            }
        }
        self.are_more.store(true, Relaxed);
    }

    /// Returns the ports that were seen.
    pub(crate) fn seen(&self) -> Vec<u16> {
        self.seen.iter().map(|port| port.load(Relaxed)).filter(|port| *port != 0).collect()
    }

    /// Returns whether a page may be stored under a port that is not in [`seen`](Self::seen).
    pub(crate) fn are_more(&self) -> bool {
        self.are_more.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_known_until_there_are_too_many() {
        let ports = Ports::default();
        for key in [&b"a\0/"[..], b"Sa:8443\0/", b"[::1]:81\0/", b"[::1]\0/", b"b:81\0/x:9"] {
            ports.note(key);
        }
        assert_eq!((ports.seen(), ports.are_more()), (vec![8443, 81], false));
        for port in 1..=PORTS_MAX {
            ports.note(format!("a:{port}\0/").as_bytes());
        }
        assert!(ports.are_more() && ports.seen().len() == PORTS_MAX);
        assert!(Ports::of_earlier_objects().are_more());
    }
}
