//! Validates a field section as a request (RFC 9113 §8.1 to §8.5, RFC 8441), as strictly as this crate's
//! HTTP/1 parser.
//!
//! The object's key, the policy and the request to an origin are derived from an HTTP/2 request in the same
//! way as from an HTTP/1 request. Anything that an HTTP/1 head cannot hold, or would hold with another
//! meaning, must be refused: in HTTP/1, CR LF in a value would start a new line, a second `host` would name
//! another site, and a `transfer-encoding` would change where the body ends. Each name must therefore be a
//! token, each value free of control characters, and each framing or routing field unique.
//! [`Request::as_head`] then writes the head that [`parse_request`](crate::http1::head::parse_request) would
//! read the same way; the client's bytes appear in it only where a client's data belongs.

mod render;
mod trailers;

pub use render::HeadRoom;
pub use trailers::{Trailers, read_trailers};

use super::{
    hpack::{FieldSection, Serial},
    priority::Priority,
};
use crate::http1::{
    fields::{is_tchar, is_token},
    known::KnownHeader,
    strict::is_target_byte,
    url::{Authority, Scheme},
};

rules! {
    /// The rules that a request's field section can break. Such a request is malformed (RFC 9113 §8.1.1): its
    /// stream ends with PROTOCOL_ERROR, possibly after a 400 response.
    RequestRule
    FieldName "RFC 9113 §8.2.1" "a field's name is not a token in lower case",
    FieldValue "RFC 9113 §8.2.1" "a field's value holds a control character, or blanks at an end",
    ConnectionSpecific "RFC 9113 §8.2.2" "a connection-specific field is not allowed in HTTP/2",
    Te "RFC 9113 §8.2.2" "TE has a value other than trailers",
    PseudoUnknown "RFC 9113 §8.3" "a pseudo-header is not one of requests",
    PseudoLate "RFC 9113 §8.3" "a pseudo-header comes after a field",
    PseudoRepeated "RFC 9113 §8.3" "a pseudo-header comes twice",
    PseudoMissing "RFC 9113 §8.3.1" "a pseudo-header is missing",
    PseudoOfConnect "RFC 9113 §8.5" "CONNECT has a scheme or a path without a protocol",
    PseudoInTrailers "RFC 9113 §8.1" "trailers hold a pseudo-header",
    Method "RFC 9110 §9.1" "the method is not a token",
    Scheme "RFC 9113 §8.3.1" "the scheme is neither http nor https",
    Path "RFC 9113 §8.3.1" "the path does not begin with a slash, or has an invalid byte",
    AuthorityMissing "RFC 9113 §8.3.1" "neither :authority nor Host says which site is meant",
    Authority "RFC 9113 §8.3.1" "the authority is not a host and an optional port",
    AuthorityOfConnect "RFC 9113 §8.5" "the authority of CONNECT has no port",
    HostRepeated "RFC 9110 §7.2" "there is more than one Host",
    HostDiffers "RFC 9113 §8.3.1" "Host and :authority name different sites",
    ContentLength "RFC 9110 §8.6" "Content-Length is not one number, or stands where there can be none",
    ContentLengthAndEnd "RFC 9113 §8.1.1" "Content-Length promises content, and the stream has ended",
    Protocol "RFC 8441 §4" ":protocol is invalid, without CONNECT, or was not offered",
}

/// Conditions for validating a request, apart from its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// True if the stream ends with the field section.
    pub end_stream: bool,
    /// True if we announced support for extended CONNECT (RFC 8441 §3).
    pub extended_connect: bool,
}

/// Target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestTarget<'s> {
    /// A resource: any method but CONNECT.
    Resource {
        /// The scheme; the caller compares it with the underlying connection.
        scheme: Scheme,
        /// Path and query, beginning with `/`; or `*`, for OPTIONS.
        path: &'s str,
    },
    /// A tunnel to the authority (RFC 9113 §8.5).
    Tunnel,
    /// Another protocol on the stream (RFC 8441 §4).
    Upgrade {
        /// Name of the protocol.
        protocol: &'s str,
        /// The scheme.
        scheme: Scheme,
        /// Path and query, beginning with `/`.
        path: &'s str,
    },
}

/// Content after a request's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The request has no content.
    None,
    /// Content of the length that Content-Length states.
    Length(u64),
    /// Content that ends with the stream.
    ToTheEnd,
}

/// A valid request; its parts are slices of the section.
#[derive(Debug, Clone, Copy)]
pub struct Request<'s> {
    /// The method, a token; case matters.
    pub method: &'s str,
    /// The site: `:authority`, or `Host` if there is no `:authority`.
    pub authority: &'s str,
    /// Target of the request.
    pub ask: RequestTarget<'s>,
    /// The content that follows; the data of a tunnel or of another protocol does not count as content.
    pub content: Content,
    /// Priority of the request (RFC 9218).
    pub priority: Priority,
    section: &'s FieldSection,
    /// The previous request, if it differs from this one only in its path.
    alike: Option<Serial>,
}

/// Result of validating a request for a resource: the indices of the fields that make up the request. The
/// result also applies to a section that differs only in the value of `path`, if that path is valid too,
/// because no rule involves both the path and another field (except for `OPTIONS *`, which is not recorded).
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestLayout {
    terms: Terms,
    method: usize,
    /// Index of `:authority` or `host`.
    authority: usize,
    pub(super) path: usize,
    scheme: Scheme,
    content: Content,
    priority: Priority,
}

impl<'s> Request<'s> {
    /// Iterates over the fields, without pseudo-headers, in order: names in lower case, cookies as separate
    /// fields, `host` as received.
    pub fn fields(&self) -> impl Iterator<Item = (&'s [u8], &'s [u8])> + Clone + use<'s> {
        self.section.iter().filter(|(name, _)| name.first() != Some(&b':'))
    }
}

/// Validates a request.
///
/// # Errors
/// Returns the first rule that the section breaks.
#[inline]
pub fn read_request(section: &FieldSection, terms: Terms) -> Result<Request<'_>, RequestRule> {
    if let Some(request) = read_as_before(section, terms) {
        return Ok(request);
    }
    let mut pseudo = Pseudo::default();
    let mut seen = KnownFields::default();
    let mut fields = section.iter().enumerate();
    for (number, (name, value)) in fields.by_ref() {
        if name.first() != Some(&b':') {
            seen.field(number, name, value)?;
            break;
        }
        pseudo.take(number, name, value)?;
    }
    for (number, (name, value)) in fields {
        if name.first() == Some(&b':') {
            return Err(RequestRule::PseudoLate);
        }
        seen.field(number, name, value)?;
    }
    pseudo.request(section, &seen, terms)
}

/// Reads a request that differs from the previous one only in its path; `None` if it must be validated in
/// full.
#[inline]
fn read_as_before(section: &FieldSection, terms: Terms) -> Option<Request<'_>> {
    let (before, found) = section.alike_but_path()?;
    let path = section.value(found.path);
    if found.terms != terms || !is_path(path) {
        return None;
    }
    section.note(found);
    Some(Request {
        method: text(section.value(found.method)),
        authority: text(section.value(found.authority)),
        ask: RequestTarget::Resource { scheme: found.scheme, path: text(path) },
        content: found.content,
        priority: found.priority,
        section,
        alike: Some(before),
    })
}

/// The pseudo-headers; each value contains only bytes that are allowed in a field's value.
#[derive(Default)]
struct Pseudo<'s> {
    method: Option<Field<'s>>,
    scheme: Option<Field<'s>>,
    authority: Option<Field<'s>>,
    path: Option<Field<'s>>,
    protocol: Option<Field<'s>>,
}

/// A field that the validation needs later.
#[derive(Clone, Copy)]
struct Field<'s> {
    /// Index of the field in the section.
    number: usize,
    value: &'s [u8],
}

/// Regular fields that the validation needs later.
#[derive(Default)]
struct KnownFields<'s> {
    host: Option<Field<'s>>,
    content_length: Option<u64>,
    priority: Priority,
}

impl<'s> KnownFields<'s> {
    #[inline]
    fn field(&mut self, number: usize, name: &'s [u8], value: &'s [u8]) -> Result<(), RequestRule> {
        match check_field(name, value)? {
            Some(KnownHeader::Host) => match self.host.replace(Field { number, value }) {
                None => Ok(()),
                Some(_) => Err(RequestRule::HostRepeated),
            },
            Some(KnownHeader::ContentLength) => {
                let length = digits(value).ok_or(RequestRule::ContentLength)?;
                match self.content_length.replace(length) {
                    None => Ok(()),
                    Some(_) => Err(RequestRule::ContentLength),
                }
            }
            None if name == b"priority" => {
                self.priority = Priority::parse(value);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Lookup table of the bytes allowed in a field's name: token bytes except upper-case letters.
static NAME_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = is_tchar(b as u8) && !(b as u8).is_ascii_uppercase();
        b += 1;
    }
    table
};

/// Checks the rules for every field, in a head and in trailers. Returns the known header that the field name
/// denotes, if any.
#[inline]
fn check_field(name: &[u8], value: &[u8]) -> Result<Option<KnownHeader>, RequestRule> {
    if name.is_empty() || !name.iter().fold(true, |sound, &b| sound & NAME_BYTE[b as usize]) {
        return Err(RequestRule::FieldName);
    }
    check_value(value)?;
    let known = KnownHeader::of(name);
    match known {
        Some(
            KnownHeader::Connection
            | KnownHeader::KeepAlive
            | KnownHeader::ProxyConnection
            | KnownHeader::TransferEncoding
            | KnownHeader::Upgrade,
        ) => Err(RequestRule::ConnectionSpecific),
        Some(KnownHeader::Te) if !value.eq_ignore_ascii_case(b"trailers") => Err(RequestRule::Te),
        _ => Ok(known),
    }
}

#[inline]
fn check_value(value: &[u8]) -> Result<(), RequestRule> {
    // Checks what `is_field_value_byte` checks, but without an early exit: a valid value is read to its end
    // anyway, and this lets the compiler check sixteen bytes at once.
    let controls =
        value.iter().fold(0, |found, &b| found | u8::from((b < b' ') & (b != b'\t')) | u8::from(b == 0x7f));
    if controls != 0 || matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) {
        return Err(RequestRule::FieldValue);
    }
    Ok(())
}

impl<'s> Pseudo<'s> {
    fn take(&mut self, number: usize, name: &[u8], value: &'s [u8]) -> Result<(), RequestRule> {
        let place = match name {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            b":protocol" => &mut self.protocol,
            _ => return Err(RequestRule::PseudoUnknown),
        };
        check_value(value)?;
        if place.replace(Field { number, value }).is_some() {
            return Err(RequestRule::PseudoRepeated);
        }
        Ok(())
    }

    fn request(
        &self,
        section: &'s FieldSection,
        seen: &KnownFields<'s>,
        terms: Terms,
    ) -> Result<Request<'s>, RequestRule> {
        let method = self.method.ok_or(RequestRule::PseudoMissing)?;
        if !is_token(method.value) {
            return Err(RequestRule::Method);
        }
        let ask = self.ask(method.value, terms)?;
        let scheme = match ask {
            RequestTarget::Tunnel => None,
            RequestTarget::Resource { scheme, .. } | RequestTarget::Upgrade { scheme, .. } => Some(scheme),
        };
        let authority = site(self.authority, seen.host, scheme)?;
        let content = match (seen.content_length, terms.end_stream) {
            // The stream's data is not content here, so it cannot have a Content-Length.
            (Some(_), _) if !matches!(ask, RequestTarget::Resource { .. }) => {
                return Err(RequestRule::ContentLength);
            }
            (Some(1..), true) => return Err(RequestRule::ContentLengthAndEnd),
            (Some(length), _) => Content::Length(length),
            (None, true) => Content::None,
            (None, false) => Content::ToTheEnd,
        };
        let request = Request {
            method: text(method.value),
            authority: text(authority.value),
            ask,
            content,
            priority: seen.priority,
            section,
            alike: None,
        };
        if let (RequestTarget::Resource { scheme, path }, Some(path_field)) = (ask, self.path)
            && path != "*"
        {
            section.note(RequestLayout {
                terms,
                method: method.number,
                authority: authority.number,
                path: path_field.number,
                scheme,
                content,
                priority: seen.priority,
            });
        }
        Ok(request)
    }

    fn ask(&self, method: &[u8], terms: Terms) -> Result<RequestTarget<'s>, RequestRule> {
        if method == b"CONNECT" && self.protocol.is_none() {
            return match (self.scheme, self.path) {
                (None, None) => Ok(RequestTarget::Tunnel),
                _ => Err(RequestRule::PseudoOfConnect),
            };
        }
        let (Some(scheme), Some(Field { value: path, .. })) = (self.scheme, self.path) else {
            return Err(RequestRule::PseudoMissing);
        };
        let scheme = match scheme.value {
            b"https" => Scheme::Https,
            b"http" => Scheme::Http,
            _ => return Err(RequestRule::Scheme),
        };
        let is_asterisk = path == b"*" && method == b"OPTIONS";
        if !(is_asterisk || is_path(path)) {
            return Err(RequestRule::Path);
        }
        let path = text(path);
        match self.protocol {
            None => Ok(RequestTarget::Resource { scheme, path }),
            Some(Field { value: protocol, .. })
                if method == b"CONNECT" && terms.extended_connect && is_token(protocol) =>
            {
                Ok(RequestTarget::Upgrade { protocol: text(protocol), scheme, path })
            }
            Some(_) => Err(RequestRule::Protocol),
        }
    }
}

/// Returns whether `path` is valid as an HTTP/1 target; such a path is a valid field value as well.
#[inline]
fn is_path(path: &[u8]) -> bool {
    path.first() == Some(&b'/') && path.iter().fold(true, |sound, &b| sound & is_target_byte(b))
}

/// Returns the site of the request. A request without a scheme is for a tunnel, whose authority must have an
/// explicit port.
fn site<'s>(
    authority: Option<Field<'s>>,
    host: Option<Field<'s>>,
    scheme: Option<Scheme>,
) -> Result<Field<'s>, RequestRule> {
    let said = match scheme {
        Some(_) => authority.or(host).ok_or(RequestRule::AuthorityMissing)?,
        None => authority.ok_or(RequestRule::PseudoMissing)?,
    };
    let site = Authority::parse(said.value).ok_or(RequestRule::Authority)?;
    if site.host.is_empty() {
        return Err(RequestRule::Authority);
    }
    if scheme.is_none() && site.port.is_none() {
        return Err(RequestRule::AuthorityOfConnect);
    }
    if let (Some(authority), Some(host)) = (authority, host)
        && authority.value != host.value
    {
        let port_default = match scheme {
            Some(Scheme::Http) => Some(80),
            Some(Scheme::Https) => Some(443),
            None => None,
        };
        let other = Authority::parse(host.value).ok_or(RequestRule::Authority)?;
        if !site.host.eq_ignore_ascii_case(other.host)
            || site.port.or(port_default) != other.port.or(port_default)
        {
            return Err(RequestRule::HostDiffers);
        }
    }
    Ok(said)
}

/// Converts bytes that were checked to be ASCII.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
