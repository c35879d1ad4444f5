//! Kinds of listeners.

/// Listener on which a client was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// NATS over TCP, with or without TLS.
    Nats,
    /// NATS over WebSocket.
    Web,
}
