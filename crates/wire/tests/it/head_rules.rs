//! Rules for a head, one by one: inputs that break each rule, with the offset, and inputs that are accepted.

use crate::naive::drive;
use wire::http1::{
    head::{
        HEADERS_MAX, HeadError, HeadLimits, HeadRule, HeaderSlots, Progress, TargetForm, Version,
        parse_request, parse_response,
    },
    known::KnownHeader,
};

fn request(text: &[u8]) -> Result<Option<crate::naive::Head>, HeadError> {
    drive::request(text, &mut HeaderSlots::new(), &HeadLimits::default())
}

fn response(text: &[u8]) -> Result<Option<crate::naive::Head>, HeadError> {
    drive::response(text, &mut HeaderSlots::new(), &HeadLimits::default())
}

/// Checks that a head is refused by `rule`. The mark `¦` precedes the byte that breaks it, and is removed.
#[track_caller]
fn refused(
    parse: impl Fn(&[u8]) -> Result<Option<crate::naive::Head>, HeadError>,
    marked: &str,
    rule: HeadRule,
) {
    let Some(at) = marked.find('¦') else { panic!("no mark in {marked:?}") };
    let text = marked.replacen('¦', "", 1);
    assert_eq!(parse(text.as_bytes()), Err(HeadError { rule, at: at as u32 }), "{marked:?}");
    drive::check_prefixes(text.as_bytes(), |head: &crate::naive::Head| head.len, parse);
}

#[test]
fn a_request_error_names_rule_and_byte() {
    use HeadRule as R;
    for (marked, rule) in [
        // RFC 9112 §2.2: at least one empty line is ignored; here exactly one.
        ("\r\n¦\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", R::EmptyLines),
        ("¦\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", R::BareLf),
        ("\r¦GET / HTTP/1.1\r\nHost: a\r\n\r\n", R::BareCr),
        // RFC 9112 §2.2: a recipient may accept a bare LF as a line's end; this parser does not.
        ("GET / HTTP/1.1¦\nHost: a\r\n\r\n", R::BareLf),
        ("GET / HTTP/1.1\r\nHost: a¦\n\r\n", R::BareLf),
        ("GET / HTTP/1.1\r\nHost: a\r\n¦\n", R::BareLf),
        ("GET / HTTP/1.1\r\nHost: a\r\nX:¦\nY: b\r\n\r\n", R::BareLf),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\nY: c¦\n\r\n", R::BareLf),
        // RFC 9112 §2.2: a bare CR is invalid.
        ("GET / HTTP/1.1\r¦ \nHost: a\r\n\r\n", R::BareCr),
        ("GET / HTTP/1.1\r\nHost: a\r¦b\r\n\r\n", R::BareCr),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r¦X", R::BareCr),
        // RFC 9112 §3: words are separated by one space; more than one is not accepted here.
        ("GET ¦ / HTTP/1.1\r\nHost: a\r\n\r\n", R::RequestLine),
        ("GET / ¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::Version),
        ("GET / HTTP/1.1¦ \r\nHost: a\r\n\r\n", R::RequestLine),
        ("GET¦\t/ HTTP/1.1\r\nHost: a\r\n\r\n", R::Method),
        ("GET /¦\r\nHost: a\r\n\r\n", R::RequestLine),
        ("GET¦\r\n\r\n", R::RequestLine),
        ("¦ GET / HTTP/1.1\r\nHost: a\r\n\r\n", R::RequestLine),
        // RFC 9112 §3.1: the method is a token.
        ("G¦(T / HTTP/1.1\r\nHost: a\r\n\r\n", R::Method),
        ("¦\x16\x03\x01\x02\x00\x01\x00\x01", R::Method),
        // RFC 9112 §3.2: the target is part of a URI.
        ("GET /¦\0 HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetByte),
        ("GET /a¦#b HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetByte),
        ("GET /abcdefgh¦\"ijklmnop HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetByte),
        ("GET /¦<b> HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetByte),
        ("GET /b¦> HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetByte),
        ("GET /¦\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetByte),
        ("GET /¦\x7f HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetByte),
        ("GET /¦\tx HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetByte),
        // RFC 9112 §3.2.1 to §3.2.4: the forms of a target, and their methods.
        ("GET a¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetForm),
        ("GET *¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetForm),
        ("GET a:80¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetForm),
        ("CONNECT /¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetForm),
        ("CONNECT a¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetForm),
        ("GET http://¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetForm),
        ("GET http:///x¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetForm),
        ("GET http://u@a/¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetForm),
        ("GET ftp://a/¦ HTTP/1.1\r\nHost: a\r\n\r\n", R::TargetForm),
        // RFC 9112 §2.3: the version's form; RFC 9110 §15.6.6: the supported versions.
        ("GET / ¦http/1.1\r\nHost: a\r\n\r\n", R::Version),
        ("GET / HTTP/¦x.1\r\nHost: a\r\n\r\n", R::Version),
        ("GET / HTTP/1¦1\r\nHost: a\r\n\r\n", R::Version),
        ("GET / HTTP/1.1¦1\r\nHost: a\r\n\r\n", R::RequestLine),
        ("GET / HTTP/1.¦2\r\nHost: a\r\n\r\n", R::UnsupportedVersion),
        ("GET / HTTP/0.¦9\r\nHost: a\r\n\r\n", R::UnsupportedVersion),
        // The preface of HTTP/2 (RFC 9113 §3.4).
        ("PRI * HTTP/2.¦0\r\n\r\nSM\r\n\r\n", R::UnsupportedVersion),
        ("GET / HTTP/2.¦0\r\n\r\n", R::UnsupportedVersion),
        // RFC 9112 §5.1: no white space before the colon.
        ("GET / HTTP/1.1\r\nHost¦ : a\r\n\r\n", R::SpaceBeforeColon),
        ("GET / HTTP/1.1\r\nHost¦\t: a\r\n\r\n", R::SpaceBeforeColon),
        // RFC 9112 §5.2: no line folding; §2.2: no white space before the first header.
        ("GET / HTTP/1.1\r\nHost: a\r\n¦ b\r\n\r\n", R::ObsFold),
        ("GET / HTTP/1.1\r\nHost: a\r\nX:\r\n¦\tb\r\n\r\n", R::ObsFold),
        ("GET / HTTP/1.1\r\n¦ Host: a\r\n\r\n", R::ObsFold),
        // RFC 9110 §5.1: a name is a token.
        ("GET / HTTP/1.1\r\nHost: a\r\n¦: b\r\n\r\n", R::HeaderName),
        ("GET / HTTP/1.1\r\nHost: a\r\nX¦\0: b\r\n\r\n", R::HeaderName),
        ("GET / HTTP/1.1\r\nHost: a\r\nX¦(: b\r\n\r\n", R::HeaderName),
        ("GET / HTTP/1.1\r\nHost: a\r\n¦\u{e9}: b\r\n\r\n", R::HeaderName),
        ("GET / HTTP/1.1\r\nHost: a\r\nno¦ colon\r\n\r\n", R::SpaceBeforeColon),
        ("GET / HTTP/1.1\r\nHost: a\r\nnocolon¦\r\n\r\n", R::HeaderName),
        // RFC 9110 §5.5: no controls in a value.
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b¦\0c\r\n\r\n", R::HeaderValue),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ¦\x0bc\r\n\r\n", R::HeaderValue),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a long value and then¦\x7f this\r\n\r\n", R::HeaderValue),
        // RFC 9112 §3.2: rules for Host.
        ("GET / HTTP/1.1\r\n\r¦\n", R::HostMissing),
        ("GET / HTTP/1.1\r\nX: y\r\n\r¦\n", R::HostMissing),
        ("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r¦\n\r\n", R::HostRepeated),
        ("GET / HTTP/1.0\r\nHost: a\r\nHOST: b\r¦\n\r\n", R::HostRepeated),
        ("GET / HTTP/1.1\r\nHost:¦ a b\r\n\r\n", R::HostInvalid),
        ("GET / HTTP/1.1\r\nHost:¦ a,b\r\n\r\n", R::HostInvalid),
        ("GET / HTTP/1.1\r\nHost:¦ u@a\r\n\r\n", R::HostInvalid),
        ("GET / HTTP/1.1\r\nHost:¦ a/b\r\n\r\n", R::HostInvalid),
        ("GET / HTTP/1.1\r\nHost:¦ a:b\r\n\r\n", R::HostInvalid),
        ("GET / HTTP/1.1\r\nHost:¦ a:65536\r\n\r\n", R::HostInvalid),
        ("GET / HTTP/1.1\r\nHost:¦ [::1\r\n\r\n", R::HostInvalid),
        ("GET / HTTP/1.1\r\nHost:¦ :80\r\n\r\n", R::HostInvalid),
        // RFC 9112 §3.2.2: Host names the same host as an absolute target.
        ("GET http://a/ HTTP/1.1\r\nHost:¦ b\r\n\r\n", R::HostDiffers),
        ("GET http://a/ HTTP/1.1\r\nHost:¦ a:81\r\n\r\n", R::HostDiffers),
        ("GET https://a/ HTTP/1.1\r\nHost:¦ a:80\r\n\r\n", R::HostDiffers),
        ("GET http://a/ HTTP/1.0\r\nHost:¦ b\r\n\r\n", R::HostDiffers),
        ("GET http://a/ HTTP/1.1\r\nHost:¦\r\n\r\n", R::HostDiffers),
        ("OPTIONS http://a HTTP/1.1\r\nHost:¦ b\r\n\r\n", R::HostDiffers),
    ] {
        refused(request, marked, rule);
    }
}

#[test]
fn a_response_error_names_rule_and_byte() {
    use HeadRule as R;
    for (marked, rule) in [
        ("¦\r\nHTTP/1.1 200 OK\r\n\r\n", R::Version),
        ("¦ICY 200 OK\r\n\r\n", R::Version),
        ("¦<html>", R::Version),
        ("HTTP/1.¦9 200 OK\r\n\r\n", R::UnsupportedVersion),
        // RFC 9112 §4: a status has three digits.
        ("HTTP/1.1¦\t200 OK\r\n\r\n", R::StatusCode),
        ("HTTP/1.1 ¦ 200 OK\r\n\r\n", R::StatusCode),
        ("HTTP/1.1 20¦x OK\r\n\r\n", R::StatusCode),
        ("HTTP/1.1 200¦0 OK\r\n\r\n", R::StatusCode),
        ("HTTP/1.1 20¦\r\n\r\n", R::StatusCode),
        ("HTTP/1.1 ¦099 OK\r\n\r\n", R::StatusCode),
        ("HTTP/1.1 200 O¦\0K\r\n\r\n", R::Reason),
        ("HTTP/1.1 200 OK¦\n\r\n", R::BareLf),
        ("HTTP/1.1 200¦\n\r\n", R::BareLf),
        ("HTTP/1.1 200 O\r¦K\r\n\r\n", R::BareCr),
        ("HTTP/1.1 200 OK\r\nA: b¦\n\r\n", R::BareLf),
        ("HTTP/1.1 200 OK\r\nA: b\r\n¦\n", R::BareLf),
        // RFC 9112 §5.1: a proxy must remove white space before a response's colon; here the response is
        // refused.
        ("HTTP/1.1 200 OK\r\nA¦ : b\r\n\r\n", R::SpaceBeforeColon),
        ("HTTP/1.1 200 OK\r\nA: b\r\n¦ c\r\n\r\n", R::ObsFold),
        ("HTTP/1.1 200 OK\r\nA: b¦\0\r\n\r\n", R::HeaderValue),
    ] {
        refused(response, marked, rule);
    }
}

#[test]
fn what_is_allowed_is_read() {
    for (text, method, target, form) in [
        // RFC 9112 §2.2: an empty line before the request.
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/", TargetForm::Origin),
        ("GET //a HTTP/1.1\r\nHost:\r\n\r\n", "GET", "//a", TargetForm::Origin),
        ("OPTIONS * HTTP/1.1\r\nHost: a.b-c_d~:8080\r\n\r\n", "OPTIONS", "*", TargetForm::Asterisk),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "CONNECT", "a:443", TargetForm::Authority),
        ("GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "http://a/b", TargetForm::Absolute),
        (
            "GET HTTPS://[::1]?b HTTP/1.1\r\nHost: [::1]:\r\n\r\n",
            "GET",
            "HTTPS://[::1]?b",
            TargetForm::Absolute,
        ),
        // RFC 9112 §3.2: HTTP/1.0 needs no Host.
        ("get /\\^`{|}[] HTTP/1.0\r\n\r\n", "get", "/\\^`{|}[]", TargetForm::Origin),
    ] {
        let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
        let Ok(Progress::Complete((head, len))) = parse_request(text.as_bytes(), &mut slots, &limits) else {
            panic!("{text:?} is refused: {:?}", request(text.as_bytes()));
        };
        assert_eq!((head.method, head.target, head.form, len), (method, target, form, text.len()));
        drive::check_prefixes(text.as_bytes(), |head: &crate::naive::Head| head.len, request);
    }
}

/// RFC 9110 §5.5, §5.6.3: the white space around a value is not part of it; obs-text is.
#[test]
fn values_are_trimmed_and_otherwise_untouched() {
    let text = b"GET / HTTP/1.1\r\nHost:\t a \r\nA:\r\nb: \t \r\nC:x\xff\ty \t\r\n\r\n";
    let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
    let Ok(Progress::Complete((head, _))) = parse_request(text, &mut slots, &limits) else {
        panic!("refused")
    };
    let expected: [(&str, &[u8]); 4] = [("Host", b"a"), ("A", b""), ("b", b""), ("C", b"x\xff\ty")];
    assert_eq!(head.headers.iter().collect::<Vec<_>>(), expected);
    assert_eq!(head.known(KnownHeader::Host), Some(&b"a"[..]));
    assert_eq!((head.header("B"), head.header("d")), (Some(&b""[..]), None));
}

/// RFC 9112 §3.3: the host comes from an absolute target, which `Host` must match, or else from `Host`.
#[test]
fn an_absolute_target_overrides_the_host_header() {
    for (text, host) in [
        ("GET / HTTP/1.1\r\nHost: A:1\r\n\r\n", Some(("A", Some(1)))),
        ("GET http://b:2/ HTTP/1.1\r\nHost: B:2\r\n\r\n", Some(("b", Some(2)))),
        ("GET https://b:443/ HTTP/1.1\r\nHost: b\r\n\r\n", Some(("b", Some(443)))),
        ("GET http://b/ HTTP/1.0\r\n\r\n", Some(("b", None))),
        ("GET / HTTP/1.0\r\n\r\n", None),
        ("CONNECT c:3 HTTP/1.1\r\nHost: A\r\n\r\n", Some(("c", Some(3)))),
        ("OPTIONS * HTTP/1.1\r\nHost: [::1]\r\n\r\n", Some(("[::1]", None))),
    ] {
        let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
        let Ok(Progress::Complete((head, _))) = parse_request(text.as_bytes(), &mut slots, &limits) else {
            panic!("{text:?} is refused");
        };
        assert_eq!(head.authority().map(|a| (a.host, a.port)), host, "{text:?}");
    }
}

/// RFC 9112 §4: the reason may be empty, and its space missing; it may contain anything but controls.
#[test]
fn responses_are_read() {
    for (text, status, reason, version) in [
        ("HTTP/1.1 200 OK\r\n\r\n", 200, "OK", Version::Http11),
        ("HTTP/1.0 200 \r\nA: b\r\n\r\n", 200, "", Version::Http10),
        ("HTTP/1.1 404\r\n\r\n", 404, "", Version::Http11),
        ("HTTP/1.1 100 Go  on\t\r\n\r\n", 100, "Go  on\t", Version::Http11),
        ("HTTP/1.1 999 \u{e9}\r\n\r\n", 999, "", Version::Http11),
    ] {
        let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
        let Ok(Progress::Complete((head, len))) = parse_response(text.as_bytes(), &mut slots, &limits) else {
            panic!("{text:?} is refused: {:?}", response(text.as_bytes()));
        };
        assert_eq!((head.status, head.reason, head.version, len), (status, reason, version, text.len()));
        assert_eq!(head.is_interim(), status == 100);
        drive::check_prefixes(text.as_bytes(), |head: &crate::naive::Head| head.len, response);
    }
}

/// RFC 9112 §3: a long line gives 414, RFC 6585 §5: large headers give 431; each limit is exact to the byte.
#[test]
fn line_and_head_limits_are_exact_and_distinct() {
    let line = "GET /aaaa HTTP/1.1";
    let text = format!("{line}\r\nHost: a\r\n\r\n");
    let parse = |text: &str, line_bytes_max, head_bytes_max| {
        let limits = HeadLimits { line_bytes_max, head_bytes_max };
        let whole = drive::request(text.as_bytes(), &mut HeaderSlots::new(), &limits);
        drive::check_prefixes(
            text.as_bytes(),
            |head: &crate::naive::Head| head.len,
            |part| drive::request(part, &mut HeaderSlots::new(), &limits),
        );
        whole.map(|head| head.map(|head| head.len)).map_err(|error| (error.rule, error.at as usize))
    };
    assert_eq!(parse(&text, line.len(), text.len()), Ok(Some(text.len())));
    assert_eq!(parse(&text, line.len() - 1, text.len()), Err((HeadRule::LineTooLong, line.len() - 1)));
    assert_eq!(parse(&text, line.len(), text.len() - 1), Err((HeadRule::HeadersTooLarge, text.len() - 1)));
    assert_eq!(parse(&text, 8192, 10), Err((HeadRule::LineTooLong, 10)));
    assert_eq!(parse(&text, 8192, line.len() + 2), Err((HeadRule::HeadersTooLarge, line.len() + 2)));
    assert_eq!(parse(&text, 0, 0), Err((HeadRule::LineTooLong, 0)));
    // The empty line before the request counts towards the head, not towards the line.
    let led = format!("\r\n{text}");
    assert_eq!(parse(&led, line.len(), led.len()), Ok(Some(led.len())));
    assert_eq!(parse(&led, line.len(), led.len() - 1), Err((HeadRule::HeadersTooLarge, led.len() - 1)));
    // A line of a megabyte without a line end.
    let long = format!("GET /{}", "a".repeat(1 << 20));
    let error = drive::request(long.as_bytes(), &mut HeaderSlots::new(), &HeadLimits::default());
    assert_eq!(error, Err(HeadError { rule: HeadRule::LineTooLong, at: 8192 }));
    // The error is returned as soon as it is certain, not when the head's limit is reached.
    let error = drive::request(&long.as_bytes()[..8193], &mut HeaderSlots::new(), &HeadLimits::default());
    assert_eq!(error, Err(HeadError { rule: HeadRule::LineTooLong, at: 8192 }));
    assert_eq!(
        drive::request(&long.as_bytes()[..8192], &mut HeaderSlots::new(), &HeadLimits::default()),
        Ok(None)
    );
    // If a line breaks two rules, the first one is reported, however much has arrived (found by proptest).
    let limits = HeadLimits { line_bytes_max: 15, head_bytes_max: 100 };
    for text in [
        &b"HTTP/1.1 200 abc\nX: \r\n"[..],
        b"HTTP/1.1 200 abc",
        b"HTTP/1.1 200 abc\r\n",
        b"HTTP/1.1 200 abc\n",
    ] {
        let error = drive::response(text, &mut HeaderSlots::new(), &limits);
        assert_eq!(error, Err(HeadError { rule: HeadRule::LineTooLong, at: 15 }), "{}", text.escape_ascii());
    }
    // The limit applies to status lines too.
    let limits = HeadLimits { line_bytes_max: 14, head_bytes_max: 100 };
    let error = drive::response(b"HTTP/1.1 200 OK\r\n\r\n", &mut HeaderSlots::new(), &limits);
    assert_eq!(error, Err(HeadError { rule: HeadRule::LineTooLong, at: 14 }));
    // A header of 64 KiB.
    let large = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(1 << 16));
    let error = response(large.as_bytes());
    assert_eq!(error, Err(HeadError { rule: HeadRule::HeadersTooLarge, at: 32768 }));
}

#[test]
fn headers_beyond_the_slots_are_refused() {
    for more in [0, 1, 23, 24, 25, HEADERS_MAX - 1, HEADERS_MAX, HEADERS_MAX + 72] {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-Y: z\r\n".repeat(more));
        match request(text.as_bytes()) {
            Ok(Some(head)) => assert!(head.headers.len() == more + 1 && more < HEADERS_MAX),
            outcome => {
                let at = "GET / HTTP/1.1\r\nHost: a\r\n".len() + "X-Y: z\r\n".len() * HEADERS_MAX - 1;
                assert_eq!(outcome, Err(HeadError { rule: HeadRule::TooManyHeaders, at: at as u32 }));
                assert!(more >= HEADERS_MAX);
            }
        }
    }
}

#[test]
fn errors_say_what_where_and_by_which_rule() {
    let error = request(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n").expect_err("refused");
    assert_eq!(
        error.to_string(),
        "white space stands between a header's name and its colon (byte 20; RFC 9112 §5.1)"
    );
    assert!(HeadRule::ALL.iter().all(|rule| rule.section().starts_with("RFC 9")));
    assert!(size_of::<HeadError>() <= 8);
}
