//! An accepted HTTP/2 request as an HTTP/1 head: it parses as the same request, and as nothing more.

use wire::http1::{
    framing::{Framing, request_framing},
    head::{
        HeadLimits, HeadRule, HeaderSlots, KeptRequest, Progress, RequestHead, TargetForm, Version,
        parse_request,
    },
    known::KnownHeader,
};
use wire::http2::{
    hpack::FieldSection,
    request::{Content, HeadRoom, Request, RequestTarget},
};

pub(crate) fn check(request: &Request<'_>, section: &FieldSection) {
    let mut bytes = Vec::new();
    request.render_head(&mut bytes);
    if request.ask != RequestTarget::Tunnel {
        assert!(bytes.len() <= section.list_bytes(), "{} of {}", bytes.len(), section.list_bytes());
    }
    let mut slots = HeaderSlots::new();
    let limits = HeadLimits { line_bytes_max: 1 << 20, head_bytes_max: 1 << 20 };
    is_found_without_parsing(request, &bytes, &limits);
    // A request beyond a limit is refused in both forms.
    for head_bytes_max in [bytes.len() - 1, bytes.len()] {
        is_found_without_parsing(request, &bytes, &HeadLimits { head_bytes_max, ..limits });
    }
    let (head, head_bytes) = match parse_request(&bytes, &mut slots, &limits) {
        Ok(Progress::Complete(parsed)) => parsed,
        // A field section may have more fields than a head.
        Err(error) if error.rule == HeadRule::TooManyHeaders => return,
        other => panic!("{other:?}: {}", bytes.escape_ascii()),
    };
    // No bytes follow that could be another request.
    assert_eq!(head_bytes, bytes.len());
    assert_eq!(head.version, Version::Http11);
    is_same_ask(request, &head);
    has_same_fields(request, &head);
    // There is a body exactly if HTTP/2 has one.
    let framing = request_framing(&head);
    let want = match (request.ask, request.content) {
        (RequestTarget::Resource { .. }, Content::Length(length)) => Framing::Length(length),
        (RequestTarget::Resource { .. }, Content::ToTheEnd) => Framing::Chunked,
        _ => Framing::None,
    };
    assert_eq!(framing, Ok(want), "{}", bytes.escape_ascii());
}

/// Checks that the head made without parsing equals the parsed one.
fn is_found_without_parsing(request: &Request<'_>, bytes: &[u8], limits: &HeadLimits) {
    is_found_in(request, &mut HeadRoom::default(), bytes, limits);
}

/// Checks the head again in a room that still holds earlier heads.
pub(crate) fn is_found_behind(request: &Request<'_>, room: &mut HeadRoom) {
    let mut bytes = Vec::new();
    request.render_head(&mut bytes);
    is_found_in(request, room, &bytes, &HeadLimits { line_bytes_max: 1 << 20, head_bytes_max: 1 << 20 });
}

fn is_found_in(request: &Request<'_>, room: &mut HeadRoom, bytes: &[u8], limits: &HeadLimits) {
    let mut slots_of_parser = HeaderSlots::new();
    let found = request.as_head(room, limits);
    let parsed = parse_request(bytes, &mut slots_of_parser, limits);
    let ((found, found_bytes), (parsed, parsed_bytes)) = match (found, parsed) {
        (Ok(Progress::Complete(found)), Ok(Progress::Complete(parsed))) => (found, parsed),
        (Ok(Progress::NeedMore), Ok(Progress::NeedMore)) => return,
        (Err(found), Err(parsed)) => return assert_eq!(found, parsed),
        other => panic!("{other:?}: {}", bytes.escape_ascii()),
    };
    assert_eq!((found_bytes, found.version, found.form), (parsed_bytes, parsed.version, parsed.form));
    assert_eq!((found.method, found.target), (parsed.method, parsed.target));
    let headers = |head: &RequestHead<'_, '_>| -> Vec<_> {
        head.headers
            .classified()
            .map(|(known, name, value)| (known, name.to_owned(), value.to_vec()))
            .collect()
    };
    assert_eq!(headers(&found), headers(&parsed), "{}", bytes.escape_ascii());
    for known in KnownHeader::ALL {
        assert_eq!(found.known(known), parsed.known(known));
        assert_eq!(found.headers.is_repeated(known), parsed.headers.is_repeated(known));
    }
    // Kept heads are equal too: offsets are relative to the bytes written for the request.
    let kept = |head, bytes| {
        let kept = KeptRequest::new(head, bytes);
        let head = kept.head();
        (head.method.to_owned(), head.target.to_owned(), headers(&head))
    };
    assert_eq!(kept(&found, found_bytes), kept(&parsed, parsed_bytes));
}

fn is_same_ask(request: &Request<'_>, head: &RequestHead<'_, '_>) {
    let authority = head.authority().map(|authority| (authority.host, authority.port));
    let (method, target, form) = match request.ask {
        RequestTarget::Resource { path: "*", .. } => ("OPTIONS", "*", TargetForm::Asterisk),
        RequestTarget::Resource { path, .. } => (request.method, path, TargetForm::Origin),
        RequestTarget::Upgrade { path, .. } => ("GET", path, TargetForm::Origin),
        RequestTarget::Tunnel => ("CONNECT", request.authority, TargetForm::Authority),
    };
    assert_eq!((head.method, head.target, head.form), (method, target, form));
    let said = wire::http1::url::Authority::parse(request.authority.as_bytes());
    assert_eq!(authority, said.map(|said| (said.host, said.port)));
}

fn has_same_fields(request: &Request<'_>, head: &RequestHead<'_, '_>) {
    let mut want = vec![("host".to_owned(), request.authority.as_bytes().to_vec())];
    if let RequestTarget::Upgrade { protocol, .. } = request.ask {
        want.push(("connection".to_owned(), b"upgrade".to_vec()));
        want.push(("upgrade".to_owned(), protocol.as_bytes().to_vec()));
    } else if request.content == Content::ToTheEnd && request.ask != RequestTarget::Tunnel {
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
    // A cookie of empty crumbs ends in the space that joins them, which HTTP/1 trims.
    let trimmed = |value: &[u8]| wire::http1::fields::trim_ows(value).to_vec();
    let got: Vec<_> = head.headers.iter().map(|(name, value)| (name.to_owned(), trimmed(value))).collect();
    let want: Vec<_> = want.into_iter().map(|(name, value)| (name, trimmed(&value))).collect();
    assert_eq!(got, want);
}
