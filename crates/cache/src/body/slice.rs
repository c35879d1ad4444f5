//! Slices of an object: the bytes of a slice, the request for it to the origin, and the check of the answer.
//!
//! An object need not be fetched as a whole if the origin allows range requests and a strong validator tells
//! its versions apart ([`takes`]). Only its head is stored under its key. The content is in slices of
//! [`BLOCK_BYTES`]. Each slice is an object of its own, stored under the key of exactly that head
//! ([`dependent`](crate::request::dependent)), fetched at its first request, and evicted when
//! it is no longer requested. Versions are never mixed: another head has other slice keys, and the entity tag
//! of a slice's answer shows the version to which it belongs (RFC 9110 §14.4, §15.3.7).

use std::ops::Range;

use engine::store::Hash;
use wire::http1::{
    fields::{ContentRange, EntityTag, append_field, list},
    framing::Framing,
    head::{Headers, ResponseHead},
    known::KnownHeader,
};

use crate::{
    head::response_head::{Flags, StoredMeta},
    request::dependent,
};

/// Size of a slice in bytes; the last slice of an object holds the rest. A helper needs only one read
/// ([`READ_BYTES_MAX`](engine::io::READ_BYTES_MAX)) to get a slice's record from the file, even with the
/// longest key.
pub(crate) const BLOCK_BYTES: u64 = 448 << 10;

/// Minimum time in seconds for which a slice is kept, even if its object expires sooner: after a revalidation
/// of the object, its slices are used again.
const KEPT_S_MIN: u32 = 24 * 60 * 60;

/// Reason why an object with a strong validator and a length is not fetched in slices: its origin announces
/// range support but does not send the ranges.
pub(crate) const NO_RANGES: &str = "no-ranges";

/// Reason why an object is passed for a while instead of being fetched in slices: its slices repeatedly
/// belonged to a different version than the object.
pub(crate) const VERSIONS_DIFFER: &str = "versions-differ";

/// Returns whether a stored answer should be fetched in slices: it is long, its version can be recognised
/// byte for byte (RFC 9110 §8.8.1), and its origin announces range support (§14.3).
pub(crate) fn takes(head: &ResponseHead<'_, '_>, length: Option<u64>, bytes_min: u64) -> bool {
    head.status == 200
        && length.is_some_and(|bytes| bytes >= bytes_min)
        && strong_tag(&head.headers).is_some()
        && head.headers("accept-ranges").flat_map(list).any(|unit| unit.eq_ignore_ascii_case(b"bytes"))
}

/// Returns the entity tag if there is exactly one and it is strong.
pub(crate) fn strong_tag<'b>(headers: &Headers<'b, '_>) -> Option<EntityTag<'b>> {
    let etag = headers.known(KnownHeader::Etag).filter(|_| !headers.is_repeated(KnownHeader::Etag));
    etag.and_then(EntityTag::parse).filter(|etag| !etag.weak)
}

/// The properties of a sliced object that are needed to fetch and to store its slices.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    /// Sequence number of the object, which is part of its slices' keys.
    pub(crate) sequence: u64,
    /// Strong entity tag of the object, as received.
    pub(crate) etag: Box<[u8]>,
    /// Total bytes of all slices.
    pub(crate) complete: u64,
    pub(crate) meta: StoredMeta,
    /// Time until which the object is kept, in seconds.
    pub(crate) expires_s: u32,
}

impl Version {
    /// Returns the number of the slice that contains a byte.
    pub(crate) fn number_at(byte: u64) -> u32 {
        u32::try_from(byte / BLOCK_BYTES).unwrap_or_else(|_| unreachable!("a length is below 2^48"))
    }

    /// Returns the range of a slice's bytes.
    pub(crate) fn bytes_of(&self, number: u32) -> Range<u64> {
        let start = u64::from(number) * BLOCK_BYTES;
        start..(start + BLOCK_BYTES).min(self.complete)
    }
}

/// A slice to be requested from the origin.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) of: Version,
    /// Hash of the object's key.
    pub(crate) object: Hash,
    pub(crate) number: u32,
}

/// Result of checking an answer to the request for a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The answer is the requested slice.
    Block,
    /// The answer belongs to another version of the object, or shows that the origin has another version.
    OtherVersion,
    /// The origin does not send ranges of this object, now or later.
    NoRanges,
    /// Any other answer, which is a failure.
    Other,
}

impl Block {
    /// Returns the range of the object's bytes that the slice holds.
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.of.bytes_of(self.number)
    }

    /// Returns the request's `Range` and `If-Range` lines (RFC 9110 §14.2, §13.1.5), with which the origin
    /// sends no range of another version.
    pub(crate) fn conditions(&self) -> Vec<u8> {
        let Range { start, end } = self.bytes();
        let mut out = Vec::new();
        append_field(&mut out, "Range", format!("bytes={start}-{}", end - 1).as_bytes());
        append_field(&mut out, "If-Range", &self.of.etag);
        out
    }

    /// Checks an answer to the request for this slice.
    pub(crate) fn fit(&self, head: &ResponseHead<'_, '_>, framing: Framing) -> Fit {
        let Range { start, end } = self.bytes();
        let ours = EntityTag::parse(&self.of.etag);
        let is_same =
            ours.zip(strong_tag(&head.headers)).is_some_and(|(ours, theirs)| ours.strongly_equals(&theirs));
        let mut ranges = head.headers("content-range");
        let range = ranges.next().and_then(ContentRange::parse).filter(|_| ranges.next().is_none());
        let is_whole = framing == Framing::Length(end - start);
        let has_tag = head.headers.has(KnownHeader::Etag);
        match head.status {
            206 if is_same => match range {
                Some(ContentRange { complete: Some(complete), .. }) if complete != self.of.complete => {
                    Fit::OtherVersion
                }
                Some(ContentRange { first, last, complete: Some(_) })
                    if is_whole && (first, last + 1) == (start, end) =>
                {
                    Fit::Block
                }
                Some(_) | None => Fit::NoRanges,
            },
            200 if is_same => Fit::NoRanges,
            206 if !has_tag => Fit::NoRanges,
            200 | 206 | 404 | 410 | 412 | 416 => Fit::OtherVersion,
            _ => Fit::Other,
        }
    }

    /// Returns the key of the slice's object; `key` is the slice's own.
    pub(crate) fn key_of_object<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        dependent::object_of_slice(key)
    }

    /// Returns the time until which the slice is kept.
    pub(crate) fn kept_until_s(&self, now_s: u32) -> u32 {
        self.of.expires_s.max(now_s.saturating_add(KEPT_S_MIN))
    }

    /// Returns the metadata stored with the slice. A slice has no head, can be found as long as its object
    /// can, and never becomes stale on its own. `bans` is the youngest purge that was known when the fetch
    /// began.
    pub(crate) fn meta(&self, bans: u64) -> StoredMeta {
        let Range { start, end } = self.bytes();
        StoredMeta {
            body_bytes: Some(end - start),
            flags: Flags::NONE,
            lifetime_s: u32::MAX,
            head_bytes: 0,
            etag_at: 0,
            etag_bytes: 0,
            bans,
            ..self.of.meta
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{head::response_head::BLANK, policy::test_heads::with_response};

    const COMPLETE: u64 = 3 * BLOCK_BYTES + 7;

    fn block(number: u32) -> Block {
        let meta = StoredMeta { status: 200, ..BLANK };
        let of = Version { sequence: 1, etag: (*b"\"v\"").into(), complete: COMPLETE, meta, expires_s: 5 };
        Block { of, object: Hash::seeded(b"x", 0), number }
    }

    #[test]
    fn blocks_cover_every_byte_once() {
        let of = block(0).of;
        let mut next = 0;
        for number in 0..=Version::number_at(COMPLETE - 1) {
            let bytes = of.bytes_of(number);
            assert_eq!(bytes.start, next);
            assert!(
                (bytes.start..bytes.end).all(|byte| byte % 4096 != 0 || Version::number_at(byte) == number)
            );
            next = bytes.end;
        }
        assert_eq!(next, COMPLETE);
    }

    #[test]
    fn a_slice_request_names_range_and_version() {
        let said = String::from_utf8(block(3).conditions()).expect("text");
        assert_eq!(said, format!("Range: bytes={}-{}\r\nIf-Range: \"v\"\r\n", 3 * BLOCK_BYTES, COMPLETE - 1));
    }

    #[test]
    fn nothing_but_the_block_itself_is_the_block() {
        let (first, last) = (BLOCK_BYTES, 2 * BLOCK_BYTES - 1);
        let right = format!("Content-Range: bytes {first}-{last}/{COMPLETE}");
        let longer = format!("Content-Range: bytes {first}-{last}/{}", COMPLETE + 1);
        let shorter = format!("Content-Range: bytes {first}-{}/{COMPLETE}", last - 1);
        let whole = Framing::Length(BLOCK_BYTES);
        for (status, fields, framing, want) in [
            ("206 x", format!("ETag: \"v\"\n{right}"), whole, Fit::Block),
            ("206 x", format!("ETag: \"v\"\n{right}"), Framing::Length(BLOCK_BYTES - 1), Fit::NoRanges),
            ("206 x", format!("ETag: \"v\"\n{right}"), Framing::Chunked, Fit::NoRanges),
            ("206 x", format!("ETag: \"v\"\n{shorter}"), whole, Fit::NoRanges),
            ("206 x", format!("ETag: \"v\"\n{right}\n{right}"), whole, Fit::NoRanges),
            ("206 x", format!("ETag: \"v\"\nContent-Range: bytes {first}-{last}/*"), whole, Fit::NoRanges),
            ("206 x", "ETag: \"v\"".to_owned(), whole, Fit::NoRanges),
            ("206 x", right.clone(), whole, Fit::NoRanges),
            ("206 x", format!("ETag: \"v\"\n{longer}"), whole, Fit::OtherVersion),
            ("206 x", format!("ETag: W/\"v\"\n{right}"), whole, Fit::OtherVersion),
            ("206 x", format!("ETag: \"w\"\n{right}"), whole, Fit::OtherVersion),
            ("206 x", format!("ETag: \"v\"\nETag: \"v\"\n{right}"), whole, Fit::OtherVersion),
            ("200 x", "ETag: \"v\"".to_owned(), whole, Fit::NoRanges),
            ("200 x", "ETag: \"w\"".to_owned(), whole, Fit::OtherVersion),
            ("200 x", String::new(), whole, Fit::OtherVersion),
            ("404 x", String::new(), whole, Fit::OtherVersion),
            ("416 x", String::new(), whole, Fit::OtherVersion),
            ("503 x", "ETag: \"v\"".to_owned(), whole, Fit::Other),
            ("429 x", String::new(), whole, Fit::Other),
        ] {
            let got = with_response(status, &fields, |head| block(1).fit(head, framing));
            assert_eq!(got, want, "{status} {fields}");
        }
    }

    #[test]
    fn slicing_needs_strong_validator_ranges_and_length() {
        let takes = |fields: &str, status: &str, length| {
            with_response(status, fields, |head| super::takes(head, length, 100))
        };
        let fields = "ETag: \"v\"\nAccept-Ranges: bytes";
        assert!(takes(fields, "200 OK", Some(100)));
        assert!(takes("ETag: \"v\"\nAccept-Ranges: x, BYTES", "200 OK", Some(100)));
        assert!(!takes(fields, "200 OK", Some(99)));
        assert!(!takes(fields, "200 OK", None));
        assert!(!takes(fields, "203 x", Some(100)));
        for not in ["ETag: \"v\"", "Accept-Ranges: bytes", "ETag: W/\"v\"\nAccept-Ranges: bytes"] {
            assert!(!takes(not, "200 OK", Some(100)), "{not}");
        }
        assert!(!takes("ETag: \"v\"\nAccept-Ranges: none", "200 OK", Some(100)));
        assert!(!takes("ETag: \"v\"\nETag: \"w\"\nAccept-Ranges: bytes", "200 OK", Some(100)));
    }
}
