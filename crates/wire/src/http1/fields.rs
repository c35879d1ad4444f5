//! Parsers for header values that do not copy (RFC 9110 §5.6, RFC 9111 §5.2).
//!
//! A malformed element is skipped or ends the iteration, whichever makes a cache do *less*: an unreadable
//! validator matches nothing, an unreadable freshness counts as absent. Dates are left to the caller.

use super::{
    head::{Headers, Version},
    known::KnownHeader,
};

/// Lookup table of the bytes allowed in a token (RFC 9110 §5.6.2).
static TCHAR: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric()
            || matches!(
                b as u8,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        b += 1;
    }
    table
};

/// Returns whether a byte may be part of a token (RFC 9110 §5.6.2).
#[inline]
pub const fn is_tchar(b: u8) -> bool {
    TCHAR[b as usize]
}

/// Returns whether the bytes are a token, and so may be a method or a field's name (RFC 9110 §5.6.2, §5.1).
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| is_tchar(b))
}

/// Returns whether a byte may be part of a field's value: HTAB, SP, visible ASCII, obs-text (RFC 9110 §5.5).
#[inline]
pub fn is_field_value_byte(b: u8) -> bool {
    matches!(b, b'\t' | b' '..=b'~' | 0x80..)
}

/// Removes spaces and tabs at both ends (OWS, RFC 9110 §5.6.3).
pub fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Iterates over the elements of a comma-separated list (RFC 9110 §5.6.1), without the white space around
/// them; empty elements are skipped. A comma within a quoted string does not separate elements; a string
/// without a closing quote extends to the end.
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        loop {
            let value = rest?;
            let end = element_len(value);
            rest = value.get(end + 1..);
            let element = trim_ows(&value[..end]);
            if !element.is_empty() {
                return Some(element);
            }
        }
    })
}

/// Returns the offset of the first comma outside quoted strings, or the length.
fn element_len(value: &[u8]) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (at, &b) in value.iter().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return at,
            _ => {}
        }
    }
    value.len()
}

/// A directive of `Cache-Control`, `Pragma` and similar fields (RFC 9111 §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directive<'a> {
    /// The name, in the upper and lower case in which it was received.
    pub name: &'a [u8],
    /// Text after `=`: a token unchanged, a quoted string without its quotes (escapes stay as they are, since
    /// no directive needs them). White space around `=`, which the grammar does not allow, stays in the
    /// value, so that it does not parse as a number.
    pub value: Option<&'a [u8]>,
}

impl Directive<'_> {
    /// Returns whether the directive has this name, ignoring case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Returns the value as delta-seconds; `None` if there is none or it is not a number.
    pub fn seconds(&self) -> Option<u32> {
        delta_seconds(self.value?)
    }
}

/// Iterates over the directives of one `Cache-Control` field (RFC 9111 §5.2).
pub fn directives(value: &[u8]) -> impl Iterator<Item = Directive<'_>> {
    list(value).map(|element| {
        let Some(equals) = element.iter().position(|&b| b == b'=') else {
            return Directive { name: element, value: None };
        };
        let value = match &element[equals + 1..] {
            [b'"', inside @ .., b'"'] => inside,
            plain => plain,
        };
        Directive { name: trim_ows(&element[..equals]), value: Some(value) }
    })
}

/// Maximum value of delta-seconds; larger numbers are clamped to it (RFC 9111 §1.2.2).
pub const DELTA_SECONDS_MAX: u32 = 1 << 31;

/// Parses a number of seconds, as in `max-age` and `Age`; `None` if it is not all digits (RFC 9111 §1.2.2).
pub fn delta_seconds(digits: &[u8]) -> Option<u32> {
    Some(decimal_saturating(digits)?.min(u64::from(DELTA_SECONDS_MAX)) as u32)
}

/// Parses digits, saturating at `u64::MAX`.
fn decimal_saturating(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &b| {
        b.is_ascii_digit().then(|| number.saturating_mul(10).saturating_add(u64::from(b - b'0')))
    })
}

/// An entity tag (RFC 9110 §8.8.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// True if the tag has the prefix `W/`.
    pub weak: bool,
    /// Bytes between the quotes.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Parses exactly one entity tag, as in `ETag`.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (tag, rest) = Self::split(value)?;
        rest.is_empty().then_some(tag)
    }

    /// Splits an entity tag off the start and returns it with the rest. A backslash in the tag is an ordinary
    /// byte.
    fn split(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (weak, quoted) = match value {
            [b'W', b'/', rest @ ..] => (true, rest),
            _ => (false, value),
        };
        let [b'"', inside @ ..] = quoted else { return None };
        let len = inside.iter().position(|&b| !matches!(b, b'!' | b'#'..=b'~' | 0x80..))?;
        if inside[len] != b'"' {
            return None;
        }
        Some((Self { weak, opaque: &inside[..len] }, &inside[len + 1..]))
    }

    /// Compares weakly, as for `If-None-Match` (RFC 9110 §8.8.3.2).
    pub fn weakly_equals(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }

    /// Compares strongly, as for `If-Match` and `If-Range` (RFC 9110 §8.8.3.2).
    pub fn strongly_equals(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }
}

/// Iterates over the entity tags of one `If-None-Match` or `If-Match` field (RFC 9110 §13.1). Ends at the
/// first malformed tag; `*` yields none (see [`is_any`]).
pub fn entity_tags(value: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        let (tag, after) = EntityTag::split(rest)?;
        let after = trim_ows(after);
        // Only a comma or the end may follow a tag.
        if !matches!(after, [] | [b',', ..]) {
            rest = &[];
            return None;
        }
        rest = after;
        Some(tag)
    })
}

/// Returns whether the value is `*`, which matches any representation (RFC 9110 §13.1).
pub fn is_any(value: &[u8]) -> bool {
    value == b"*"
}

/// A requested range of bytes (RFC 9110 §14.1.2). A number beyond 64 bits counts as `u64::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// `first-last`, both inclusive.
    FromTo {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte; not below `first`.
        last: u64,
    },
    /// `first-`: from `first` to the end.
    From {
        /// Offset of the first byte.
        first: u64,
    },
    /// `-len`: the last `len` bytes.
    Suffix {
        /// Number of bytes at the end of the representation.
        len: u64,
    },
}

impl ByteRange {
    fn parse(spec: &[u8]) -> Option<Self> {
        let dash = spec.iter().position(|&b| b == b'-')?;
        match (&spec[..dash], &spec[dash + 1..]) {
            ([], len) => Some(Self::Suffix { len: decimal_saturating(len)? }),
            (first, []) => Some(Self::From { first: decimal_saturating(first)? }),
            (first, last) => {
                let (first, last) = (decimal_saturating(first)?, decimal_saturating(last)?);
                (first <= last).then_some(Self::FromTo { first, last })
            }
        }
    }

    /// Resolves the range against a representation of `len` bytes; `None` if it cannot be satisfied. The
    /// result is never empty.
    pub fn of_len(self, len: u64) -> Option<std::ops::Range<u64>> {
        let range = match self {
            Self::FromTo { first, last } => first..last.saturating_add(1).min(len),
            Self::From { first } => first..len,
            Self::Suffix { len: suffix } => len.saturating_sub(suffix)..len,
        };
        (range.start < range.end).then_some(range)
    }
}

/// Iterates over the ranges of a `Range` field in unit `bytes`, in their order. Returns `None` if the unit is
/// not `bytes` or any range is malformed: the field must then be ignored (RFC 9110 §14.2). The caller limits
/// the number of ranges (RFC 9110 §17.15).
pub fn byte_ranges(value: &[u8]) -> Option<impl Iterator<Item = ByteRange> + Clone + '_> {
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let specs = set.split(|&b| b == b',').map(trim_ows).filter(|spec| !spec.is_empty());
    if specs.clone().next().is_none() || !specs.clone().all(|spec| ByteRange::parse(spec).is_some()) {
        return None;
    }
    Some(specs.filter_map(ByteRange::parse))
}

/// Value of `Content-Range` for a partial response (RFC 9110 §14.4): `bytes first-last/complete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte; not below `first`.
    pub last: u64,
    /// The length of the whole representation, greater than `last`; `None` for `*`, which means that the
    /// sender does not know.
    pub complete: Option<u64>,
}

impl ContentRange {
    /// Parses the field; `None` if the unit is not `bytes`, the field reports an unsatisfiable range, or it
    /// is malformed. A number beyond 64 bits is malformed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (unit, rest) = value.split_at_checked(b"bytes ".len())?;
        let slash = rest.iter().position(|&b| b == b'/')?;
        let (range, complete) = (&rest[..slash], &rest[slash + 1..]);
        let dash = range.iter().position(|&b| b == b'-')?;
        let (first, last) = (decimal(&range[..dash])?, decimal(&range[dash + 1..])?);
        let complete = if complete == b"*" { None } else { Some(decimal(complete)?) };
        let is_one = first <= last && complete.is_none_or(|complete| last < complete);
        (unit.eq_ignore_ascii_case(b"bytes ") && is_one).then_some(Self { first, last, complete })
    }
}

/// Parses a number that consists of digits only and fits 64 bits.
fn decimal(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// Iterates over the options in all `Connection` fields (RFC 9110 §7.6.1), in their original case.
pub fn connection_options<'b>(headers: &Headers<'b, '_>) -> impl Iterator<Item = &'b [u8]> {
    headers.known_all(KnownHeader::Connection).flat_map(list)
}

/// Returns whether the connection stays open after this message (RFC 9112 §9.3): `close` closes it; otherwise
/// HTTP/1.1 keeps it, and HTTP/1.0 only with `keep-alive`. The body must also have a known end, which the
/// framing decides.
pub fn persists(version: Version, headers: &Headers<'_, '_>) -> bool {
    let (mut close, mut keep_alive) = (false, false);
    for option in connection_options(headers) {
        close |= option.eq_ignore_ascii_case(b"close");
        keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
    }
    !close && (version == Version::Http11 || keep_alive)
}

/// Returns whether a field is meant for the next hop only and is not forwarded: the fields of RFC 9110
/// §7.6.1, and those that `Connection` names. `Connection` cannot remove `Host`, `Content-Length` and
/// `Cache-Control`: they are meant for every recipient, and dropping them would change the message's meaning
/// for the next one.
pub fn is_hop_by_hop(name: &str, headers: &Headers<'_, '_>) -> bool {
    is_hop_by_hop_as(KnownHeader::of(name.as_bytes()), name.as_bytes(), headers)
}

/// Like [`is_hop_by_hop`], for a field whose kind is known already.
pub fn is_hop_by_hop_as(known: Option<KnownHeader>, name: &[u8], headers: &Headers<'_, '_>) -> bool {
    use KnownHeader as K;
    match known {
        Some(
            K::Connection | K::ProxyConnection | K::KeepAlive | K::Te | K::TransferEncoding | K::Upgrade,
        ) => true,
        Some(K::Host | K::ContentLength | K::CacheControl) => false,
        _ => {
            headers.has(K::Connection)
                && connection_options(headers).any(|option| option.eq_ignore_ascii_case(name))
        }
    }
}

/// Appends a field line with its CRLF.
#[inline]
pub fn append_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::head::{HeadLimits, HeaderSlots, Progress, parse_request};

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    fn listed(value: &str) -> Vec<&str> {
        list(value.as_bytes()).map(text).collect()
    }

    /// RFC 9110 §14.4: a `Content-Range` is either valid as a whole or rejected.
    #[test]
    fn a_content_range_is_whole_or_none() {
        let range = |first, last, complete| Some(ContentRange { first, last, complete });
        for (value, want) in [
            ("bytes 0-0/1", range(0, 0, Some(1))),
            ("BYTES 5-9/10", range(5, 9, Some(10))),
            ("bytes 5-9/*", range(5, 9, None)),
            ("bytes 0-18446744073709551614/18446744073709551615", range(0, u64::MAX - 1, Some(u64::MAX))),
            ("bytes 5-9/9", None),
            ("bytes 5-4/9", None),
            ("bytes */9", None),
            ("bytes 0-/9", None),
            ("bytes=0-1/9", None),
            ("bytes 0-1", None),
            ("bytes  0-1/9", None),
            ("bytes 0-1/9 ", None),
            ("bytes +0-1/9", None),
            ("bytes 0-18446744073709551616/18446744073709551617", None),
            ("lines 0-1/9", None),
            ("", None),
        ] {
            assert_eq!(ContentRange::parse(value.as_bytes()), want, "{value}");
        }
    }

    #[test]
    fn tokens_are_what_the_grammar_says() {
        for b in 0..=255u8 {
            let delimiter = b"\"(),/:;<=>?@[\\]{}".contains(&b);
            assert_eq!(is_tchar(b), b.is_ascii_graphic() && !delimiter, "{b:#x}");
        }
        assert!(is_token(b"a-B_9") && !is_token(b"") && !is_token(b"a b"));
    }

    /// RFC 9110 §5.5: a field value contains no control character except tab.
    #[test]
    fn values_hold_no_controls() {
        for b in 0..=255u8 {
            assert_eq!(is_field_value_byte(b), b == b'\t' || !b.is_ascii_control(), "{b:#x}");
        }
    }

    /// RFC 9110 §5.6.1: empty elements are ignored; §5.6.4: commas in quoted strings do not separate
    /// elements.
    #[test]
    fn lists_are_split_at_commas_outside_quotes() {
        assert_eq!(listed("foo , ,bar,charlie"), ["foo", "bar", "charlie"]);
        assert_eq!(listed(""), [""; 0]);
        assert_eq!(listed(" , \t,"), [""; 0]);
        assert_eq!(listed("a=\"b,c\", d"), ["a=\"b,c\"", "d"]);
        assert_eq!(listed("a=\"b\\\",c\", d"), ["a=\"b\\\",c\"", "d"]);
        assert_eq!(listed("a=\"b, c"), ["a=\"b, c"]);
        assert_eq!(listed("a\\,b"), ["a\\", "b"]);
    }

    /// RFC 9111 §5.2: directive names in any case, values as tokens or quoted strings.
    #[test]
    fn directives_have_names_and_perhaps_values() {
        let value = b"No-Store, max-age=60,s-maxage=\"61\", private=\"a, b\", x=, max-age =5, y= 6";
        let all: Vec<_> = directives(value).map(|d| (text(d.name), d.value.map(text))).collect();
        let expected = [
            ("No-Store", None),
            ("max-age", Some("60")),
            ("s-maxage", Some("61")),
            ("private", Some("a, b")),
            ("x", Some("")),
            ("max-age", Some("5")),
            ("y", Some(" 6")),
        ];
        assert_eq!(all, expected);
        let seconds: Vec<_> = directives(value).map(|d| d.seconds()).collect();
        assert_eq!(seconds, [None, Some(60), Some(61), None, None, Some(5), None]);
        assert!(directives(value).next().is_some_and(|d| d.is("no-store") && !d.is("no-cache")));
    }

    /// RFC 9111 §1.2.2: an overflow counts as 2^31.
    #[test]
    fn seconds_saturate() {
        for (digits, seconds) in [
            ("0", Some(0)),
            ("0060", Some(60)),
            ("2147483647", Some(2_147_483_647)),
            ("2147483648", Some(DELTA_SECONDS_MAX)),
            ("2147483649", Some(DELTA_SECONDS_MAX)),
            ("18446744073709551616", Some(DELTA_SECONDS_MAX)),
            ("99999999999999999999999999999999", Some(DELTA_SECONDS_MAX)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            (" 1", None),
            ("1s", None),
        ] {
            assert_eq!(delta_seconds(digits.as_bytes()), seconds, "{digits:?}");
        }
    }

    /// RFC 9110 §8.8.3, with its table of comparisons in §8.8.3.2.
    #[test]
    fn entity_tags_compare_weakly_and_strongly() {
        let tag = |value: &'static str| EntityTag::parse(value.as_bytes());
        for (a, b, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            let (Some(a), Some(b)) = (tag(a), tag(b)) else { panic!("{a} {b}") };
            assert_eq!((a.strongly_equals(&b), a.weakly_equals(&b)), (strong, weak));
            assert_eq!((b.strongly_equals(&a), b.weakly_equals(&a)), (strong, weak));
        }
        assert_eq!(tag("\"\""), Some(EntityTag { weak: false, opaque: b"" }));
        assert_eq!(tag("W/\"a\\\""), Some(EntityTag { weak: true, opaque: b"a\\" }));
        for malformed in
            ["", "a", "\"a", "a\"", "w/\"a\"", "W\"a\"", "\"a b\"", "\"a\"b", "\"a\",\"b\"", "*", "\"\x7f\""]
        {
            assert_eq!(tag(malformed), None, "{malformed:?}");
        }
    }

    /// RFC 9110 §13.1.2; nothing after a malformed tag is read.
    #[test]
    fn entity_tags_end_at_a_malformed_tag() {
        let tags = |value: &'static str| -> Vec<&str> {
            entity_tags(value.as_bytes()).map(|t| text(t.opaque)).collect()
        };
        assert_eq!(tags("\"xyzzy\", W/\"r2d2,x\" ,, \"c3piozzzz\""), ["xyzzy", "r2d2,x", "c3piozzzz"]);
        assert_eq!(tags("\"a\\\", \"b\""), ["a\\", "b"]);
        assert_eq!(tags("\"a\", b, \"c\""), ["a"]);
        assert_eq!(tags("\"a\" \"b\", \"c\""), [""; 0]);
        assert_eq!(tags("*"), [""; 0]);
        assert!(is_any(b"*") && !is_any(b"\"*\"") && !is_any(b""));
    }

    /// RFC 9110 §14.1.2, with the examples given there.
    #[test]
    fn ranges_are_read_and_resolved() {
        let of = |value: &'static str, len: u64| -> Option<Vec<Option<std::ops::Range<u64>>>> {
            Some(byte_ranges(value.as_bytes())?.map(|range| range.of_len(len)).collect())
        };
        assert_eq!(of("bytes=0-499", 10_000), Some(vec![Some(0..500)]));
        assert_eq!(of("bytes=-500", 10_000), Some(vec![Some(9500..10_000)]));
        assert_eq!(of("BYTES=9500-", 10_000), Some(vec![Some(9500..10_000)]));
        assert_eq!(of("bytes= 0-0 ,, -1\t", 10_000), Some(vec![Some(0..1), Some(9999..10_000)]));
        assert_eq!(of("bytes=500-20000,10000-,5-5", 10_000), Some(vec![Some(500..10_000), None, Some(5..6)]));
        assert_eq!(of("bytes=-20000", 10_000), Some(vec![Some(0..10_000)]));
        assert_eq!(of("bytes=-0", 10_000), Some(vec![None]));
        assert_eq!(of("bytes=0-", 0), Some(vec![None]));
        assert_eq!(of("bytes=0-99999999999999999999", 10), Some(vec![Some(0..10)]));
        assert_eq!(of("bytes=99999999999999999999-", 10), Some(vec![None]));
        assert_eq!(of("bytes=0-18446744073709551615", u64::MAX), Some(vec![Some(0..u64::MAX)]));
        let malformed =
            ["", "bytes", "bytes=", "bytes=,", "bytes=-", "bytes=5-4", "bytes=0-1,x", "bytes=1", "bytes=a-b"];
        for value in malformed.into_iter().chain([
            "lines=0-1",
            "bytes:0-1",
            "bytes=0 - 1",
            "bytes=0-1-2",
            "bytes=+0-1",
        ]) {
            assert_eq!(of(value, 10), None, "{value:?}");
        }
    }

    fn with_head<T>(version: &str, lines: &str, look: impl Fn(Version, &Headers<'_, '_>) -> T) -> T {
        let text = format!("GET / {version}\r\nHost: a\r\n{lines}\r\n");
        let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
        match parse_request(text.as_bytes(), &mut slots, &limits) {
            Ok(Progress::Complete((head, _))) => look(head.version, &head.headers),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    /// RFC 9112 §9.3: the version's default, and the `Connection` options that override it.
    #[test]
    fn connections_persist_by_version_and_option() {
        for (version, lines, stays) in [
            ("HTTP/1.1", "", true),
            ("HTTP/1.1", "Connection: Close\r\n", false),
            ("HTTP/1.1", "Connection: foo\r\nconnection: bar ,close\r\n", false),
            ("HTTP/1.1", "Connection: keep-alive, close\r\n", false),
            ("HTTP/1.1", "Connection: closed\r\n", true),
            ("HTTP/1.0", "", false),
            ("HTTP/1.0", "Connection: Keep-Alive\r\n", true),
            ("HTTP/1.0", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ] {
            assert_eq!(with_head(version, lines, persists), stays, "{version} {lines:?}");
        }
    }

    /// RFC 9110 §7.6.1: hop-by-hop fields, and fields that `Connection` names.
    #[test]
    fn fields_for_the_next_hop_are_told() {
        let lines =
            "Connection: X-Private, close\r\nconnection: cookie, host, cache-control, content-length\r\n";
        for (name, hop) in [
            ("connection", true),
            ("Keep-Alive", true),
            ("Proxy-Connection", true),
            ("TE", true),
            ("Transfer-Encoding", true),
            ("Upgrade", true),
            ("x-private", true),
            ("Cookie", true),
            ("Host", false),
            ("Cache-Control", false),
            ("Content-Length", false),
            ("Content-Type", false),
            ("x-privat", false),
        ] {
            assert_eq!(
                with_head("HTTP/1.1", lines, |_, headers| is_hop_by_hop(name, headers)),
                hop,
                "{name}"
            );
        }
        assert!(!with_head("HTTP/1.1", "", |_, headers| is_hop_by_hop("cookie", headers)));
    }
}
