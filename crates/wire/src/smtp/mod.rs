//! SMTP and LMTP as a receiver speaks them (RFC 5321, RFC 2033).
//!
//! ```text
//!   bytes ──▶ [line] ──▶ [command] ──▶ [dialog] ──▶ Ask: what the host must decide or answer ([reply])
//!                                         │
//!                     after DATA, BDAT ──▶ [data]: pieces of the mail, dots unstuffed, to the host's sink
//! ```
//! Nothing here owns a buffer: a [`dialog::Dialog`] is a few words, and looks at the bytes that the owner of the
//! socket has. What is unfinished stays with the owner and is shown again, with more behind it.
//!
//! Lines are bounded and judged before they are read as commands. The end of a mail is CRLF.CRLF and nothing else. Why
//! the grammar is ours: `docs/decisions/008-mail.md`.

pub mod command;
pub mod data;
pub mod dialog;
pub mod line;
mod path;
pub mod reply;
