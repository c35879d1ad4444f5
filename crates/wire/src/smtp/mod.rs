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
//! Commands are taken apart by `smtp-proto`, once a line is whole: shown an unfinished line it begins anew each time, skips
//! bare CR anywhere and ends lines at LF alone. So lines are bounded and judged here first. The end of a mail is
//! CRLF.CRLF and nothing else, which the library's own receivers do not keep to.

pub mod command;
pub mod data;
pub mod dialog;
pub mod line;
pub mod reply;
