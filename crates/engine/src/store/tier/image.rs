//! An object as it lies in a record of the log (`docs/formats/store.md`).
//!
//! ```text
//! | magic 4 | key 4 | head 4 | tail 4 | body 8 | sequence 8 | expiry 4 | 0 4 | 0 8 | meta 6 × 8 |  96 bytes
//! | key | head | body | tail |                                             lengths as above, nothing between
//! ```
//! With the magic of a list (`NTo2`) the body is on the file in parts, and what stands in its place names them
//! (`parts.rs`).
//!
//! Little-endian. The bytes come from a file, so that nothing in them is believed before it has been compared.

use crate::store::record::META_WORDS;

/// Bytes before the key.
pub(crate) const IMAGE_HEADER_BYTES: usize = 96;
const MAGIC: u32 = u32::from_le_bytes(*b"NTo1");
const MAGIC_IN_PARTS: u32 = u32::from_le_bytes(*b"NTo2");
const META_AT: usize = 48;

/// An object's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageHeader {
    pub(crate) key_bytes: u32,
    pub(crate) head_bytes: u32,
    pub(crate) tail_bytes: u32,
    pub(crate) body_bytes: u64,
    /// Which of its shard's objects it is; variants of other objects may name it.
    pub(crate) sequence: u64,
    pub(crate) expires_s: u32,
    /// The body is a list of parts.
    pub(crate) in_parts: bool,
    pub(crate) meta: [u64; META_WORDS],
}

impl ImageHeader {
    /// Bytes of the whole image; `None` beyond what memory can have.
    pub(crate) fn bytes(&self) -> Option<usize> {
        let Self { key_bytes, head_bytes, tail_bytes, body_bytes, .. } = *self;
        [u64::from(key_bytes), u64::from(head_bytes), u64::from(tail_bytes), body_bytes]
            .into_iter()
            .try_fold(IMAGE_HEADER_BYTES as u64, u64::checked_add)
            .and_then(|bytes| usize::try_from(bytes).ok())
    }

    pub(crate) fn encode(&self) -> [u8; IMAGE_HEADER_BYTES] {
        let mut bytes = [0; IMAGE_HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &if self.in_parts { MAGIC_IN_PARTS } else { MAGIC }.to_le_bytes());
        put(4, &self.key_bytes.to_le_bytes());
        put(8, &self.head_bytes.to_le_bytes());
        put(12, &self.tail_bytes.to_le_bytes());
        put(16, &self.body_bytes.to_le_bytes());
        put(24, &self.sequence.to_le_bytes());
        put(32, &self.expires_s.to_le_bytes());
        for (number, word) in self.meta.iter().enumerate() {
            put(META_AT + 8 * number, &word.to_le_bytes());
        }
        bytes
    }
}

/// An object as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image<'a> {
    pub(crate) header: ImageHeader,
    /// What it is found by.
    pub key: &'a [u8],
    /// The caller's bytes before the body.
    pub head: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// The caller's bytes after it.
    pub tail: &'a [u8],
}

impl<'a> Image<'a> {
    /// From a record's payload; `None` if that is no object.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<IMAGE_HEADER_BYTES>()?;
        let u32_at =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let parsed = ImageHeader {
            key_bytes: u32_at(4),
            head_bytes: u32_at(8),
            tail_bytes: u32_at(12),
            body_bytes: u64_at(16),
            sequence: u64_at(24),
            expires_s: u32_at(32),
            in_parts: u32_at(0) == MAGIC_IN_PARTS,
            meta: std::array::from_fn(|number| u64_at(META_AT + 8 * number)),
        };
        if ![MAGIC, MAGIC_IN_PARTS].contains(&u32_at(0)) || parsed.bytes()? != bytes.len() {
            return None;
        }
        let (key, rest) = rest.split_at_checked(parsed.key_bytes as usize)?;
        let (head, rest) = rest.split_at_checked(parsed.head_bytes as usize)?;
        let (body, tail) = rest.split_at_checked(usize::try_from(parsed.body_bytes).ok()?)?;
        Some(Self { header: parsed, key, head, body, tail })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else(
            (key, head, body, tail) in (
                proptest::collection::vec(any::<u8>(), 0..40),
                proptest::collection::vec(any::<u8>(), 0..40),
                proptest::collection::vec(any::<u8>(), 0..400),
                proptest::collection::vec(any::<u8>(), 0..40),
            ),
            (sequence, expires_s, in_parts, meta) in
                (any::<u64>(), any::<u32>(), any::<bool>(), any::<[u64; META_WORDS]>()),
            (at, value) in (0usize..IMAGE_HEADER_BYTES, any::<u8>()),
        ) {
            let header = ImageHeader {
                key_bytes: key.len() as u32,
                head_bytes: head.len() as u32,
                tail_bytes: tail.len() as u32,
                body_bytes: body.len() as u64,
                sequence, expires_s, in_parts, meta,
            };
            let mut bytes = header.encode().to_vec();
            for part in [&key, &head, &body, &tail] {
                bytes.extend_from_slice(part);
            }
            prop_assert_eq!(header.bytes(), Some(bytes.len()));
            let image = Image { header, key: &key, head: &head, body: &body, tail: &tail };
            prop_assert_eq!(Image::parse(&bytes), Some(image));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Image::parse(&bytes[..cut]), None);
            }
            // Any byte may be anything: an answer, and no panic.
            bytes[at] = value;
            let _ = Image::parse(&bytes);
        }
    }
}
