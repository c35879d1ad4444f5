//! Requests: RFC 9113 §8 refuses the invalid ones, and an accepted one is the same request in HTTP/1.

use crate::fuzz_seeds::http2_head;
use proptest::prelude::*;
use wire::{
    http1::{
        head::{HeadLimits, Progress},
        url::Scheme,
    },
    http2::{
        hpack::{self, Decoder, FieldSection, Strings},
        priority::Priority,
        request::{
            Content, HeadRoom, Request, RequestRule, RequestTarget, Terms, read_request, read_trailers,
        },
    },
};

fn section(fields: &[(&str, &str)]) -> FieldSection {
    section_of(&fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect::<Vec<_>>())
}

/// Encodes and decodes the fields with HPACK; this encoder leaves upper case unchanged.
fn section_of(fields: &[(&[u8], &[u8])]) -> FieldSection {
    let mut section = FieldSection::new(1 << 16, 200);
    decode(fields, &mut section);
    section
}

fn decode(fields: &[(&[u8], &[u8])], section: &mut FieldSection) {
    let mut block = Vec::new();
    for (name, value) in fields {
        if name.iter().any(u8::is_ascii_uppercase) || name.len() > 100 || value.len() > 100 {
            assert!(name.len() < 127 && value.len() < 127, "written by hand");
            block.extend_from_slice(&[0, name.len() as u8]);
            block.extend_from_slice(name);
            block.push(value.len() as u8);
            block.extend_from_slice(value);
        } else {
            hpack::field(&mut block, name, value, Strings::Plain);
        }
    }
    assert_eq!(Decoder::new().decode(&block, section), Ok(()));
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/x?y")];

const END: Terms = Terms { end_stream: true, extended_connect: true };

/// Returns the rule by which a `GET` with these additional fields is refused.
fn refused_with(fields: &[(&str, &str)]) -> Option<RequestRule> {
    refused(&[&GET[..], fields].concat())
}

fn refused(fields: &[(&str, &str)]) -> Option<RequestRule> {
    read_request(&section(fields), END).err()
}

/// Returns `GET` with one of its pseudo-headers replaced.
fn with(name: &str, value: &'static str) -> Vec<(&'static str, &'static str)> {
    GET.into_iter().map(|(n, v)| if n == name { (n, value) } else { (n, v) }).collect()
}

fn without(name: &str) -> Vec<(&'static str, &'static str)> {
    GET.into_iter().filter(|(n, _)| *n != name).collect()
}

#[test]
fn a_request_is_taken_apart() {
    let fields = [&GET[..], &[("accept", "*/*"), ("priority", "u=1, i"), ("te", "trailers")]].concat();
    let section = section(&fields);
    let request = read_request(&section, END).expect("sound");
    assert_eq!((request.method, request.authority), ("GET", "a.example"));
    assert_eq!(request.ask, RequestTarget::Resource { scheme: Scheme::Https, path: "/x?y" });
    assert_eq!(request.content, Content::None);
    assert_eq!(request.priority, Priority { urgency: 1, incremental: true });
    assert_eq!(request.fields().count(), 3);
    let mut head = Vec::new();
    request.render_head(&mut head);
    let want = "GET /x?y HTTP/1.1\r\nhost: a.example\r\naccept: */*\r\npriority: u=1, i\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&head), want);
    http2_head::check(&request, &section);
}

/// RFC 9113 §8.2.1: names and values contain nothing that HTTP/1 would read differently.
#[test]
fn names_and_values_invalid_in_http1_are_refused() {
    for name in ["Accept", "a b", "a:", "a\r", "", "a\0", "a\u{e9}", "a(b)"] {
        assert_eq!(refused_with(&[(name, "x")]), Some(RequestRule::FieldName), "{name:?}");
    }
    for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0", " a", "a ", "\ta", "a\t", "a\x7f", "\x01"] {
        assert_eq!(refused_with(&[("x", value)]), Some(RequestRule::FieldValue), "{value:?}");
        // The rule applies to pseudo-headers too.
        let fields = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", value)];
        assert_eq!(refused(&fields), Some(RequestRule::FieldValue), "{value:?}");
    }
    for value in ["", "a b", "a\tb", "\u{e9}", "a:b", "\"\\"] {
        assert_eq!(refused_with(&[("x", value)]), None, "{value:?}");
    }
}

/// RFC 9113 §8.2.2: connection-specific fields are refused.
#[test]
fn what_is_of_the_connection_is_refused() {
    for name in ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"] {
        assert_eq!(refused_with(&[(name, "x")]), Some(RequestRule::ConnectionSpecific));
    }
    for value in ["gzip", "trailers, gzip", ""] {
        assert_eq!(refused_with(&[("te", value)]), Some(RequestRule::Te));
    }
    assert_eq!(refused_with(&[("te", "Trailers")]), None);
}

/// RFC 9113 §8.3 and §8.3.1: each pseudo-header occurs once, and before the fields.
#[test]
fn each_pseudo_header_comes_once_and_first() {
    assert_eq!(refused_with(&[]), None);
    for name in [":status", ":x", ":", ":Method"] {
        assert_eq!(refused_with(&[(name, "200")]), Some(RequestRule::PseudoUnknown), "{name}");
    }
    for (name, value) in GET {
        assert_eq!(refused_with(&[(name, value)]), Some(RequestRule::PseudoRepeated), "{name}");
        let late = [&without(name)[..], &[("a", "b"), (name, value)]].concat();
        assert_eq!(refused(&late), Some(RequestRule::PseudoLate), "{name}");
    }
    for name in [":method", ":scheme", ":path"] {
        assert_eq!(refused(&without(name)), Some(RequestRule::PseudoMissing), "{name}");
    }
    assert_eq!(refused(&without(":authority")), Some(RequestRule::AuthorityMissing));
    for method in ["", "G T", "GET\u{e9}"] {
        let fields = [(":method", method), GET[1], GET[2], GET[3]];
        assert_eq!(refused(&fields), Some(RequestRule::Method), "{method:?}");
    }
    for scheme in ["", "ftp", "HTTPS", "http://a"] {
        let fields = [GET[0], (":scheme", scheme), GET[2], GET[3]];
        assert_eq!(refused(&fields), Some(RequestRule::Scheme), "{scheme:?}");
    }
    for path in ["", "x", "*", "http://b.example/", "?x", "/a b", "/a#b", "/a\"", "/\u{e9}", "/<"] {
        let fields = [GET[0], GET[1], GET[2], (":path", path)];
        assert_eq!(refused(&fields), Some(RequestRule::Path), "{path:?}");
    }
    let asterisk = [(":method", "OPTIONS"), GET[1], GET[2], (":path", "*")];
    assert_eq!(refused(&asterisk), None);
}

/// RFC 9113 §8.3.1: a request names exactly one site.
#[test]
fn authority_and_host_name_one_site() {
    for authority in ["", "u@a.example", "a.example:x", "a b", "a.example:70000", "a/b", "a,b"] {
        let fields = [GET[0], GET[1], (":authority", authority), GET[3]];
        assert_eq!(refused(&fields), Some(RequestRule::Authority), "{authority}");
        let fields = [&without(":authority")[..], &[("host", authority)]].concat();
        assert_eq!(refused(&fields), Some(RequestRule::Authority), "{authority}");
    }
    for (authority, host, rule) in [
        ("a.example", "a.example", None),
        ("a.example", "A.Example:443", None),
        ("a.example:443", "a.example", None),
        ("a.example", "b.example", Some(RequestRule::HostDiffers)),
        ("a.example", "a.example:80", Some(RequestRule::HostDiffers)),
        ("a.example", "", Some(RequestRule::HostDiffers)),
        ("a.example", "a.example,b", Some(RequestRule::Authority)),
    ] {
        let fields = [&with(":authority", authority)[..], &[("host", host)]].concat();
        assert_eq!(refused(&fields), rule, "{authority} {host}");
    }
    assert_eq!(
        refused_with(&[("host", "a.example"), ("host", "a.example")]),
        Some(RequestRule::HostRepeated)
    );
    let by_host = section(&[&without(":authority")[..], &[("host", "b.example")]].concat());
    let request = read_request(&by_host, END).expect("sound");
    assert_eq!(request.authority, "b.example");
    http2_head::check(&request, &by_host);
}

/// RFC 9113 §8.1.1, RFC 9110 §8.6: Content-Length is one number and agrees with the stream's end.
#[test]
fn content_length_is_one_number_matching_the_end() {
    let open = Terms { end_stream: false, ..END };
    for (value, rule) in [
        ("0", None),
        ("1", Some(RequestRule::ContentLengthAndEnd)),
        ("", Some(RequestRule::ContentLength)),
        ("+1", Some(RequestRule::ContentLength)),
        ("1, 1", Some(RequestRule::ContentLength)),
        ("0x1", Some(RequestRule::ContentLength)),
        ("18446744073709551616", Some(RequestRule::ContentLength)),
    ] {
        assert_eq!(refused_with(&[("content-length", value)]), rule, "{value:?}");
    }
    let twice = [("content-length", "5"), ("content-length", "5")];
    assert_eq!(refused_with(&twice), Some(RequestRule::ContentLength));
    let length = section(&[&GET[..], &[("content-length", "18446744073709551615")]].concat());
    let request = read_request(&length, open).expect("sound");
    assert_eq!(request.content, Content::Length(u64::MAX));
    http2_head::check(&request, &length);
    let nothing = section(&[&GET[..], &[("content-length", "0")]].concat());
    for terms in [open, END] {
        let request = read_request(&nothing, terms).expect("sound");
        assert_eq!(request.content, Content::Length(0));
        http2_head::check(&request, &nothing);
    }
    let endless = section(&GET);
    let request = read_request(&endless, open).expect("sound");
    assert_eq!(request.content, Content::ToTheEnd);
    http2_head::check(&request, &endless);
}

/// RFC 9113 §8.5, RFC 8441 §4: CONNECT opens a tunnel or another protocol.
#[test]
fn connect_is_for_a_tunnel_or_another_protocol() {
    let connect = (":method", "CONNECT");
    let tunnel = [connect, (":authority", "a.example:443")];
    let open = Terms { end_stream: false, ..END };
    let fields = section(&tunnel);
    let request = read_request(&fields, open).expect("sound");
    assert_eq!((request.ask, request.authority), (RequestTarget::Tunnel, "a.example:443"));
    http2_head::check(&request, &fields);
    for fields in [
        [&tunnel[..], &[(":path", "/")]].concat(),
        [&tunnel[..], &[(":scheme", "https")]].concat(),
        [&GET[1..], &[connect]].concat(),
    ] {
        assert_eq!(refused(&fields), Some(RequestRule::PseudoOfConnect));
    }
    assert_eq!(refused(&[connect, ("host", "a:1")]), Some(RequestRule::PseudoMissing));
    assert_eq!(refused(&[connect, GET[2]]), Some(RequestRule::AuthorityOfConnect));
    let sized = [&tunnel[..], &[("content-length", "1")]].concat();
    assert_eq!(refused(&sized), Some(RequestRule::ContentLength));

    let upgrade = [&GET[1..], &[connect, (":protocol", "websocket")]].concat();
    let fields = section(&upgrade);
    let request = read_request(&fields, open).expect("sound");
    let ask = RequestTarget::Upgrade { protocol: "websocket", scheme: Scheme::Https, path: "/x?y" };
    assert_eq!(request.ask, ask);
    http2_head::check(&request, &fields);
    let not_offered = Terms { extended_connect: false, ..open };
    assert_eq!(read_request(&fields, not_offered).err(), Some(RequestRule::Protocol));
    for protocol in ["", "a b", "web,socket"] {
        let fields = [&GET[1..], &[connect, (":protocol", protocol)]].concat();
        assert_eq!(refused(&fields), Some(RequestRule::Protocol));
    }
    let of_get = [&[(":protocol", "websocket")], &GET[..]].concat();
    assert_eq!(refused(&of_get), Some(RequestRule::Protocol));
}

/// RFC 9113 §8.2.3: cookie fields are joined at the position of the first.
#[test]
fn cookie_crumbs_are_joined_at_the_first() {
    let fields = [("a", "1"), ("cookie", "b=2"), ("c", "3"), ("cookie", "d=4; e=5"), ("cookie", "f")];
    let section = section(&[&GET[..], &fields].concat());
    let request = read_request(&section, END).expect("sound");
    let mut head = Vec::new();
    request.render_head(&mut head);
    let want = "a: 1\r\ncookie: b=2; d=4; e=5; f\r\nc: 3\r\n\r\n";
    assert!(String::from_utf8_lossy(&head).ends_with(want));
    http2_head::check(&request, &section);
}

/// RFC 9113 §8.1, RFC 9110 §6.5.1: trailers have no pseudo-headers, and forbidden fields are dropped.
#[test]
fn trailers_are_fields_and_change_nothing() {
    let sound = section(&[("x-sum", "1"), ("content-length", "5"), ("host", "b"), ("grpc-status", "0")]);
    let trailers = read_trailers(&sound).expect("sound");
    let mut lines = Vec::new();
    assert_eq!(trailers.render(&mut lines), 2);
    assert_eq!(lines, b"x-sum: 1\r\ngrpc-status: 0\r\n");
    assert_eq!(trailers.fields().count(), 4);
    for (field, rule) in [
        ((":path", "/"), RequestRule::PseudoInTrailers),
        (("Upper", "x"), RequestRule::FieldName),
        (("connection", "x"), RequestRule::ConnectionSpecific),
        (("x", "a\r\nb: c"), RequestRule::FieldValue),
    ] {
        assert_eq!(read_trailers(&section(&[("a", "b"), field])).err(), Some(rule));
    }
}

/// Generates a field, mostly valid, often not.
fn field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let name = prop_oneof![
        4 => "[a-z][a-z0-9-]{0,12}".prop_map(String::into_bytes),
        2 => proptest::sample::select(vec![
            "host", "cookie", "content-length", "te", "transfer-encoding", "priority", "connection", "upgrade",
            "Cookie", "expect", "x-forwarded-for", "cookie", "cookie",
        ]).prop_map(|name| name.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..6),
    ];
    let value = prop_oneof![
        4 => "[ -~]{0,30}".prop_map(String::into_bytes),
        2 => proptest::sample::select(vec![
            "a.example", "0", "5", "trailers", "chunked", "b=c", "a\r\n\r\nGET /evil HTTP/1.1\r\n", "x\ny: z", "",
        ]).prop_map(|value| value.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ];
    (name, value)
}

fn pseudo() -> impl Strategy<Value = Vec<(String, String)>> {
    let pick = |values: &'static [&'static str]| proptest::sample::select(values).prop_map(str::to_owned);
    let any = "[ -~\r\n]{0,10}";
    (
        prop_oneof![8 => pick(&["GET", "POST", "OPTIONS", "CONNECT", "HEAD"]), 1 => any],
        prop_oneof![8 => pick(&["http", "https"]), 1 => any],
        prop_oneof![8 => pick(&["a.example", "a:443", "[::1]:1", "A.EXAMPLE"]), 1 => any],
        prop_oneof![8 => pick(&["/", "/x?y", "*", "/a b", "//x"]), 2 => "/[ -~]{0,20}", 1 => any],
        0u8..64,
    )
        .prop_map(|(method, scheme, authority, path, mask)| {
            let all = [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)];
            let protocol = (mask & 0x20 != 0).then(|| (":protocol".to_owned(), "websocket".to_owned()));
            let all = all.into_iter().map(|(name, value)| (name.to_owned(), value));
            // Most requests have all of the pseudo-headers.
            let dropped = if mask & 0x10 != 0 { usize::from(mask & 7) } else { usize::MAX };
            all.enumerate().filter(|(at, _)| *at != dropped).map(|(_, field)| field).chain(protocol).collect()
        })
}

fn check(request: &Request<'_>, section: &FieldSection) {
    http2_head::check(request, section);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Any request that is accepted is the same request in HTTP/1, with nothing added.
    #[test]
    fn nothing_is_smuggled(
        pseudo in pseudo(),
        fields in proptest::collection::vec(field(), 0..6),
        end_stream in any::<bool>(),
        extended_connect in any::<bool>(),
    ) {
        let all: Vec<(&[u8], &[u8])> = pseudo
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            .chain(fields.iter().map(|(name, value)| (&name[..], &value[..])))
            .collect();
        let section = section_of(&all);
        if let Ok(request) = read_request(&section, Terms { end_stream, extended_connect }) {
            check(&request, &section);
        }
        if let Ok(trailers) = read_trailers(&section) {
            let mut lines = Vec::new();
            let dropped = trailers.render(&mut lines);
            let ends = lines.iter().filter(|&&b| b == b'\n').count();
            prop_assert_eq!(ends + dropped, all.len());
        }
    }
}

/// Fields as sent; the flag is true if the stream ends with them.
type Sent = (Vec<(Vec<u8>, Vec<u8>)>, bool);

/// Generates successive requests: each is the previous one with another path, with another change, or
/// entirely different.
fn requests() -> impl Strategy<Value = Vec<Sent>> {
    let whole = || {
        (pseudo(), proptest::collection::vec(field(), 0..4)).prop_map(|(pseudo, fields)| {
            let pseudo = pseudo.into_iter().map(|(name, value)| (name.into_bytes(), value.into_bytes()));
            pseudo.chain(fields).collect::<Vec<_>>()
        })
    };
    let step = prop_oneof![
        4 => prop_oneof![3 => "/[!-~]{0,20}", 1 => "[ -~\r\n]{0,3}"].prop_map(Step::Path),
        1 => (any::<prop::sample::Index>(), "[ -~]{0,20}").prop_map(|(at, value)| Step::Value(at, value)),
        1 => field().prop_map(Step::Field),
        1 => any::<bool>().prop_map(Step::End),
        1 => whole().prop_map(Step::Whole),
    ];
    (whole(), proptest::collection::vec(step, 1..8)).prop_map(|(first, steps)| {
        let mut all = vec![(first, true)];
        for step in steps {
            let (mut fields, mut end_stream) = all.last().cloned().unwrap_or_default();
            match step {
                Step::Path(path) => {
                    let path_field = fields.iter_mut().find(|(name, _)| name == b":path");
                    path_field.into_iter().for_each(|(_, value)| *value = path.clone().into_bytes());
                }
                Step::Value(at, value) => {
                    if !fields.is_empty() {
                        let at = at.index(fields.len());
                        fields[at].1 = value.into_bytes();
                    }
                }
                Step::Field(field) => fields.push(field),
                Step::End(end) => end_stream = end,
                Step::Whole(whole) => fields = whole,
            }
            all.push((fields, end_stream));
        }
        all
    })
}

#[derive(Debug, Clone)]
enum Step {
    Path(String),
    Value(prop::sample::Index, String),
    Field((Vec<u8>, Vec<u8>)),
    End(bool),
    Whole(Vec<(Vec<u8>, Vec<u8>)>),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// The cached layout of the previous request does not change the result for the next one.
    #[test]
    fn the_previous_request_does_not_affect_the_next(requests in requests()) {
        let mut section = FieldSection::new(1 << 16, 200);
        let mut room = HeadRoom::default();
        for (fields, end_stream) in requests {
            let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            decode(&fields, &mut section);
            let alone = section_of(&fields);
            let terms = Terms { end_stream, extended_connect: true };
            let (behind, alone) = (read_request(&section, terms), read_request(&alone, terms));
            let parts = |request: &Request<'_>| {
                let ask = format!("{:?} {:?} {:?}", request.ask, request.content, request.priority);
                let fields: Vec<_> = request.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                (request.method.to_owned(), request.authority.to_owned(), ask, fields)
            };
            prop_assert_eq!(behind.as_ref().map(parts).map_err(|rule| *rule), alone.as_ref().map(parts).map_err(|rule| *rule));
            if let Ok(request) = behind {
                http2_head::is_found_behind(&request, &mut room);
            }
        }
    }
}

/// The case for which the layout is cached: the second request differs in its path alone, and its head is the
/// first's with another path, longer or shorter, with the same result for its content.
#[test]
fn a_request_with_another_path_reuses_the_layout() {
    let mut section = FieldSection::new(1 << 16, 200);
    let mut room = HeadRoom::new(64);
    for path in ["/x", "/longer?than=before", "/", "/y", "/y"] {
        let fields =
            with(":path", path).into_iter().chain([("accept", "*/*"), ("cookie", "a=b"), ("cookie", "c=d")]);
        let fields: Vec<_> = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        decode(&fields, &mut section);
        let request = read_request(&section, END).expect("sound");
        let Ok(Progress::Complete((head, bytes))) = request.as_head(&mut room, &HeadLimits::default()) else {
            panic!("a head")
        };
        let lines: Vec<_> =
            head.headers.iter().map(|(name, value)| (name, value.escape_ascii().to_string())).collect();
        let want = [("host", "a.example"), ("accept", "*/*"), ("cookie", "a=b; c=d")];
        assert_eq!(head.target, path);
        assert_eq!(lines, want.map(|(name, value)| (name, value.to_owned())));
        let whole =
            format!("GET {path} HTTP/1.1\r\nhost: a.example\r\naccept: */*\r\ncookie: a=b; c=d\r\n\r\n");
        assert_eq!(bytes, whole.len());
    }
}
