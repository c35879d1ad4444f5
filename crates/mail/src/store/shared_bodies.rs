//! Shared bodies: a mail whose body equals that of an earlier mail stores only its head and a reference to
//! that body.
//!
//! ```text
//! one segment of the log:   │ meta head BODY │ meta head →BODY │ other mail │ meta head →BODY │ ...
//! ```
//! Only a body in the *same segment* is referenced. A segment is freed only as a whole, when nothing in it is
//! live, so the bytes of a body stay as long as any mail that references them, even after the mail that
//! brought them was deleted: there are no reference counts, nothing is recorded, and nothing needs repair
//! after a crash. The price is one copy per segment and core.
//!
//! Bodies are compared byte by byte; the hash only determines where to look. *Memory:* a table of fixed size
//! for each core. *Writer:* the core. If two bodies have the same slot in the table, the later one replaces
//! the earlier.

use xxhash_rust::xxh3::xxh3_64;

/// Shortest body that is shared, as a reference takes [`crate::store::record::SHARED_BODY_BYTES`] and a
/// lookup in the table.
const BODY_BYTES_MIN: usize = 512;
/// Slots of a core's table.
const PLACES: usize = 1024;

/// A body in the record of another mail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SharedBody {
    /// Location of that record, and the size of its payload.
    pub(crate) location: u64,
    pub(crate) record_bytes: u32,
    /// Offset of the body in that payload, and its length.
    pub(crate) at: u32,
    pub(crate) bytes: u32,
}

/// Table of the bodies that one core has stored recently.
#[derive(Debug)]
pub(crate) struct RecentBodies {
    places: Box<[(u64, SharedBody)]>,
}

impl Default for RecentBodies {
    fn default() -> Self {
        Self { places: vec![(0, SharedBody::default()); PLACES].into() }
    }
}

impl RecentBodies {
    /// Returns where a body with this hash and length was last stored, if known.
    pub(crate) fn find(&self, hash: u64, bytes: usize) -> Option<SharedBody> {
        let (known, body) = self.places[hash as usize % PLACES];
        (known == hash && body.bytes as usize == bytes && body.location != 0).then_some(body)
    }

    /// Remembers where a body with this hash is stored.
    pub(crate) fn remember(&mut self, hash: u64, body: SharedBody) {
        self.places[hash as usize % PLACES] = (hash, body);
    }
}

/// Splits a mail into its head, with the empty line that ends it, and its body; `None` if the body is too
/// short to share.
pub(crate) fn split(mail: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memmem::find(mail, b"\r\n\r\n")? + 4;
    let (head, body) = mail.split_at(end);
    (body.len() >= BODY_BYTES_MIN).then_some((head, body))
}

/// Hash of a body in the table.
pub(crate) fn hash(body: &[u8]) -> u64 {
    xxh3_64(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_found_until_replaced() {
        let mut bodies = RecentBodies::default();
        let body = SharedBody { location: 1, record_bytes: 700, at: 100, bytes: 600 };
        assert_eq!(bodies.find(0, 0), None, "an empty place is none of hash 0");
        bodies.remember(5, body);
        assert_eq!(bodies.find(5, 600), Some(body));
        assert_eq!(bodies.find(5, 601), None);
        assert_eq!(bodies.find(5 + PLACES as u64, 600), None);
        bodies.remember(5 + PLACES as u64, body);
        assert_eq!(bodies.find(5, 600), None);
    }

    #[test]
    fn a_mail_splits_at_its_first_empty_line() {
        let mail = format!("Subject: a\r\n\r\n{}\r\n\r\nx", "b".repeat(BODY_BYTES_MIN));
        let (head, body) = split(mail.as_bytes()).expect("long enough");
        assert_eq!(head, b"Subject: a\r\n\r\n");
        assert_eq!([head, body].concat(), mail.as_bytes());
        assert_eq!(split(b"Subject: a\r\n\r\nshort"), None);
        assert_eq!(split("x".repeat(1000).as_bytes()), None, "no head, no body");
    }
}
