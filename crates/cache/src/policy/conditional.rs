//! Conditional and range requests on a stored response: it is sent whole, in part, or not at all because the
//! client has it (RFC 9110 §13, §14).
//!
//! ```text
//!  If-None-Match?  ── a tag matches weakly ─────────> 304        (then If-Modified-Since does not count, §13.2.2)
//!  If-Modified-Since? ── not modified since ────────> 304
//!  GET and Range, and If-Range matches strongly? ───> 206 or 416
//!  else ────────────────────────────────────────────> whole
//! ```
//!
//! Requests with `If-Match` or `If-Unmodified-Since` never get here: they are passed to the origin
//! ([`PassReason::Precondition`](super::request::PassReason)).

use wire::http1::{
    fields::{ByteRange, EntityTag, byte_ranges, entity_tags, is_any},
    head::Headers,
    known::KnownHeader,
};

use super::{accept::AcceptedCodings, http_date_s};
use crate::coding::Coding;

/// Validators of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators<'a> {
    /// `ETag`.
    pub etag: Option<EntityTag<'a>>,
    /// `Last-Modified`, in seconds since 1970.
    pub last_modified_s: Option<u64>,
    /// `Date`, or the time of arrival if there was none.
    pub date_s: u64,
}

/// Part of a stored response that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The whole response.
    Whole,
    /// 304: the client already has the response.
    NotModified,
    /// 206: bytes `first` to `last`, both included, of `complete`.
    Partial {
        /// The first byte.
        first: u64,
        /// The last byte; at least `first`, below `complete`.
        last: u64,
        /// The length of the whole body.
        complete: u64,
    },
    /// 206 with several parts, in their order ([`several_ranges`]).
    Several {
        /// The length of the whole body.
        complete: u64,
    },
    /// 416: the range begins beyond the end.
    Unsatisfiable {
        /// The length of the whole body.
        complete: u64,
    },
}

/// Decides what to send of a stored response.
///
/// The method is GET if `is_get`, else HEAD. `status` is the stored one: conditions count only if the answer
/// would be a success (RFC 9110 §13.2.1). `body_bytes` is `None` while the length is unknown; a range is then
/// ignored (RFC 9110 §14.2 permits it).
///
/// Ranges that overlap are merged, as are ranges whose gap is shorter than the head of a part. A request with
/// more than [`RANGES_MAX`] ranges, or with ranges in descending order, gets the whole body (RFC 9110 §14.2
/// permits it, §17.15 advises it).
#[inline]
pub fn evaluate(
    headers: &Headers<'_, '_>,
    is_get: bool,
    status: u16,
    validators: &Validators<'_>,
    body_bytes: Option<u64>,
) -> Verdict {
    let conditional = headers.has(KnownHeader::IfNoneMatch) || headers.has(KnownHeader::IfModifiedSince);
    if !conditional && !headers.has(KnownHeader::Range) {
        return Verdict::Whole;
    }
    if !(200..300).contains(&status) {
        return Verdict::Whole;
    }
    if conditional && is_unmodified(headers, validators) {
        return Verdict::NotModified;
    }
    match body_bytes {
        Some(complete) if is_get && status == 200 && headers.has(KnownHeader::Range) => {
            range(headers, validators, complete)
        }
        _ => Verdict::Whole,
    }
}

/// Returns the coding whose suffix follows the stored tag `etag` in a client's tag.
fn coding_named(tag: &EntityTag<'_>, etag: &EntityTag<'_>) -> Option<Coding> {
    let suffix = tag.opaque.strip_prefix(etag.opaque)?;
    Coding::ALL.into_iter().find(|coding| coding.tag_suffix().as_bytes() == suffix)
}

/// Removes the suffix of one of our codings from a tag ([`Coding::tag_suffix`]); `None` if the tag does not
/// end in one. A tag with such an end may still be the origin's own: `"user-id"`.
pub fn strip_coding_suffix<'t>(tag: &EntityTag<'t>) -> Option<EntityTag<'t>> {
    let marks = Coding::ALL.into_iter().map(Coding::tag_suffix).filter(|mark| !mark.is_empty());
    let mut opaque = marks.filter_map(|mark| tag.opaque.strip_suffix(mark.as_bytes()));
    opaque.next().map(|opaque| EntityTag { opaque, ..*tag })
}

/// Returns whether `If-Range` names a representation with the suffix of one of our codings.
pub fn is_part_marked(headers: &Headers<'_, '_>) -> bool {
    let tag = headers.known(KnownHeader::IfRange).and_then(EntityTag::parse);
    tag.is_some_and(|tag| strip_coding_suffix(&tag).is_some())
}

/// Returns whether `If-None-Match` shows that the client has the decoded form of content that the origin sent
/// encoded.
pub fn has_decoded(headers: &Headers<'_, '_>, etag: &EntityTag<'_>) -> bool {
    let mut tags = headers.known_all(KnownHeader::IfNoneMatch).flat_map(entity_tags);
    tags.any(|tag| coding_named(&tag, etag) == Some(Coding::Decoded))
}

/// Returns the coding in which the client has the content according to its `If-None-Match`, if the client
/// still accepts it. The client is then not sent another coding instead.
pub fn coding_had(
    headers: &Headers<'_, '_>,
    etag: &EntityTag<'_>,
    accepted: &AcceptedCodings,
) -> Option<Coding> {
    headers
        .known_all(KnownHeader::IfNoneMatch)
        .flat_map(entity_tags)
        .filter_map(|tag| coding_named(&tag, etag))
        .find(|coding| *coding != Coding::Decoded && accepted.accepts(*coding))
}

/// Returns the coding of the partial copy that a client wants to complete, as identified by the tag in its
/// `If-Range`.
pub fn coding_of_part(headers: &Headers<'_, '_>, etag: &EntityTag<'_>) -> Option<Coding> {
    let tag = headers.known(KnownHeader::IfRange).and_then(EntityTag::parse)?;
    // §13.1.5: parts of representations that match only weakly must not be combined.
    if tag.weak || etag.weak { None } else { coding_named(&tag, etag) }
}

/// Evaluates RFC 9110 §13.2.2, steps 3 and 4.
fn is_unmodified(headers: &Headers<'_, '_>, validators: &Validators<'_>) -> bool {
    if headers.has(KnownHeader::IfNoneMatch) {
        // §13.1.2: `*` matches any response; tags are compared weakly.
        return headers.known_all(KnownHeader::IfNoneMatch).any(|value| {
            is_any(value)
                || validators.etag.is_some_and(|etag| entity_tags(value).any(|tag| tag.weakly_equals(&etag)))
        });
    }
    // §13.1.3: anything but a single valid date is ignored.
    if headers.is_repeated(KnownHeader::IfModifiedSince) {
        return false;
    }
    let Some(since_s) = headers.known(KnownHeader::IfModifiedSince).and_then(http_date_s) else {
        return false;
    };
    // RFC 9111 §4.3.2: without Last-Modified, Date counts, or else the time of arrival.
    validators.last_modified_s.unwrap_or(validators.date_s) <= since_s
}

fn range(headers: &Headers<'_, '_>, validators: &Validators<'_>, complete: u64) -> Verdict {
    // A second Range line would make a list of ranges in two units, which the grammar of §14.2 forbids.
    if headers.is_repeated(KnownHeader::Range) || !if_range_holds(headers, validators) {
        return Verdict::Whole;
    }
    let Some(mut ranges) = headers.known(KnownHeader::Range).and_then(byte_ranges) else {
        return Verdict::Whole;
    };
    let (Some(asked), None) = (ranges.next(), ranges.next()) else {
        return merged(headers, complete, |_| {}).map_or(Verdict::Whole, |merged| match merged {
            MergedRanges::None => Verdict::Unsatisfiable { complete },
            MergedRanges::One(bytes) => {
                Verdict::Partial { first: bytes.start, last: bytes.end - 1, complete }
            }
            MergedRanges::Several => Verdict::Several { complete },
        });
    };
    match asked.of_len(complete) {
        Some(bytes) => Verdict::Partial { first: bytes.start, last: bytes.end - 1, complete },
        // §14.1.2: a non-empty suffix of an empty body is satisfiable, and is the whole body; no
        // Content-Range can say so.
        None if complete == 0 && matches!(asked, ByteRange::Suffix { len: 1.. }) => Verdict::Whole,
        None => Verdict::Unsatisfiable { complete },
    }
}

/// Maximum number of ranges in one request.
pub const RANGES_MAX: usize = 32;

/// Longest gap that is sent together with its neighbouring ranges: about the size of a part's head.
const GAP_BYTES_MAX: u64 = 80;

/// Result of merging the ranges of a request.
enum MergedRanges {
    /// No range lies within the body.
    None,
    One(std::ops::Range<u64>),
    Several,
}

/// Calls `each` with the ranges of a request, merged with those that they overlap; `None` if the ranges are
/// to be ignored.
fn merged(
    headers: &Headers<'_, '_>,
    complete: u64,
    mut each: impl FnMut(std::ops::Range<u64>),
) -> Option<MergedRanges> {
    let ranges = headers.known(KnownHeader::Range).and_then(byte_ranges).filter(|_| complete > 0)?;
    let mut current: Option<std::ops::Range<u64>> = None;
    let mut is_several = false;
    for (number, range) in ranges.enumerate() {
        if number == RANGES_MAX {
            return None;
        }
        let Some(range) = range.of_len(complete) else { continue };
        current = Some(match current.take() {
            None => range,
            Some(before) if range.start < before.start => return None,
            Some(before) if range.start <= before.end.saturating_add(GAP_BYTES_MAX) => {
                before.start..before.end.max(range.end)
            }
            Some(before) => {
                each(before);
                is_several = true;
                range
            }
        });
    }
    Some(match current {
        None => MergedRanges::None,
        Some(last) => {
            each(last.clone());
            if is_several { MergedRanges::Several } else { MergedRanges::One(last) }
        }
    })
}

/// Returns the parts of [`Verdict::Several`]: each below `complete`, ascending, and with gaps between them.
pub fn several_ranges(headers: &Headers<'_, '_>, complete: u64) -> Vec<std::ops::Range<u64>> {
    let mut ranges = Vec::new();
    let _ = merged(headers, complete, |range| ranges.push(range));
    ranges
}

/// Returns whether the client's partial copy and the stored response are of the same representation, byte for
/// byte (RFC 9110 §13.1.5).
fn if_range_holds(headers: &Headers<'_, '_>, validators: &Validators<'_>) -> bool {
    let Some(value) = headers.known(KnownHeader::IfRange) else { return true };
    if headers.is_repeated(KnownHeader::IfRange) {
        return false;
    }
    if let Some(tag) = EntityTag::parse(value) {
        return validators.etag.is_some_and(|etag| tag.strongly_equals(&etag));
    }
    // A date must match exactly, and be strong: the representation cannot have changed twice in that second,
    // because it was sent at least a second later (§8.8.2.2).
    let (Some(asked_s), Some(last_modified_s)) = (http_date_s(value), validators.last_modified_s) else {
        return false;
    };
    asked_s == last_modified_s && validators.date_s > last_modified_s
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::test_heads::{date, with_request};

    const LM: u64 = 1_700_000_000;

    fn judge_with(headers: &str, status: u16, etag: Option<&str>, body_bytes: Option<u64>) -> Verdict {
        let validators = Validators {
            etag: etag.map(|etag| EntityTag::parse(etag.as_bytes()).unwrap()),
            last_modified_s: Some(LM),
            date_s: LM + 1000,
        };
        with_request("GET /", headers, |head| evaluate(&head.headers, true, status, &validators, body_bytes))
    }

    fn judge(headers: &str) -> Verdict {
        judge_with(headers, 200, Some("\"v1\""), Some(100))
    }

    const fn part(first: u64, last: u64) -> Verdict {
        Verdict::Partial { first, last, complete: 100 }
    }

    #[test]
    fn if_none_match_is_weak_and_comes_first() {
        use Verdict::{NotModified, Whole};
        let old = date(LM - 1);
        for (headers, want) in [
            ("If-None-Match: \"v1\"".to_owned(), NotModified),
            ("If-None-Match: W/\"v1\"".to_owned(), NotModified),
            ("If-None-Match: \"v0\", W/\"v1\"".to_owned(), NotModified),
            ("If-None-Match: \"v0\"\nIf-None-Match: \"v1\"".to_owned(), NotModified),
            ("If-None-Match: *".to_owned(), NotModified),
            ("If-None-Match: \"v0\"".to_owned(), Whole),
            ("If-None-Match: v1".to_owned(), Whole),
            ("If-None-Match: \"V1\"".to_owned(), Whole),
            (format!("If-None-Match: \"v1\"\nIf-Modified-Since: {old}"), NotModified),
            (format!("If-None-Match: \"v0\"\nIf-Modified-Since: {}", date(LM)), Whole),
            (format!("If-Modified-Since: {}", date(LM)), NotModified),
            (format!("If-Modified-Since: {}", date(LM + 1)), NotModified),
            (format!("If-Modified-Since: {old}"), Whole),
            ("If-Modified-Since: yesterday".to_owned(), Whole),
            (format!("If-Modified-Since: {d}\nIf-Modified-Since: {d}", d = date(LM)), Whole),
            ("If-None-Match: \"v1\"\nRange: bytes=0-0".to_owned(), NotModified),
            ("If-None-Match: \"v0\"\nRange: bytes=0-0".to_owned(), part(0, 0)),
        ] {
            assert_eq!(judge(&headers), want, "{headers}");
        }
        assert_eq!(judge_with("If-None-Match: \"v1\"", 200, None, Some(1)), Whole);
        assert_eq!(judge_with("If-None-Match: *", 200, None, Some(1)), NotModified);
        assert_eq!(judge_with("If-None-Match: \"v1\"", 200, Some("W/\"v1\""), Some(1)), NotModified);
        assert_eq!(judge_with("If-None-Match: \"v1\"", 404, Some("\"v1\""), Some(1)), Whole);
        assert_eq!(judge_with("If-None-Match: \"v1\"", 301, Some("\"v1\""), Some(1)), Whole);
    }

    #[test]
    fn several_ranges_are_what_they_cover() {
        const COMPLETE: u64 = 10_000;
        let judge = |ranges: &str| {
            let said = format!("Range: bytes={ranges}");
            let verdict = judge_with(&said, 200, Some("\"v1\""), Some(COMPLETE));
            with_request("GET /", &said, |head| (verdict, several_ranges(&head.headers, COMPLETE)))
        };
        let one = |first, last| Verdict::Partial { first, last, complete: COMPLETE };
        let several = Verdict::Several { complete: COMPLETE };
        assert_eq!(judge("0-9,1000-1009,-5"), (several, vec![0..10, 1000..1010, 9995..10_000]));
        // Ranges that overlap or nearly touch are merged; those beyond the end are left out.
        assert_eq!(judge("0-9,5-20").0, one(0, 20));
        assert_eq!(judge("0-9,90-99").0, one(0, 99));
        assert_eq!(judge("0-9,91-99"), (several, vec![0..10, 91..100]));
        assert_eq!(judge("0-9,20000-").0, one(0, 9));
        assert_eq!(judge("20000-,30000-").0, Verdict::Unsatisfiable { complete: COMPLETE });
        assert_eq!(judge("0-,0-,0-,0-").0, one(0, COMPLETE - 1));
        // Descending ranges, and too many, get the whole body.
        assert_eq!(judge("1000-1009,0-9").0, Verdict::Whole);
        let many =
            |count: usize| (0..count).map(|at| format!("{0}-{0}", at * 200)).collect::<Vec<_>>().join(",");
        assert_eq!(judge(&many(RANGES_MAX)).1.len(), RANGES_MAX);
        assert_eq!(judge(&many(RANGES_MAX + 1)).0, Verdict::Whole);
        assert_eq!(judge("0-9,x").0, Verdict::Whole);
    }

    #[test]
    fn several_ranges_cover_every_requested_byte() {
        proptest!(|(asked in proptest::collection::vec((0_u64..3000, 0_u64..300), 2..20))| {
            let mut asked = asked;
            asked.sort_unstable();
            let text: Vec<_> = asked.iter().map(|(first, bytes)| format!("{first}-{}", first + bytes)).collect();
            let said = format!("Range: bytes={}", text.join(","));
            let parts = with_request("GET /", &said, |head| several_ranges(&head.headers, 2000));
            prop_assert!(parts.windows(2).all(|pair| pair[0].end + GAP_BYTES_MAX < pair[1].start));
            for (first, bytes) in asked.iter().filter(|(first, _)| *first < 2000) {
                let last = (first + bytes).min(1999);
                prop_assert!(parts.iter().any(|part| part.contains(first) && part.contains(&last)));
            }
            let most: u64 = asked.iter().map(|(_, bytes)| bytes + 1 + GAP_BYTES_MAX).sum();
            prop_assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= most);
        });
    }

    #[test]
    fn tags_name_codings() {
        let etag = EntityTag::parse(b"\"x-br\"").expect("a tag");
        for (tags, accepts, want) in [
            ("\"x-br\"", "", Some(Coding::AsSent)),
            ("\"x-br\"", "identity;q=0, br", None),
            ("W/\"x-br-br\"", "br", Some(Coding::Brotli)),
            ("W/\"x-br-br\"", "gzip", None),
            ("\"y\", \"x-br-gz\", \"x-br\"", "br, gzip", Some(Coding::Gzip)),
            ("\"x-br-gz\", \"x-br-zst\"", "zstd", Some(Coding::Zstd)),
            ("\"x-br-zs\"", "*", None),
            ("\"x\"", "*", None),
            ("\"y-gz\"", "*", None),
            ("*", "*", None),
            ("\"x-br-id\"", "", None),
        ] {
            let headers = format!("If-None-Match: {tags}\nAccept-Encoding: {accepts}");
            with_request("GET /", &headers, |head| {
                let accepted = AcceptedCodings::of(&head.headers);
                assert_eq!(coding_had(&head.headers, &etag, &accepted), want, "{headers}");
            });
        }
        for (tags, want) in
            [("\"y\", W/\"x-br-id\"", true), ("\"x-br\"", false), ("\"x-id\"", false), ("*", false)]
        {
            with_request("GET /", &format!("If-None-Match: {tags}"), |head| {
                assert_eq!(has_decoded(&head.headers, &etag), want, "{tags}");
            });
        }
        for (tag, want) in [
            ("\"x-br-id\"", Some(Coding::Decoded)),
            ("\"x-br-gz\"", Some(Coding::Gzip)),
            ("\"x-br\"", Some(Coding::AsSent)),
            ("W/\"x-br\"", None),
            ("x", None),
        ] {
            with_request("GET /", &format!("If-Range: {tag}"), |head| {
                assert_eq!(coding_of_part(&head.headers, &etag), want, "{tag}");
            });
        }
    }

    #[test]
    fn without_last_modified_the_date_counts() {
        let validators = Validators { etag: None, last_modified_s: None, date_s: LM };
        for (since_s, want) in [(LM, Verdict::NotModified), (LM - 1, Verdict::Whole)] {
            let headers = format!("If-Modified-Since: {}", date(since_s));
            with_request("HEAD /", &headers, |head| {
                assert_eq!(evaluate(&head.headers, false, 200, &validators, None), want);
            });
        }
    }

    /// Examples of RFC 9110 §14.1.2 and similar ranges, for a body of 100 bytes.
    #[test]
    fn ranges() {
        use Verdict::{Unsatisfiable, Whole};
        for (range, want) in [
            ("bytes=0-9", part(0, 9)),
            ("bytes=90-", part(90, 99)),
            ("bytes=-5", part(95, 99)),
            ("bytes=-500", part(0, 99)),
            ("bytes=50-500", part(50, 99)),
            ("BYTES=1-1", part(1, 1)),
            ("bytes=, 1-1", part(1, 1)),
            ("bytes=0-99999999999999999999999", part(0, 99)),
            ("bytes=100-", Unsatisfiable { complete: 100 }),
            ("bytes=99999999999999999999999-", Unsatisfiable { complete: 100 }),
            ("bytes=-0", Unsatisfiable { complete: 100 }),
            ("bytes=0-0,-1", Verdict::Several { complete: 100 }),
            ("bytes=9-0", Whole),
            ("bytes=a-b", Whole),
            ("bytes=", Whole),
            ("bytes 0-9", Whole),
            ("pages=1-2", Whole),
        ] {
            assert_eq!(judge(&format!("Range: {range}")), want, "{range}");
        }
        assert_eq!(judge("Range: bytes=0-1\nRange: bytes=3-4"), Whole);
        assert_eq!(judge_with("Range: bytes=0-1,-1", 200, None, Some(0)), Whole);
        assert_eq!(judge_with("Range: bytes=0-1", 200, None, None), Whole);
        assert_eq!(judge_with("Range: bytes=0-1", 404, None, Some(9)), Whole);
        assert_eq!(judge_with("Range: bytes=0-1", 203, None, Some(9)), Whole);
        assert_eq!(judge_with("Range: bytes=0-", 200, None, Some(0)), Unsatisfiable { complete: 0 });
        assert_eq!(judge_with("Range: bytes=-1", 200, None, Some(0)), Whole);
        assert_eq!(judge_with("Range: bytes=-0", 200, None, Some(0)), Unsatisfiable { complete: 0 });
        // §14.2: Range is defined for GET only.
        with_request("HEAD /", "Range: bytes=0-1", |head| {
            let validators = Validators { etag: None, last_modified_s: None, date_s: LM };
            assert_eq!(evaluate(&head.headers, false, 200, &validators, Some(9)), Whole);
        });
    }

    #[test]
    fn if_range_is_strong() {
        let (exact, later) = (date(LM), date(LM + 1));
        let cases = [
            ("\"v1\"", true),
            ("\"v0\"", false),
            ("W/\"v1\"", false),
            (&exact, true),
            (&later, false),
            ("nonsense", false),
        ];
        for (value, holds) in cases {
            let want = if holds { part(0, 0) } else { Verdict::Whole };
            assert_eq!(judge(&format!("Range: bytes=0-0\nIf-Range: {value}")), want, "{value}");
        }
        let weak = judge_with("Range: bytes=0-0\nIf-Range: W/\"v1\"", 200, Some("W/\"v1\""), Some(100));
        assert_eq!(weak, Verdict::Whole);
        let twice = judge("Range: bytes=0-0\nIf-Range: \"v1\"\nIf-Range: \"v1\"");
        assert_eq!(twice, Verdict::Whole);
        // The resource changed within the second in which it was sent, so the date is weak.
        let validators = Validators { etag: None, last_modified_s: Some(LM), date_s: LM };
        with_request("GET /", &format!("Range: bytes=0-0\nIf-Range: {exact}"), |head| {
            assert_eq!(evaluate(&head.headers, true, 200, &validators, Some(9)), Verdict::Whole);
        });
    }

    proptest! {
        /// A range selects the positions that the slow twin finds one by one.
        #[test]
        fn ranges_select_what_they_name(first in 0u64..40, last in 0u64..40, form in 0..3, complete in 0u64..30) {
            let header = match form {
                0 => format!("Range: bytes={first}-{last}"),
                1 => format!("Range: bytes={first}-"),
                _ => format!("Range: bytes=-{last}"),
            };
            let named = |at: u64| match form {
                0 => first <= at && at <= last,
                1 => first <= at,
                _ => at + last >= complete,
            };
            let selected: Vec<u64> = (0..complete).filter(|&at| named(at)).collect();
            let want = if form == 0 && last < first {
                Verdict::Whole
            } else if let (Some(&first), Some(&last)) = (selected.first(), selected.last()) {
                Verdict::Partial { first, last, complete }
            } else if form == 2 && last > 0 {
                Verdict::Whole
            } else {
                Verdict::Unsatisfiable { complete }
            };
            prop_assert_eq!(judge_with(&header, 200, None, Some(complete)), want);
        }
    }
}
