//! The head of a response: what is kept of an origin's, and what is added each time it is sent.
//!
//! ```text
//!  origin's head ──append_origin_head──> head bytes ┐ stored together with the body
//!        + Freshness, times ──> StoredMeta [u64; 8] ┘ (the store keeps the words beside the record)
//!
//!  on a hit:   head bytes (as they are)  or append_not_modified / append_partial of them
//!              + append_dynamic: Age · Via · Cache-Status · Connection · Content-Length …  + empty line
//! ```
//!
//! Head bytes are a status line and field lines, each with its CRLF, without the empty line at the end. They hold what
//! is the same for each answer; what differs (`Age`, `Content-Length`, framing, `Via`, `Cache-Status`) is never in
//! them, so a hit is one copy and a few appended lines: nothing there allocates while the buffer has room.
mod dynamic;
mod meta;
mod origin_head;

pub use dynamic::{
    CacheStatus, Delimited, Dynamic, Fwd, Identity, InvalidName, Outcome, Persistence, append_dynamic,
};
#[cfg(test)]
pub(crate) use meta::BLANK;
pub use meta::{Coding, Flags, ORIGIN_MS_MAX, STALE_S_MAX, Schemes, StoredMeta};
pub use origin_head::{
    For, HeadOutline, LeftOut, append_not_modified, append_origin_head, append_partial, append_updated,
};

/// Statuses that have neither a body nor a length (RFC 9110 §8.6).
pub const fn is_bodiless(status: u16) -> bool {
    matches!(status, 204 | 304)
}
