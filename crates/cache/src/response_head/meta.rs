//! What a hit needs to know of a stored response besides its bytes: six words, which the store keeps beside each
//! record.
//!
//! | word | bits |
//! |---|---|
//! | 0 | `born_s`: when its age was 0, seconds since 1970 |
//! | 1 | 0–39 `date_s`: `Date`, or the time of arrival; 40–63 `origin_ms` |
//! | 2 | `last_modified_s`, or all ones for none |
//! | 3 | `body_bytes`: `Content-Length` as the origin gave it, or all ones where it gave none |
//! | 4 | 0–23 `head_bytes`, 24–47 offset of the entity tag's value in the head, 48–63 its length (0: none) |
//! | 5 | 0–15 status, 16–31 flags, 32–63 `lifetime_s` |

use wire::http1::{
    fields::EntityTag,
    head::{HEAD_BYTES_CAP, ResponseHead},
};

use super::origin_head::HeadOutline;
use crate::policy::{Freshness, Stored, Times, Validators, freshness::Dates, freshness::current_age_s};

/// No value, in words 2 and 3.
const NONE: u64 = u64::MAX;
const BITS_24: u64 = (1 << 24) - 1;
const BITS_40: u64 = (1 << 40) - 1;

/// The longest that an origin is said to have taken, in milliseconds.
pub const ORIGIN_MS_MAX: u32 = BITS_24 as u32;

/// Yes-or-no facts of a stored record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// The record is no response but the names in `Vary`, under which the response has to be looked for.
    pub const VARY_SPEC: Flags = Flags(1 << 0);
    /// The origin gave no `Content-Length`.
    pub const LENGTH_UNKNOWN: Flags = Flags(1 << 1);
    /// May never be served stale (RFC 9111 §4.2.4).
    pub const MUST_REVALIDATE: Flags = Flags(1 << 2);
    /// The freshness was guessed or comes from a knob.
    pub const NOT_EXPLICIT: Flags = Flags(1 << 3);

    const KNOWN: u16 = 0b1111;

    /// Whether all of these are set.
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }

    /// These, and those if the condition holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, flags: Flags) -> Flags {
        if condition { self.with(flags) } else { self }
    }
}

/// What is known of a stored record. See the module for how it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredMeta {
    /// When its age was 0, in seconds since 1970.
    pub born_s: u64,
    /// `Date`, or the time of arrival.
    pub date_s: u64,
    /// How long the origin took to answer, in milliseconds; what each hit saves. At most 2^24 - 1 (4.6 hours).
    pub origin_ms: u32,
    /// `Last-Modified`.
    pub last_modified_s: Option<u64>,
    /// `Content-Length`. `None` where [`Flags::LENGTH_UNKNOWN`] holds.
    pub body_bytes: Option<u64>,
    /// Bytes of the head, or of the names in `Vary`; at most [`HEAD_BYTES_CAP`] - 1.
    pub head_bytes: u32,
    /// Where in the head the value of `ETag` begins.
    pub etag_at: u32,
    /// How long it is; 0: there is none (or one beyond 64 KiB, which then is no validator).
    pub etag_bytes: u16,
    /// The status; 0 for [`Flags::VARY_SPEC`].
    pub status: u16,
    /// Yes-or-no facts.
    pub flags: Flags,
    /// For how long it is fresh, from age 0.
    pub lifetime_s: u32,
}

impl StoredMeta {
    /// Of a response that is stored: `outline` is that of its stored head. What is not in the head (`origin_ms`) is
    /// left at 0.
    pub fn of_response(
        head: &ResponseHead<'_, '_>,
        outline: &HeadOutline,
        freshness: &Freshness,
        times: Times,
        body_bytes: Option<u64>,
    ) -> Self {
        let dates = Dates::of(&head.headers);
        let etag = outline.etag.clone().and_then(|at| Some((at.start, u16::try_from(at.len()).ok()?)));
        let (etag_at, etag_bytes) = etag.unwrap_or_default();
        Self {
            born_s: freshness.born_s(times.response_s),
            // A date 30,000 years from now is no date; it counts as the last one that there is room for.
            date_s: dates.date_s.unwrap_or(times.response_s).min(BITS_40),
            origin_ms: 0,
            last_modified_s: dates.last_modified_s,
            body_bytes,
            head_bytes: outline.head_bytes,
            etag_at,
            etag_bytes,
            status: head.status,
            flags: Flags::NONE
                .with_if(body_bytes.is_none(), Flags::LENGTH_UNKNOWN)
                .with_if(freshness.must_revalidate, Flags::MUST_REVALIDATE)
                .with_if(!freshness.source.is_explicit(), Flags::NOT_EXPLICIT),
            lifetime_s: freshness.lifetime_s,
        }
    }

    /// Of a record that holds the names in `Vary`; it lives as long as the response that brought it.
    pub fn of_vary_spec(spec_bytes: u32, freshness: &Freshness, times: Times) -> Self {
        Self {
            born_s: freshness.born_s(times.response_s),
            date_s: times.response_s.min(BITS_40),
            origin_ms: 0,
            last_modified_s: None,
            body_bytes: Some(0),
            head_bytes: spec_bytes,
            etag_at: 0,
            etag_bytes: 0,
            status: 0,
            flags: Flags::VARY_SPEC,
            lifetime_s: freshness.lifetime_s,
        }
    }

    /// Whether the words have room for what the origin said. What does not fit is not stored: a head of 16 MiB, a body
    /// of 2^64 - 1 bytes (the number that means *none*).
    #[inline]
    pub fn fits(&self) -> bool {
        (self.head_bytes as usize) < HEAD_BYTES_CAP && self.body_bytes != Some(NONE)
    }

    /// The words.
    ///
    /// # Panics
    /// If an invariant of ours is broken: it does not [`fit`](Self::fits), the entity tag is not in the head, or a time
    /// is the one that means *none*.
    #[inline]
    pub fn pack(&self) -> [u64; 6] {
        assert!(self.fits(), "what is stored was asked whether it fits");
        assert!(
            self.etag_at as usize + self.etag_bytes as usize <= self.head_bytes as usize,
            "etag is in the head"
        );
        assert!(
            self.date_s <= BITS_40 && u64::from(self.origin_ms) <= BITS_24,
            "times are within their bits"
        );
        assert!(self.last_modified_s != Some(NONE), "all ones mean none");
        [
            self.born_s,
            self.date_s | u64::from(self.origin_ms) << 40,
            self.last_modified_s.unwrap_or(NONE),
            self.body_bytes.unwrap_or(NONE),
            u64::from(self.head_bytes) | u64::from(self.etag_at) << 24 | u64::from(self.etag_bytes) << 48,
            u64::from(self.status) | u64::from(self.flags.0) << 16 | u64::from(self.lifetime_s) << 32,
        ]
    }

    /// Reads the words back. `None` where they cannot have been packed here: the record is damaged or of another
    /// version, and is to be treated as a miss.
    #[inline]
    pub fn unpack(words: &[u64; 6]) -> Option<Self> {
        let &[born_s, date, last_modified, body, head, rest] = words;
        let option = |word: u64| (word != NONE).then_some(word);
        let meta = Self {
            born_s,
            date_s: date & BITS_40,
            origin_ms: (date >> 40) as u32,
            last_modified_s: option(last_modified),
            body_bytes: option(body),
            head_bytes: (head & BITS_24) as u32,
            etag_at: (head >> 24 & BITS_24) as u32,
            etag_bytes: (head >> 48) as u16,
            status: rest as u16,
            flags: Flags((rest >> 16) as u16),
            lifetime_s: (rest >> 32) as u32,
        };
        let status_fits = if meta.flags.has(Flags::VARY_SPEC) {
            meta.status == 0
        } else {
            (200..=999).contains(&meta.status)
        };
        let etag_fits = meta.etag_at + u32::from(meta.etag_bytes) <= meta.head_bytes;
        let length_fits = meta.body_bytes.is_none() == meta.flags.has(Flags::LENGTH_UNKNOWN);
        (meta.flags.0 & !Flags::KNOWN == 0 && status_fits && etag_fits && length_fits).then_some(meta)
    }

    /// `current_age` (RFC 9111 §4.2.3).
    #[inline]
    pub fn age_s(&self, now_s: u64) -> u64 {
        current_age_s(self.born_s, now_s)
    }

    /// As [`may_reuse`](crate::policy::may_reuse) wants it.
    #[inline]
    pub fn stored(&self, now_s: u64) -> Stored {
        Stored {
            lifetime_s: self.lifetime_s,
            age_s: self.age_s(now_s),
            must_revalidate: self.flags.has(Flags::MUST_REVALIDATE),
        }
    }

    /// As [`evaluate`](crate::policy::evaluate) wants it; `head` is the stored head.
    #[inline]
    pub fn validators<'a>(&self, head: &'a [u8]) -> Validators<'a> {
        let at = self.etag_at as usize;
        let etag = head.get(at..at + usize::from(self.etag_bytes)).and_then(EntityTag::parse);
        Validators { etag, last_modified_s: self.last_modified_s, date_s: self.date_s }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn meta()(
            times in any::<[u64; 2]>(),
            last_modified_s in proptest::option::of(0..u64::MAX),
            body_bytes in proptest::option::of(0..u64::MAX),
            head_bytes in 0u32..1 << 24,
            etag in any::<(prop::sample::Index, prop::sample::Index)>(),
            status in 200u16..1000,
            flags in 0u16..=Flags::KNOWN,
            lifetime_s in any::<u32>(),
        ) -> StoredMeta {
            let etag_at = etag.0.index(head_bytes as usize + 1) as u32;
            let room = (head_bytes - etag_at).min(u32::from(u16::MAX));
            let unknown = Flags::LENGTH_UNKNOWN.0;
            let flags = if body_bytes.is_none() { flags | unknown } else { flags & !unknown };
            let flags = Flags(flags);
            StoredMeta {
                born_s: times[0],
                date_s: times[1] & BITS_40,
                origin_ms: (times[1] >> 40) as u32,
                last_modified_s,
                body_bytes,
                head_bytes,
                etag_at,
                etag_bytes: etag.1.index(room as usize + 1) as u16,
                status: if flags.has(Flags::VARY_SPEC) { 0 } else { status },
                flags,
                lifetime_s,
            }
        }
    }

    proptest! {
        #[test]
        fn words_come_back(meta in meta()) {
            prop_assert_eq!(StoredMeta::unpack(&meta.pack()), Some(meta));
        }

        /// Whatever the words are: refused, or they are exactly those that packing gives again.
        #[test]
        fn any_words_are_refused_or_sound(words in any::<[u64; 6]>(), status in 200u64..1000, head in 0u64..1 << 24) {
            for words in [words, [words[0], words[1], words[2], words[3], head | words[4] << 24, status]] {
                if let Some(meta) = StoredMeta::unpack(&words) {
                    prop_assert_eq!(meta.pack(), words);
                }
            }
        }
    }

    #[test]
    fn damage_is_refused() {
        let words = [5, 5, NONE, 0, 100, 200];
        assert!(StoredMeta::unpack(&words).is_some());
        for (at, bad) in [
            (5, 0),                         // no status
            (5, 199),                       // an interim one
            (5, 1000),                      // one beyond three digits
            (5, 200 | 1 << 31),             // an unknown flag
            (5, 200 | 1 << 16),             // a Vary spec with a status
            (5, 200 | 1 << 17),             // length known, flag says no
            (3, NONE),                      // and the other way
            (4, 100 | 90 << 24 | 11 << 48), // an entity tag that ends beyond the head
        ] {
            let mut words = words;
            words[at] = bad;
            assert_eq!(StoredMeta::unpack(&words), None, "word {at} = {bad:#x}");
        }
    }
}
