//! Header values: no panic, no endless iteration, and each result lies within the input and keeps its own
//! rules.

use super::cut::Cut;
use wire::http1::{
    fields::{
        DELTA_SECONDS_MAX, EntityTag, byte_ranges, delta_seconds, directives, entity_tags, list, trim_ows,
    },
    url::{Authority, Target},
};

pub(crate) fn check(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let (len, value) = (cut.u64(), cut.0);
    // No element is empty or padded, and all elements together are no longer than the value with its commas.
    let mut total = 0;
    for element in list(value) {
        assert!(!element.is_empty() && trim_ows(element) == element);
        total += element.len() + 1;
    }
    assert!(total <= value.len() + 1);
    assert_eq!(directives(value).count(), list(value).count());
    for directive in directives(value) {
        if let Some(seconds) = directive.seconds() {
            assert!(seconds <= DELTA_SECONDS_MAX);
            assert_eq!(Some(seconds), directive.value.and_then(delta_seconds));
        }
    }

    for tag in entity_tags(value) {
        assert!(tag.weakly_equals(&tag) && tag.strongly_equals(&tag) != tag.weak);
        let written = [if tag.weak { &b"W/\""[..] } else { b"\"" }, tag.opaque, b"\""].concat();
        assert_eq!(EntityTag::parse(&written), Some(tag));
        assert_eq!(entity_tags(&written).collect::<Vec<_>>(), [tag]);
    }

    if let Some(ranges) = byte_ranges(value) {
        assert!(ranges.clone().next().is_some());
        for range in ranges.filter_map(|range| range.of_len(len)) {
            assert!(range.start < range.end && range.end <= len);
        }
    }

    let authority = Authority::parse(value);
    assert_eq!(authority.is_some(), Authority::is_valid(value));
    if let Some(authority) = authority {
        let mut normal = Vec::new();
        authority.normalise_into(80, &mut normal);
        let mut again = Vec::new();
        if let Some(authority) = Authority::parse(&normal) {
            authority.normalise_into(80, &mut again);
        }
        assert_eq!(normal, again, "the normal form of the normal form is itself");
    }
    if let Ok(text) = std::str::from_utf8(value) {
        for method in ["GET", "CONNECT", "OPTIONS"] {
            let _ = Target::parse(method, text);
        }
    }
}
