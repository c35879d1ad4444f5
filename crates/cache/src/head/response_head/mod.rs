//! Heads of responses: the part of an origin's head that is kept, and the lines that are added each time it
//! is sent.
//!
//! ```text
//!  origin's head ──append_origin_head──> head bytes ┐ stored together with the body
//!        + Freshness, times ──> StoredMeta [u64; 8] ┘ (the store keeps the words beside the record)
//!
//!  on a hit:   head bytes (as they are)  or append_not_modified / append_partial of them
//!              + append_dynamic: Age · Via · Cache-Status · Connection · Content-Length …  + empty line
//! ```
//!
//! An encoded variant has no head of its own, but an edit of its object's head ([`CodedHead`]).
//!
//! Head bytes are a status line and field lines, each with its CRLF, without the empty line at the end. They
//! hold the lines that are the same for each answer; the others (`Age`, `Content-Length`, framing, `Via`,
//! `Cache-Status`) are never in them. So a hit is one copy and a few appended lines, which do not allocate
//! while the buffer has room.
mod coded;
mod dynamic;
mod meta;
mod origin_head;

pub use coded::{CodedHead, VARY};
pub use dynamic::{
    BodyDelimiter, CacheStatus, Dynamic, Fwd, Identity, InvalidName, Outcome, Persistence, append_dynamic,
};
#[cfg(any(test, fuzzing))]
pub(crate) use meta::BLANK;
pub use meta::{Flags, ORIGIN_MS_MAX, STALE_S_MAX, Schemes, StoredMeta};
pub(crate) use origin_head::append_but;
pub use origin_head::{
    For, HeadOutline, LeftOut, append_not_modified, append_origin_head, append_partial, append_updated,
};

/// Returns the values of a field in a stored head. Most other lines are rejected by comparing one byte.
pub(crate) fn stored_values<'h>(head: &'h [u8], name: &str) -> impl Iterator<Item = &'h [u8]> {
    let mut rest = head;
    let lines = std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', rest)?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line)
    });
    lines.skip(1).filter_map(move |line| {
        let is_its =
            line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name.as_bytes());
        is_its.then(|| line[name.len() + 1..].trim_ascii())
    })
}

/// Returns whether a status has neither a body nor a length (RFC 9110 §8.6).
pub const fn is_bodiless(status: u16) -> bool {
    matches!(status, 204 | 304)
}
