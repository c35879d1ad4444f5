//! Normal forms of `Accept-Encoding` and `Accept-Language`: one text for all values with the same meaning.
//! The text is part of the variant's key, and is sent to an origin whose answer is wanted for the store.
//!
//! | field | normal form | of |
//! |---|---|---|
//! | `Accept-Encoding` | the accepted ones of `br`, `gzip`, `zstd`, in this order; else `identity` | RFC 9110 §12.5.3 |
//! | `Accept-Language` | the ranges by descending quality, then in alphabetical order, in lower case | §12.5.4 |
//!
//! [`AcceptedCodings`] says which of our own codings a client accepts, for each answer.
//!
//! A URL has at most eight variants by encoding, whatever clients send. A value that cannot be parsed, or that
//! has too many members, stays as it is. Nothing here allocates, except when `out` grows.

use smallvec::SmallVec;
use wire::http1::{
    fields::{is_token, list},
    head::Headers,
    known::KnownHeader,
};

use crate::coding::Coding;

/// Codings that distinguish variants.
const CODINGS: [&[u8]; 3] = [b"br", b"gzip", b"zstd"];
/// Maximum number of members of a list that are evaluated.
const MEMBERS_MAX: usize = 16;

/// Quality in thousandths.
type Quality = u16;

/// Parses a member and its quality; `None` if it has other parameters.
fn weighted(member: &[u8]) -> Option<(&[u8], Quality)> {
    let mut parts = member.split(|&b| b == b';');
    let name = parts.next()?.trim_ascii();
    let quality = match parts.next() {
        None => 1000,
        Some(weight) => quality(weight.trim_ascii())?,
    };
    (is_token(name) && parts.next().is_none()).then_some((name, quality))
}

/// Parses `q=0.123` (RFC 9110 §12.4.2).
fn quality(weight: &[u8]) -> Option<Quality> {
    let [b'q' | b'Q', b'=', digits @ ..] = weight else { return None };
    let (whole, rest) = digits.split_first()?;
    let fraction = match rest {
        [] => &[],
        [b'.', fraction @ ..] if fraction.len() <= 3 => fraction,
        _ => return None,
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let thousandths =
        [100, 10, 1].iter().zip(fraction).map(|(place, digit)| place * Quality::from(digit - b'0')).sum();
    match (whole, thousandths) {
        (b'0', _) => Some(thousandths),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}

/// Client's quality for each coding that we make; 0 means not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedCodings {
    /// Qualities, indexed by the codings' numbers.
    of: [Quality; Coding::ALL.len()],
    /// The client names `identity` or `*`, instead of merely not excluding uncoded content.
    is_identity_named: bool,
}

impl AcceptedCodings {
    /// Accepts uncoded content only.
    pub const PLAIN: Self = Self { of: [1000, 0, 0, 0, 1000], is_identity_named: false };

    /// Parses `Accept-Encoding`. If it is absent or invalid, only uncoded content is accepted.
    #[inline]
    pub fn of(headers: &Headers<'_, '_>) -> Self {
        if headers.has(KnownHeader::AcceptEncoding) {
            Self::of_values(headers.known_all(KnownHeader::AcceptEncoding))
        } else {
            Self::PLAIN
        }
    }

    fn of_values<'v>(values: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut named: [Option<Quality>; Coding::ALL.len()] = [None; Coding::ALL.len()];
        let mut others = None;
        for member in values.flat_map(list) {
            let Some((name, quality)) = weighted(member) else { return Self::PLAIN };
            if name == b"*" {
                others = Some(quality);
            } else if let Some(coding) = Coding::named(name) {
                named[coding as usize] = Some(quality);
            }
        }
        let identity = named[Coding::AsSent as usize].or(others);
        let mut of = named.map(|quality| quality.or(others).unwrap_or(0));
        // RFC 9110 §12.5.3: identity is acceptable unless it is excluded.
        of[Coding::AsSent as usize] = identity.unwrap_or(1000);
        of[Coding::Decoded as usize] = of[Coding::AsSent as usize];
        Self { of, is_identity_named: identity.is_some() }
    }

    /// Returns whether the client accepts an answer in this coding.
    #[inline]
    pub fn accepts(&self, coding: Coding) -> bool {
        self.of[coding as usize] > 0
    }

    /// Returns the coding with the highest quality, and among equals the first of `order`. `None` means
    /// uncoded content.
    #[inline]
    pub fn best(&self, order: &[Coding]) -> Option<Coding> {
        let mut best = None;
        let mut most = 0;
        for coding in order {
            if self.of[*coding as usize] > most {
                (best, most) = (Some(*coding), self.of[*coding as usize]);
            }
        }
        best.filter(|_| !self.is_identity_named || most >= self.of[Coding::AsSent as usize])
    }
}

/// Appends `before` and the normal form of a field. Returns `false`, with nothing appended, if the field has
/// no normal form, is absent, or stays as it is.
pub fn append_meaning(
    known: KnownHeader,
    headers: &Headers<'_, '_>,
    before: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let begin = out.len();
    out.extend_from_slice(before);
    let is_made = headers.has(known)
        && match known {
            KnownHeader::AcceptEncoding => append_encodings(headers.known_all(known), out),
            KnownHeader::AcceptLanguage => append_languages(headers.known_all(known), out),
            _ => false,
        };
    if !is_made {
        out.truncate(begin);
    }
    is_made
}

/// Appends the normal form of `Accept-Encoding`. Returns `false`, with nothing appended, if the values stay
/// as they are, because they are invalid or refuse even uncoded content.
fn append_encodings<'v>(values: impl Iterator<Item = &'v [u8]>, out: &mut Vec<u8>) -> bool {
    let mut accepted = [None; CODINGS.len()];
    let mut others = None;
    for member in values.flat_map(list) {
        let Some((name, quality)) = weighted(member) else { return false };
        let is = |coding: &[u8]| name.eq_ignore_ascii_case(coding);
        if let Some(at) = CODINGS.iter().position(|coding| is(coding)) {
            accepted[at] = Some(quality > 0);
        } else if is(b"x-gzip") {
            // RFC 9110 §8.4.1.3: x-gzip is an alias of gzip.
            accepted[1] = Some(quality > 0);
        } else if is(b"*") {
            others = Some(quality > 0);
        }
        if quality == 0 && (is(b"identity") || is(b"*")) {
            return false;
        }
    }
    let begin = out.len();
    for (coding, accepted) in CODINGS.iter().zip(accepted) {
        if accepted.or(others) == Some(true) {
            if out.len() > begin {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(coding);
        }
    }
    if out.len() == begin {
        out.extend_from_slice(b"identity");
    }
    true
}

/// Appends the normal form of `Accept-Language`. Returns `false`, with nothing appended, if the values stay
/// as they are.
fn append_languages<'v>(values: impl Iterator<Item = &'v [u8]>, out: &mut Vec<u8>) -> bool {
    let mut ranges: SmallVec<[(&[u8], Quality); MEMBERS_MAX]> = SmallVec::new();
    for member in values.flat_map(list) {
        let Some(range) = weighted(member) else { return false };
        if ranges.len() == MEMBERS_MAX {
            return false;
        }
        ranges.push(range);
    }
    let begin = out.len();
    ranges.sort_unstable_by(|(one, worth), (other, others)| {
        let letters = |range: &'v [u8]| range.iter().map(u8::to_ascii_lowercase);
        others.cmp(worth).then_with(|| letters(one).cmp(letters(other)))
    });
    for (range, quality) in ranges {
        if out.len() > begin {
            out.extend_from_slice(b", ");
        }
        let at = out.len();
        out.extend_from_slice(range);
        out[at..].make_ascii_lowercase();
        if quality < 1000 {
            let digits = [quality / 100, quality / 10 % 10, quality % 10].map(|digit| b'0' + digit as u8);
            let told = digits.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1);
            out.extend_from_slice(if told == 0 { b";q=0" } else { b";q=0." });
            out.extend_from_slice(&digits[..told]);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Append = fn(&[u8], &mut Vec<u8>) -> bool;

    fn encodings(value: &[u8], out: &mut Vec<u8>) -> bool {
        append_encodings(std::iter::once(value), out)
    }

    fn languages(value: &[u8], out: &mut Vec<u8>) -> bool {
        append_languages(std::iter::once(value), out)
    }

    fn made(append: Append, value: &str) -> Option<String> {
        let mut out = b"x".to_vec();
        let is_made = append(value.as_bytes(), &mut out);
        assert!(is_made || out == b"x", "nothing is appended to what stays");
        is_made.then(|| String::from_utf8_lossy(&out[1..]).into_owned())
    }

    #[test]
    fn encodings_are_those_that_make_variants() {
        for (value, want) in [
            ("gzip, deflate, br, zstd", Some("br, gzip, zstd")),
            ("zstd;q=0.2,GZIP;q=1.0 , br ; q=0.001", Some("br, gzip, zstd")),
            ("gzip", Some("gzip")),
            ("x-gzip, dcb", Some("gzip")),
            ("gzip;q=0, br", Some("br")),
            ("deflate", Some("identity")),
            ("", Some("identity")),
            ("*", Some("br, gzip, zstd")),
            ("*;q=0.5, br;q=0", Some("gzip, zstd")),
            ("identity;q=0, gzip", None),
            ("*;q=0", None),
            ("gzip;q=2", None),
            ("gzip;q=0.1234", None),
            ("gzip;level=9", None),
            ("gz ip", None),
        ] {
            assert_eq!(made(encodings, value).as_deref(), want, "{value}");
        }
    }

    #[test]
    fn languages_are_sorted_by_what_they_are_worth() {
        for (value, want) in [
            ("en, de", Some("de, en")),
            ("de,EN", Some("de, en")),
            ("fr;q=0.5, de;q=1.0, en;q=0.75", Some("de, en;q=0.75, fr;q=0.5")),
            ("en-GB,en;q=0.9,*;q=0", Some("en-gb, en;q=0.9, *;q=0")),
            ("", Some("")),
            ("de;q=x", None),
            ("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", None),
        ] {
            assert_eq!(made(languages, value).as_deref(), want, "{value}");
        }
    }

    fn accepted(value: &str) -> AcceptedCodings {
        AcceptedCodings::of_values(std::iter::once(value.as_bytes()))
    }

    #[test]
    fn the_coding_follows_client_then_server_preference() {
        let order = [Coding::Brotli, Coding::Zstd, Coding::Gzip];
        for (value, want) in [
            ("gzip, deflate, br, zstd", Some(Coding::Brotli)),
            ("gzip, deflate, zstd", Some(Coding::Zstd)),
            ("gzip", Some(Coding::Gzip)),
            ("x-GZIP", Some(Coding::Gzip)),
            ("gzip;q=1.0, br;q=0.9", Some(Coding::Gzip)),
            ("br;q=0, gzip;q=0.1", Some(Coding::Gzip)),
            ("*", Some(Coding::Brotli)),
            ("*;q=0.5, br;q=0", Some(Coding::Zstd)),
            ("gzip;q=0.5, *;q=0.8", Some(Coding::Brotli)),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Coding::Gzip)),
            ("identity;q=0", None),
            ("*;q=0", None),
            ("deflate", None),
            ("", None),
            ("gzip, br;q=2", None),
            ("gzip;level=9", None),
        ] {
            assert_eq!(accepted(value).best(&order), want, "{value}");
        }
        assert_eq!(accepted("br, gzip").best(&[Coding::Gzip]), Some(Coding::Gzip));
        assert_eq!(accepted("gzip;q=0.5, *;q=0.8").best(&[Coding::Gzip]), None, "identity is worth 0.8");
        assert_eq!(accepted("br").best(&[]), None);
        assert!(accepted("br").accepts(Coding::AsSent) && !accepted("*;q=0").accepts(Coding::AsSent));
    }

    proptest! {
        /// The best coding is the same as that of the slow twin, which searches the whole list for each
        /// coding.
        #[test]
        fn the_best_coding_is_as_the_twin_says(
            members in proptest::collection::vec(("gzip|GZIP|br|zstd|identity|[*]|deflate", 0u16..=1000), 0..8),
            order in proptest::sample::subsequence(Coding::MADE.to_vec(), 0..=3),
        ) {
            let text: Vec<String> =
                members.iter().map(|(name, q)| format!("{name};q={}", f64::from(*q) / 1000.0)).collect();
            let last = |name: &str| members.iter().rfind(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, q)| *q);
            let worth = |coding: Coding| last(coding.token()).or_else(|| last("*"));
            let plain = worth(Coding::AsSent).unwrap_or(0);
            let most = order.iter().map(|coding| worth(*coding).unwrap_or(0)).max().unwrap_or(0);
            let want = order.iter().copied().find(|coding| most > 0 && most >= plain && worth(*coding) == Some(most));
            let accepted = accepted(&text.join(","));
            prop_assert_eq!(accepted.best(&order), want);
            for coding in Coding::MADE {
                prop_assert_eq!(accepted.accepts(coding), worth(coding).is_some_and(|q| q > 0));
            }
            for plain in [Coding::AsSent, Coding::Decoded] {
                prop_assert_eq!(accepted.accepts(plain), worth(Coding::AsSent) != Some(0));
            }
        }

        /// Normalization is idempotent, and does not depend on the order of the members.
        #[test]
        fn what_is_made_is_made_of_itself(members in proptest::collection::vec(("[a-zA-Z*]{1,3}|gzip|br|zstd", 0u16..=1000), 0..8), turn in 0usize..8) {
            let text = |members: &[(String, u16)]| {
                let members = members.iter().map(|(name, q)| format!("{name};q={}", f64::from(*q) / 1000.0));
                members.collect::<Vec<_>>().join(",")
            };
            let value = text(&members);
            let mut turned = members.clone();
            turned.rotate_left(turn.min(members.len()));
            let distinct: std::collections::HashSet<_> = members.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
            for append in [encodings as Append, languages] {
                if let Some(once) = made(append, &value) {
                    prop_assert_eq!(made(append, &once), Some(once.clone()));
                    if distinct.len() == members.len() {
                        prop_assert_eq!(made(append, &text(&turned)), Some(once));
                    }
                }
            }
        }
    }
}
