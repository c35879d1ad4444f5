//! Metadata of a stored response: eight words, which the store keeps beside each record, in memory and in the
//! file (`docs/formats/store.md`). The first words hold what every hit reads.
//!
//! | word | bits |
//! |---|---|
//! | 0 | 0–39 `born_s`: when its age was 0, seconds since 1970; 40–63 `origin_ms` |
//! | 1 | 0–31 `lifetime_s`: with `born_s`, until when it is fresh; 32–47 status, 48–55 coding, 56–57 scheme, rest zero |
//! | 2 | 0–31 flags, 32–63 site |
//! | 3 | 0–23 `head_bytes`, 24–47 offset of the entity tag's value in the head, 48–63 its length (0: none) |
//! | 4 | 0–47 `body_bytes`: `Content-Length` as the origin gave it, or all ones where it gave none; 48–63 `arrived_age_s` |
//! | 5 | 0–39 `date_s`: `Date`, or the time of arrival; 40–63 `stale_while_revalidate_s` |
//! | 6 | 0–39 `last_modified_s`, or all ones for none; 40–63 `stale_if_error_s` |
//! | 7 | 0–39 `bans`: number of the latest purge that was known when its fetch began; 40–63 `member` |
//!
//! The time until which a response is *kept* belongs to the store (`expires_s` of its record), so that a
//! response that is no longer fresh can still be revalidated, or served while that is done.
//!
//! A later version may use bits that are zero here. Older versions ignore them, unless the later version also
//! sets one of the flags that every reader must know ([`Flags`]).

use engine::store::{META_WORDS, Object};
use wire::http1::{
    fields::EntityTag,
    head::{HEAD_BYTES_CAP, ResponseHead, Version},
};

use super::origin_head::HeadOutline;
use crate::{
    coding::Coding,
    config::CookieRule,
    policy::{
        Audience, Freshness, RequestFacts, StoredResponse, Times, Validators,
        freshness::{Dates, current_age_s},
        may_share,
    },
};

const BITS_24: u64 = (1 << 24) - 1;
const BITS_48: u64 = (1 << 48) - 1;
const BITS_40: u64 = (1 << 40) - 1;

/// Maximum value of `origin_ms`, in milliseconds.
pub const ORIGIN_MS_MAX: u32 = BITS_24 as u32;

/// Maximum time for which an answer may be served stale, in seconds: half a year.
pub const STALE_S_MAX: u32 = BITS_24 as u32;

/// Flags of a stored record. A version that does not know a flag of the low half ignores the flag (and loses
/// it when it rewrites the record); a version that does not know a flag of the high half treats the record as
/// absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// The origin spoke HTTP/1.0, which `Via` states (RFC 9110 §7.6.3).
    pub const HTTP_10: Flags = Flags(1);
    /// Clients that accept a coding made here may get the content in that coding
    /// ([`codable`](mod@crate::policy::codable)).
    pub const MAY_BE_CODED: Flags = Flags(1 << 1);
    /// The head itself states that it varies by `Accept-Encoding`.
    pub const SAYS_VARY: Flags = Flags(1 << 2);
    /// The origin sent the content encoded ([`StoredMeta::coding`]); clients that do not accept the coding
    /// may get the decoded content ([`decodable`](crate::policy::decodable)).
    pub const MAY_BE_DECODED: Flags = Flags(1 << 3);
    /// The response states that it is for all clients (`public`, `s-maxage`), including those that the origin
    /// has identified.
    pub const FOR_ALL: Flags = Flags(1 << 4);
    /// The head has no `Set-Cookie`. Older versions, which did not know this flag, stored such heads without
    /// setting the flag.
    pub const NO_SET_COOKIE: Flags = Flags(1 << 5);
    /// The record is not a response but holds the names in `Vary`, with which the response must be looked up.
    pub const VARY_SPEC: Flags = Flags(1 << 16);
    /// The origin gave no `Content-Length`.
    pub const LENGTH_UNKNOWN: Flags = Flags(1 << 17);
    /// The response may never be served stale (RFC 9111 §4.2.4).
    pub const MUST_REVALIDATE: Flags = Flags(1 << 18);
    /// The response is not for visitors with cookies, according to the rule in effect when it was stored: its
    /// freshness was heuristic, or (`--cookies strict`) no directive marks it as shared by all.
    pub const NOT_FOR_COOKIES: Flags = Flags(1 << 19);
    /// The record is not a response but a hit-for-miss note: answers under this key are not stored while the
    /// note is fresh, so requests are passed in parallel.
    pub const NOT_STORED: Flags = Flags(1 << 20);
    /// The record is a response without its content, which is in slices of its own (`slice`); its length is
    /// the one stated by the origin.
    pub const IN_BLOCKS: Flags = Flags(1 << 21);

    const KNOWN: u32 = 0b11_1111 << 16 | 0b11_1111;
    const MUST_KNOW: u32 = 0xffff_0000;

    /// Returns whether all of `flags` are set.
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the union of these flags and `flags`.
    #[must_use]
    pub const fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }

    /// Returns these flags with all of `flags` cleared.
    #[must_use]
    pub const fn without(self, flags: Flags) -> Flags {
        Flags(self.0 & !flags.0)
    }

    /// Returns these flags, with `flags` added if the condition holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, flags: Flags) -> Flags {
        if condition { self.with(flags) } else { self }
    }
}

/// Schemes under which a response is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schemes {
    /// Both schemes: the site shares its answers between them.
    Both = 0,
    /// `http`.
    #[default]
    Http = 1,
    /// `https`.
    Https = 2,
}

impl Schemes {
    fn of(bits: u64) -> Option<Self> {
        [Self::Both, Self::Http, Self::Https].into_iter().find(|known| *known as u64 == bits)
    }
}

/// Metadata of a stored record. The module's documentation shows how it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredMeta {
    /// Time at which the response's age was 0, in seconds since 1970; at most 2^40 - 1, like all times here.
    pub born_s: u64,
    /// Time in `Date`, or the time of arrival if there was none, in seconds since 1970.
    pub date_s: u64,
    /// Age of the response when it arrived, in seconds; `u16::MAX`: at least that old.
    pub arrived_age_s: u16,
    /// Server of the origin that sent the head of a sliced object, as 24 bits of a hash of its address; 0:
    /// unknown.
    pub member: u32,
    /// Time that the origin took to answer, in milliseconds, which each hit saves. At most 2^24 - 1 (4.6
    /// hours).
    pub origin_ms: u32,
    /// Time in `Last-Modified`.
    pub last_modified_s: Option<u64>,
    /// `Content-Length`; `None` if [`Flags::LENGTH_UNKNOWN`] is set.
    pub body_bytes: Option<u64>,
    /// Bytes of the head, or of the names in `Vary`; at most [`HEAD_BYTES_CAP`] - 1.
    pub head_bytes: u32,
    /// Offset of the value of `ETag` in the head.
    pub etag_at: u32,
    /// Length of the value of `ETag`; 0: none (or one longer than 64 KiB, which is not used as a validator).
    pub etag_bytes: u16,
    /// Status of the response; 0 for [`Flags::VARY_SPEC`] and [`Flags::NOT_STORED`].
    pub status: u16,
    /// Flags of the record.
    pub flags: Flags,
    /// Freshness lifetime in seconds, from age 0.
    pub lifetime_s: u32,
    /// Seconds after the lifetime for which the response may be served while it is revalidated (RFC 5861 §3),
    /// at most [`STALE_S_MAX`].
    pub stale_while_revalidate_s: u32,
    /// Seconds after the lifetime for which the response may be served if the origin fails (RFC 5861 §4), at
    /// most [`STALE_S_MAX`].
    pub stale_if_error_s: u32,
    /// Number of the latest purge that was known when the fetch began: later purges may match the response
    /// (`invalidations`). At most 2^40 - 1.
    pub bans: u64,
    /// Number of the site to which the response belongs.
    pub site: u32,
    /// Schemes under which the response is found.
    pub schemes: Schemes,
    /// Coding that the cache applied to the content; for a response that [may be
    /// decoded](Flags::MAY_BE_DECODED), the coding in which it arrived.
    pub coding: Coding,
}

/// Maximum freshness lifetime, and maximum time of being shown stale, of a momentary response, in seconds.
const MOMENTARY_S_MAX: u32 = 1;

/// Metadata of an empty record.
pub(crate) const BLANK: StoredMeta = StoredMeta {
    born_s: 0,
    date_s: 0,
    arrived_age_s: 0,
    member: 0,
    origin_ms: 0,
    last_modified_s: None,
    body_bytes: Some(0),
    head_bytes: 0,
    etag_at: 0,
    etag_bytes: 0,
    status: 0,
    flags: Flags::NONE,
    lifetime_s: 0,
    stale_while_revalidate_s: 0,
    stale_if_error_s: 0,
    bans: 0,
    site: 0,
    schemes: Schemes::Http,
    coding: Coding::AsSent,
};

impl StoredMeta {
    /// Creates the metadata of a response to be stored; `outline` describes the head as it is stored.
    /// `origin_ms`, which is not in the head, is left at 0.
    pub fn of_response(
        head: &ResponseHead<'_, '_>,
        dates: &Dates,
        outline: &HeadOutline,
        freshness: &Freshness,
        times: Times,
        body_bytes: Option<u64>,
    ) -> Self {
        let etag = outline.etag.clone().and_then(|at| Some((at.start, u16::try_from(at.len()).ok()?)));
        let (etag_at, etag_bytes) = etag.unwrap_or_default();
        Self {
            born_s: freshness.born_s(times.response_s).min(BITS_40),
            // A date 30,000 years from now is clamped to the largest value that fits.
            date_s: dates.date_s.unwrap_or(times.response_s).min(BITS_40),
            arrived_age_s: u16::try_from(freshness.initial_age_s).unwrap_or(u16::MAX),
            last_modified_s: dates.last_modified_s.filter(|at_s| *at_s < BITS_40),
            body_bytes,
            head_bytes: outline.head_bytes,
            etag_at,
            etag_bytes,
            status: head.status,
            flags: Flags::NONE
                .with_if(head.version == Version::Http10, Flags::HTTP_10)
                .with_if(body_bytes.is_none(), Flags::LENGTH_UNKNOWN)
                .with_if(freshness.must_revalidate, Flags::MUST_REVALIDATE)
                .with_if(!freshness.for_cookies, Flags::NOT_FOR_COOKIES)
                .with_if(freshness.for_all, Flags::FOR_ALL)
                .with_if(!outline.sets_cookie, Flags::NO_SET_COOKIE),
            lifetime_s: freshness.lifetime_s,
            stale_while_revalidate_s: freshness.stale_while_revalidate_s.min(STALE_S_MAX),
            stale_if_error_s: freshness.stale_if_error_s.min(STALE_S_MAX),
            ..BLANK
        }
    }

    /// Creates the metadata of a record that holds the names in `Vary`; it has the lifetime of its response.
    pub fn of_vary_spec(spec_bytes: u32, freshness: &Freshness, times: Times) -> Self {
        Self {
            born_s: freshness.born_s(times.response_s).min(BITS_40),
            date_s: times.response_s.min(BITS_40),
            head_bytes: spec_bytes,
            flags: Flags::VARY_SPEC,
            lifetime_s: freshness.lifetime_s,
            ..BLANK
        }
    }

    /// Creates the metadata of a hit-for-miss note that is valid for `for_s` seconds.
    pub fn of_not_stored(now_s: u64, for_s: u32) -> Self {
        let now_s = now_s.min(BITS_40);
        Self { born_s: now_s, date_s: now_s, flags: Flags::NOT_STORED, lifetime_s: for_s, ..BLANK }
    }

    /// Returns the metadata for a sliced object, whose content is sent in the origin's coding.
    #[must_use]
    pub fn in_blocks(self) -> Self {
        let codings = Flags::MAY_BE_CODED.with(Flags::MAY_BE_DECODED);
        Self { flags: self.flags.without(codings).with(Flags::IN_BLOCKS), coding: Coding::AsSent, ..self }
    }

    /// Returns whether the response was stale when it arrived, although it has a lifetime.
    pub fn was_late(&self) -> bool {
        self.lifetime_s > 0 && u32::from(self.arrived_age_s) >= self.lifetime_s
    }

    /// Returns the time until which the response is fresh.
    #[inline]
    pub fn fresh_until_s(&self) -> u64 {
        self.born_s + u64::from(self.lifetime_s)
    }

    /// Returns whether the origin's lengths fit into the words. A response with a head of 16 MiB or more, or
    /// a body of 2^48 - 1 bytes (the value that means *none*) or more, does not fit and is not stored.
    #[inline]
    pub fn fits(&self) -> bool {
        (self.head_bytes as usize) < HEAD_BYTES_CAP && self.body_bytes.is_none_or(|bytes| bytes < BITS_48)
    }

    /// Packs the metadata into words.
    ///
    /// # Panics
    /// Panics if an invariant is broken, which is a bug: the metadata does not [fit](Self::fits), the entity
    /// tag is not in the head, or a time is the value that means *none*.
    #[inline]
    pub fn pack(&self) -> [u64; META_WORDS] {
        assert!(self.fits(), "what is stored was asked whether it fits");
        assert!(
            self.etag_at as usize + self.etag_bytes as usize <= self.head_bytes as usize,
            "etag is in the head"
        );
        assert!(
            self.born_s.max(self.date_s).max(self.bans) <= BITS_40 && u64::from(self.origin_ms) <= BITS_24,
            "times are within their bits"
        );
        assert!(
            self.stale_while_revalidate_s.max(self.stale_if_error_s) <= STALE_S_MAX,
            "stale times are within their bits"
        );
        assert!(self.last_modified_s.is_none_or(|at_s| at_s < BITS_40), "all ones mean none");
        assert!(u64::from(self.member) <= BITS_24, "a member has 24 bits");
        [
            self.born_s | u64::from(self.origin_ms) << 40,
            u64::from(self.lifetime_s)
                | u64::from(self.status) << 32
                | (self.coding as u64) << 48
                | (self.schemes as u64) << 56,
            u64::from(self.flags.0) | u64::from(self.site) << 32,
            u64::from(self.head_bytes) | u64::from(self.etag_at) << 24 | u64::from(self.etag_bytes) << 48,
            self.body_bytes.unwrap_or(BITS_48) | u64::from(self.arrived_age_s) << 48,
            self.date_s | u64::from(self.stale_while_revalidate_s) << 40,
            self.last_modified_s.unwrap_or(BITS_40) | u64::from(self.stale_if_error_s) << 40,
            self.bans | u64::from(self.member) << 40,
        ]
    }

    /// Reads the words back. Returns `None` if they cannot have been packed here, because the record is
    /// damaged, or was written by another version with a flag that must be known. The record must then be
    /// treated as a miss.
    #[inline]
    pub fn unpack(words: &[u64; META_WORDS]) -> Option<Self> {
        let &[born, rest, flags, head, body, date, last_modified, bans] = words;
        let option = |number: u64, none: u64| (number & none != none).then_some(number & none);
        let meta = Self {
            born_s: born & BITS_40,
            date_s: date & BITS_40,
            arrived_age_s: (body >> 48) as u16,
            member: (bans >> 40) as u32,
            origin_ms: (born >> 40) as u32,
            last_modified_s: option(last_modified, BITS_40),
            body_bytes: option(body, BITS_48),
            head_bytes: (head & BITS_24) as u32,
            etag_at: (head >> 24 & BITS_24) as u32,
            etag_bytes: (head >> 48) as u16,
            status: (rest >> 32) as u16,
            flags: Flags(flags as u32 & (Flags::MUST_KNOW | Flags::KNOWN)),
            lifetime_s: rest as u32,
            stale_while_revalidate_s: (date >> 40) as u32,
            stale_if_error_s: (last_modified >> 40) as u32,
            bans: bans & BITS_40,
            site: (flags >> 32) as u32,
            schemes: Schemes::of(rest >> 56 & 0b11)?,
            coding: Coding::of(rest >> 48 & 0xff)?,
        };
        let is_response = meta.flags.0 & (Flags::VARY_SPEC.0 | Flags::NOT_STORED.0) == 0;
        let status_fits = if is_response { (200..=999).contains(&meta.status) } else { meta.status == 0 };
        let etag_fits = meta.etag_at + u32::from(meta.etag_bytes) <= meta.head_bytes;
        let length_fits = meta.body_bytes.is_none() == meta.flags.has(Flags::LENGTH_UNKNOWN);
        let blocks_fit = !meta.flags.has(Flags::IN_BLOCKS)
            || is_response && meta.body_bytes.is_some_and(|bytes| bytes > 0);
        let is_known = meta.flags.0 & !Flags::KNOWN == 0;
        (is_known && status_fits && etag_fits && length_fits && blocks_fit).then_some(meta)
    }

    /// Returns the HTTP version of the origin.
    #[inline]
    pub fn received(&self) -> Version {
        if self.flags.has(Flags::HTTP_10) { Version::Http10 } else { Version::Http11 }
    }

    /// Returns the `current_age` (RFC 9111 §4.2.3).
    #[inline]
    pub fn age_s(&self, now_s: u64) -> u64 {
        current_age_s(self.born_s, now_s)
    }

    /// Returns the facts that [`judge_reuse`](crate::policy::judge_reuse) needs.
    #[inline]
    pub fn stored(&self, now_s: u64) -> StoredResponse {
        StoredResponse {
            lifetime_s: self.lifetime_s,
            age_s: self.age_s(now_s),
            must_revalidate: self.flags.has(Flags::MUST_REVALIDATE),
            stale_while_revalidate_s: self.stale_while_revalidate_s,
            // Older versions may have stored another value for an error response.
            stale_if_error_s: if self.status >= 500 { 0 } else { self.stale_if_error_s },
        }
    }

    /// Returns the length of the content; `None` if the content is not in one piece and its length is
    /// unknown, which only a damaged record can have.
    #[inline]
    pub fn content_bytes(&self, object: &Object<'_>) -> Option<u64> {
        if object.is_in_parts() || self.flags.has(Flags::IN_BLOCKS) {
            self.body_bytes
        } else {
            Some(object.body_bytes())
        }
    }

    /// Returns whether momentary purges apply to the response: it is used for only a few seconds.
    #[inline]
    pub fn is_momentary(&self) -> bool {
        self.lifetime_s <= MOMENTARY_S_MAX && self.stale_while_revalidate_s <= MOMENTARY_S_MAX
    }

    /// Returns whether the record is a response, and not a `Vary` record or a note.
    #[inline]
    pub fn is_response(&self) -> bool {
        self.status != 0
    }

    /// Returns whether the response may answer a request with these cookies and this client certificate.
    #[inline]
    pub fn may_answer(&self, facts: &RequestFacts, cookies: CookieRule) -> bool {
        may_share(self.audience(), facts.cookie, cookies)
            && (!facts.certificate || self.flags.has(Flags::FOR_ALL))
    }

    /// Returns the visitors that may share the response.
    #[inline]
    pub fn audience(&self) -> Audience {
        Audience::of(!self.flags.has(Flags::NOT_FOR_COOKIES))
    }

    /// Returns whether the coding of the response depends on the client.
    #[inline]
    pub fn is_negotiated(&self) -> bool {
        self.flags.has(Flags::MAY_BE_CODED) || self.flags.has(Flags::MAY_BE_DECODED)
    }

    /// Returns whether `Vary: Accept-Encoding` must be added to the head because other clients get another
    /// coding.
    #[inline]
    pub fn varies_unsaid(&self) -> bool {
        self.is_negotiated() && !self.flags.has(Flags::SAYS_VARY)
    }

    /// Returns the metadata for an entity tag that has become longer by `suffix`, and begins `earlier_bytes`
    /// earlier.
    #[inline]
    #[must_use]
    pub fn with_tag(mut self, suffix: &str, earlier_bytes: usize) -> Self {
        if self.etag_bytes > 0 {
            self.etag_at = self.etag_at.saturating_sub(earlier_bytes as u32);
            self.etag_bytes = self.etag_bytes.saturating_add(suffix.len() as u16);
        }
        self
    }

    /// Returns whether the response can be revalidated with the origin.
    #[inline]
    pub fn has_validator(&self) -> bool {
        self.etag_bytes > 0 || self.last_modified_s.is_some()
    }

    /// Returns the value of `ETag` in the stored head, as received.
    #[inline]
    pub fn etag_of<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        let at = self.etag_at as usize;
        head.get(at..at + usize::from(self.etag_bytes)).filter(|etag| !etag.is_empty())
    }

    /// Returns the validators that [`evaluate`](crate::policy::evaluate) needs; `head` is the stored head.
    #[inline]
    pub fn validators<'a>(&self, head: &'a [u8]) -> Validators<'a> {
        let etag = self.etag_of(head).and_then(EntityTag::parse);
        Validators { etag, last_modified_s: self.last_modified_s, date_s: self.date_s }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Unused bits of each word.
    const UNUSED: [u64; META_WORDS] = [0, 0xfc << 56, 0xffc0, 0, 0, 0, 0, 0];

    prop_compose! {
        fn meta()(
            times in any::<[u64; 2]>(),
            stale in any::<u64>(),
            (bans, site) in (0..=BITS_40, any::<u32>()),
            (schemes, coding, arrived_age_s, member)
                in (0u64..3, 0u64..5, any::<u16>(), 0..=BITS_24 as u32),
            last_modified_s in proptest::option::of(0..BITS_40),
            body_bytes in proptest::option::of(0..BITS_48),
            head_bytes in 0u32..1 << 24,
            etag in any::<(prop::sample::Index, prop::sample::Index)>(),
            status in 200u16..1000,
            flags in 0u32..512,
            lifetime_s in any::<u32>(),
        ) -> StoredMeta {
            let etag_at = etag.0.index(head_bytes as usize + 1) as u32;
            let room = (head_bytes - etag_at).min(u32::from(u16::MAX));
            let (flags, unknown) = (flags & 15 | flags >> 4 << 16, Flags::LENGTH_UNKNOWN.0);
            let flags = Flags(if body_bytes.is_none() { flags | unknown } else { flags & !unknown });
            let is_response = !flags.has(Flags::VARY_SPEC) && !flags.has(Flags::NOT_STORED);
            StoredMeta {
                born_s: times[0] & BITS_40,
                date_s: times[1] & BITS_40,
                arrived_age_s,
                member,
                origin_ms: (times[1] >> 40) as u32,
                last_modified_s,
                body_bytes,
                head_bytes,
                etag_at,
                etag_bytes: etag.1.index(room as usize + 1) as u16,
                status: if is_response { status } else { 0 },
                flags,
                lifetime_s,
                stale_while_revalidate_s: (stale & BITS_24) as u32,
                stale_if_error_s: (stale >> 40) as u32,
                bans,
                site,
                schemes: Schemes::of(schemes).expect("one of three"),
                coding: Coding::of(coding).expect("one of five"),
            }
        }
    }

    proptest! {
        #[test]
        fn words_come_back(meta in meta(), later in any::<[u64; META_WORDS]>()) {
            let mut words = meta.pack();
            prop_assert_eq!(StoredMeta::unpack(&words), Some(meta));
            // Unused bits, which a later version may write, do not change what is read.
            for (word, (later, unused)) in words.iter_mut().zip(later.iter().zip(UNUSED)) {
                prop_assert_eq!(*word & unused, 0);
                *word |= later & unused;
            }
            prop_assert_eq!(StoredMeta::unpack(&words), Some(meta));
        }

        /// Any words are refused, or unpack to metadata that packs to the same words, apart from the unused
        /// bits.
        #[test]
        fn any_words_are_refused_or_sound(words in any::<[u64; META_WORDS]>(), status in 200u64..1000, head in 0u64..1 << 24) {
            let mut likely = words;
            likely[1] = words[1] & 0xffff_ffff | status << 32 | 1 << 56;
            likely[2] &= !0xffff_0000;
            likely[3] = head;
            for words in [words, likely] {
                if let Some(meta) = StoredMeta::unpack(&words) {
                    let meant: Vec<u64> = words.iter().zip(UNUSED).map(|(word, unused)| word & !unused).collect();
                    prop_assert_eq!(&meta.pack()[..], &meant[..]);
                }
            }
        }
    }

    #[test]
    fn damage_is_refused() {
        const FINE: u64 = 200 << 32 | 1 << 56;
        let words = [5, FINE, 0, 100, 0, 5, BITS_40, 0];
        assert!(StoredMeta::unpack(&words).is_some());
        for (at, bad) in [
            (1, 1 << 56),                   // no status
            (1, 199 << 32 | 1 << 56),       // an interim one
            (1, 1000 << 32 | 1 << 56),      // one beyond three digits
            (1, FINE | 3 << 56),            // a scheme that there is not
            (1, FINE | 5 << 48),            // a coding that there is not
            (2, 1 << 22),                   // a flag that must be known
            (2, 1 << 21),                   // in blocks, of no bytes
            (2, 1 << 31),                   // another
            (2, 1 << 16),                   // a Vary spec with a status
            (2, 1 << 20),                   // a note with one
            (2, 1 << 17),                   // length known, flag says no
            (4, BITS_48),                   // and the other way
            (3, 100 | 90 << 24 | 11 << 48), // an entity tag that ends beyond the head
        ] {
            let mut words = words;
            words[at] = bad;
            assert_eq!(StoredMeta::unpack(&words), None, "word {at} = {bad:#x}");
        }
        let mut newer = words;
        newer[2] = 0xffc0;
        assert_eq!(StoredMeta::unpack(&newer), StoredMeta::unpack(&words), "flags that may be passed over");
    }

    #[test]
    fn a_note_is_no_response_and_ends() {
        let note = StoredMeta::of_not_stored(1000, 120);
        assert_eq!(StoredMeta::unpack(&note.pack()), Some(note));
        assert!(note.flags.has(Flags::NOT_STORED) && note.status == 0);
        assert_eq!(note.fresh_until_s(), 1120);
    }
}
