//! SMTP and LMTP for receivers (RFC 5321, RFC 2033).
//!
//! ```text
//!   bytes ──▶ [line] ──▶ [command] ──▶ [dialog] ──▶ DialogStep: what the host must decide or answer ([reply])
//!                                         │
//!                     after DATA, BDAT ──▶ [data]: pieces of the mail, dots unstuffed, to the host's sink
//! ```
//! Nothing here owns a buffer: a [`dialog::Dialog`] is a few words, and reads the bytes of the socket's
//! owner. Incomplete input stays with the owner, which passes it again with more bytes after it.
//!
//! Lines are bounded and checked before they are parsed as commands. Only CRLF.CRLF ends a mail. The reason
//! for a grammar of our own: `docs/decisions/008-mail.md`.

pub mod command;
pub mod data;
pub mod dialog;
pub mod line;
mod path;
pub mod reply;
