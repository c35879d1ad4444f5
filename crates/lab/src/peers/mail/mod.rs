//! Servers that take mail, and who sends it.

pub mod contenders;
pub mod load;

/// Bytes of a mail's body.
pub const MAIL_BYTES: usize = 4096;
/// Connections that send at once.
pub const SESSIONS: usize = 20;
