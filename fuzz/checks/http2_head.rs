//! A request of HTTP/2 that was let in, as a head of HTTP/1: it is read as the same request, and as nothing more.

use wire::http1::{
    framing::{Framing, request_framing},
    head::{HeadLimits, HeadRule, HeaderSlots, Progress, RequestHead, TargetForm, Version, parse_request},
};
use wire::http2::{
    hpack::FieldSection,
    request::{Ask, Content, Request},
};

pub(crate) fn check(request: &Request<'_>, section: &FieldSection) {
    let mut bytes = Vec::new();
    request.render_head(&mut bytes);
    if request.ask != Ask::Tunnel {
        assert!(bytes.len() <= section.list_bytes(), "{} of {}", bytes.len(), section.list_bytes());
    }
    let mut slots = HeaderSlots::new();
    let limits = HeadLimits { line_bytes_max: 1 << 20, head_bytes_max: 1 << 20 };
    let (head, head_bytes) = match parse_request(&bytes, &mut slots, &limits) {
        Ok(Progress::Complete(parsed)) => parsed,
        // A section may have more fields than a head.
        Err(error) if error.rule == HeadRule::TooManyHeaders => return,
        other => panic!("{other:?}: {}", bytes.escape_ascii()),
    };
    // Nothing follows that could be another request.
    assert_eq!(head_bytes, bytes.len());
    assert_eq!(head.version, Version::Http11);
    is_same_ask(request, &head);
    has_same_fields(request, &head);
    // A body is where HTTP/2 says that there is one.
    let framing = request_framing(&head);
    let want = match (request.ask, request.content) {
        (Ask::Resource { .. }, Content::Length(length)) => Framing::Length(length),
        (Ask::Resource { .. }, Content::ToTheEnd) => Framing::Chunked,
        _ => Framing::None,
    };
    assert_eq!(framing, Ok(want), "{}", bytes.escape_ascii());
}

fn is_same_ask(request: &Request<'_>, head: &RequestHead<'_, '_>) {
    let authority = head.authority().map(|authority| (authority.host, authority.port));
    let (method, target, form) = match request.ask {
        Ask::Resource { path: "*", .. } => ("OPTIONS", "*", TargetForm::Asterisk),
        Ask::Resource { path, .. } => (request.method, path, TargetForm::Origin),
        Ask::Upgrade { path, .. } => ("GET", path, TargetForm::Origin),
        Ask::Tunnel => ("CONNECT", request.authority, TargetForm::Authority),
    };
    assert_eq!((head.method, head.target, head.form), (method, target, form));
    let said = wire::http1::url::Authority::parse(request.authority.as_bytes());
    assert_eq!(authority, said.map(|said| (said.host, said.port)));
}

fn has_same_fields(request: &Request<'_>, head: &RequestHead<'_, '_>) {
    let mut want = vec![("host".to_owned(), request.authority.as_bytes().to_vec())];
    if let Ask::Upgrade { protocol, .. } = request.ask {
        want.push(("connection".to_owned(), b"upgrade".to_vec()));
        want.push(("upgrade".to_owned(), protocol.as_bytes().to_vec()));
    } else if request.content == Content::ToTheEnd && request.ask != Ask::Tunnel {
        want.push(("transfer-encoding".to_owned(), b"chunked".to_vec()));
    }
    let crumbs: Vec<&[u8]> =
        request.fields().filter(|(name, _)| name == b"cookie").map(|(_, value)| value).collect();
    let mut crumbs = Some(crumbs.join(b"; ".as_slice()));
    for (name, value) in request.fields() {
        match name {
            b"host" | b"te" => {}
            b"cookie" => want.extend(crumbs.take().map(|joined| ("cookie".to_owned(), joined))),
            _ => want.push((String::from_utf8_lossy(name).into_owned(), value.to_vec())),
        }
    }
    // A cookie of empty crumbs ends in the blank that joins them, which HTTP/1 cuts off.
    let trimmed = |value: &[u8]| wire::http1::fields::trim_ows(value).to_vec();
    let got: Vec<_> = head.headers.iter().map(|(name, value)| (name.to_owned(), trimmed(value))).collect();
    let want: Vec<_> = want.into_iter().map(|(name, value)| (name, trimmed(&value))).collect();
    assert_eq!(got, want);
}
