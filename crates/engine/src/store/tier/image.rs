//! The image of an object in a record of the log (`docs/formats/store.md`).
//!
//! ```text
//! | magic 4 | flags 4 | key 4 | head 4 | extra 4 | tail 4 | body 8 | sequence 8 | kept until 4 | words 4 |
//! | location of the body 8 | 0 8 | the caller's words, 8 each |                     128 bytes with eight of them
//! | key | head | extra | body | tail |                             lengths as above, without padding
//! ```
//! Flags: a program ignores unknown flags of the low half, and rejects an object with unknown flags of the
//! high half. Two are known: a list of parts is in place of the body (`parts.rs`), or there is no body,
//! because this is a newer head of an object whose body is in another record (`heads.rs`).
//!
//! A later version may write more words; an older program reads those that it knows.
//!
//! Little-endian. The bytes come from a file, so every field is validated before use.

use super::file_record::FileRecord;
use crate::{log::Location, store::record::META_WORDS};

/// Number of bytes before the key in an image written by this version.
pub(crate) const IMAGE_HEADER_BYTES: usize = FIXED_BYTES + 8 * META_WORDS;
/// Number of bytes in an image before the caller's words.
const FIXED_BYTES: usize = 64;
/// Maximum number of caller's words that an image may contain.
const WORDS_MAX: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"NTob");
/// Mask of the flags that a program must know to use the object.
const MUST_KNOW: u32 = 0xffff_0000;
const IN_PARTS: u32 = 1 << 16;
const HEAD_ALONE: u32 = 1 << 17;

/// Header of an object's image in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageHeader {
    pub(crate) key_bytes: u32,
    pub(crate) head_bytes: u32,
    pub(crate) extra_bytes: u32,
    pub(crate) tail_bytes: u32,
    pub(crate) body_bytes: u64,
    /// Sequence number of the object in its shard; variants of other objects may refer to it.
    pub(crate) sequence: u64,
    /// Expiry of the object, in seconds on the store's clock.
    pub(crate) expires_s: u32,
    /// True if the image contains a list of parts in place of the body.
    pub(crate) in_parts: bool,
    /// Location of the record with body and tail, if this image contains only a head.
    pub(crate) body_at: Option<Location>,
    pub(crate) meta: [u64; META_WORDS],
}

impl ImageHeader {
    /// Returns the length of the whole image in bytes; `None` if it exceeds the address space.
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.bytes_with(META_WORDS)
    }

    fn bytes_with(&self, words: usize) -> Option<usize> {
        let Self { key_bytes, head_bytes, extra_bytes, tail_bytes, body_bytes, .. } = *self;
        [key_bytes, head_bytes, extra_bytes, tail_bytes]
            .into_iter()
            .map(u64::from)
            .chain([body_bytes])
            .try_fold((FIXED_BYTES + 8 * words) as u64, u64::checked_add)
            .and_then(|bytes| usize::try_from(bytes).ok())
    }

    pub(crate) fn encode(&self) -> [u8; IMAGE_HEADER_BYTES] {
        let mut bytes = [0; IMAGE_HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let in_parts = if self.in_parts { IN_PARTS } else { 0 };
        let head_alone = if self.body_at.is_some() { HEAD_ALONE } else { 0 };
        put(0, &MAGIC.to_le_bytes());
        put(4, &(in_parts | head_alone).to_le_bytes());
        put(8, &self.key_bytes.to_le_bytes());
        put(12, &self.head_bytes.to_le_bytes());
        put(16, &self.extra_bytes.to_le_bytes());
        put(20, &self.tail_bytes.to_le_bytes());
        put(24, &self.body_bytes.to_le_bytes());
        put(32, &self.sequence.to_le_bytes());
        put(40, &self.expires_s.to_le_bytes());
        put(44, &(META_WORDS as u32).to_le_bytes());
        put(48, &self.body_at.map_or(0, Location::bits).to_le_bytes());
        for (number, word) in self.meta.iter().enumerate() {
            put(FIXED_BYTES + 8 * number, &word.to_le_bytes());
        }
        bytes
    }
}

/// An object as read from the file, parsed but not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image<'a> {
    pub(crate) header: ImageHeader,
    /// Number of the caller's words in the image; may differ from [`META_WORDS`] if another version wrote it.
    words: usize,
    /// Key under which the object is stored.
    pub key: &'a [u8],
    /// Head of the object: bytes that the caller stored before the body.
    pub head: &'a [u8],
    /// Additional bytes that the caller stored before the body.
    pub extra: &'a [u8],
    /// Body of the object, or the list of its parts.
    pub body: &'a [u8],
    /// Bytes that the caller stored after the body.
    pub tail: &'a [u8],
}

/// An image, and the record from which it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordImage<'a> {
    /// The record in the file.
    pub record: FileRecord,
    /// The record's content.
    pub image: Image<'a>,
}

impl<'a> RecordImage<'a> {
    /// Parses a record's payload, as [`Image::parse`] does.
    pub fn parse(record: FileRecord, payload: &'a [u8]) -> Option<Self> {
        Image::parse(payload).map(|image| Self { record, image })
    }
}

impl<'a> Image<'a> {
    /// Parses a record's payload; `None` if it is not an object, or is one that this version must not use.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let u32_at = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let (flags, words) = (u32_at(4), u32_at(44) as usize);
        if u32_at(0) != MAGIC || flags & MUST_KNOW & !(IN_PARTS | HEAD_ALONE) != 0 || words > WORDS_MAX {
            return None;
        }
        let (written, rest) = rest.split_at_checked(8 * words)?;
        let mut meta = [0; META_WORDS];
        for (word, bytes) in meta.iter_mut().zip(written.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let header = ImageHeader {
            key_bytes: u32_at(8),
            head_bytes: u32_at(12),
            extra_bytes: u32_at(16),
            tail_bytes: u32_at(20),
            body_bytes: u64_at(24),
            sequence: u64_at(32),
            expires_s: u32_at(40),
            in_parts: flags & IN_PARTS != 0,
            body_at: Location::from_bits(u64_at(48)),
            meta,
        };
        let is_head_alone = flags & HEAD_ALONE != 0;
        let has_what_it_says = header.body_at.is_some() == is_head_alone
            && !(is_head_alone && (header.in_parts || header.body_bytes > 0 || header.tail_bytes > 0));
        if !has_what_it_says || header.bytes_with(words)? != bytes.len() {
            return None;
        }
        let (key, rest) = rest.split_at_checked(header.key_bytes as usize)?;
        let (head, rest) = rest.split_at_checked(header.head_bytes as usize)?;
        let (extra, rest) = rest.split_at_checked(header.extra_bytes as usize)?;
        let (body, tail) = rest.split_at_checked(usize::try_from(header.body_bytes).ok()?)?;
        Some(Self { header, words, key, head, extra, body, tail })
    }

    /// Returns whether the body begins at the same offset in the record as if this version had written the
    /// image.
    pub(crate) fn is_laid_out_as_ours(&self) -> bool {
        self.words == META_WORDS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some(bytes: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), bytes)
    }

    fn encoded(header: &ImageHeader, parts: [&[u8]; 5]) -> Vec<u8> {
        let mut bytes = header.encode().to_vec();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else(
            (key, head, extra, body, tail) in (some(0..40), some(0..40), some(0..40), some(0..400), some(0..40)),
            (sequence, expires_s, in_parts, meta) in
                (any::<u64>(), any::<u32>(), any::<bool>(), any::<[u64; META_WORDS]>()),
            body_at in any::<bool>(),
            (at, value) in (0usize..IMAGE_HEADER_BYTES, any::<u8>()),
        ) {
            let body_at = if body_at { Location::from_bits(sequence | 1) } else { None };
            let (body, tail) = if body_at.is_some() { (Vec::new(), Vec::new()) } else { (body, tail) };
            let in_parts = in_parts && body_at.is_none();
            let header = ImageHeader {
                key_bytes: key.len() as u32,
                head_bytes: head.len() as u32,
                extra_bytes: extra.len() as u32,
                tail_bytes: tail.len() as u32,
                body_bytes: body.len() as u64,
                sequence, expires_s, in_parts, body_at, meta,
            };
            let mut bytes = encoded(&header, [&key, &head, &extra, &body, &tail]);
            prop_assert_eq!(header.bytes(), Some(bytes.len()));
            let (words, key, head, extra, body, tail) = (META_WORDS, &key, &head, &extra, &body, &tail);
            let image = Image { header, words, key, head, extra, body, tail };
            prop_assert_eq!(Image::parse(&bytes), Some(image));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Image::parse(&bytes[..cut]), None);
            }
            // The parser must not panic for any changed byte.
            bytes[at] = value;
            let _ = Image::parse(&bytes);
        }
    }

    fn header() -> ImageHeader {
        ImageHeader {
            key_bytes: 3,
            head_bytes: 4,
            extra_bytes: 0,
            tail_bytes: 0,
            body_bytes: 4,
            sequence: 9,
            expires_s: 10,
            in_parts: false,
            body_at: None,
            meta: [1, 2, 3, 4, 5, 6, 7, 8],
        }
    }

    #[test]
    fn unknown_flags_are_ignored_or_hide_the_object() {
        let bytes = encoded(&header(), [b"key", b"head", b"", b"body", b""]);
        for bit in 0..32 {
            let mut newer = bytes.clone();
            newer[4 + bit / 8] |= 1 << (bit % 8);
            let read = Image::parse(&newer);
            match bit {
                0..16 => assert_eq!(read, Image::parse(&bytes), "flag {bit}"),
                16 => assert!(read.is_some_and(|image| image.header.in_parts)),
                _ => assert_eq!(read, None, "flag {bit}"),
            }
        }
    }

    #[test]
    fn extra_and_missing_meta_words_are_tolerated() {
        let bytes = encoded(&header(), [b"key", b"head", b"", b"body", b""]);
        let (fixed, rest) = bytes.split_at(FIXED_BYTES);
        let (words, rest) = rest.split_at(8 * META_WORDS);
        for count in [0, 3, META_WORDS, META_WORDS + 2, WORDS_MAX, WORDS_MAX + 1] {
            let mut other = fixed.to_vec();
            other[44..48].copy_from_slice(&(count as u32).to_le_bytes());
            other.extend(words.iter().copied().chain(std::iter::repeat(0xee)).take(8 * count));
            other.extend_from_slice(rest);
            let Some(image) = Image::parse(&other) else {
                assert!(count > WORDS_MAX, "{count} words are refused");
                continue;
            };
            let known = |number: usize| if number < count { number as u64 + 1 } else { 0 };
            assert_eq!(image.header.meta, std::array::from_fn(known), "{count} words");
            assert_eq!((image.key, image.head, image.body), (&b"key"[..], &b"head"[..], &b"body"[..]));
            assert_eq!(image.is_laid_out_as_ours(), count == META_WORDS);
        }
    }
}
