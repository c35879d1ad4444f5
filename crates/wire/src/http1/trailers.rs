//! Filter for trailers: which of them are forwarded to the next recipient (RFC 9110 §6.5).
//!
//! A field that changes the message's meaning must be known before its content. In a trailer it would reach
//! recipients that have already acted on the head, or that merge trailers into the headers: a
//! `Content-Length`, `Host` or `Set-Cookie` would be smuggled past a recipient that checked the head. Such
//! trailers are therefore dropped, in requests and in responses.

use super::{fields::is_hop_by_hop, head::Headers, known::KnownHeader};

/// The trailers that are forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PermittedTrailers {
    /// Whole lines, each with its CRLF; empty, and without an allocation, if there are none.
    pub lines: Vec<u8>,
    /// Number of trailers that were dropped.
    pub dropped: u64,
}

/// Selects the trailers to forward from a message's trailers (whole lines, as
/// [`BodyDecoder::trailers`](super::framing::BodyDecoder::trailers) returns them): those that are neither
/// [`is_forbidden`] nor hop-by-hop according to the message's `headers` (RFC 9110 §7.6.1).
pub fn permitted(trailers: &[u8], headers: &Headers<'_, '_>) -> PermittedTrailers {
    let mut permitted = PermittedTrailers::default();
    for line in trailers.split_inclusive(|&b| b == b'\n') {
        let name = line.split(|&b| b == b':').next().and_then(|name| std::str::from_utf8(name).ok());
        if name.is_some_and(|name| !is_forbidden(name) && !is_hop_by_hop(name, headers)) {
            permitted.lines.extend_from_slice(line);
        } else {
            permitted.dropped += 1;
        }
    }
    permitted
}

/// Returns whether a field is forbidden in trailers (RFC 9110 §6.5.1): a recipient that acts on it must know
/// it before the content. These are the fields of framing and routing, of authentication and cookies, those
/// that modify a request or control a response (RFC 7231 §5 and §7.1 list them), and those that describe the
/// content. Such a field is dropped, never merged into the headers.
///
/// The list names the forbidden fields, not the allowed ones: trailers are made for checksums, timings and
/// statuses (`Content-Digest`, `Server-Timing`, `grpc-status`), and any application may define its own.
pub fn is_forbidden(name: &str) -> bool {
    use KnownHeader as K;
    match KnownHeader::of(name.as_bytes()) {
        Some(K::CacheStatus | K::Date | K::Etag | K::LastModified) => false,
        Some(_) => true,
        None => {
            FORBIDDEN.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(name))
                || FORBIDDEN_BEGINNINGS.iter().any(|beginning| {
                    name.as_bytes()
                        .get(..beginning.len())
                        .is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
                })
        }
    }
}

/// Forbidden trailer fields that are not in [`KnownHeader`].
const FORBIDDEN: [&str; 34] = [
    // Routing and client identity.
    "alt-svc",
    "cf-connecting-ip",
    "client-ip",
    "forwarded",
    "from",
    "http2-settings",
    "origin",
    "referer",
    "true-client-ip",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
    // Authentication.
    "cookie2",
    "set-cookie2",
    "www-authenticate",
    // Request modifiers.
    "accept-charset",
    "early-data",
    "prefer",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    // Control of the response, or of the client that reads it.
    "clear-site-data",
    "link",
    "refresh",
    "retry-after",
    "strict-transport-security",
    "surrogate-control",
    "warning",
    // Description of the content.
    "content-disposition",
    "content-language",
    "content-location",
    "content-security-policy",
    "content-security-policy-report-only",
    "content-transfer-encoding",
];

/// Prefixes of forbidden trailer fields.
const FORBIDDEN_BEGINNINGS: [&str; 6] =
    ["access-control-", "cross-origin-", "proxy-", "sec-", "x-accel-", "x-forwarded-"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::head::{HeadLimits, HeaderSlots, Progress, parse_request};

    /// RFC 9110 §6.5.1: fields of framing, routing and authentication are dropped from trailers.
    #[test]
    fn trailers_cannot_change_framing_routing_or_authentication() {
        for name in [
            "Content-Length",
            "transfer-encoding",
            "HOST",
            "Authorization",
            "Set-Cookie",
            "Content-Encoding",
            "Retry-After",
            "Via",
            "Accept",
            "X-Forwarded-For",
            "Proxy-Authentication-Info",
            "Access-Control-Allow-Origin",
        ] {
            assert!(is_forbidden(name), "{name}");
        }
        let allowed = [
            "ETag",
            "Server-Timing",
            "grpc-status",
            "Date",
            "x",
            "Content-Digest",
            "Authentication-Info",
            "X-Forward",
        ];
        for name in allowed {
            assert!(!is_forbidden(name), "{name}");
        }
    }

    #[test]
    fn what_goes_on_goes_as_it_came() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x-hop\r\n\r\n";
        let mut slots = HeaderSlots::new();
        let Ok(Progress::Complete((head, _))) = parse_request(head, &mut slots, &HeadLimits::default())
        else {
            panic!("a valid head");
        };
        let trailers = b"X-Sum:  1 \r\nset-cookie: a\r\nX-HOP: 1\r\nHost:b\r\nx-sum: 2:3\r\nTE:\r\n";
        let want = PermittedTrailers { lines: b"X-Sum:  1 \r\nx-sum: 2:3\r\n".to_vec(), dropped: 4 };
        assert_eq!(permitted(trailers, &head.headers), want);
        assert_eq!(permitted(b"", &head.headers), PermittedTrailers::default());
    }
}
