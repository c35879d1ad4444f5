//! Conversion of heads: from HTTP/1 to an HTTP/2 request, and from an HTTP/2 answer to HTTP/1.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING},
    uri::{Authority, PathAndQuery, Scheme},
};
use wire::http1::framing::RequestKind;

/// Handle that sends a connection's requests.
pub(super) type Requests = SendRequest<Bytes>;

/// Converts a request's head, and returns whether content follows it. `None` if the types of the `http` crate
/// cannot express the head (a path with a backtick in it), so that the request must go over HTTP/1.
pub(super) fn request(head: &[u8], is_secured: bool) -> Option<(Request<()>, bool)> {
    let mut lines = head.strip_suffix(b"\r\n\r\n")?.split(|&b| b == b'\n').map(|line| line.trim_ascii_end());
    let mut words = lines.next()?.split(|&b| b == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method).ok()?;
    *request.version_mut() = Version::HTTP_2;
    let (mut authority, mut has_content) = (None, false);
    for line in lines {
        let colon = memchr::memchr(b':', line)?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let mut value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        match name {
            HOST => {
                authority = Some(Authority::try_from(value.as_bytes()).ok()?);
                continue;
            }
            // Hop-by-hop field (RFC 9113 §8.2.2). The client's own were removed earlier, so this one is ours.
            CONNECTION => continue,
            TRANSFER_ENCODING => {
                has_content = true;
                continue;
            }
            CONTENT_LENGTH => has_content |= value.as_bytes() != b"0",
            // Never indexed, because all visitors share the connection's HPACK table (RFC 7541 §7.1).
            AUTHORIZATION | COOKIE => value.set_sensitive(true),
            _ => {}
        }
        request.headers_mut().try_append(name, value).ok()?;
    }
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if is_secured { Scheme::HTTPS } else { Scheme::HTTP });
    uri.authority = Some(authority?);
    uri.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    Some((request, has_content))
}

/// Appends an answer's head in HTTP/1's form. `is_whole` means that no content follows. Content of unknown
/// length is declared as chunked, because its end is explicit, as with chunks.
pub(super) fn answer(
    status: StatusCode,
    fields: &HeaderMap,
    answered: RequestKind,
    is_whole: bool,
    out: &mut Vec<u8>,
) {
    for part in ["HTTP/1.1 ", status.as_str(), " ", status.canonical_reason().unwrap_or_default(), "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    append(fields, out);
    let has_content = answered == RequestKind::Other && !matches!(status.as_u16(), ..200 | 204 | 304);
    if has_content && !fields.contains_key(CONTENT_LENGTH) {
        let end: &[u8] = if is_whole { b"content-length: 0\r\n" } else { b"transfer-encoding: chunked\r\n" };
        out.extend_from_slice(end);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the fields as lines.
pub(super) fn append(fields: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in fields {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
}

/// Converts trailer lines to fields; lines that the `http` crate's types cannot express are left out.
pub(in crate::origin) fn trailers(lines: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines.split(|&b| b == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            // The map takes no more than 24,576 fields; trailers are far fewer.
            let _ = fields.try_append(name, value);
        }
    }
    fields
}

/// Returns whether there is a hop-by-hop field, which HTTP/2 forbids (RFC 9113 §8.2.2) and which would have a
/// meaning in HTTP/1.
pub(super) fn is_of_connection(fields: &HeaderMap) -> bool {
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"]
        .iter()
        .any(|name| fields.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http1_head_becomes_an_http2_request() {
        let head = b"POST /a?b=[c]|{} HTTP/1.1\r\nHost: a.example:81\r\nX-A: 1\r\nx-a:  2 \r\nCookie: c\r\n\
                     Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
        let (request, has_content) = request(head, true).expect("one that HTTP/2 has");
        assert!(has_content);
        assert_eq!(request.method(), "POST");
        assert_eq!(request.uri(), "https://a.example:81/a?b=[c]|{}");
        let fields: Vec<_> =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(fields, [("x-a", b"1".as_slice()), ("x-a", b"2"), ("cookie", b"c")]);
        assert!(request.headers()["cookie"].is_sensitive() && !request.headers()["x-a"].is_sensitive());
    }

    #[test]
    fn bodyless_and_http1_only_requests_are_recognised() {
        let of = |head: &str| request(format!("{head}\r\n\r\n").as_bytes(), false);
        for (head, has_content) in [
            ("GET / HTTP/1.1\r\nHost: a", false),
            ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0", false),
            ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 7", true),
            ("OPTIONS * HTTP/1.1\r\nHost: a", false),
            ("GET /%60?` HTTP/1.1\r\nHost: [::1]:80", false),
        ] {
            assert_eq!(of(head).expect(head).1, has_content, "{head}");
        }
        assert_eq!(of("OPTIONS * HTTP/1.1\r\nHost: a").expect("a star").0.uri().path(), "*");
        for head in ["GET /` HTTP/1.1\r\nHost: a", "GET / HTTP/1.1", "GET / HTTP/1.1\r\nHost: a b"] {
            assert!(of(head).is_none(), "{head}");
        }
    }

    #[test]
    fn an_http2_answer_gets_one_http1_framing() {
        let text = |status, fields: &[(&'static str, &'static str)], answered, is_whole| {
            let mut map = HeaderMap::new();
            for (name, value) in fields {
                map.append(*name, HeaderValue::from_static(value));
            }
            let mut out = Vec::new();
            let status = StatusCode::from_u16(status).expect("a status");
            answer(status, &map, answered, is_whole, &mut out);
            String::from_utf8(out).expect("text")
        };
        let chunked = "HTTP/1.1 200 OK\r\na: 1\r\na: 2\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(text(200, &[("a", "1"), ("a", "2")], RequestKind::Other, false), chunked);
        assert_eq!(
            text(404, &[], RequestKind::Other, true),
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        );
        let told = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n";
        assert_eq!(text(200, &[("content-length", "7")], RequestKind::Other, false), told);
        for (status, answered) in
            [(204, RequestKind::Other), (304, RequestKind::Other), (200, RequestKind::Head)]
        {
            assert_eq!(text(status, &[], answered, true).lines().count(), 2, "{status}");
        }
    }
}
