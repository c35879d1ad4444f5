//! Translation of HTTP/2 requests for an HTTP/1 origin (RFC 9113 §8): each field that HTTP/1 would read in
//! another way ends its stream, and any other request reaches the origin as exactly one request.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use tests::{Accelerator, Answer, PATIENCE, ScriptedOrigin, on_one_core};

on_one_core! {
    a13_what_http1_would_misread_reaches_no_origin,
    a13_what_goes_on_is_one_request_of_http1,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

type Fields<'f> = &'f [(&'f str, &'f str)];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).expect("short").to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Encodes fields as literals without indexing.
fn block(fields: Fields<'_>) -> Vec<u8> {
    let string = |text: &str| [&[u8::try_from(text.len()).expect("below 127")], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], string(name), string(value)].concat()).collect()
}

/// Sends a request with content on a connection of its own. Returns the first byte of the answer's field
/// block, or the error code that ended the stream.
fn ask(accelerator: &Accelerator, fields: Fields<'_>, content: Option<&[u8]>) -> Result<u8, u32> {
    let mut stream = TcpStream::connect(accelerator.address()).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let end = if content.is_none() { END_STREAM } else { 0 };
    let mut sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
    sent.extend(frame(SETTINGS, 1, 0, &[]));
    sent.extend(frame(HEADERS, end | END_HEADERS, 1, &block(fields)));
    if let Some(content) = content {
        sent.extend(frame(DATA, END_STREAM, 1, content));
    }
    stream.write_all(&sent).expect("sent");
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).expect("an answer");
        let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
        stream.read_exact(&mut payload).expect("a frame");
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().expect("four bytes"));
        match header[3] {
            HEADERS => return Ok(payload[0]),
            RST_STREAM => return Err(number(0)),
            GOAWAY => return Err(number(4)),
            _ => {}
        }
    }
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "site")];

fn with<'f>(more: &[(&'f str, &'f str)]) -> Vec<(&'f str, &'f str)> {
    [&GET[..], more].concat()
}

fn instead<'f>(name: &str, value: &'f str) -> Vec<(&'f str, &'f str)> {
    GET.iter().map(|(known, is)| if *known == name { (*known, value) } else { (*known, *is) }).collect()
}

fn a13_what_http1_would_misread_reaches_no_origin(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin
        .otherwise(|_, reply| reply.answer(&Answer::new(200, "reached").header("Cache-Control", "no-store")));
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let without = |name: &str| GET.iter().copied().filter(|(known, _)| *known != name).collect::<Vec<_>>();
    let rows: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("a line in a value", with(&[("x", "a\r\nevil: 1")])),
        ("a line feed in a value", with(&[("x", "a\nevil: 1")])),
        ("a NUL in a value", with(&[("x", "a\0b")])),
        ("a blank at a value's end", with(&[("x", "a ")])),
        ("a line in a name", with(&[("x\r\nevil", "1")])),
        ("a colon in a name", with(&[("x: y", "1")])),
        ("an upper-case name", with(&[("X-Up", "1")])),
        ("an empty name", with(&[("", "1")])),
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")])),
        ("connection", with(&[("connection", "close")])),
        ("keep-alive", with(&[("keep-alive", "5")])),
        ("proxy-connection", with(&[("proxy-connection", "close")])),
        ("upgrade", with(&[("upgrade", "h2c")])),
        ("te", with(&[("te", "gzip")])),
        ("a second host", with(&[("host", "other")])),
        ("two hosts", with(&[("host", "site"), ("host", "site")])),
        ("two lengths", with(&[("content-length", "0"), ("content-length", "1")])),
        ("a length that is none", with(&[("content-length", "+1")])),
        ("a length that the content has not", with(&[("content-length", "5")])),
        ("a pseudo-header behind a field", [&[("x", "1")][..], &GET].concat()),
        ("a pseudo-header twice", with(&[(":path", "/evil")])),
        ("an unknown pseudo-header", with(&[(":evil", "1")])),
        ("a pseudo-header of answers", with(&[(":status", "200")])),
        ("a line in the path", instead(":path", "/ HTTP/1.1\r\nevil: 1")),
        ("a blank in the path", instead(":path", "/a b")),
        ("no slash", instead(":path", "evil")),
        ("an empty path", instead(":path", "")),
        ("a line in the method", instead(":method", "GET / HTTP/1.1\r\n")),
        ("a line in the authority", instead(":authority", "site\r\nevil: 1")),
        ("somebody in the authority", instead(":authority", "evil@site")),
        ("a line in the scheme", instead(":scheme", "http\r\n")),
        ("no method", without(":method")),
        ("no scheme", without(":scheme")),
        ("no path", without(":path")),
        ("no authority", without(":authority")),
    ];
    for (what, fields) in rows {
        for content in [None, Some(&b"content"[..])] {
            let answer = ask(&accelerator, &fields, content);
            // RST_STREAM or GOAWAY with PROTOCOL_ERROR, or an error status (400 is in the static table).
            assert!(matches!(answer, Err(1) | Ok(0x8c)), "{what}: {answer:?}");
        }
    }
    assert!(origin.all_seen().is_empty() && origin.nonsense().is_empty(), "{:?}", origin.all_seen());
    assert_eq!(ask(&accelerator, &GET, None), Ok(0x88), "an honest one is answered");
}

fn a13_what_goes_on_is_one_request_of_http1(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin
        .otherwise(|_, reply| reply.answer(&Answer::new(200, "reached").header("Cache-Control", "no-store")));
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: site\r\n\r\n";
    let post: Vec<_> = instead(":method", "POST");
    let told = [&post[..], &[("content-length", "43")]].concat();
    assert_eq!(smuggled.len(), 43);
    for fields in [&post, &told] {
        assert_eq!(ask(&accelerator, fields, Some(smuggled)), Ok(0x88));
    }
    // Content in a GET, which most programs do not expect.
    assert_eq!(ask(&accelerator, &with(&[]), Some(smuggled)), Ok(0x88));
    let crumbs =
        with(&[("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("cookie", "c=3"), ("te", "trailers")]);
    assert_eq!(ask(&accelerator, &crumbs, None), Ok(0x88));
    let seen = origin.all_seen();
    assert!(origin.nonsense().is_empty() && origin.count("/smuggled") == 0, "{:?}", origin.nonsense());
    assert_eq!(seen.len(), 4);
    for request in &seen[..3] {
        assert_eq!(request.body, smuggled, "the content is content");
    }
    assert_eq!(seen[3].header("Cookie"), Some("a=1; b=2; c=3"));
    assert_eq!((seen[3].header("Host"), seen[3].header("TE")), (Some("site"), None));
}
