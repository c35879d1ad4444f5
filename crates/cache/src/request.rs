//! A request that could not be answered at once, kept while the origin is asked; and what the origin is sent for it.
//!
//! Where the data lives: one allocation with the head as it came. It is parsed again when a header is needed: that
//! costs a fraction of a microsecond beside a round trip to the origin, and nothing can get out of step.

use std::net::IpAddr;

use engine::store::Hash;
use wire::http1::{
    fields::{is_hop_by_hop, persists},
    framing::Framing,
    head::{
        HEAD_BYTES_CAP, HeadLimits, HeaderSlots, Progress, RequestHead, TargetForm, Version, parse_request,
    },
    known::KnownHeader,
    url::Target,
};

/// A request on its way through misses and passes.
pub(crate) struct Request {
    head: Vec<u8>,
    /// The key under which a stored answer is looked up first.
    pub(crate) key: Vec<u8>,
    /// Hash of `key`.
    pub(crate) hash: Hash,
    /// Length of the part of `key` that all variants share.
    primary_bytes: usize,
    /// How its body is delimited.
    pub(crate) framing: Framing,
    /// The client's address, for X-Forwarded-For.
    pub(crate) client: IpAddr,
}

/// What is asked of the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A whole answer that can be stored: as GET, without conditions and ranges.
    Store,
    /// This very request, for this client only.
    Pass,
}

impl Request {
    /// `head` is a whole, valid head: it was parsed before.
    pub(crate) fn new(
        head: &[u8],
        key: &[u8],
        primary_bytes: usize,
        hash: Hash,
        framing: Framing,
        client: IpAddr,
    ) -> Self {
        Self { head: head.to_vec(), key: key.to_vec(), primary_bytes, hash, framing, client }
    }

    /// The same request under the key of another variant.
    pub(crate) fn under(&self, key: &[u8], hash: Hash) -> Self {
        Self::new(&self.head, key, self.primary_bytes, hash, self.framing, self.client)
    }

    /// The part of the key that all variants of the target share; a key by itself.
    pub(crate) fn primary(&self) -> &[u8] {
        &self.key[..self.primary_bytes]
    }

    /// A body follows.
    pub(crate) fn has_body(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Length(0))
    }

    /// The method.
    pub(crate) fn method(&self) -> String {
        self.with(|head| head.method.to_owned())
    }

    /// The first value of a header.
    pub(crate) fn value(&self, known: KnownHeader) -> Option<Vec<u8>> {
        self.with(|head| head.known(known).map(<[u8]>::to_vec))
    }

    /// The client asks for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    pub(crate) fn expects_continue(&self) -> bool {
        self.with(|head| {
            head.version == Version::Http11
                && head
                    .known(KnownHeader::Expect)
                    .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
        })
    }

    /// The client's connection ends after the answer.
    pub(crate) fn wants_close(&self) -> bool {
        self.with(|head| !persists(head.version, &head.headers))
    }

    /// Looks at the head.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&RequestHead<'_, '_>) -> R) -> R {
        let mut slots = HeaderSlots::new();
        let limits = HeadLimits { line_bytes_max: HEAD_BYTES_CAP, head_bytes_max: HEAD_BYTES_CAP };
        match parse_request(&self.head, &mut slots, &limits) {
            Ok(Progress::Complete((head, _))) => look(&head),
            other => unreachable!("a head that was parsed before does not parse: {:?}", other.is_ok()),
        }
    }

    /// The head as the origin gets it (RFC 9110 §7.6: hop-by-hop fields end here; Via is added).
    pub(crate) fn for_origin(&self, purpose: Purpose, name: &str) -> Vec<u8> {
        self.with(|head| {
            let mut out = Vec::with_capacity(self.head.len() + 128);
            let method = if purpose == Purpose::Store { "GET" } else { head.method };
            out.extend_from_slice(method.as_bytes());
            out.push(b' ');
            append_target(&mut out, head);
            out.extend_from_slice(b" HTTP/1.1\r\n");
            append_fields(&mut out, head, purpose);
            self.append_own(&mut out, head, purpose, name);
            out.extend_from_slice(b"\r\n");
            out
        })
    }

    fn append_own(&self, out: &mut Vec<u8>, head: &RequestHead<'_, '_>, purpose: Purpose, name: &str) {
        out.extend_from_slice(if head.version == Version::Http10 { b"Via: 1.0 " } else { b"Via: 1.1 " });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\r\nX-Forwarded-For: ");
        for before in head.headers("x-forwarded-for") {
            out.extend_from_slice(before);
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(self.client.to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
        if purpose == Purpose::Pass {
            match self.framing {
                Framing::Length(bytes) => {
                    out.extend_from_slice(b"Content-Length: ");
                    out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
                    out.extend_from_slice(b"\r\n");
                }
                Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
                Framing::None | Framing::UntilClose => {}
            }
        }
    }
}

/// The target in origin form (RFC 9112 §3.2.1), or `*`.
fn append_target(out: &mut Vec<u8>, head: &RequestHead<'_, '_>) {
    let path = match Target::parse(head.method, head.target) {
        Some((TargetForm::Absolute, target)) => {
            if !target.path_and_query.starts_with('/') {
                out.push(b'/');
            }
            target.path_and_query
        }
        _ => head.target,
    };
    out.extend_from_slice(path.as_bytes());
}

fn append_host(out: &mut Vec<u8>, head: &RequestHead<'_, '_>) {
    out.extend_from_slice(b"Host: ");
    match (head.form, head.authority()) {
        // RFC 9112 §3.2.2: with an absolute target the Host field is replaced by its host.
        (TargetForm::Absolute, Some(authority)) => {
            out.extend_from_slice(authority.host.as_bytes());
            if let Some(port) = authority.port {
                out.push(b':');
                out.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
            }
        }
        _ => out.extend_from_slice(head.known(KnownHeader::Host).unwrap_or_default()),
    }
    out.extend_from_slice(b"\r\n");
}

fn append_fields(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, purpose: Purpose) {
    append_host(out, head);
    for (known, name, value) in head.headers.classified() {
        let skip = match known {
            Some(
                KnownHeader::Host
                | KnownHeader::ContentLength
                | KnownHeader::Expect
                | KnownHeader::TransferEncoding,
            ) => true,
            // A whole answer is wanted, whatever this client has of it already.
            Some(
                KnownHeader::IfNoneMatch
                | KnownHeader::IfModifiedSince
                | KnownHeader::IfMatch
                | KnownHeader::IfUnmodifiedSince
                | KnownHeader::IfRange
                | KnownHeader::Range,
            ) => purpose == Purpose::Store,
            _ => name.eq_ignore_ascii_case("x-forwarded-for") || is_hop_by_hop(name, &head.headers),
        };
        if !skip {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
}
