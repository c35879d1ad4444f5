//! SMTP and LMTP on a core: connections, sessions, and the writes that replies wait for.

pub mod address;
pub(crate) mod connection;
pub(crate) mod envelope;
pub(crate) mod pending;
pub(crate) mod receiving;
pub mod sendmail;
pub(crate) mod session;
mod stream;
pub(crate) mod tail;
pub(crate) mod transaction;

/// Protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    Smtp,
    /// SMTP with implicit TLS (TLS from the first byte).
    Smtps,
    Lmtp,
}
