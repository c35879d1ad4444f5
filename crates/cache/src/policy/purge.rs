//! Purge requests, in the forms that shops and frameworks send to Varnish.
//!
//! | method | field | purges | sent by |
//! |---|---|---|---|
//! | `PURGE` | – | the address | everybody |
//! | `PURGE` | tag fields, `xkey-purge` | tags | vmod_xkey's examples, Fastly's |
//! | `PURGE`, `PURGEKEYS` | `xkey-softpurge` | tags, softly | FOSHttpCache with vmod_xkey (`tag_mode: purgekeys`) |
//! | `PURGE` | `X-Magento-Tags-Pattern` | tags, everything with tags, or everything | Magento 2 |
//! | `BAN` | tag fields | tags | Drupal's varnish_purger, FOSHttpCache |
//! | `BAN` | `X-Ban` | objects that match the expression | us |
//! | `BAN` | `X-Host`, `X-Url`, `X-Content-Type` | objects that match all of these patterns | FOSHttpCache |
//! | `BAN` | – | on all hosts, URLs that match the target as a pattern | Drupal's varnish_purge, `/.*news.*` |
//! | `PURGE` | `X-Purge-Method: regex` | on this host, URLs that match the target as a pattern | Proxy Cache Purge, WP Rocket |
//! | `PURGE` | `X-Purge-Method: ban-regex`, `X-Ban-Regex` | … that match the field's pattern | Proxy Cache Purge |
//! | `PURGE` | –, for `/.*` | on this host, URLs that match the target as a pattern | W3 Total Cache |
//! | `PURGE` | –, for `/news/*` | on this host, URLs that match the target with `*` as a wildcard | Drupal's varnish_purger |
//! | any | `Fastly-Soft-Purge: 1` | softly | Fastly's API |
//!
//! A pattern of tags is read as a list of whole tags, which it usually is. Any other pattern purges
//! everything with tags, because only hashes of tags are stored ([`What::Tagged`]).

use std::{borrow::Cow, fmt::Write as _};

use wire::{filter::QuotedValue, http1::head::RequestHead};

use crate::tags;

/// Maximum number of tags in one request.
pub const TAGS_ASKED_MAX: usize = 4096;

/// Parsed purge request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeTarget<'a> {
    /// Objects to purge.
    pub what: What<'a>,
    /// The objects are made stale and stay stored.
    pub is_soft: bool,
}

/// Objects that a purge request asks to purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What<'a> {
    /// The address of the request.
    Address,
    /// Objects with one of these tags; at least one tag, at most [`TAGS_ASKED_MAX`].
    Tags(Vec<Cow<'a, [u8]>>),
    /// All objects with tags. The pattern is not a list of tags, and cannot be matched against hashes.
    Tagged(&'a str),
    /// All objects.
    All,
    /// Objects that match this ban expression.
    Ban(Cow<'a, [u8]>),
}

/// Reason why a purge request is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotUnderstood {
    /// `BAN` or `PURGEKEYS` names no tags.
    #[error("no tags are given")]
    NoTags,
    /// The request limits a purge of tags to some hosts, addresses or types, which is not supported.
    #[error("purges of tags limited to some hosts, addresses or types are not supported")]
    Narrowed,
    /// The pattern is not valid UTF-8.
    #[error("the pattern is not valid UTF-8")]
    NotText,
    /// The request names more than [`TAGS_ASKED_MAX`] tags.
    #[error("more than 4096 tags are given")]
    TooMany,
}

/// Pattern that matches everything.
const ALL: &[u8] = b".*";
/// FOSHttpCache's fields, each with the ban field that its pattern is matched against.
const NARROWING: [(&str, &str); 3] =
    [("x-host", "req.http.host"), ("x-url", "req.url"), ("x-content-type", "obj.http.content-type")];

/// Parses a purge request. `host` is the host as used in keys; `tag_fields` are the fields that carry tags in
/// answers.
///
/// # Errors
/// [`NotUnderstood`] if the request has none of the forms in the module's table.
pub fn parse_purge<'a>(
    head: &RequestHead<'a, '_>,
    host: &[u8],
    tag_fields: &[Box<str>],
) -> Result<PurgeTarget<'a>, NotUnderstood> {
    let is_ban = head.method == "BAN";
    let (mut tags, mut is_named, mut is_hard, mut is_narrowed) = (Vec::new(), false, false, false);
    let mut unknown = None;
    let mut is_soft = head.header("fastly-soft-purge").is_some_and(|value| value == b"1");
    if let Some(expression) = head.header("x-ban").filter(|_| is_ban) {
        return Ok(PurgeTarget { what: What::Ban(Cow::Borrowed(expression)), is_soft });
    }
    for (name, value) in head.headers.iter() {
        let is_softly = name.eq_ignore_ascii_case("xkey-softpurge");
        let is_pattern = name.eq_ignore_ascii_case("x-magento-tags-pattern");
        let is_list = name.eq_ignore_ascii_case("xkey-purge") || tags::is_field(tag_fields, name.as_bytes());
        is_narrowed |=
            is_ban && value != ALL && NARROWING.iter().any(|(field, _)| field.eq_ignore_ascii_case(name));
        if is_pattern || (is_list && is_ban) {
            is_named = true;
            is_hard = true;
            match pattern(value) {
                TagPattern::Tags(mut listed) => tags.append(&mut listed),
                TagPattern::All => return Ok(PurgeTarget { what: What::All, is_soft }),
                TagPattern::Unknown => unknown = Some(text(value.trim_ascii())?),
            }
        } else if is_list || is_softly {
            is_named = true;
            is_hard |= is_list;
            is_soft |= is_softly;
            tags.extend(tags::words(value).map(Cow::Borrowed));
        }
    }
    if is_narrowed && is_named {
        return Err(NotUnderstood::Narrowed);
    }
    if let Some(pattern) = unknown {
        return Ok(PurgeTarget { what: What::Tagged(pattern), is_soft: false });
    }
    if !is_named && let Some(what) = parse_ban(head, host)? {
        return Ok(PurgeTarget { what, is_soft });
    }
    // If both a hard and a soft purge are requested, the hard one is done.
    let is_soft = is_soft && !(is_hard && head.header("xkey-softpurge").is_some());
    match tags.len() {
        0 if !is_named && head.method == "PURGE" => Ok(PurgeTarget { what: What::Address, is_soft }),
        0 => Err(NotUnderstood::NoTags),
        1..=TAGS_ASKED_MAX => Ok(PurgeTarget { what: What::Tags(tags), is_soft }),
        _ => Err(NotUnderstood::TooMany),
    }
}

/// Returns the ban that a request without tags asks for, if any.
fn parse_ban(head: &RequestHead<'_, '_>, host: &[u8]) -> Result<Option<What<'static>>, NotUnderstood> {
    let target = path(head.target);
    if head.method == "BAN" {
        let (mut tests, mut is_said) = (Vec::new(), false);
        for (name, field) in NARROWING {
            for value in head.headers(name) {
                is_said = true;
                if value != ALL {
                    tests.push((field, "~", text(value)?));
                }
            }
        }
        return Ok(match (is_said, target) {
            (true, _) if tests.is_empty() => Some(What::All),
            (true, _) => Some(ban(&tests)),
            // A request with neither fields nor a target has probably lost its fields, and does not mean all
            // objects.
            (false, "/" | "*") => None,
            (false, _) => Some(ban(&[("req.url", "~", target)])),
        });
    }
    if head.method != "PURGE" {
        return Ok(None);
    }
    let method = head.header("x-purge-method").unwrap_or_default();
    let pattern = match head.header("x-ban-regex") {
        Some(pattern) if method.eq_ignore_ascii_case(b"ban-regex") => Cow::Borrowed(text(pattern)?),
        // No page has such a path, so the target is a pattern.
        _ if method.eq_ignore_ascii_case(b"regex") || target.ends_with("/.*") => Cow::Borrowed(target),
        _ if target.contains('*') => Cow::Owned(with_wildcards(target)),
        _ => return Ok(None),
    };
    Ok(Some(ban(&[("req.http.host", "==", text(host)?), ("req.url", "~", &pattern)])))
}

fn ban(tests: &[(&str, &str, &str)]) -> What<'static> {
    let mut expression = String::new();
    for (field, operator, value) in tests {
        let and = if expression.is_empty() { "" } else { " && " };
        // Writing to a string cannot fail.
        let _ = write!(expression, "{and}{field} {operator} {}", QuotedValue(value));
    }
    What::Ban(Cow::Owned(expression.into_bytes()))
}

fn text(bytes: &[u8]) -> Result<&str, NotUnderstood> {
    std::str::from_utf8(bytes).map_err(|_| NotUnderstood::NotText)
}

/// Returns the pattern for a whole target in which each `*` matches anything.
fn with_wildcards(target: &str) -> String {
    let mut pattern = String::from("^");
    for letter in target.chars() {
        match letter {
            '*' => pattern.push_str(".*"),
            letter if letter.is_ascii_punctuation() => pattern.extend(['\\', letter]),
            letter => pattern.push(letter),
        }
    }
    // `$` also matches before a line's end, but no target has one.
    pattern.push('$');
    pattern
}

/// Returns the path and query of a target, which may be a whole URL.
fn path(target: &str) -> &str {
    match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    }
}

/// Meaning of a pattern of tags.
enum TagPattern<'a> {
    All,
    /// A list of whole tags.
    Tags(Vec<Cow<'a, [u8]>>),
    /// Not a list of tags.
    Unknown,
}

/// Parses a pattern of tags.
///
/// ```text
/// ((^|,)cat_p_7(,|$))|((^|,)cat_p(,|$))      Magento 2: CacheInvalidate's InvalidateVarnishObserver
/// (^|,)(node\-1|list)(,|$)                   FOSHttpCache: ProxyClient\Varnish, its tags by preg_quote
/// (node\-1|list)(,.+)?$                      … as it was before its version 2
/// node:1|node_list  ·  node:1 node_list      Drupal: varnish_purger, bundled and without configuration
/// .*                                         Magento 2: FlushAllCacheObserver
/// ```
fn pattern(value: &[u8]) -> TagPattern<'_> {
    if value.trim_ascii() == b".*" {
        return TagPattern::All;
    }
    listed(value.trim_ascii()).map_or(TagPattern::Unknown, TagPattern::Tags)
}

fn listed(value: &[u8]) -> Option<Vec<Cow<'_, [u8]>>> {
    const BEGIN: &[u8] = b"(^|,)";
    const END: &[u8] = b"(,|$)";
    let between = |begin: &'static [u8], end: &'static [u8]| value.strip_prefix(begin)?.strip_suffix(end);
    let inner = between(b"(^|,)(", b")(,|$)").or_else(|| between(b"(", b")(,.+)?$"));
    if let Some(inner) = inner {
        return split(inner, b"|").map(literal).collect();
    }
    if value.starts_with(b"((^|,)") {
        let inner = value.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")"));
        let each = split(inner?, b")|(");
        return each.map(|member| literal(member.strip_prefix(BEGIN)?.strip_suffix(END)?)).collect();
    }
    let each = value
        .split(|byte| matches!(byte, b' ' | b'\t' | b',' | b'|'))
        .filter(|tag| !tag.is_empty())
        .map(literal);
    each.collect()
}

/// Splits a text at each occurrence of these bytes.
fn split<'a>(text: &'a [u8], by: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match text.windows(by.len()).position(|window| window == by) {
            Some(at) => {
                rest = Some(&text[at + by.len()..]);
                Some(&text[..at])
            }
            None => rest.take(),
        }
    })
}

/// Reads one tag of a pattern as plain text. A backslash makes the next character literal, and a full stop is
/// taken literally (in a list of tags it is never a wildcard). `None` if any other character has a meaning in
/// patterns.
fn literal(tag: &[u8]) -> Option<Cow<'_, [u8]>> {
    if tag.is_empty() {
        return None;
    }
    let mut plain = Vec::new();
    let mut bytes = tag.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                // A backslash before a letter or a digit is a class or an assertion.
                Some(quoted) if !quoted.is_ascii_alphanumeric() => plain.push(*quoted),
                _ => return None,
            },
            b'^' | b'$' | b'|' | b'?' | b'*' | b'+' | b'(' | b')' | b'[' | b']' | b'{' | b'}' => {
                return None;
            }
            byte => plain.push(*byte),
        }
    }
    Some(if plain == tag { Cow::Borrowed(tag) } else { Cow::Owned(plain) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::test_heads::with_request;

    /// Parses a purge request. `None` means all objects, and an empty list the request's address.
    fn read(line: &str, headers: &str) -> Result<(Option<Vec<String>>, bool), NotUnderstood> {
        let fields: Vec<Box<str>> = tags::TAG_FIELDS.map(Into::into).to_vec();
        with_request(line, headers, |head| {
            let PurgeTarget { what, is_soft } = parse_purge(head, b"a.example", &fields)?;
            let text = |tag: Cow<'_, [u8]>| String::from_utf8_lossy(&tag).into_owned();
            Ok(match what {
                What::Address => (Some(Vec::new()), is_soft),
                What::Tags(tags) => (Some(tags.into_iter().map(text).collect()), is_soft),
                What::Tagged(pattern) => (Some(vec![format!("~ {pattern}")]), is_soft),
                What::All => (None, is_soft),
                What::Ban(expression) => (Some(vec![text(expression)]), is_soft),
            })
        })
    }

    #[test]
    fn what_others_send_is_understood() {
        for (line, headers, want, soft) in [
            ("PURGE /a", "", Some(&[][..]), false),
            ("PURGE /a", "Fastly-Soft-Purge: 1", Some(&[]), true),
            ("PURGE /a", "Fastly-Soft-Purge: 0", Some(&[]), false),
            ("PURGE /", "Surrogate-Key: a b", Some(&["a", "b"]), false),
            ("PURGE /", "Cache-Tag: a,b\nXKEY: c\nFastly-Soft-Purge: 1", Some(&["a", "b", "c"]), true),
            ("PURGE /", "xkey-purge: c52 l2", Some(&["c52", "l2"]), false),
            ("PURGEKEYS /", "xkey-softpurge: c52", Some(&["c52"]), true),
            ("PURGEKEYS /", "xkey-softpurge: a\nxkey-purge: b", Some(&["a", "b"]), false),
            ("PURGE /", "X-Magento-Tags-Pattern: .*", None, false),
            (
                "PURGE /",
                "X-Magento-Tags-Pattern: ((^|,)cat_p_1(,|$))|((^|,)cat_p(,|$))",
                Some(&["cat_p_1", "cat_p"]),
                false,
            ),
            (
                "PURGE /",
                "X-Magento-Tags-Pattern: ((^|,)cms_b_footer.links(,|$))",
                Some(&["cms_b_footer.links"]),
                false,
            ),
            ("BAN /", "X-Cache-Tags: (a\\-1|b)(,.+)?$", Some(&["a-1", "b"]), false),
            ("BAN /", "Cache-Tags: node:1|node_list", Some(&["node:1", "node_list"]), false),
            (
                "BAN /tags",
                "Cache-Tags: node:1 config:system.menu",
                Some(&["node:1", "config:system.menu"]),
                false,
            ),
            (
                "BAN /",
                "X-Host: .*\nX-Url: .*\nX-Content-Type: .*\nX-Cache-Tags: (^|,)(a\\-1|b\\.c)(,|$)",
                Some(&["a-1", "b.c"]),
                false,
            ),
        ] {
            let want = want.map(|tags| tags.iter().map(|&tag| tag.to_owned()).collect());
            assert_eq!(read(line, headers), Ok((want, soft)), "{line} {headers}");
        }
    }

    #[test]
    fn what_others_ban_becomes_an_expression() {
        let of_host = |pattern| format!(r#"req.http.host == "a.example" && req.url ~ "{pattern}""#);
        for (line, headers, want) in [
            ("BAN /", "X-Ban: obj.status == 404", "obj.status == 404".to_owned()),
            ("BAN /.*news.*", "", r#"req.url ~ "/.*news.*""#.to_owned()),
            ("BAN http://a.example/.*", "", r#"req.url ~ "/.*""#.to_owned()),
            (
                "BAN /",
                "X-Host: ^(a|b)$\nX-Url: ^/x\"\nX-Content-Type: .*",
                r#"req.http.host ~ "^(a|b)$" && req.url ~ "^/x""""#.to_owned(),
            ),
            ("BAN /", "X-Content-Type: image/", r#"obj.http.content-type ~ "image/""#.to_owned()),
            ("PURGE /blog/.*", "X-Purge-Method: regex", of_host("/blog/.*")),
            ("PURGE /.*", "", of_host("/.*")),
            ("PURGE /x", "X-Purge-Method: ban-regex\nX-Ban-Regex: ^/y", of_host("^/y")),
            ("PURGE /a.b/*?c", "", of_host(r"^\/a\.b\/.*\?c$")),
        ] {
            assert_eq!(read(line, headers), Ok((Some(vec![want]), false)), "{line} {headers}");
        }
        for (line, headers) in [
            ("PURGE /a", "X-Purge-Method: default"),
            ("PURGE /a", "X-Purge-Method: exact"),
            ("PURGE /a", "X-Ban-Regex: b"),
        ] {
            assert_eq!(read(line, headers), Ok((Some(Vec::new()), false)), "{line} {headers}");
        }
        assert_eq!(read("BAN /", "X-Host: .*\nX-Url: .*\nX-Content-Type: .*"), Ok((None, false)));
    }

    /// Quotes a tag as PHP's `preg_quote` does.
    fn quoted(tag: &str) -> String {
        let is_special = |letter: &char| ".\\+*?[^]$(){}=!<>|:-#/".contains(*letter);
        tag.chars()
            .flat_map(|letter| is_special(&letter).then_some('\\').into_iter().chain([letter]))
            .collect()
    }

    proptest! {
        /// A list of tags is read correctly in each of its notations.
        #[test]
        fn tag_lists_are_read_in_every_notation(
            tags in proptest::collection::vec("[a-zA-Z0-9_.:/#-]{1,8}", 1..6),
            odd in proptest::collection::vec("[!-~&&[^,\\\\]]{1,8}", 1..6),
        ) {
            let each: Vec<_> = tags.iter().map(|tag| format!("((^|,){tag}(,|$))")).collect();
            let escaped: Vec<_> = odd.iter().map(|tag| quoted(tag)).collect();
            for (text, want) in [
                (each.join("|"), &tags),
                (format!("(^|,)({})(,|$)", tags.join("|")), &tags),
                (tags.join("|"), &tags),
                (tags.join(" "), &tags),
            ] {
                let read = listed(text.as_bytes()).expect("a list");
                let read: Vec<_> = read.iter().map(|tag| String::from_utf8_lossy(tag)).collect();
                prop_assert_eq!(&read, want);
            }
            // One tag at a time, because a quoted `|` would be taken for a separator.
            for (tag, escaped) in odd.iter().zip(&escaped).filter(|(tag, _)| !tag.contains(['|', '(', ')'])) {
                let text = format!("(^|,)({escaped})(,|$)");
                prop_assert_eq!(listed(text.as_bytes()), Some(vec![Cow::Borrowed(tag.as_bytes())]));
            }
        }

        #[test]
        fn no_bytes_are_more_than_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(tags) = listed(&bytes) {
                prop_assert!(tags.iter().all(|tag| !tag.is_empty()));
            }
            let whole = [b"(^|,)(", &bytes[..], b")(,|$)"].concat();
            prop_assert!(listed(&whole).is_none() || !bytes.is_empty());
        }
    }

    #[test]
    fn a_general_pattern_purges_all_tagged_objects() {
        for (line, name, pattern) in [
            ("BAN /", "Cache-Tags", "node:.*"),
            ("BAN /", "X-Cache-Tags", "(^|,)(a|b"),
            ("BAN /", "X-Cache-Tags", "(^|,)(a||b)(,|$)"),
            ("BAN /", "X-Cache-Tags", "(a|b)(,.*)?$"),
            ("PURGE /", "X-Magento-Tags-Pattern", "((^|,)cat_p_[0-9]+(,|$))"),
            ("PURGE /", "X-Magento-Tags-Pattern", "((^|,)a(,|$))|b"),
            ("PURGE /", "X-Magento-Tags-Pattern", "((^|,)a(,|$)"),
            ("PURGE /", "X-Magento-Tags-Pattern", "a\\d"),
            ("PURGE /", "X-Magento-Tags-Pattern", "*"),
        ] {
            let want = Ok((Some(vec![format!("~ {pattern}")]), false));
            assert_eq!(read(line, &format!("{name}: {pattern}")), want, "{pattern}");
        }
    }

    #[test]
    fn what_is_not_understood_purges_nothing() {
        for (line, headers, why) in [
            ("BAN /", "", NotUnderstood::NoTags),
            ("PURGEKEYS /", "", NotUnderstood::NoTags),
            ("PURGE /", "xkey-purge:", NotUnderstood::NoTags),
            ("BAN /", "X-Host: a\\.example\nCache-Tags: a", NotUnderstood::Narrowed),
            ("BAN /", "X-Host: a\\.example\nCache-Tags: a.*", NotUnderstood::Narrowed),
        ] {
            assert_eq!(read(line, headers), Err(why), "{line} {headers}");
        }
        let many = "a ".repeat(TAGS_ASKED_MAX - 1);
        for (last, is_ok) in [("", true), (" b c", false)] {
            let value = format!("xkey-purge: {many}a{last}");
            assert_eq!(read("PURGE /", &value).is_ok(), is_ok);
        }
    }
}
