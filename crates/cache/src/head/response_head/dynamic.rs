//! Lines that differ each time a response is sent: `Age`, `Via`, `Cache-Status`, connection and framing.
//!
//! The lines are copied, and their numbers are written by `itoa`. Nothing here allocates as long as the
//! buffer has room for [`Identity::dynamic_bytes_max`] bytes.

use wire::http1::head::Version;

use super::coded::VARY;

/// Name for `Via` and `Cache-Status`, ready to be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `Via: 1.1 NAME` CRLF `Cache-Status: NAME`, and the same with 1.0 for responses received by HTTP/1.0.
    signatures: [Box<[u8]>; 2],
}

/// The name is not allowed in `Via` and `Cache-Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name must be 1 to {NAME_BYTES_MAX} letters, digits, or any of !#$%&'*+-.^_`|~, and begin with a letter"
)]
pub struct InvalidName;

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 64;

impl Identity {
    /// Creates an identity for `name`, which must be a pseudonym in `Via` (a token, RFC 9110 §7.6.3) and a
    /// token of structured fields in `Cache-Status` (RFC 9211 §2, RFC 9651 §3.3.4); so it begins with a
    /// letter.
    ///
    /// # Errors
    /// [`InvalidName`] if the name is not a token of both kinds, or is longer than 64 bytes.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let begins_with_letter = name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
        let is_token = wire::http1::fields::is_token(name.as_bytes());
        if !begins_with_letter || !is_token || name.len() > NAME_BYTES_MAX {
            return Err(InvalidName);
        }
        let signature = |via| [via, name, "\r\nCache-Status: ", name].concat().into_bytes().into();
        Ok(Self { signatures: ["Via: 1.1 ", "Via: 1.0 "].map(signature) })
    }

    /// Returns the lines for a response received with this HTTP version: `Via` states the origin's version,
    /// not ours.
    #[inline]
    fn signature(&self, received: Version) -> &[u8] {
        &self.signatures[usize::from(received == Version::Http10)]
    }

    /// Returns the maximum number of bytes that [`append_dynamic`] appends, without the text of `detail`.
    pub const fn dynamic_bytes_max(&self) -> usize {
        self.signatures[0].len() + 384
    }
}

/// Reason for forwarding a request (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fwd {
    /// The cache was configured not to handle the request.
    Bypass,
    /// The method requires forwarding.
    Method,
    /// Nothing is stored for the address.
    UriMiss,
    /// A response is stored for the address, but not for these request fields.
    VaryMiss,
    /// Nothing suitable is stored; `uri-miss` and `vary-miss` are not distinguished.
    Miss,
    /// The request's directives do not allow the stored response.
    Request,
    /// The stored response is stale.
    Stale,
    /// The stored response is partial, and lacks the requested range.
    Partial,
}

impl Fwd {
    /// All reasons.
    pub const ALL: [Fwd; 8] = [
        Fwd::Bypass,
        Fwd::Method,
        Fwd::UriMiss,
        Fwd::VaryMiss,
        Fwd::Miss,
        Fwd::Request,
        Fwd::Stale,
        Fwd::Partial,
    ];

    /// Returns the token of RFC 9211 §2.2.
    pub const fn token(self) -> &'static str {
        match self {
            Fwd::Bypass => "bypass",
            Fwd::Method => "method",
            Fwd::UriMiss => "uri-miss",
            Fwd::VaryMiss => "vary-miss",
            Fwd::Miss => "miss",
            Fwd::Request => "request",
            Fwd::Stale => "stale",
            Fwd::Partial => "partial",
        }
    }
}

/// Source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The store, without the origin (RFC 9211 §2.1).
    Hit,
    /// The origin (RFC 9211 §2.2).
    Fwd(Fwd),
}

/// Contents of `Cache-Status` (RFC 9211 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStatus {
    /// `hit` or `fwd`.
    pub outcome: Outcome,
    /// `fwd-status`: the status that the origin sent, if it differs from ours (RFC 9211 §2.3).
    pub fwd_status: Option<u16>,
    /// `ttl`: the remaining freshness, negative once it is over (RFC 9211 §2.4).
    pub ttl_s: Option<i64>,
    /// `stored`: true if the response was stored (RFC 9211 §2.5).
    pub stored: bool,
    /// `collapsed`: true if the request waited for another request's fetch (RFC 9211 §2.6).
    pub collapsed: bool,
    /// `detail`: a token, such as [`Why::name`](crate::policy::Why::name) (RFC 9211 §2.8).
    pub detail: Option<&'static str>,
}

impl CacheStatus {
    /// Creates the status of a hit with this remaining freshness.
    pub const fn hit(ttl_s: i64) -> Self {
        Self { ttl_s: Some(ttl_s), ..Self::of(Outcome::Hit) }
    }

    /// Creates the status of a forwarded request, without further parameters.
    pub const fn fwd(fwd: Fwd) -> Self {
        Self::of(Outcome::Fwd(fwd))
    }

    const fn of(outcome: Outcome) -> Self {
        Self { outcome, fwd_status: None, ttl_s: None, stored: false, collapsed: false, detail: None }
    }
}

/// Persistence of the connection after the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// The connection stays open, as HTTP/1.1 implies: no line is added.
    Implied,
    /// The connection stays open, and the client is HTTP/1.0: `Connection: keep-alive` (RFC 9112 §9.3,
    /// appendix C.2.2).
    KeepAlive,
    /// The connection closes: `Connection: close`.
    Close,
}

/// Framing of the body and, for partial content, its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyDelimiter {
    /// No line: there is no body and no length to state (204, 304), or the body ends with the connection.
    Unstated,
    /// `Content-Length`: of the body, or for HEAD of the body that GET would get.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// `Content-Range` and `Content-Length` of a 206.
    Part {
        /// The first byte.
        first: u64,
        /// The last byte; not below `first`.
        last: u64,
        /// Length of the whole content.
        complete: u64,
    },
    /// `Content-Range: bytes */COMPLETE` of a 416, and the length of the page that explains it.
    Unsatisfiable {
        /// Length of the whole content.
        complete: u64,
        /// Length of the page.
        page_bytes: u64,
    },
}

/// Values of the lines that differ each time a response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dynamic {
    /// `Age` (RFC 9111 §5.1) of a response from the store; `None` for a response straight from the origin.
    pub age_s: Option<u64>,
    /// Value of `Cache-Status`; `None` for our own page, which has neither this field nor `Via`.
    pub cache_status: Option<CacheStatus>,
    /// HTTP version of the origin, for `Via`.
    pub received: Version,
    /// Persistence of the connection.
    pub persistence: Persistence,
    /// Framing of the body.
    pub framing: BodyDelimiter,
    /// True if other clients get another coding of the response ([`VARY`]).
    pub varies: bool,
}

/// Appends the lines and the empty line that ends the head.
#[inline]
pub fn append_dynamic(out: &mut Vec<u8>, identity: &Identity, dynamic: &Dynamic) {
    let mut number = itoa::Buffer::new();
    match dynamic.framing {
        BodyDelimiter::Unstated => {}
        BodyDelimiter::Length(bytes) => append_length(out, bytes),
        BodyDelimiter::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        BodyDelimiter::Part { first, last, complete } => {
            out.extend_from_slice(b"Content-Range: bytes ");
            out.extend_from_slice(number.format(first).as_bytes());
            out.push(b'-');
            out.extend_from_slice(number.format(last).as_bytes());
            out.push(b'/');
            out.extend_from_slice(number.format(complete).as_bytes());
            out.extend_from_slice(b"\r\n");
            append_length(out, last - first + 1);
        }
        BodyDelimiter::Unsatisfiable { complete, page_bytes } => {
            out.extend_from_slice(b"Content-Range: bytes */");
            out.extend_from_slice(number.format(complete).as_bytes());
            out.extend_from_slice(b"\r\n");
            append_length(out, page_bytes);
        }
    }
    if let Some(age_s) = dynamic.age_s {
        out.extend_from_slice(b"Age: ");
        // RFC 9111 §1.2.2: an age beyond 2^31 s is written as 2^31.
        out.extend_from_slice(number.format(age_s.min(1 << 31)).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if dynamic.varies {
        out.extend_from_slice(VARY);
    }
    if let Some(status) = &dynamic.cache_status {
        out.extend_from_slice(identity.signature(dynamic.received));
        append_cache_status(out, status);
    }
    out.extend_from_slice(match dynamic.persistence {
        Persistence::Implied => b"\r\n".as_slice(),
        Persistence::KeepAlive => b"Connection: keep-alive\r\n\r\n",
        Persistence::Close => b"Connection: close\r\n\r\n",
    });
}

#[inline]
fn append_length(out: &mut Vec<u8>, bytes: u64) {
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the parameters and the CRLF, after the name.
#[inline]
fn append_cache_status(out: &mut Vec<u8>, status: &CacheStatus) {
    let mut number = itoa::Buffer::new();
    match status.outcome {
        Outcome::Hit => out.extend_from_slice(b"; hit"),
        Outcome::Fwd(fwd) => {
            out.extend_from_slice(b"; fwd=");
            out.extend_from_slice(fwd.token().as_bytes());
        }
    }
    if let Some(fwd_status) = status.fwd_status {
        out.extend_from_slice(b"; fwd-status=");
        out.extend_from_slice(number.format(fwd_status).as_bytes());
    }
    if let Some(ttl_s) = status.ttl_s {
        out.extend_from_slice(b"; ttl=");
        // A structured integer has at most 15 digits (RFC 9651 §3.3.1).
        let ttl_s = ttl_s.clamp(-999_999_999_999_999, 999_999_999_999_999);
        out.extend_from_slice(number.format(ttl_s).as_bytes());
    }
    if status.stored {
        out.extend_from_slice(b"; stored");
    }
    if status.collapsed {
        out.extend_from_slice(b"; collapsed");
    }
    if let Some(detail) = status.detail {
        out.extend_from_slice(b"; detail=");
        out.extend_from_slice(detail.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{BareItem, List, ListEntry, Parser};

    use super::*;
    use crate::policy::{NotReused, PassReason, Why};

    fn lines(dynamic: &Dynamic) -> String {
        let identity = Identity::new("nighttrain").unwrap();
        let mut out = Vec::with_capacity(identity.dynamic_bytes_max());
        let before = (out.as_ptr(), out.capacity());
        append_dynamic(&mut out, &identity, dynamic);
        assert_eq!((out.as_ptr(), out.capacity()), before, "the buffer had room, and was kept");
        String::from_utf8(out).unwrap()
    }

    const PLAIN: Dynamic = Dynamic {
        age_s: Some(3),
        cache_status: Some(CacheStatus::hit(57)),
        received: Version::Http11,
        persistence: Persistence::Implied,
        framing: BodyDelimiter::Length(1024),
        varies: false,
    };

    #[test]
    fn a_hit() {
        let want = "Content-Length: 1024\r\nAge: 3\r\nVia: 1.1 nighttrain\r\nCache-Status: nighttrain; hit; ttl=57\r\n\r\n";
        assert_eq!(lines(&PLAIN), want);
    }

    #[test]
    fn a_miss_with_everything() {
        let status = CacheStatus {
            fwd_status: Some(304),
            ttl_s: Some(-4),
            stored: true,
            collapsed: true,
            detail: Some("no-cache"),
            ..CacheStatus::fwd(Fwd::Stale)
        };
        let got = lines(&Dynamic {
            age_s: None,
            cache_status: Some(status),
            received: Version::Http10,
            persistence: Persistence::Close,
            framing: BodyDelimiter::Chunked,
            varies: true,
        });
        let want = "Transfer-Encoding: chunked\r\nVary: Accept-Encoding\r\nVia: 1.0 nighttrain\r\nCache-Status: nighttrain; fwd=stale; \
                    fwd-status=304; ttl=-4; stored; collapsed; detail=no-cache\r\nConnection: close\r\n\r\n";
        assert_eq!(got, want);
    }

    #[test]
    fn parts_and_pages() {
        let part = BodyDelimiter::Part { first: 10, last: 19, complete: 100 };
        let got = lines(&Dynamic { framing: part, persistence: Persistence::KeepAlive, ..PLAIN });
        assert!(
            got.starts_with("Content-Range: bytes 10-19/100\r\nContent-Length: 10\r\nAge: 3\r\n"),
            "{got}"
        );
        assert!(got.ends_with("\r\nConnection: keep-alive\r\n\r\n"), "{got}");
        let page = Dynamic {
            age_s: None,
            cache_status: None,
            received: Version::Http11,
            persistence: Persistence::Implied,
            framing: BodyDelimiter::Unsatisfiable { complete: 5, page_bytes: 77 },
            varies: false,
        };
        assert_eq!(lines(&page), "Content-Range: bytes */5\r\nContent-Length: 77\r\n\r\n");
        let bare = Dynamic { framing: BodyDelimiter::Unstated, ..page };
        assert_eq!(lines(&bare), "\r\n");
    }

    #[test]
    fn names_that_can_sign() {
        for good in ["nighttrain", "a", "Edge-1.example", &"x".repeat(64)] {
            assert!(Identity::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "-a", "a b", "a:80", "a/b", "\u{e9}", "a\r\nX: y", &"x".repeat(65)] {
            assert_eq!(Identity::new(bad), Err(InvalidName), "{bad}");
        }
    }

    fn cache_status() -> impl Strategy<Value = CacheStatus> {
        let details: Vec<&'static str> = Why::ALL
            .iter()
            .map(|why| why.name())
            .chain(PassReason::ALL.map(PassReason::name))
            .chain(NotReused::ALL.map(NotReused::name))
            .collect();
        let outcome =
            prop_oneof![Just(Outcome::Hit), prop::sample::select(&Fwd::ALL[..]).prop_map(Outcome::Fwd)];
        let numbers = (proptest::option::of(100u16..1000), proptest::option::of(any::<i64>()));
        (outcome, numbers, any::<[bool; 2]>(), proptest::option::of(prop::sample::select(details))).prop_map(
            |(outcome, (fwd_status, ttl_s), [stored, collapsed], detail)| CacheStatus {
                outcome,
                fwd_status,
                ttl_s,
                stored,
                collapsed,
                detail,
            },
        )
    }

    proptest! {
        /// A parser of structured fields (RFC 9651) reads the values back from `Cache-Status`; each of our
        /// names is a valid detail; and the length stays within the stated bound.
        #[test]
        fn cache_status_is_a_structured_list(status in cache_status(), age_s in any::<u64>(), bytes in any::<u64>()) {
            let framing = BodyDelimiter::Part { first: 0, last: bytes.saturating_sub(1), complete: bytes };
            let got = lines(&Dynamic {
                age_s: Some(age_s),
                cache_status: Some(status),
                received: Version::Http11,
                framing,
                persistence: Persistence::KeepAlive,
                varies: true,
            });
            let line = got.lines().find_map(|line| line.strip_prefix("Cache-Status: ")).unwrap();
            let list: List = Parser::new(line).parse().unwrap();
            let [ListEntry::Item(item)] = &list[..] else { panic!("{line}") };
            prop_assert_eq!(item.bare_item.as_token().unwrap().as_str(), "nighttrain");
            let param = |name: &str| item.params.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value);
            let token = |name: &str| param(name).map(|value| value.as_token().unwrap().as_str());
            let integer = |name: &str| param(name).map(|value| i64::from(value.as_integer().unwrap()));
            let flag = |name: &str| param(name) == Some(&BareItem::Boolean(true));
            prop_assert_eq!(flag("hit"), status.outcome == Outcome::Hit);
            prop_assert_eq!(token("fwd"), match status.outcome {
                Outcome::Hit => None,
                Outcome::Fwd(fwd) => Some(fwd.token()),
            });
            prop_assert_eq!(integer("fwd-status"), status.fwd_status.map(i64::from));
            prop_assert_eq!(integer("ttl"), status.ttl_s.map(|s| s.clamp(-999_999_999_999_999, 999_999_999_999_999)));
            prop_assert_eq!(flag("stored"), status.stored);
            prop_assert_eq!(flag("collapsed"), status.collapsed);
            prop_assert_eq!(token("detail"), status.detail);
            let age = got.lines().find_map(|line| line.strip_prefix("Age: ")).unwrap();
            prop_assert_eq!(age.parse::<u64>().unwrap(), age_s.min(1 << 31));
        }
    }
}
