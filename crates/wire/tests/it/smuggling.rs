//! The published kinds of request smuggling, each refused: by the head, by the framing or in the body. The
//! kinds are those of Linhart et al. (2005), Kettle (2019 to 2025), the CVEs of servers since, and RFC 9112
//! §11.2.
//!
//! Each case is a whole connection's input. No case may produce a second request that the tester did not send
//! openly; once a case is refused, nothing after it is read.

use wire::http1::{
    framing::{BodyDecoder, RequestKind, StepState, request_framing, response_framing},
    head::{HeadLimits, HeaderSlots, Progress, parse_request, parse_response},
};

/// Processes a connection's bytes like a server. Returns the targets of the accepted requests, and the error
/// that refuses the rest.
fn served(mut input: &[u8]) -> (Vec<String>, Option<String>) {
    let (mut slots, limits, mut targets) = (HeaderSlots::new(), HeadLimits::default(), Vec::new());
    while !input.is_empty() {
        let framing = match parse_request(input, &mut slots, &limits) {
            Ok(Progress::NeedMore) => return (targets, None),
            Err(error) => return (targets, Some(error.to_string())),
            Ok(Progress::Complete((head, len))) => {
                input = &input[len..];
                match request_framing(&head) {
                    Err(error) => return (targets, Some(error.to_string())),
                    Ok(framing) => {
                        targets.push(head.target.to_owned());
                        framing
                    }
                }
            }
        };
        let mut body = BodyDecoder::new(framing);
        while !body.is_done() {
            match body.decode(input) {
                Err(error) => return (targets, Some(error.to_string())),
                Ok(step) => {
                    input = &input[step.consumed..];
                    if step.state == StepState::NeedMore {
                        return (targets, None);
                    }
                }
            }
        }
    }
    (targets, None)
}

/// Headers of a POST that is followed by `0 CRLF CRLF` and by a smuggled request.
const HEADERS: &[(&str, &str)] = &[
    ("CL.TE", "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n"),
    ("TE.CL", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"),
    ("TE.CL with CL 0", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"),
    ("CL+CL, different", "Content-Length: 5\r\nContent-Length: 0\r\n"),
    ("CL+CL, equal", "Content-Length: 5\r\nContent-Length: 5\r\n"),
    ("CL+CL, apart and in other case", "Content-Length: 5\r\nX: y\r\ncONTENT-lENGTH: 0\r\n"),
    ("CL list", "Content-Length: 5, 5\r\n"),
    ("CL list, different", "Content-Length: 0,5\r\n"),
    ("CL list with empty", "Content-Length: 5,\r\n"),
    ("CL signed", "Content-Length: +5\r\n"),
    ("CL negative", "Content-Length: -1\r\n"),
    ("CL hexadecimal", "Content-Length: 0x5\r\n"),
    ("CL with underscore", "Content-Length: 0_5\r\n"),
    ("CL with space inside", "Content-Length: 0 5\r\n"),
    ("CL with text after", "Content-Length: 5abc\r\n"),
    ("CL empty", "Content-Length: \r\n"),
    ("CL quoted", "Content-Length: \"5\"\r\n"),
    ("CL overflowing 64 bits to 5", "Content-Length: 18446744073709551621\r\n"),
    ("CL with vertical tab", "Content-Length: \x0b5\r\n"),
    ("CL with NUL", "Content-Length: 5\0\r\n"),
    ("CL with other digits", "Content-Length: \u{ff15}\r\n"),
    ("CL with space before colon", "Content-Length : 5\r\n"),
    ("CL with tab before colon", "Content-Length\t: 5\r\n"),
    ("CL behind CR", "X: y\rContent-Length: 5\r\n"),
    ("CL folded", "Content-Length:\r\n 5\r\n"),
    ("CL folded onto another", "X: y\r\n Content-Length: 5\r\n"),
    ("TE.TE xchunked", "Transfer-Encoding: xchunked\r\n"),
    ("TE.TE chunked twice", "Transfer-Encoding: chunked, chunked\r\n"),
    ("TE.TE two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n"),
    ("TE.TE two lines, reversed", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n"),
    ("TE.TE two lines, equal", "Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
    ("TE.TE identity last", "Transfer-Encoding: chunked, identity\r\n"),
    ("TE.TE identity first", "Transfer-Encoding: identity, chunked\r\n"),
    ("TE identity", "Transfer-Encoding: identity\r\n"),
    ("TE space before colon", "Transfer-Encoding : chunked\r\n"),
    ("TE space before name", " Transfer-Encoding: chunked\r\n"),
    ("TE tab before name", "X: y\r\n\tTransfer-Encoding: chunked\r\n"),
    ("TE vertical tab", "Transfer-Encoding:\x0bchunked\r\n"),
    ("TE form feed", "Transfer-Encoding: \x0cchunked\r\n"),
    ("TE vertical tab after", "Transfer-Encoding: chunked\x0b\r\n"),
    ("TE NUL", "Transfer-Encoding: chunked\0\r\n"),
    ("TE DEL", "Transfer-Encoding: chunked\x7f\r\n"),
    ("TE no-break space", "Transfer-Encoding: \u{a0}chunked\r\n"),
    ("TE quoted", "Transfer-Encoding: \"chunked\"\r\n"),
    ("TE apostrophes", "Transfer-Encoding: 'chunked'\r\n"),
    ("TE parameter", "Transfer-Encoding: chunked;q=0.5\r\n"),
    ("TE list with empty first", "Transfer-Encoding: ,chunked\r\n"),
    ("TE list with empty last", "Transfer-Encoding: chunked,\r\n"),
    ("TE two words", "Transfer-Encoding: chunked x\r\n"),
    ("TE prefix", "Transfer-Encoding: chunk\r\n"),
    ("TE no colon", "Transfer-Encoding chunked\r\n"),
    ("TE folded", "Transfer-Encoding:\r\n chunked\r\n"),
    ("TE folded by CR", "Transfer-Encoding: x\r chunked\r\n"),
    ("TE behind CR", "X: y\rTransfer-Encoding: chunked\r\n"),
    ("TE behind LF", "X: y\nTransfer-Encoding: chunked\r\n"),
    ("TE line ends in LF", "Transfer-Encoding: chunked\n"),
    ("TE behind LF CR", "X: y\n\rTransfer-Encoding: chunked\r\n"),
    ("TE with a byte before the name", "\x00Transfer-Encoding: chunked\r\n"),
    ("TE with a byte beyond ASCII in its name", "Transfer-Encod\u{131}ng: chunked\r\n"),
    ("TE name in parentheses", "(Transfer-Encoding): chunked\r\n"),
    ("TE colon twice", "Transfer-Encoding:: chunked\r\n"),
    ("TE empty", "Transfer-Encoding:\r\n"),
    ("name empty", ": chunked\r\n"),
    ("Host twice", "Host: b\r\n"),
    ("header with NUL in its name", "X\0Y: z\r\n"),
    ("head ends in LF LF", "X: y\n\n"),
    ("head ends in LF CRLF", "X: y\n\r\n"),
    ("head ends in CR CR LF", "X: y\r\r\n"),
];

#[test]
fn ambiguous_headers_are_refused() {
    for (kind, headers) in HEADERS {
        for after in
            ["0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", "5c\r\nGPOST /smuggled HTTP/1.1\r\n"]
        {
            let input = format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{after}");
            let (targets, refusal) = served(input.as_bytes());
            assert!(
                targets.is_empty() && refusal.is_some(),
                "{kind}: served {targets:?}, refused {refusal:?}"
            );
        }
    }
}

/// An ambiguous response from an origin would poison a cache, so the same tricks are refused there.
#[test]
fn ambiguous_responses_are_refused() {
    // Spring Boot sends `chunked` twice although the body has one such coding: the response is framed anew,
    // which leaves no ambiguity.
    const FINE: [&str; 3] = ["Host twice", "TE.TE chunked twice", "TE.TE two lines, equal"];
    for (kind, headers) in HEADERS.iter().filter(|(kind, _)| !FINE.contains(kind)) {
        let input = format!("HTTP/1.1 200 OK\r\n{headers}\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n");
        let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
        match parse_response(input.as_bytes(), &mut slots, &limits) {
            Err(_) => {}
            Ok(Progress::NeedMore) => panic!("{kind}: no end found"),
            Ok(Progress::Complete((head, _))) => {
                assert!(response_framing(&head, RequestKind::Other).is_err(), "{kind}: framed");
                assert!(
                    response_framing(&head, RequestKind::Head).is_err(),
                    "{kind}: framed as an answer to HEAD"
                );
            }
        }
    }
}

/// Request lines that two parties may split at different places are refused.
#[test]
fn ambiguous_request_lines_are_refused() {
    for (kind, line) in [
        ("HTTP/0.9", "GET /\r\n"),
        ("no target", "GET HTTP/1.1\r\n"),
        ("two spaces", "GET  / HTTP/1.1\r\n"),
        ("tab", "GET\t/ HTTP/1.1\r\n"),
        ("space in the target", "GET /a b HTTP/1.1\r\n"),
        ("request line in the target", "GET /a HTTP/1.1 /b HTTP/1.1\r\n"),
        ("trailing space", "GET / HTTP/1.1 \r\n"),
        ("LF", "GET / HTTP/1.1\n"),
        ("CR in the target", "GET /a\rb HTTP/1.1\r\n"),
        ("NUL in the target", "GET /a\0b HTTP/1.1\r\n"),
        ("no-break space for space", "GET\u{a0}/ HTTP/1.1\r\n"),
        ("line separator", "GET / HTTP/1.1\u{2028}\r\n"),
        ("version of two digits", "GET / HTTP/1.10\r\n"),
        ("version 1.01", "GET / HTTP/1.01\r\n"),
        ("HTTP/2 without its framing", "GET / HTTP/2\r\n"),
        ("other protocol", "GET / HTTPS/1.1\r\n"),
        ("space first", " GET / HTTP/1.1\r\n"),
        ("tunnel to a path", "CONNECT /a HTTP/1.1\r\n"),
        ("target of a proxy", "GET a:80 HTTP/1.1\r\n"),
        ("backslashes for an authority", "GET \\\\a\\b HTTP/1.1\r\n"),
        ("user in the authority", "GET http://a@b/ HTTP/1.1\r\n"),
        ("fragment", "GET /a#b HTTP/1.1\r\n"),
    ] {
        let input = format!("{line}Host: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let (targets, refusal) = served(input.as_bytes());
        assert!(targets.is_empty() && refusal.is_some(), "{kind}: served {targets:?}, refused {refusal:?}");
    }
}

/// Chunked bodies that two parties may end at different places: at most the request itself is accepted, never
/// one hidden in its body.
#[test]
fn ambiguous_chunks_are_refused() {
    let long_extension = &format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(300));
    for (kind, body) in [
        ("size beyond 64 bits", "10000000000000000\r\n0\r\n\r\n"),
        ("size that wraps to 0", "10000000000000000\r\n\r\n"),
        ("size with 0x", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("size signed", "+5\r\nhello\r\n0\r\n\r\n"),
        ("size negative", "-5\r\nhello\r\n0\r\n\r\n"),
        ("size with underscore", "0_5\r\nhello\r\n0\r\n\r\n"),
        ("size empty", "\r\nhello\r\n0\r\n\r\n"),
        ("size with space before", " 5\r\nhello\r\n0\r\n\r\n"),
        ("size with space after", "5 \r\nhello\r\n0\r\n\r\n"),
        ("size with NUL after", "5\0\r\nhello\r\n0\r\n\r\n"),
        ("size ends in LF", "5\nhello\r\n0\r\n\r\n"),
        ("size ends in CR", "5\rhello\r\n0\r\n\r\n"),
        ("size ends in CR CR LF", "5\r\r\nhello\r\n0\r\n\r\n"),
        ("TERM.EXT: LF in the extension", "5;\nhello\r\n0\r\n\r\n"),
        ("EXT.TERM: CR in the extension", "5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("LF in a quoted extension", "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n"),
        ("CRLF in a quoted extension", "5;a=\"\r\nhello\r\n0\r\n\r\n\"\r\nhello\r\n0\r\n\r\n"),
        ("CRLF behind a backslash in quotes", "5;a=\"\\\r\nhello\r\n0\r\n\r\n\"\r\nhello\r\n0\r\n\r\n"),
        ("extension without end", long_extension),
        ("SPILL: payload longer than its size", "5\r\nhelloxx0\r\n\r\n"),
        ("SPILL: no CRLF after the payload", "5\r\nhello0\r\n\r\n"),
        ("two bytes that are not CRLF after it", "5\r\nhelloXY0\r\n\r\n"),
        ("LF after the payload", "5\r\nhello\n0\r\n\r\n"),
        ("last chunk ends in LF", "0\n\r\n"),
        ("body ends in LF", "0\r\n\n"),
        ("body ends in CR", "0\r\n\rG"),
        ("trailer ends in LF", "0\r\nA: b\n\r\n"),
        ("LF alone behind the trailers", "0\r\nA: b\r\n\n"),
        ("trailer folded", "0\r\nA: b\r\n c\r\n\r\n"),
        ("trailer without colon", "0\r\nA\r\n\r\n"),
        ("trailer with space before colon", "0\r\nA : b\r\n\r\n"),
        ("request in the trailers", "0\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"),
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let input = format!("{head}{body}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let (targets, refusal) = served(input.as_bytes());
        assert!(targets == ["/"] && refusal.is_some(), "{kind}: served {targets:?}, refused {refusal:?}");
    }
}

/// The test's own server accepts pipelined requests of every framing.
#[test]
fn what_is_not_ambiguous_is_served() {
    let input = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
        \r\nPOST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n\
        GET /c HTTP/1.1\r\nHost: a\r\n\r\n\
        GET /d HTTP/1.0\r\n\r\n";
    assert_eq!(served(input.as_bytes()), (["/a", "/b", "/c", "/d"].map(str::to_owned).to_vec(), None));
}
