//! Memory for connections: handshakes make room for them, and a core gives back what others need.

use engine::tls::session::HANDSHAKE_BYTES_MAX;

use crate::{counters::Counter, mesh::core::Core};

/// Memory of a connection, and the additional memory of its TLS session; measured and rounded up.
const CONNECTION_BYTES: usize = 2 << 10;
const TLS_BYTES: usize = 16 << 10;
/// Memory in bytes of a handshake without TLS: a PROXY header, or a WebSocket upgrade.
const PLAIN_HANDSHAKE_BYTES: usize = 8 << 10;
/// Largest number of handshakes displaced at once for lack of memory; each displacement searches all
/// handshakes.
const DISPLACED_AT_ONCE: usize = 16;

impl Core {
    /// Returns whether there is memory for one more connection. A handshake in progress is counted at the
    /// maximum that it may take.
    pub(crate) fn has_connection_memory(&mut self) -> bool {
        self.displace_handshakes(self.bytes_of_a_connection())
    }

    /// Frees memory that other cores or servers need, if this core uses more than its own share.
    pub(crate) fn give_way(&mut self) {
        self.memory.subscriptions.give_way();
        self.displace_handshakes(0);
    }

    /// Displaces handshakes, up to a fixed number per call, until `more` bytes are available for connections.
    /// Returns whether they are.
    fn displace_handshakes(&mut self, more: usize) -> bool {
        for _ in 0..DISPLACED_AT_ONCE {
            if self.memory.connections.allows(self.connection_bytes() + more) {
                return true;
            }
            if !self.clients.handshakes.make_room() {
                return false;
            }
            self.count(Counter::HandshakesDisplaced);
        }
        self.memory.connections.allows(self.connection_bytes() + more)
    }

    /// Returns whether this core uses memory beyond its own share, which others may need.
    pub(crate) fn has_taken_memory(&self) -> bool {
        self.memory.connections.has_taken()
            || self.memory.pending.has_taken()
            || self.memory.subscriptions.has_taken()
    }

    fn connection_bytes(&self) -> usize {
        let of_handshake =
            if self.settings.acceptors.has_tls() { HANDSHAKE_BYTES_MAX } else { PLAIN_HANDSHAKE_BYTES };
        self.clients() * self.bytes_of_a_connection() + self.clients.handshakes.under_way() * of_handshake
    }

    fn bytes_of_a_connection(&self) -> usize {
        CONNECTION_BYTES + if self.settings.acceptors.has_tls() { TLS_BYTES } else { 0 }
    }
}
