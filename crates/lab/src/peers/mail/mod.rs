//! Mail servers that are compared, and the senders that load them.

pub mod contenders;
pub mod load;

/// Bytes of a mail's body.
pub const MAIL_BYTES: usize = 4096;
/// Number of concurrent connections that send mail.
pub const SESSIONS: usize = 20;
