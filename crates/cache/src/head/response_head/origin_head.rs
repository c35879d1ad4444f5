//! Conversion of an origin's head to the bytes that are stored or passed on (RFC 9110 §7.6, RFC 9111 §3.1),
//! and of stored bytes to the head of a 304 or 206.

use std::{
    io::Write as _,
    ops::Range,
    time::{Duration, UNIX_EPOCH},
};

use wire::http1::{
    fields::{append_field, is_hop_by_hop, is_hop_by_hop_as},
    head::{ResponseHead, Version},
    known::KnownHeader,
};

use crate::tags;

/// Purpose of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Stored and sent many times: without `Age`, which is computed for each answer (RFC 9111 §5.1), and
    /// without fields for one proxy only (RFC 9111 §3.1).
    Store,
    /// Passed on once: `Age` is kept.
    Forward,
}

/// Fields that are removed, besides the hop-by-hop fields.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeftOut<'a> {
    /// Fields removed for the store: names in lower case, from `private="…"` and `no-cache="…"`.
    pub omit: &'a [Box<str>],
    /// Tag fields, which are always removed.
    pub tags: &'a [Box<str>],
}

/// Outline of an appended head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadOutline {
    /// Length of the appended head in bytes.
    pub head_bytes: u32,
    /// Range of the value of `ETag` within these bytes, if there is exactly one.
    pub etag: Option<Range<u32>>,
    /// True if `Set-Cookie` is among the fields.
    pub sets_cookie: bool,
}

/// Appends the head of an origin's response as it is stored or passed on: the status line and the fields for
/// all clients, in their order and with their bytes, without the empty line at the end.
///
/// Hop-by-hop fields (RFC 9110 §7.6.1) and `Content-Length` (framing is chosen for each answer) are left out,
/// and so are the fields in `left_out`; for the store also `Age` and the fields for one proxy only. A missing
/// `Date` is added with the time of arrival (RFC 9110 §6.6.1). `Via` and `Cache-Status` of earlier proxies
/// stay; our own are added after them each time the head is sent.
pub fn append_origin_head(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_, '_>,
    purpose: For,
    LeftOut { omit, tags }: LeftOut<'_>,
    response_s: u64,
) -> HeadOutline {
    let start = out.len();
    // The received head has at most HEAD_BYTES_CAP bytes, and little is added here, so all offsets fit into
    // 32 bits.
    let offset = |out: &Vec<u8>| (out.len() - start) as u32;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(head.status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    let storing = purpose == For::Store;
    let (mut etag, mut is_dated, mut sets_cookie) = (None, false, false);
    for (known, name, value) in head.headers.raw_classified() {
        let left_out = match known {
            Some(KnownHeader::ContentLength) => true,
            Some(KnownHeader::Age) => storing,
            Some(KnownHeader::ProxyAuthenticate | KnownHeader::ProxyAuthorization) => storing,
            Some(_) => false,
            None => storing && name.eq_ignore_ascii_case(b"proxy-authentication-info"),
        };
        let omitted = storing && omit.iter().any(|omit| omit.as_bytes().eq_ignore_ascii_case(name));
        if left_out || omitted || tags::is_field(tags, name) || is_hop_by_hop_as(known, name, &head.headers) {
            continue;
        }
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        if known == Some(KnownHeader::Etag) && !head.headers.is_repeated(KnownHeader::Etag) {
            etag = Some(offset(out)..offset(out) + value.len() as u32);
        }
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
        is_dated |= known == Some(KnownHeader::Date);
        sets_cookie |= known == Some(KnownHeader::SetCookie);
    }
    // Connection or `private="date"` may have removed Date, which is required in any case.
    if !is_dated {
        append_date(out, response_s);
    }
    HeadOutline { head_bytes: offset(out), etag, sets_cookie }
}

/// Appends `Date:` with its CRLF.
fn append_date(out: &mut Vec<u8>, s: u64) {
    // The year of an HTTP date has four digits; a later clock is written as the last second of 9999.
    const YEAR_9999_END_S: u64 = 253_402_300_799;
    let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(s.min(YEAR_9999_END_S)));
    // Writing to a vector cannot fail.
    let _ = write!(out, "Date: {date}\r\n");
}

/// Appends the head of a 304 for a stored head (RFC 9110 §15.4.5): the fields that guide the client's cache,
/// without the metadata of a body that is not sent.
#[inline]
pub fn append_not_modified(out: &mut Vec<u8>, stored_head: &[u8]) {
    append_lines_but(out, b"HTTP/1.1 304 Not Modified\r\n", stored_head, is_for_body_only);
}

/// Appends a status line, and the lines of a stored head except those for which `left_out` returns true.
#[inline]
fn append_lines_but(
    out: &mut Vec<u8>,
    status_line: &[u8],
    stored_head: &[u8],
    left_out: impl Fn(&[u8]) -> bool,
) {
    out.extend_from_slice(status_line);
    let mut kept_from = None;
    let mut at = first_line_bytes(stored_head);
    // Consecutive lines that are kept are copied together.
    while at < stored_head.len() {
        let line = line_at(stored_head, at);
        if left_out(line) {
            if let Some(from) = kept_from.take() {
                out.extend_from_slice(&stored_head[from..at]);
            }
        } else if kept_from.is_none() {
            kept_from = Some(at);
        }
        at += line.len();
    }
    if let Some(from) = kept_from {
        out.extend_from_slice(&stored_head[from..]);
    }
}

/// Appends the head of a 206 for a stored head (RFC 9110 §15.3.7). `Content-Range` is added by
/// [`append_dynamic`](super::append_dynamic); a `Content-Range` that the origin sent with the whole content,
/// where it has no meaning (RFC 9110 §14.4), is removed.
#[inline]
pub fn append_partial(out: &mut Vec<u8>, stored_head: &[u8]) {
    append_lines_but(out, b"HTTP/1.1 206 Partial Content\r\n", stored_head, |line| {
        is_named(line, b"content-range:")
    });
}

/// Appends a stored head without the lines of a field; `name` is in lower case and ends with a colon.
pub(crate) fn append_but(out: &mut Vec<u8>, stored_head: &[u8], name: &[u8]) {
    let status_line = line_at(stored_head, 0);
    append_lines_but(out, status_line, stored_head, |line| is_named(line, name));
}

/// Appends a stored head as updated by a 304 (RFC 9111 §3.2): a field of the 304 replaces the stored fields
/// of that name, except fields that describe the content, because the stored content is kept. `Age` of the
/// 304 is included; the stored response's age then counts from it. `Set-Cookie` of the 304 is added only if
/// `takes_cookies`.
pub fn append_updated(
    out: &mut Vec<u8>,
    stored_head: &[u8],
    received: Version,
    answer: &ResponseHead<'_, '_>,
    takes_cookies: bool,
) {
    const NAMES: [&str; 5] = ["content-encoding", "content-length", "content-md5", "content-range", "etag"];
    let updates = |name: &str| {
        !NAMES.iter().any(|kept| kept.eq_ignore_ascii_case(name))
            && (takes_cookies || !name.eq_ignore_ascii_case("set-cookie"))
            && !is_hop_by_hop(name, &answer.headers)
    };
    let status_line = line_at(stored_head, 0);
    out.extend_from_slice(if received == Version::Http10 { b"HTTP/1.0" } else { b"HTTP/1.1" });
    out.extend_from_slice(status_line.get(8..).unwrap_or_default());
    let mut at = status_line.len();
    while at < stored_head.len() {
        let line = line_at(stored_head, at);
        let name = line.split(|&b| b == b':').next().and_then(|name| std::str::from_utf8(name).ok());
        let is_replaced = name.is_some_and(|name| updates(name) && answer.headers(name).next().is_some());
        if !is_replaced {
            out.extend_from_slice(line);
        }
        at += line.len();
    }
    for (name, value) in answer.headers.iter().filter(|(name, _)| updates(name)) {
        append_field(out, name, value);
    }
}

/// Removes the lines of a field (its name in lower case, with the colon) from a head that begins at `begin`.
/// Returns the number of removed bytes in front of `counted_to`.
pub(super) fn drop_lines(out: &mut Vec<u8>, begin: usize, name: &[u8], counted_to: usize) -> usize {
    let mut dropped = 0;
    let mut at = begin + first_line_bytes(&out[begin..]);
    while at < out.len() {
        let line = line_at(out, at);
        let (is_its, bytes) = (is_named(line, name), line.len());
        if is_its {
            if at + dropped < counted_to {
                dropped += bytes;
            }
            out.drain(at..at + bytes);
        } else {
            at += bytes;
        }
    }
    dropped
}

/// Returns the length of the status line with its CRLF.
fn first_line_bytes(head: &[u8]) -> usize {
    line_at(head, 0).len()
}

/// Returns the line that begins at `at`, with its CRLF.
fn line_at(head: &[u8], at: usize) -> &[u8] {
    let rest = &head[at..];
    &rest[..memchr::memchr(b'\n', rest).map_or(rest.len(), |lf| lf + 1)]
}

/// Returns whether a field describes a body, which a 304 does not have. `Content-Location` guides the cache,
/// and `Content-Security-Policy` and similar fields are not metadata of the body.
fn is_for_body_only(line: &[u8]) -> bool {
    const NAMES: [&[u8]; 8] = [
        b"content-type:",
        b"content-encoding:",
        b"content-language:",
        b"content-range:",
        b"content-md5:",
        b"content-disposition:",
        b"accept-ranges:",
        b"trailer:",
    ];
    // All names begin with c, a or t, so most lines are rejected by comparing one byte.
    matches!(line.first().map(u8::to_ascii_lowercase), Some(b'c' | b'a' | b't'))
        && NAMES.iter().any(|name| is_named(line, name))
}

/// Returns whether a line begins with this name and its colon.
fn is_named(line: &[u8], name: &[u8]) -> bool {
    line.split_at_checked(name.len()).is_some_and(|(begin, _)| begin.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::{date, with_response};

    const NOW: u64 = 1_800_000_000;

    fn made(headers: &str, purpose: For, omit: &[&str]) -> (String, HeadOutline) {
        let omit: Vec<Box<str>> = omit.iter().map(|&name| name.into()).collect();
        with_response("200 Fine", headers, |head| {
            let mut out = b"before".to_vec();
            let left_out = LeftOut { omit: &omit, tags: &["x-tags".into()] };
            let outline = append_origin_head(&mut out, head, purpose, left_out, NOW);
            let text = String::from_utf8(out).unwrap().split_off(6);
            assert_eq!(text.len(), outline.head_bytes as usize);
            (text, outline)
        })
    }

    fn date_line() -> String {
        format!("Date: {}\r\n", date(NOW))
    }

    #[test]
    fn what_is_for_everyone_stays_as_it_was() {
        let headers = "Content-Type: text/html\nX-Odd:  a  b \nVia: 1.0 them\nCache-Status: them; hit\nSet-Cookie: a=1\nSet-Cookie: b=2\nEmpty:";
        let (stored, _) = made(headers, For::Store, &[]);
        let want = "HTTP/1.1 200 Fine\r\nContent-Type: text/html\r\nX-Odd: a  b\r\nVia: 1.0 them\r\nCache-Status: them; hit\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nEmpty: \r\n";
        assert_eq!(stored, format!("{want}{}", date_line()));
    }

    #[test]
    fn what_is_for_one_hop_or_counted_goes() {
        let headers = "Connection: close, X-Hop\nX-Hop: 1\nKeep-Alive: timeout=5\nProxy-Connection: x\nTE: trailers\nUpgrade: h2c\n\
                       Transfer-Encoding: chunked\nAge: 7\nProxy-Authenticate: Basic\nProxy-Authentication-Info: x\n\
                       Content-Range: bytes 0-1/2\nTrailer: X-Sum\nX-Kept: 1";
        let (stored, _) = made(headers, For::Store, &[]);
        let want = "HTTP/1.1 200 Fine\r\nContent-Range: bytes 0-1/2\r\nTrailer: X-Sum\r\nX-Kept: 1\r\n";
        assert_eq!(stored, format!("{want}{}", date_line()));
        let (forwarded, _) = made(headers, For::Forward, &[]);
        let want = "HTTP/1.1 200 Fine\r\nAge: 7\r\nProxy-Authenticate: Basic\r\nProxy-Authentication-Info: x\r\nContent-Range: bytes 0-1/2\r\nTrailer: X-Sum\r\nX-Kept: 1\r\n";
        assert_eq!(forwarded, format!("{want}{}", date_line()));
        let (length, _) = made("Content-Length: 5", For::Forward, &[]);
        assert_eq!(length, format!("HTTP/1.1 200 Fine\r\n{}", date_line()));
    }

    #[test]
    fn named_fields_are_forwarded_but_not_stored() {
        let (stored, _) = made("A: 1\nSet-Cookie: s\nB: 2", For::Store, &["a", "set-cookie"]);
        assert_eq!(stored, format!("HTTP/1.1 200 Fine\r\nB: 2\r\n{}", date_line()));
        let (forwarded, _) = made("A: 1\nB: 2", For::Forward, &["a"]);
        assert_eq!(forwarded, format!("HTTP/1.1 200 Fine\r\nA: 1\r\nB: 2\r\n{}", date_line()));
    }

    #[test]
    fn tags_are_ours() {
        for purpose in [For::Store, For::Forward] {
            let (made, _) = made("A: 1\nX-Tags: a b\nX-TAGS: c\nX-Tagged: d", purpose, &[]);
            assert_eq!(made, format!("HTTP/1.1 200 Fine\r\nA: 1\r\nX-Tagged: d\r\n{}", date_line()));
        }
    }

    #[test]
    fn a_date_is_kept_or_added() {
        let (stored, _) = made("Date: Sun, 06 Nov 1994 08:49:37 GMT", For::Store, &[]);
        assert_eq!(stored, "HTTP/1.1 200 Fine\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        let (hopped, _) = made("Connection: date\nDate: Sun, 06 Nov 1994 08:49:37 GMT", For::Store, &[]);
        assert_eq!(hopped, format!("HTTP/1.1 200 Fine\r\n{}", date_line()));
        let (omitted, _) = made("Date: Sun, 06 Nov 1994 08:49:37 GMT", For::Store, &["date"]);
        assert_eq!(omitted, format!("HTTP/1.1 200 Fine\r\n{}", date_line()));
        let mut far = Vec::new();
        append_date(&mut far, u64::MAX);
        assert_eq!(far, b"Date: Fri, 31 Dec 9999 23:59:59 GMT\r\n");
    }

    #[test]
    fn the_entity_tag_is_found_again() {
        let (stored, outline) = made("A: 1\nETag: W/\"x\"\nB: 2", For::Store, &[]);
        let at = outline.etag.unwrap();
        assert_eq!(&stored[at.start as usize..at.end as usize], "W/\"x\"");
        assert_eq!(made("ETag: \"x\"\nETag: \"y\"", For::Store, &[]).1.etag, None);
        assert_eq!(made("ETag: \"x\"", For::Store, &["etag"]).1.etag, None);
    }

    #[test]
    fn heads_of_304_and_206() {
        let stored = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nETag: \"x\"\r\nContent-Encoding: gzip\r\nVary: a\r\n\
                       Cache-Control: max-age=5\r\nContent-Location: /c\r\nContent-Security-Policy: x\r\nACCEPT-RANGES: bytes\r\n\
                       Tr: 1\r\nAccept: x\r\nDate: d\r\n";
        let mut out = Vec::new();
        append_not_modified(&mut out, stored);
        let want = "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nVary: a\r\nCache-Control: max-age=5\r\nContent-Location: /c\r\n\
                    Content-Security-Policy: x\r\nTr: 1\r\nAccept: x\r\nDate: d\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
        let mut out = Vec::new();
        append_partial(&mut out, b"HTTP/1.1 200 OK\r\nContent-RANGE: x\r\nContent-Type: a/b\r\n");
        assert_eq!(out, b"HTTP/1.1 206 Partial Content\r\nContent-Type: a/b\r\n");
        for only_body in ["", "Content-Type: x\r\n", "Content-Type: x\r\nTrailer: y\r\n"] {
            let mut out = Vec::new();
            append_not_modified(&mut out, format!("HTTP/1.1 200 OK\r\n{only_body}").as_bytes());
            assert_eq!(out, b"HTTP/1.1 304 Not Modified\r\n");
        }
    }
}
