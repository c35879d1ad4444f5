//! SMTP and LMTP on a core: connections, sessions, what each reply waits for.

pub mod address;
pub(crate) mod connection;
pub(crate) mod envelope;
pub(crate) mod receiving;
pub mod sendmail;
pub(crate) mod session;
mod stream;
pub(crate) mod tail;
pub(crate) mod transaction;

/// What a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// SMTP.
    Smtp,
    /// SMTP under TLS from the first byte.
    Smtps,
    /// LMTP.
    Lmtp,
}
