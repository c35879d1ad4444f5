//! Rules on whether a response's content may be encoded for clients that accept it (RFC 9110 §8.4), or
//! decoded for clients that do not accept the origin's coding. Both create another representation of it.
//!
//! Content stays as it is if the response says `no-transform` (RFC 9110 §7.7), or has a field about its exact
//! bytes (RFC 9530, RFC 9421, Content-MD5), which would be false for other bytes.

use wire::http1::{
    fields::{EntityTag, directives},
    head::{Headers, ResponseHead},
    known::KnownHeader,
};

use crate::coding::{Coding, Compress};

/// Fields about the exact bytes, or about fields that would be changed.
const OF_THE_BYTES: [&str; 6] =
    ["content-md5", "content-digest", "repr-digest", "digest", "signature", "signature-input"];

/// Reason why content is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftAlone {
    /// Compression is turned off.
    Off,
    /// The status is not 200.
    Status,
    /// The origin has already encoded the content.
    Coded,
    /// Content of this media type does not compress well.
    Type,
    /// The content is too short, or too long.
    Length,
    /// The response says `no-transform`.
    NoTransform,
    /// The response carries a digest or a signature of its bytes.
    Bound,
    /// The entity tag is invalid, or there are two, so that no tag for another coding can be derived.
    Tag,
    /// Trailers follow the content.
    Trailers,
}

impl LeftAlone {
    /// Stable name of the reason.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Status => "status",
            Self::Coded => "coded-by-origin",
            Self::Type => "type",
            Self::Length => "length",
            Self::NoTransform => "no-transform",
            Self::Bound => "digest",
            Self::Tag => "etag",
            Self::Trailers => "trailers",
        }
    }

    /// The reason in plain words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Off => "compression is off",
            Self::Status => "only answers with status 200 are compressed",
            Self::Coded => "the origin sent it compressed",
            Self::Type => "its media type would hardly shrink",
            Self::Length => "its length is outside of the limits",
            Self::NoTransform => "the answer says no-transform",
            Self::Bound => "the answer carries a digest or a signature of its bytes",
            Self::Tag => "its entity tag is invalid, so none can be made for another coding",
            Self::Trailers => "trailers follow the body",
        }
    }

    /// Section of the RFC, or name of the setting, that states the rule.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Off => "knob compress",
            Self::Type => "knob compress-types",
            Self::Length => "knob compress-bytes-min, compress-bytes-max",
            Self::NoTransform => "RFC 9110 §7.7",
            Self::Bound => "RFC 9530 §2",
            Self::Tag => "RFC 9110 §8.8.3.3",
            Self::Status | Self::Coded | Self::Trailers => "RFC 9110 §8.4",
        }
    }
}

/// Checks whether a response's content may be encoded. `body_bytes` is `None` while the length is unknown; a
/// caller that has the whole content checks it with [`Compress::takes`].
///
/// # Errors
/// The reason why the content is left as it is.
pub fn codable(
    head: &ResponseHead<'_, '_>,
    body_bytes: Option<u64>,
    rules: &Compress,
) -> Result<(), LeftAlone> {
    let headers = &head.headers;
    let why = if rules.codings.is_empty() {
        LeftAlone::Off
    } else if head.status != 200 {
        LeftAlone::Status
    } else if headers.has(KnownHeader::ContentEncoding) {
        LeftAlone::Coded
    } else if !once(headers, KnownHeader::ContentType).is_some_and(|said| rules.takes_type(said)) {
        LeftAlone::Type
    } else if body_bytes.is_some_and(|bytes| !rules.takes(bytes)) {
        LeftAlone::Length
    } else {
        return transformable(headers);
    };
    Err(why)
}

/// Media types of compressed files. Some origins also send the matching `Content-Encoding` with them. A
/// client that saves such a file wants it compressed, whatever codings it accepts.
const FILES_IN_A_CODING: [&[u8]; 3] = [b"application/gzip", b"application/x-gzip", b"application/zstd"];

/// Checks whether a response's content may be decoded for clients that do not accept the origin's coding, and
/// returns that coding. `body_bytes` is the length as sent, `None` while it is unknown.
///
/// # Errors
/// The reason why the content is left as it is: [`LeftAlone::Coded`] if the origin sent it in no coding, in
/// several, or in an unknown one.
pub fn decodable(
    head: &ResponseHead<'_, '_>,
    body_bytes: Option<u64>,
    rules: &Compress,
) -> Result<Coding, LeftAlone> {
    let headers = &head.headers;
    if head.status != 200 {
        return Err(LeftAlone::Status);
    }
    let sent = once(headers, KnownHeader::ContentEncoding).and_then(|said| Coding::named(said.trim_ascii()));
    let sent = sent.filter(|sent| Coding::MADE.contains(sent)).ok_or(LeftAlone::Coded)?;
    let essence = once(headers, KnownHeader::ContentType)
        .and_then(|said| said.split(|&b| b == b';').next())
        .unwrap_or_default()
        .trim_ascii();
    if FILES_IN_A_CODING.iter().any(|known| known.eq_ignore_ascii_case(essence)) {
        return Err(LeftAlone::Type);
    }
    if body_bytes.is_some_and(|bytes| bytes > rules.bytes_max) {
        return Err(LeftAlone::Length);
    }
    transformable(headers).map(|()| sent)
}

/// Returns the value of a field that occurs exactly once.
fn once<'h>(headers: &Headers<'h, '_>, known: KnownHeader) -> Option<&'h [u8]> {
    headers.known(known).filter(|_| !headers.is_repeated(known))
}

/// Checks that the response has no field that would be wrong for its content in another coding.
fn transformable(headers: &Headers<'_, '_>) -> Result<(), LeftAlone> {
    let is_tagged_badly = || {
        headers.has(KnownHeader::Etag)
            && once(headers, KnownHeader::Etag).and_then(EntityTag::parse).is_none()
    };
    let says_no_transform = || {
        let said = [KnownHeader::CacheControl, KnownHeader::CdnCacheControl].into_iter();
        said.flat_map(|known| headers.known_all(known))
            .flat_map(directives)
            .any(|directive| directive.is("no-transform"))
    };
    if says_no_transform() {
        Err(LeftAlone::NoTransform)
    } else if OF_THE_BYTES.iter().any(|name| headers.headers(name).next().is_some()) {
        Err(LeftAlone::Bound)
    } else if is_tagged_badly() {
        Err(LeftAlone::Tag)
    } else if headers.has(KnownHeader::Trailer) {
        Err(LeftAlone::Trailers)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::with_response;

    const TEXT: &str = "Content-Type: text/html\n";

    fn judged(status: &str, headers: &str, body_bytes: Option<u64>) -> Result<(), LeftAlone> {
        with_response(status, headers, |head| codable(head, body_bytes, &Compress::default()))
    }

    #[test]
    fn text_is_coded_unless_something_speaks_against_it() {
        let of = |more: &str| judged("200 OK", &format!("{TEXT}{more}"), Some(5000));
        for fine in ["", "ETag: \"x\"", "ETag: W/\"x\"", "Cache-Control: max-age=5", "Vary: Accept-Encoding"]
        {
            assert_eq!(of(fine), Ok(()), "{fine}");
        }
        for (more, why) in [
            ("Content-Encoding: gzip", LeftAlone::Coded),
            ("Content-Encoding: identity", LeftAlone::Coded),
            ("Cache-Control: max-age=5, No-Transform", LeftAlone::NoTransform),
            ("Cache-Control: a\nCache-Control: no-transform", LeftAlone::NoTransform),
            ("CDN-Cache-Control: no-transform", LeftAlone::NoTransform),
            ("Content-MD5: x", LeftAlone::Bound),
            ("Content-Digest: x", LeftAlone::Bound),
            ("Repr-Digest: x", LeftAlone::Bound),
            ("Digest: x", LeftAlone::Bound),
            ("Signature: x", LeftAlone::Bound),
            ("ETag: x", LeftAlone::Tag),
            ("ETag: \"x\"\nETag: \"y\"", LeftAlone::Tag),
            ("Trailer: x", LeftAlone::Trailers),
            ("Content-Type: text/html", LeftAlone::Type),
        ] {
            assert_eq!(of(more), Err(why), "{more}");
        }
        assert_eq!(judged("200 OK", "", Some(5000)), Err(LeftAlone::Type));
        for (status, why) in [("404 x", LeftAlone::Status), ("203 x", LeftAlone::Status)] {
            assert_eq!(judged(status, TEXT, Some(5000)), Err(why));
        }
        let Compress { bytes_min, bytes_max, .. } = Compress::default();
        for (bytes, want) in [
            (None, Ok(())),
            (Some(bytes_min), Ok(())),
            (Some(bytes_max), Ok(())),
            (Some(bytes_min - 1), Err(LeftAlone::Length)),
            (Some(bytes_max + 1), Err(LeftAlone::Length)),
        ] {
            assert_eq!(judged("200 OK", TEXT, bytes), want, "{bytes:?}");
        }
        let off = Compress { codings: Vec::new(), ..Compress::default() };
        assert_eq!(with_response("200 OK", TEXT, |head| codable(head, None, &off)), Err(LeftAlone::Off));
    }

    #[test]
    fn a_single_coding_is_decoded_unless_forbidden() {
        let rules = Compress { codings: Vec::new(), ..Compress::default() };
        let of = |headers: &str, body_bytes| {
            with_response("200 OK", headers, |head| decodable(head, body_bytes, &rules))
        };
        for (said, sent) in
            [("gzip", Coding::Gzip), ("X-GZIP", Coding::Gzip), ("br", Coding::Brotli), ("zstd", Coding::Zstd)]
        {
            for more in ["", "Content-Type: image/png", "ETag: W/\"x\"", "Cache-Control: max-age=5"] {
                let headers = format!("Content-Encoding: {said}\n{more}");
                assert_eq!(of(headers.trim(), Some(5)), Ok(sent), "{headers}");
            }
        }
        for (headers, why) in [
            ("X: y", LeftAlone::Coded),
            ("Content-Encoding: identity", LeftAlone::Coded),
            ("Content-Encoding: deflate", LeftAlone::Coded),
            ("Content-Encoding: gzip, br", LeftAlone::Coded),
            ("Content-Encoding: gzip\nContent-Encoding: gzip", LeftAlone::Coded),
            ("Content-Encoding: gzip\nContent-Type: application/x-gzip", LeftAlone::Type),
            ("Content-Encoding: gzip\nCache-Control: no-transform", LeftAlone::NoTransform),
            ("Content-Encoding: gzip\nCDN-Cache-Control: no-transform", LeftAlone::NoTransform),
            ("Content-Encoding: gzip\nRepr-Digest: x", LeftAlone::Bound),
            ("Content-Encoding: gzip\nETag: x", LeftAlone::Tag),
            ("Content-Encoding: gzip\nTrailer: x", LeftAlone::Trailers),
        ] {
            assert_eq!(of(headers, Some(5)), Err(why), "{headers}");
        }
        let gzip = "Content-Encoding: gzip";
        assert_eq!(of(gzip, None), Ok(Coding::Gzip));
        assert_eq!(of(gzip, Some(rules.bytes_max)), Ok(Coding::Gzip));
        assert_eq!(of(gzip, Some(rules.bytes_max + 1)), Err(LeftAlone::Length));
        let missing = with_response("404 x", gzip, |head| decodable(head, None, &rules));
        assert_eq!(missing, Err(LeftAlone::Status));
    }
}
