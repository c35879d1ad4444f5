//! *synth* and *backend_error*: error pages of our own, which say what failed and on whose side.

use engine::cores::clock;
use wire::http1::{head::Version, known::KnownHeader, url::Target};

use crate::{
    core::{Core, with_core, with_core_of},
    deliver::answer::{Answer, Body, Head, Length, Lines},
    error_page::{self, Fault, Rule},
    origin::OriginError,
    request::Request,
};

/// *backend_error*: builds the error page for a failure on the origin's side.
pub(crate) fn origin_failed(request: &Request, error: &OriginError) -> Answer<'static> {
    let fault = match error {
        OriginError::Unresolved(_) | OriginError::ResolveTimeout(_) => Fault::OriginUnresolved,
        OriginError::Refused | OriginError::Connect(_) => Fault::OriginRefused,
        OriginError::Tls(_) => Fault::OriginUntrusted,
        OriginError::NobodyUp => Fault::OriginDown,
        OriginError::ConnectTimeout(_) => Fault::OriginConnectTimeout,
        OriginError::Busy(_)
        | OriginError::Queue(_)
        | OriginError::StreamsBusy(_)
        | OriginError::NoSocket(_) => Fault::Overloaded,
        OriginError::Closed
        | OriginError::HeadShort
        | OriginError::Unprocessed
        | OriginError::Http1Required => Fault::OriginClosedEarly,
        OriginError::FirstByteTimeout(_) | OriginError::TooSlow(_) => Fault::OriginStalled,
        OriginError::HeadTooLarge(_) => Fault::OriginHeadTooLarge,
        OriginError::Invalid(rule) => Fault::OriginInvalid(*rule),
        OriginError::Switched | OriginError::NotSwitched => Fault::OriginInvalid(Rule::Switched),
        OriginError::UnaskedNotModified => Fault::OriginInvalid(Rule::UnaskedNotModified),
        OriginError::Reset
        | OriginError::Broken(_)
        | OriginError::BodyShort
        | OriginError::BodyStalled(_) => Fault::OriginReset,
    };
    page(Some(request), fault, Some(error))
}

/// *synth*: builds the error page for a request, or for bytes that are not a request.
pub(crate) fn synth(request: Option<&Request>, fault: Fault) -> Answer<'static> {
    page(request, fault, None)
}

fn page(request: Option<&Request>, fault: Fault, error: Option<&OriginError>) -> Answer<'static> {
    let id = with_core(Core::request_id);
    // One log line per failure, found by the number on the page. A client can cause failures as often as it
    // likes, so failures that are the client's own fault are logged at debug level only.
    let code = fault.words().code;
    let error = error.map(tracing::field::display);
    let client = request.map(|request| tracing::field::display(request.visitor.address));
    if error.is_some() {
        tracing::info!(request = %id, client, fault = code, error, "answered with an error page");
    } else {
        tracing::debug!(request = %id, client, fault = code, "answered with an error page");
    }
    let accept = request.and_then(|request| request.head().known(KnownHeader::Accept));
    let own = request
        .and_then(|request| with_core_of(request, |core| core.sites.rules(request.site).error_page.clone()));
    let page = error_page::render(fault, &id, accept, own.as_deref());
    let mut head = Vec::with_capacity(512);
    head.extend_from_slice(b"HTTP/1.1 ");
    head.extend_from_slice(itoa::Buffer::new().format(page.status).as_bytes());
    for part in [" ", page.reason, "\r\nContent-Type: ", page.content_type, "\r\n", &*page.headers] {
        head.extend_from_slice(part.as_bytes());
    }
    append_date(&mut head);
    head.extend_from_slice(b"X-Request-Id: ");
    head.extend_from_slice(id.as_bytes());
    head.extend_from_slice(b"\r\n");
    Answer { reason: Some(code), ..of_our_own(head, page.body) }
}

/// Builds an answer with a line of text.
pub(crate) fn text(status: &str, line: &str) -> Answer<'static> {
    let mut head = Vec::with_capacity(128);
    for part in ["HTTP/1.1 ", status, "\r\nContent-Type: text/plain; charset=utf-8\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    append_date(&mut head);
    of_our_own(head, line.into())
}

/// Redirects an http request to https. If the request names a port, the redirect names our TLS port, because
/// the visitor then connects to us directly and not to a standard port. Requests with content must be
/// repeated with the same method (RFC 9110 §15.4.9).
pub(crate) fn to_https(request: &Request) -> Answer<'static> {
    let asked = request.head();
    let target = Target::parse(asked.method, asked.target).map_or("/", |(_, target)| target.path_and_query);
    let target = if target.starts_with('/') { target } else { "/" };
    let authority = asked.authority();
    let host = authority.map_or("", |authority| authority.host);
    let port = authority.and_then(|authority| authority.port).and_then(|_| {
        with_core(|core| core.clients.terms.as_ref().map(|terms| terms.port())).filter(|port| *port != 443)
    });
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    let status = if matches!(asked.method, "GET" | "HEAD") {
        "301 Moved Permanently"
    } else {
        "308 Permanent Redirect"
    };
    let mut head = format!("HTTP/1.1 {status}\r\nLocation: https://{host}{port}{target}\r\n").into_bytes();
    append_date(&mut head);
    of_our_own(head, Vec::new())
}

/// Builds the answer to OPTIONS that must not be forwarded further (RFC 9110 §7.6.2): the methods that we
/// support.
pub(crate) fn last_hop() -> Answer<'static> {
    let mut head = b"HTTP/1.1 200 OK\r\nAllow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH\r\n".to_vec();
    append_date(&mut head);
    of_our_own(head, Vec::new())
}

fn append_date(head: &mut Vec<u8>) {
    head.extend_from_slice(b"Date: ");
    head.extend_from_slice(httpdate::fmt_http_date(clock::now_system()).as_bytes());
    head.extend_from_slice(b"\r\n");
}

fn of_our_own(head: Vec<u8>, bytes: Vec<u8>) -> Answer<'static> {
    Answer {
        head: Head::Owned(head),
        lines: Lines::All,
        length: Length::Exact(bytes.len() as u64),
        age_s: None,
        cache_status: None,
        received: Version::Http11,
        varies: false,
        hsts_s: None,
        body: Body::Owned { bytes, trailers: Vec::new() },
        refresh: None,
        reason: None,
    }
}
