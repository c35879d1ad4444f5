//! Known headers: those that framing, cache policy and the log read, recognised once while the head is
//! parsed.
//!
//! A cache hit reads about ten headers. Searching the head for each would compare every name ten times; here
//! every name is examined once: by its length and first letter, then by at most a few comparisons of fixed
//! size.

/// Number of known headers. At most 64, because a set of them is kept in a `u64`.
pub const KNOWN_HEADERS: usize = 45;
const _: () = assert!(KNOWN_HEADERS <= 64);

macro_rules! known_headers {
    ($($variant:ident $name:literal,)*) => {
        /// A header that framing, cache policy or the log reads.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum KnownHeader {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl KnownHeader {
            /// Every known header, in the order of their numbers.
            pub const ALL: [KnownHeader; KNOWN_HEADERS] = [$(KnownHeader::$variant,)*];

            /// Returns the header's name in lower case.
            pub const fn name(self) -> &'static str {
                match self { $(KnownHeader::$variant => $name,)* }
            }
        }
    };
}

known_headers! {
    Accept "accept",
    AcceptEncoding "accept-encoding",
    AcceptLanguage "accept-language",
    Age "age",
    Authorization "authorization",
    CacheControl "cache-control",
    CacheStatus "cache-status",
    CdnCacheControl "cdn-cache-control",
    Connection "connection",
    ContentEncoding "content-encoding",
    ContentLength "content-length",
    ContentRange "content-range",
    ContentType "content-type",
    Cookie "cookie",
    Date "date",
    Etag "etag",
    Expect "expect",
    Expires "expires",
    Host "host",
    IfMatch "if-match",
    IfModifiedSince "if-modified-since",
    IfNoneMatch "if-none-match",
    IfRange "if-range",
    IfUnmodifiedSince "if-unmodified-since",
    KeepAlive "keep-alive",
    LastModified "last-modified",
    Location "location",
    MaxForwards "max-forwards",
    Pragma "pragma",
    ProxyAuthenticate "proxy-authenticate",
    ProxyAuthorization "proxy-authorization",
    ProxyConnection "proxy-connection",
    Range "range",
    Referer "referer",
    SetCookie "set-cookie",
    SurrogateKey "surrogate-key",
    Te "te",
    Trailer "trailer",
    TransferEncoding "transfer-encoding",
    Upgrade "upgrade",
    UserAgent "user-agent",
    Vary "vary",
    Via "via",
    XRequestId "x-request-id",
    Xkey "xkey",
}

impl KnownHeader {
    /// Recognises a field name, in any case. `name` must be a token (RFC 9110 §5.6.2), as every name in a
    /// parsed head is: the comparison ignores case by setting bit 5, which among token bytes confuses only
    /// `^` with `~` (and `_` with DEL), and no known name has any of these.
    #[inline]
    pub fn of(name: &[u8]) -> Option<KnownHeader> {
        use KnownHeader as K;
        let &first = name.first()?;
        let found = match (name.len(), first | 0x20) {
            (2, b't') if is(name, b"te") => K::Te,
            (3, b'a') if is(name, b"age") => K::Age,
            (3, b'v') if is(name, b"via") => K::Via,
            (4, b'd') if is(name, b"date") => K::Date,
            (4, b'e') if is(name, b"etag") => K::Etag,
            (4, b'h') if is(name, b"host") => K::Host,
            (4, b'v') if is(name, b"vary") => K::Vary,
            (4, b'x') if is(name, b"xkey") => K::Xkey,
            (5, b'r') if is(name, b"range") => K::Range,
            (6, b'a') if is(name, b"accept") => K::Accept,
            (6, b'c') if is(name, b"cookie") => K::Cookie,
            (6, b'e') if is(name, b"expect") => K::Expect,
            (6, b'p') if is(name, b"pragma") => K::Pragma,
            (7, b'e') if is(name, b"expires") => K::Expires,
            (7, b'r') if is(name, b"referer") => K::Referer,
            (7, b't') if is(name, b"trailer") => K::Trailer,
            (7, b'u') if is(name, b"upgrade") => K::Upgrade,
            (8, b'i') if is(name, b"if-match") => K::IfMatch,
            (8, b'i') if is(name, b"if-range") => K::IfRange,
            (8, b'l') if is(name, b"location") => K::Location,
            (10, b'c') if is(name, b"connection") => K::Connection,
            (10, b'k') if is(name, b"keep-alive") => K::KeepAlive,
            (10, b's') if is(name, b"set-cookie") => K::SetCookie,
            (10, b'u') if is(name, b"user-agent") => K::UserAgent,
            (12, b'x') if is(name, b"x-request-id") => K::XRequestId,
            (12, b'c') if is(name, b"cache-status") => K::CacheStatus,
            (12, b'c') if is(name, b"content-type") => K::ContentType,
            (12, b'm') if is(name, b"max-forwards") => K::MaxForwards,
            (13, b'a') if is(name, b"authorization") => K::Authorization,
            (13, b'c') if is(name, b"cache-control") => K::CacheControl,
            (13, b'c') if is(name, b"content-range") => K::ContentRange,
            (13, b'i') if is(name, b"if-none-match") => K::IfNoneMatch,
            (13, b'l') if is(name, b"last-modified") => K::LastModified,
            (13, b's') if is(name, b"surrogate-key") => K::SurrogateKey,
            (14, b'c') if is(name, b"content-length") => K::ContentLength,
            (15, b'a') if is(name, b"accept-encoding") => K::AcceptEncoding,
            (15, b'a') if is(name, b"accept-language") => K::AcceptLanguage,
            (16, b'c') if is(name, b"content-encoding") => K::ContentEncoding,
            (16, b'p') if is(name, b"proxy-connection") => K::ProxyConnection,
            (17, b'c') if is(name, b"cdn-cache-control") => K::CdnCacheControl,
            (17, b'i') if is(name, b"if-modified-since") => K::IfModifiedSince,
            (17, b't') if is(name, b"transfer-encoding") => K::TransferEncoding,
            (18, b'p') if is(name, b"proxy-authenticate") => K::ProxyAuthenticate,
            (19, b'i') if is(name, b"if-unmodified-since") => K::IfUnmodifiedSince,
            (19, b'p') if is(name, b"proxy-authorization") => K::ProxyAuthorization,
            _ => return None,
        };
        Some(found)
    }
}

/// Compares a token with a lower-case name of fixed size: unrolled and vectorised, without a branch for each
/// byte.
#[inline(always)]
fn is<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    let Ok(name) = <&[u8; N]>::try_from(name) else { return false };
    let mut difference = 0;
    for i in 0..N {
        difference |= (name[i] | 0x20) ^ lower[i];
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_recognised_in_any_case() {
        for (number, known) in KnownHeader::ALL.into_iter().enumerate() {
            assert_eq!(known as usize, number);
            let lower = known.name().to_owned();
            assert_eq!(KnownHeader::of(lower.as_bytes()), Some(known));
            assert_eq!(KnownHeader::of(lower.to_uppercase().as_bytes()), Some(known));
        }
    }

    /// Replacing a byte of a known name with any other token byte yields an unknown name, unless only the
    /// case changes.
    #[test]
    fn nothing_else_is() {
        for known in KnownHeader::ALL {
            for i in 0..known.name().len() {
                for byte in (0..=255u8).filter(|&b| crate::http1::fields::is_tchar(b)) {
                    let mut name = known.name().as_bytes().to_vec();
                    name[i] = byte;
                    let same = name.eq_ignore_ascii_case(known.name().as_bytes());
                    assert_eq!(KnownHeader::of(&name) == Some(known), same, "{}", name.escape_ascii());
                }
            }
        }
    }
}
