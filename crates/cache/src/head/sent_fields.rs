//! Fields of a request as they are sent to its origin. One type writes them ([`SentFields::append`]) and
//! builds the part of a variant's key that `Vary` selects ([`SelectingFields`]). So an answer is keyed by the
//! fields that its origin received, not by the fields that a client sent: a client's own `X-Forwarded-For` is
//! not forwarded, and selects nothing.
//!
//! ```text
//!  the client's fields ─ goes_on ─┐
//!                                 ├─▶ append ─▶ the request to the origin
//!  our fields (OwnField) ─────────┤
//!                                 └─▶ append_values ─▶ secondary_key ─▶ the key of a variant
//! ```

use std::{io::Write as _, net::IpAddr};

use wire::http1::{
    fields::{append_field, entity_tags, is_hop_by_hop, is_hop_by_hop_as},
    head::{Headers, RequestHead, Version},
    known::KnownHeader,
    url::Scheme,
};

use crate::{
    config::SiteRules,
    policy::{
        accept::append_meaning,
        conditional::{is_part_marked, strip_coding_suffix},
        ruled,
        vary::{SelectingFields, Values},
    },
    request::{OriginNeed, client_ip::Visitor, key},
};

/// Settings for writing a site's requests to its origin.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'a> {
    /// Name of this instance in `Via`.
    pub(crate) pseudonym: &'a str,
    /// The site's rules.
    pub(crate) rules: &'a SiteRules,
    /// Fields that describe clients' certificates to origins. Values that clients send in them are removed.
    pub(crate) ours: &'a [Box<str>],
    /// True if the request goes to a peer.
    pub(crate) is_to_peer: bool,
    /// True if the tag in the request's `If-Range` is the origin's own, although it ends like the tag of an
    /// encoded variant.
    pub(crate) has_range_tag: bool,
}

impl Manner<'_> {
    /// Returns the settings for a request to a peer.
    pub(crate) fn to_peer(self) -> Self {
        Self { is_to_peer: true, ..self }
    }
}

/// A field whose value is set here, whatever a client sends in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnField {
    /// `Host`: the host of the request, or the host that a site's rule sets.
    Host,
    /// `Via`: our entry, after the received entries.
    Via,
    /// `X-Forwarded-For`: the address of the request's sender, after the addresses that a trusted proxy has
    /// named.
    XForwardedFor,
    /// `X-Forwarded-Proto`: the scheme of the request.
    XForwardedProto,
    /// `X-Forwarded-Host`: the host of the request.
    XForwardedHost,
    /// `Forwarded`: address, host and scheme in one field (RFC 7239).
    Forwarded,
}

impl OwnField {
    /// All of these fields except `Host`, in the order in which they are written.
    const TOLD: [Self; 5] =
        [Self::Via, Self::XForwardedFor, Self::XForwardedProto, Self::XForwardedHost, Self::Forwarded];

    fn name(self) -> &'static str {
        match self {
            Self::Host => "Host",
            Self::Via => "Via",
            Self::XForwardedFor => "X-Forwarded-For",
            Self::XForwardedProto => "X-Forwarded-Proto",
            Self::XForwardedHost => "X-Forwarded-Host",
            Self::Forwarded => "Forwarded",
        }
    }

    /// Returns the field with this name, which is in lower case.
    fn of(name: &str) -> Option<Self> {
        // Most names in `Vary` begin with another letter.
        if !matches!(name.as_bytes().first(), Some(b'h' | b'v' | b'x' | b'f')) {
            return None;
        }
        [Self::Host].into_iter().chain(Self::TOLD).find(|own| own.name().eq_ignore_ascii_case(name))
    }
}

/// Fields of one request as they are sent to its site's origin.
#[derive(Clone, Copy)]
pub(crate) struct SentFields<'a> {
    /// Head of the request, as received.
    pub(crate) head: &'a RequestHead<'a, 'a>,
    pub(crate) visitor: Visitor,
    pub(crate) manner: Manner<'a>,
}

impl SentFields<'_> {
    /// Appends the client's fields that are sent on, and our own fields except `Host`. `authority` is that of
    /// the request in its normal form.
    pub(crate) fn append(
        &self,
        authority: &[u8],
        out: &mut Vec<u8>,
        wanted: OriginNeed,
        max_forwards: Option<u64>,
    ) {
        self.append_clients(out, wanted, max_forwards.is_some());
        if let Some(left) = max_forwards {
            out.extend_from_slice(b"Max-Forwards: ");
            out.extend_from_slice(itoa::Buffer::new().format(left.saturating_sub(1)).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        for own in OwnField::TOLD {
            let begin = out.len();
            out.extend_from_slice(own.name().as_bytes());
            out.extend_from_slice(b": ");
            if self.append_own(own, Some(authority), out) {
                out.extend_from_slice(b"\r\n");
            } else {
                out.truncate(begin);
            }
        }
    }

    /// Appends the `Host` line. `authority` is that of the request in its normal form.
    pub(crate) fn append_host(&self, authority: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"Host: ");
        let _ = self.append_own(OwnField::Host, Some(authority), out);
        out.extend_from_slice(b"\r\n");
    }

    fn append_clients(&self, out: &mut Vec<u8>, wanted: OriginNeed, is_counted_down: bool) {
        let headers = &self.head.headers;
        // If the answer may be stored for all clients, these two fields are written in normalized form, as in
        // the key.
        let mut meant = |known: KnownHeader, beginning: &[u8]| {
            let is_meant = wanted == OriginNeed::Storing
                && !is_hop_by_hop_as(Some(known), known.name().as_bytes(), headers)
                && append_meaning(known, headers, beginning, out);
            if is_meant {
                out.extend_from_slice(b"\r\n");
            }
            is_meant
        };
        let is_encoding_meant = meant(KnownHeader::AcceptEncoding, b"Accept-Encoding: ");
        let is_language_meant = meant(KnownHeader::AcceptLanguage, b"Accept-Language: ");
        for (known, name, value) in headers.classified() {
            let skip = match known {
                Some(KnownHeader::AcceptEncoding) if is_encoding_meant => true,
                Some(KnownHeader::AcceptLanguage) if is_language_meant => true,
                Some(KnownHeader::MaxForwards) if is_counted_down => true,
                known => !self.goes_on(known, name, wanted),
            };
            match known {
                _ if skip => {}
                Some(KnownHeader::IfMatch | KnownHeader::IfNoneMatch) => append_tags(out, name, value),
                Some(KnownHeader::Cookie) if wanted == OriginNeed::Storing => {
                    let begin = out.len();
                    out.extend_from_slice(name.as_bytes());
                    out.extend_from_slice(b": ");
                    if self.append_cookies(value, out) {
                        out.extend_from_slice(b"\r\n");
                    } else {
                        out.truncate(begin);
                    }
                }
                Some(_) | None => append_field(out, name, value),
            }
        }
    }

    /// Returns whether the client's lines of a field are sent on to the origin.
    fn goes_on(&self, known: Option<KnownHeader>, name: &str, wanted: OriginNeed) -> bool {
        let is_storing = wanted == OriginNeed::Storing;
        let is_kept_here = match known {
            Some(
                KnownHeader::Host
                | KnownHeader::ContentLength
                | KnownHeader::Expect
                | KnownHeader::TransferEncoding,
            ) => true,
            // The store needs the whole answer, whatever part this client already has.
            Some(
                KnownHeader::IfNoneMatch
                | KnownHeader::IfModifiedSince
                | KnownHeader::IfMatch
                | KnownHeader::IfUnmodifiedSince,
            ) => is_storing,
            // The origin has no ranges of an encoded variant, so it is asked for its whole representation.
            Some(KnownHeader::IfRange | KnownHeader::Range) => {
                is_storing || !self.manner.has_range_tag && is_part_marked(&self.head.headers)
            }
            Some(KnownHeader::Cookie) => {
                is_storing && ruled::is_without_cookies(self.manner.rules, &self.head.headers)
            }
            Some(_) | None => {
                is_of_visitor(name, self.visitor.through.is_some())
                    || is_twin_of_framing(name)
                    || is_one_of(name, self.manner.ours)
                    || name.eq_ignore_ascii_case(TOKEN_FIELD)
                    || is_storing && is_not_keyed(name)
            }
        };
        !is_kept_here && !is_hop_by_hop_as(known, name.as_bytes(), &self.head.headers)
    }

    /// Appends those cookies of a line that a fetch for the store sends; returns `false` if there are none.
    fn append_cookies(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match self.manner.rules.origin.sticky.as_deref() {
            Some(name) => ruled::append_other_cookies(value, name, out),
            None => {
                out.extend_from_slice(value);
                true
            }
        }
    }

    /// Appends our value of a field; returns `false` if the field is not sent. `authority` is that of the
    /// request in its normal form, if the caller has it.
    fn append_own(&self, own: OwnField, authority: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
        let Self { head, visitor: Visitor { address, through, .. }, manner } = *self;
        let peer = through.unwrap_or(address);
        let append_authority = |out: &mut Vec<u8>| match authority {
            Some(authority) => out.extend_from_slice(authority),
            None => key::append_authority_of(head, out),
        };
        let scheme: &[u8] = match key::scheme_of(head) {
            Scheme::Http => b"http",
            Scheme::Https => b"https",
        };
        match own {
            // A peer applies the site's rules itself.
            OwnField::Host => match manner.rules.host.as_deref().filter(|_| !manner.is_to_peer) {
                Some(host) => out.extend_from_slice(host.as_bytes()),
                None => append_authority(out),
            },
            OwnField::Via => {
                out.extend_from_slice(if head.version == Version::Http10 { b"1.0 " } else { b"1.1 " });
                out.extend_from_slice(manner.pseudonym.as_bytes());
            }
            OwnField::XForwardedFor => {
                self.append_chain("x-forwarded-for", out);
                append_address(peer, out);
            }
            OwnField::XForwardedProto => out.extend_from_slice(scheme),
            OwnField::XForwardedHost => {
                let begin = out.len();
                append_authority(out);
                return out.len() > begin;
            }
            OwnField::Forwarded => {
                self.append_chain("forwarded", out);
                // RFC 7239 §4: a value with a colon must be quoted.
                let (before, after) = if peer.is_ipv4() { ("for=", ";") } else { ("for=\"[", "]\";") };
                out.extend_from_slice(before.as_bytes());
                append_address(peer, out);
                out.extend_from_slice(after.as_bytes());
                let begin = out.len();
                out.extend_from_slice(b"host=\"");
                let host_from = out.len();
                append_authority(out);
                if out.len() > host_from {
                    out.extend_from_slice(b"\";");
                } else {
                    out.truncate(begin);
                }
                out.extend_from_slice(b"proto=");
                out.extend_from_slice(scheme);
            }
        }
        true
    }

    /// Appends the values that a trusted proxy has sent in the field.
    fn append_chain(&self, name: &str, out: &mut Vec<u8>) {
        for before in self.head.headers(name).filter(|_| self.visitor.through.is_some()) {
            out.extend_from_slice(before);
            out.extend_from_slice(b", ");
        }
    }
}

/// Appends an IP address as text. A formatter takes ten times as long for an IPv4 address.
fn append_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            for (number, octet) in address.octets().into_iter().enumerate() {
                if number > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        // Writing to a vector cannot fail.
        IpAddr::V6(address) => _ = write!(out, "{address}"),
    }
}

/// Appends a line of `If-Match` or `If-None-Match`. A tag with the suffix of an encoded variant is sent both
/// as received and without the suffix: the origin may have issued either, and we do not know which.
fn append_tags(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value] {
        out.extend_from_slice(part);
    }
    for tag in entity_tags(value).filter_map(|tag| strip_coding_suffix(&tag)) {
        for part in [&b", "[..], if tag.weak { b"W/" } else { b"" }, b"\"", tag.opaque, b"\""] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Selects a variant by the fields that a fetch for the store sends: no other fields are in stored answers'
/// keys.
impl SelectingFields for SentFields<'_> {
    fn append_meaning(&self, known: KnownHeader, name: &str, out: &mut Vec<u8>) -> bool {
        SelectingFields::append_meaning(&self.head.headers, known, name, out)
    }

    fn append_values(&self, known: Option<KnownHeader>, name: &str, values: &mut Values<'_>) {
        let headers = &self.head.headers;
        if self.goes_on(known, name, OriginNeed::Storing) {
            match known {
                Some(known @ KnownHeader::Cookie) => headers
                    .known_all(known)
                    .for_each(|value| values.write(|out| self.append_cookies(value, out))),
                Some(known) => headers.known_all(known).for_each(|value| values.take(value)),
                None => headers.headers(name).for_each(|value| values.take(value)),
            }
        }
        if let Some(own) = OwnField::of(name) {
            values.write(|out| self.append_own(own, None, out));
        }
    }
}

/// Selects a variant by a client's fields, without a request: all except the hop-by-hop fields.
impl SelectingFields for Headers<'_, '_> {
    fn append_meaning(&self, known: KnownHeader, name: &str, out: &mut Vec<u8>) -> bool {
        !is_hop_by_hop(name, self) && append_meaning(known, self, b"=", out)
    }

    fn append_values(&self, known: Option<KnownHeader>, name: &str, values: &mut Values<'_>) {
        if is_hop_by_hop(name, self) {
            return;
        }
        match known {
            Some(known) => self.known_all(known).for_each(|value| values.take(value)),
            None => self.headers(name).for_each(|value| values.take(value)),
        }
    }
}

/// Returns whether a field's name is one of `fields`, or is read as one of them by CGI and similar
/// interfaces.
pub(crate) fn is_one_of(name: &str, fields: &[Box<str>]) -> bool {
    let same = |a: u8, b: u8| a.eq_ignore_ascii_case(&b) || matches!((a, b), (b'-' | b'_', b'-' | b'_'));
    fields
        .iter()
        .any(|field| name.len() == field.len() && name.bytes().zip(field.bytes()).all(|(a, b)| same(a, b)))
}

/// Name of the field that carries a purge token, in lower case. It is never sent to an origin.
pub(crate) const TOKEN_FIELD: &str = "x-purge-token";

/// Fields from which some origins build their answers (links, redirects, the choice of the page) and which
/// are not in the key; and hop-by-hop fields that the client did not name as such. In a fetch for the store
/// these fields would let one client choose the answer that all clients get.
const NOT_KEYED: [&str; 22] = [
    "base-url",
    "forwarded",
    "front-end-https",
    "http2-settings",
    // RFC 3875 §4.1.18 turns this field into HTTP_PROXY, the proxy that many programs use for their own
    // requests.
    "proxy",
    "proxy-authorization",
    "request-uri",
    "trailer",
    "x-backend-host",
    "x-host",
    "x-http-destinationurl",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-middleware-subrequest",
    "x-proxy-host",
    "x-proxy-url",
    "x-real-host",
    "x-real-uri",
    "x-scheme",
    "x-url-scheme",
];

/// Prefixes of further field names that are not in the key.
const NOT_KEYED_BEGINNINGS: [&str; 3] = ["x-forwarded", "x-original-", "x-rewrite-"];

/// Returns whether an origin's answer could depend on this field although it is not in the key. CGI and
/// similar interfaces read underscores as hyphens (RFC 3875 §4.1.18), so a name with underscores is another
/// spelling of some other name.
fn is_not_keyed(name: &str) -> bool {
    let begins = |beginning: &&str| {
        name.as_bytes()
            .get(..beginning.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
    };
    name.contains('_')
        || NOT_KEYED.iter().any(|not_keyed| not_keyed.eq_ignore_ascii_case(name))
        || NOT_KEYED_BEGINNINGS.iter().any(begins)
}

/// Fields that describe the visitor to an origin, and that only this accelerator may send. If a trusted proxy
/// sent the request, those of the fields that we do not write ourselves are sent on.
const OF_VISITOR: [&str; 2] = ["forwarded", "x-real-ip"];
const OF_VISITOR_BEGINNING: &str = "x-forwarded-";
/// Fields about the visitor that we write.
const WRITTEN: [&str; 4] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];

/// Returns whether a field describes the visitor; only this accelerator may send such fields. CGI and similar
/// interfaces read its spelling with underscores as the same field.
fn is_of_visitor(name: &str, is_believed: bool) -> bool {
    if is_believed {
        return WRITTEN.iter().any(|written| is_twin(name, written));
    }
    let beginning = name.get(..OF_VISITOR_BEGINNING.len());
    OF_VISITOR.iter().any(|ours| is_twin(name, ours))
        || beginning.is_some_and(|beginning| is_twin(beginning, OF_VISITOR_BEGINNING))
}

/// Returns whether two names are equal to a program that reads underscores as hyphens; `hyphened` is in lower
/// case.
fn is_twin(name: &str, hyphened: &str) -> bool {
    let hyphen = |b: u8| if b == b'_' { b'-' } else { b.to_ascii_lowercase() };
    name.len() == hyphened.len() && name.bytes().map(hyphen).eq(hyphened.bytes())
}

/// Returns whether a field is the spelling with underscores of a field that frames a request or controls its
/// connection. CGI and similar interfaces treat both spellings as one field, and might use the client's
/// value.
fn is_twin_of_framing(name: &str) -> bool {
    const OURS: [&str; 7] =
        ["connection", "content-length", "expect", "host", "transfer-encoding", "upgrade", "via"];
    name.contains('_') && OURS.iter().any(|ours| is_twin(name, ours))
}
