//! Rules for a body's end (RFC 9112 §6.3) and for its contents (RFC 9112 §7), one by one.

use crate::naive::drive;
use wire::http1::{
    framing::{
        BodyDecoder, BodyError, BodyRule, CHUNK_LINE_BYTES_MAX, ChunkedEncoder, Framing, FramingError,
        RequestKind, StepState, TRAILER_BYTES_MAX, request_framing, response_framing,
    },
    head::{HeadLimits, HeaderSlots, Progress, parse_request, parse_response},
};

fn of_request(version: &str, headers: &str) -> Result<Framing, FramingError> {
    let text = format!("POST / {version}\r\nHost: a\r\n{headers}\r\n");
    let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
    match parse_request(text.as_bytes(), &mut slots, &limits) {
        Ok(Progress::Complete((head, _))) => request_framing(&head),
        other => panic!("{text:?}: {other:?}"),
    }
}

fn of_response(line: &str, headers: &str, answered: RequestKind) -> Result<Framing, FramingError> {
    let text = format!("HTTP/{line}\r\n{headers}\r\n");
    let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
    match parse_response(text.as_bytes(), &mut slots, &limits) {
        Ok(Progress::Complete((head, _))) => response_framing(&head, answered),
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn requests_are_framed_by_one_rule_or_refused() {
    use FramingError as E;
    for (headers, framing) in [
        // RFC 9112 §6.3 item 7: without either field there is no body.
        ("", Ok(Framing::None)),
        // RFC 9110 §8.6: 1*DIGIT.
        ("Content-Length: 0\r\n", Ok(Framing::Length(0))),
        ("content-length:\t007 \r\n", Ok(Framing::Length(7))),
        ("Content-Length: 18446744073709551615\r\n", Ok(Framing::Length(u64::MAX))),
        ("Content-Length: 18446744073709551616\r\n", Err(E::LengthOverflow)),
        ("Content-Length: 99999999999999999999999999\r\n", Err(E::LengthOverflow)),
        ("Content-Length:\r\n", Err(E::InvalidLength)),
        ("Content-Length: +5\r\n", Err(E::InvalidLength)),
        ("Content-Length: -5\r\n", Err(E::InvalidLength)),
        ("Content-Length: 0x5\r\n", Err(E::InvalidLength)),
        ("Content-Length: 5 5\r\n", Err(E::InvalidLength)),
        ("Content-Length: 5;\r\n", Err(E::InvalidLength)),
        ("Content-Length: \"5\"\r\n", Err(E::InvalidLength)),
        ("Content-Length: 5.0\r\n", Err(E::InvalidLength)),
        ("Content-Length: 1e3\r\n", Err(E::InvalidLength)),
        ("Content-Length: \u{661}\r\n", Err(E::InvalidLength)),
        // RFC 9112 §6.3 item 5: equal lengths might be accepted; here none are.
        ("Content-Length: 5\r\nContent-Length: 6\r\n", Err(E::RepeatedLength)),
        ("Content-Length: 5\r\nX: y\r\ncontent-length: 5\r\n", Err(E::RepeatedLength)),
        ("Content-Length: 5, 5\r\n", Err(E::RepeatedLength)),
        ("Content-Length: 5,6\r\n", Err(E::RepeatedLength)),
        ("Content-Length: ,5\r\n", Err(E::RepeatedLength)),
        // RFC 9112 §6.3 item 3: both fields together are an attempt at smuggling.
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(E::BothLengths)),
        ("Transfer-Encoding: identity\r\nContent-Length: 5\r\n", Err(E::BothLengths)),
        // RFC 9112 §6.1, §7: names of codings are compared without case.
        ("Transfer-Encoding: chunked\r\n", Ok(Framing::Chunked)),
        ("TRANSFER-ENCODING:\tcHuNkEd \r\n", Ok(Framing::Chunked)),
        // RFC 9112 §6.1: 501 for unknown codings.
        ("Transfer-Encoding: gzip, chunked\r\n", Err(E::UnsupportedCoding)),
        ("Transfer-Encoding: a;b=\"c,d\",chunked\r\n", Err(E::InvalidCoding)),
        ("Transfer-Encoding: identity, chunked\r\n", Err(E::UnsupportedCoding)),
        // RFC 9112 §6.3 item 4: chunked must be last; §6.1: and only once.
        ("Transfer-Encoding: chunked, gzip\r\n", Err(E::InvalidCoding)),
        ("Transfer-Encoding: gzip\r\n", Err(E::InvalidCoding)),
        ("Transfer-Encoding: identity\r\n", Err(E::InvalidCoding)),
        ("Transfer-Encoding: chunked, chunked\r\n", Err(E::InvalidCoding)),
        ("Transfer-Encoding:\r\n", Err(E::InvalidCoding)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(E::RepeatedCoding)),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", Err(E::RepeatedCoding)),
    ] {
        assert_eq!(of_request("HTTP/1.1", headers), framing, "{headers:?}");
    }
    // RFC 9112 §6.1: a transfer coding in HTTP/1.0 makes the framing faulty.
    assert_eq!(of_request("HTTP/1.0", "Transfer-Encoding: chunked\r\n"), Err(FramingError::CodingInHttp10));
    assert_eq!(of_request("HTTP/1.0", "Content-Length: 5\r\n"), Ok(Framing::Length(5)));
}

#[test]
fn responses_are_framed_by_one_rule_or_refused() {
    use FramingError as E;
    use RequestKind::{Connect, Head, Other};
    let (length, chunked, both) = (
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    );
    for (line, headers, answered, framing) in [
        // RFC 9112 §6.3 items 4, 6 and 8: chunked, by length, and until the connection closes.
        ("1.1 200 OK", chunked, Other, Ok(Framing::Chunked)),
        ("1.1 200 OK", length, Other, Ok(Framing::Length(5))),
        ("1.1 200 OK", "", Other, Ok(Framing::UntilClose)),
        ("1.0 404 x", "", Other, Ok(Framing::UntilClose)),
        // RFC 9112 §6.3 item 1: these responses have no body, whatever the headers say.
        ("1.1 200 OK", length, Head, Ok(Framing::None)),
        ("1.1 200 OK", chunked, Head, Ok(Framing::None)),
        ("1.1 404 x", "", Head, Ok(Framing::None)),
        ("1.1 304 x", length, Other, Ok(Framing::None)),
        ("1.1 304 x", "", Other, Ok(Framing::None)),
        ("1.1 204 x", "", Other, Ok(Framing::None)),
        ("1.1 204 x", "Content-Length: 0\r\n", Other, Ok(Framing::None)),
        ("1.1 100 x", "", Other, Ok(Framing::None)),
        ("1.1 101 x", "", Other, Ok(Framing::None)),
        // RFC 9112 §6.1, RFC 9110 §8.6: these responses must not announce a body.
        ("1.1 204 x", chunked, Other, Ok(Framing::None)),
        ("1.1 204 x", length, Head, Ok(Framing::None)),
        ("1.1 103 x", length, Other, Err(E::UnexpectedBody)),
        // RFC 9112 §6.3 item 2: a tunnel after a 2xx to CONNECT, and only then.
        ("1.1 200 x", "", Connect, Ok(Framing::None)),
        ("1.1 200 x", chunked, Connect, Err(E::UnexpectedBody)),
        ("1.1 407 x", length, Connect, Ok(Framing::Length(5))),
        // The rules for the headers apply even to responses without a body.
        ("1.1 200 OK", both, Other, Err(E::BothLengths)),
        ("1.1 304 x", both, Other, Err(E::BothLengths)),
        ("1.1 200 OK", both, Head, Err(E::BothLengths)),
        ("1.1 200 OK", "Content-Length: 5\r\nContent-Length: 5\r\n", Other, Err(E::RepeatedLength)),
        ("1.1 200 OK", "Content-Length: 5\r\nContent-Length: 4\r\n", Head, Err(E::RepeatedLength)),
        ("1.1 200 OK", "Content-Length: x\r\n", Other, Err(E::InvalidLength)),
        ("1.1 200 OK", "Transfer-Encoding: gzip\r\n", Other, Err(E::InvalidCoding)),
        ("1.1 200 OK", "Transfer-Encoding: gzip, chunked\r\n", Other, Err(E::UnsupportedCoding)),
        ("1.0 200 OK", chunked, Other, Err(E::CodingInHttp10)),
    ] {
        assert_eq!(of_response(line, headers, answered), framing, "{line} {headers:?} {answered:?}");
    }
    assert_eq!(RequestKind::of_method("HEAD"), Head);
    assert_eq!(RequestKind::of_method("CONNECT"), Connect);
    assert_eq!(RequestKind::of_method("head"), Other);
}

/// Checks that a body is refused by `rule`. The mark `¦` precedes the byte that breaks it, and is removed.
#[track_caller]
fn refused(marked: &str, rule: BodyRule) {
    let Some(at) = marked.find('¦') else { panic!("no mark in {marked:?}") };
    let text = marked.replacen('¦', "", 1);
    let error = BodyError { rule, at: at as u64 };
    let whole = drive::body(Framing::Chunked, [text.as_bytes()], false);
    assert_eq!(whole.end, Err(error), "{marked:?}");
    for cut in 0..text.len() {
        let (a, b) = text.as_bytes().split_at(cut);
        assert_eq!(drive::body(Framing::Chunked, [a, b], false), whole, "{marked:?} cut at {cut}");
    }
}

#[test]
fn chunked_body_faults_name_the_offending_byte() {
    use BodyRule as R;
    for (marked, rule) in [
        // RFC 9112 §7.1: chunk-size is 1*HEXDIG, and only an extension may follow it.
        ("¦\r\nabc", R::ChunkSize),
        ("¦;a\r\n", R::ChunkSize),
        ("¦ 5\r\nhello\r\n", R::ChunkSize),
        ("¦+5\r\nhello\r\n", R::ChunkSize),
        ("¦-1\r\n", R::ChunkSize),
        ("0¦x5\r\nhello\r\n", R::ChunkSize),
        ("5¦h\r\nhello\r\n", R::ChunkSize),
        ("5 ¦\r\nhello\r\n", R::ChunkSize),
        ("5 ¦5\r\nhello\r\n", R::ChunkSize),
        ("5¦\0\r\nhello\r\n", R::ChunkSize),
        ("5¦\x0b;\r\nhello\r\n", R::ChunkSize),
        ("5¦,5\r\nhello\r\n", R::ChunkSize),
        // RFC 9112 §7.1: recipients must expect sizes that overflow an integer.
        ("1000000000000000¦0\r\n", R::ChunkSizeOverflow),
        ("00000000000000000ffffffffffffffff¦f\r\n", R::ChunkSizeOverflow),
        // RFC 9112 §2.2: a lone CR or LF does not end a line.
        ("5¦\nhello\r\n", R::BareLf),
        ("5;a¦\nhello\r\n", R::BareLf),
        ("5\r¦hello\r\n", R::BareCr),
        ("5\r¦\r\nhello\r\n", R::BareCr),
        ("5;a\r¦b\r\nhello\r\n", R::BareCr),
        ("5;a=\"d¦\r\"\r\nhello\r\n", R::ChunkExtension),
        ("5;\"¦\r\n\"\r\nhello\r\n", R::ChunkExtension),
        ("5;a=\"b¦\r\nhello\r\n", R::ChunkExtension),
        ("5;a=\"b\\\"¦\r\nhello\r\n", R::ChunkExtension),
        ("5;a=\"b\\¦\r\n\"hello\r\n", R::ChunkExtension),
        ("5;a=\"\";b=\"¦\r\nhello\r\n", R::ChunkExtension),
        ("5;a¦\0\r\nhello\r\n", R::ChunkExtension),
        // RFC 9112 §7.1: a CRLF follows the payload.
        ("5\r\nhello¦!\r\n", R::ChunkEnd),
        ("5\r\nhello¦0\r\n\r\n", R::ChunkEnd),
        ("5\r\nhello¦\n0\r\n\r\n", R::BareLf),
        ("5\r\nhello\r¦x", R::BareCr),
        ("1\r\na\r\n¦\r\n", R::ChunkSize),
        // RFC 9112 §7.1.2: trailers have the grammar of fields.
        ("0\r\n¦\n", R::BareLf),
        ("0\r\n\r¦x", R::BareCr),
        ("0\r\n¦: b\r\n\r\n", R::Trailer),
        ("0\r\nA¦ : b\r\n\r\n", R::Trailer),
        ("0\r\nA¦\r\n\r\n", R::Trailer),
        ("0\r\nA: ¦\0\r\n\r\n", R::Trailer),
        ("0\r\nA: b\r\n¦ c\r\n\r\n", R::Trailer),
        ("0\r\nA: b¦\n\r\n", R::BareLf),
        ("0\r\nA¦\n\r\n", R::BareLf),
        ("0\r\nA: b\r¦c\r\n\r\n", R::BareCr),
        // A request follows where the trailers should end.
        ("0\r\nGET¦ / HTTP/1.1\r\n", R::Trailer),
    ] {
        refused(marked, rule);
    }
}

/// A response may pad chunk sizes with blanks, since old servers write sizes of fixed width. The rest of the
/// line must follow the rules.
#[test]
fn answers_may_pad_the_sizes_of_chunks() {
    let read = |text: &str| {
        let mut decoder = BodyDecoder::of_answer(Framing::Chunked);
        let mut payload = Vec::new();
        for byte in text.as_bytes().chunks(1) {
            let step = decoder.decode(byte)?;
            payload.extend_from_slice(&byte[step.data.clone()]);
            assert_eq!(step.consumed, 1);
        }
        assert!(decoder.is_done(), "{text:?}");
        Ok::<_, BodyError>(payload)
    };
    for text in ["5   \r\nhello\r\n0 \t\r\n\r\n", "5 ;a\r\nhello\r\n0     \r\nA: b\r\n\r\n"] {
        assert_eq!(read(text).expect("whole"), b"hello", "{text:?}");
    }
    for text in ["5 5\r\n", " 5\r\n", "5 \n", "5 \rx", "5 \x0b\r\n"] {
        assert!(read(text).is_err(), "{text:?}");
    }
}

#[test]
fn chunked_bodies_are_read() {
    for (text, payload, trailers, rest) in [
        ("0\r\n\r\n", "", "", 0),
        ("5\r\nhello\r\n0\r\n\r\nGET /", "hello", "", 5),
        ("5 ;a=b;c=\"\\\"d\"\r\nhello\r\n0\t;x\r\n\r\n\r\n", "hello", "", 2),
        (
            "A\r\n0123456789\r\n1\r\n\r\r\n00000000000000000000\r\nA: b\r\nc:\td \r\n\r\n",
            "0123456789\r",
            "A: b\r\nc:\td \r\n",
            0,
        ),
    ] {
        let whole = drive::body(Framing::Chunked, [text.as_bytes()], false);
        assert_eq!(whole.payload, payload.as_bytes(), "{text:?}");
        assert_eq!(whole.end, Ok(Some(trailers.as_bytes().to_vec())), "{text:?}");
        assert_eq!(whole.consumed, Some(text.len() - rest), "{text:?}");
        for cut in 0..text.len() {
            for second in cut..text.len() {
                let (a, b, c) = (&text[..cut], &text[cut..second], &text[second..]);
                for raw in [false, true] {
                    let pieces = [a.as_bytes(), b.as_bytes(), c.as_bytes()];
                    assert_eq!(
                        drive::body(Framing::Chunked, pieces, raw),
                        whole,
                        "{text:?} cut at {cut}, {second}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_short_chunked_body_takes_one_step() {
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    let step = decoder.decode(b"5\r\nhello\r\n0\r\n\r\nnext").expect("sound");
    assert_eq!((step.data, step.consumed, step.state), (3..8, 15, StepState::Done));
    assert_eq!(decoder.decode(b"next").map(|step| (step.consumed, step.state)), Ok((0, StepState::Done)));
}

/// RFC 9112 §7.1.1 and §7.1.2: a recipient that ignores extensions and keeps trailers must bound both.
#[test]
fn chunk_lines_and_trailers_are_bounded() {
    let line = |bytes: usize| format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(bytes - 2));
    assert!(
        drive::body(Framing::Chunked, [line(CHUNK_LINE_BYTES_MAX).as_bytes()], false).complete().is_some()
    );
    let error = BodyError { rule: BodyRule::ChunkLineTooLong, at: CHUNK_LINE_BYTES_MAX as u64 };
    assert_eq!(
        drive::body(Framing::Chunked, [line(CHUNK_LINE_BYTES_MAX + 1).as_bytes()], false).end,
        Err(error)
    );
    let zeros = format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(CHUNK_LINE_BYTES_MAX - 1));
    assert!(drive::body(Framing::Chunked, [zeros.as_bytes()], false).complete().is_some());
    assert_eq!(drive::body(Framing::Chunked, [format!("0{zeros}").as_bytes()], false).end, Err(error));

    let trailers = |bytes: usize| format!("0\r\nA: {}\r\n\r\n", "x".repeat(bytes - 5));
    let full = drive::body(Framing::Chunked, [trailers(TRAILER_BYTES_MAX).as_bytes()], false);
    assert_eq!(full.end.map(|trailers| trailers.map(|trailers| trailers.len())), Ok(Some(TRAILER_BYTES_MAX)));
    let error = BodyError { rule: BodyRule::TrailersTooLarge, at: 3 + TRAILER_BYTES_MAX as u64 };
    assert_eq!(
        drive::body(Framing::Chunked, [trailers(TRAILER_BYTES_MAX + 1).as_bytes()], false).end,
        Err(error)
    );
}

/// RFC 9112 §8: a truncated message is distinguished from a complete one.
#[test]
fn the_end_of_input_is_clean_or_truncated() {
    let truncated = |at| Err(BodyError { rule: BodyRule::Truncated, at });
    let after = |framing, input: &[u8]| {
        let mut decoder = BodyDecoder::new(framing);
        while !decoder.is_done() && matches!(decoder.decode(input), Ok(step) if step.state == StepState::More)
        {
        }
        decoder.at_eof()
    };
    assert_eq!(after(Framing::None, b""), Ok(()));
    assert_eq!(after(Framing::UntilClose, b""), Ok(()));
    assert_eq!(after(Framing::UntilClose, b"abc"), Ok(()));
    assert_eq!(after(Framing::Length(0), b""), Ok(()));
    assert_eq!(after(Framing::Length(3), b"abc"), Ok(()));
    assert_eq!(after(Framing::Length(3), b"ab"), truncated(2));
    let text = b"5;x\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for cut in 0..text.len() {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        decoder.decode(&text[..cut]).expect("sound");
        assert_eq!(decoder.at_eof(), truncated(cut as u64));
        assert!(decoder.trailers().is_empty(), "no trailers before the end");
    }
    assert_eq!(after(Framing::Chunked, text), Ok(()));
}

#[test]
fn the_remaining_length_is_known_where_possible() {
    let mut decoder = BodyDecoder::new(Framing::Length(10));
    assert_eq!((decoder.remaining_known(), decoder.raw_max()), (Some(10), 10));
    decoder.take_raw(4);
    assert_eq!(decoder.decode(b"abcdefgh").map(|step| (step.data, step.state)), Ok((0..6, StepState::Done)));
    assert_eq!((decoder.remaining_known(), decoder.raw_max()), (Some(0), 0));
    let mut decoder = BodyDecoder::new(Framing::UntilClose);
    decoder.take_raw(1 << 40);
    assert_eq!((decoder.remaining_known(), decoder.raw_max()), (None, u64::MAX));
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    assert_eq!((decoder.remaining_known(), decoder.raw_max()), (None, 0));
    decoder.decode(b"ffffffffffffffff\r\nab").expect("sound");
    assert_eq!((decoder.remaining_known(), decoder.raw_max()), (None, u64::MAX - 2));
}

#[test]
#[should_panic(expected = "beyond the body's end")]
fn taking_more_than_remains_panics() {
    BodyDecoder::new(Framing::Length(3)).take_raw(4);
}

/// RFC 9112 §7.1: an encoded body decodes to the same payload and trailers.
#[test]
fn encoded_bodies_decode_to_what_they_were() {
    let trailers = b"Etag: \"a\"\r\nServer-Timing: x\r\n";
    for pieces in [vec![], vec![1usize], vec![15, 16, 17], vec![255, 256, 65_536]] {
        let (mut sent, mut payload) = (Vec::new(), Vec::new());
        for len in pieces {
            let piece = vec![len as u8; len];
            sent.extend_from_slice(&ChunkedEncoder::chunk_header(len as u64));
            sent.extend_from_slice(&piece);
            sent.extend_from_slice(ChunkedEncoder::CHUNK_END);
            payload.extend_from_slice(&piece);
        }
        for (end, trailers) in [
            (ChunkedEncoder::last_chunk(trailers).concat(), &trailers[..]),
            (ChunkedEncoder::last_chunk(b"").concat(), b""),
            (ChunkedEncoder::LAST_CHUNK.to_vec(), b""),
        ] {
            let sent = [&sent[..], &end].concat();
            let outcome = drive::body(Framing::Chunked, sent.chunks(7), false);
            assert_eq!((&outcome.payload, outcome.consumed), (&payload, Some(sent.len())));
            assert_eq!(outcome.end, Ok(Some(trailers.to_vec())));
        }
    }
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    decoder.decode(b"0\r\nEtag:\t\"a\" \r\nX:\r\n\r\n").expect("sound");
    let fields: Vec<_> = decoder.trailer_fields().collect();
    assert_eq!(fields, [("Etag", &b"\"a\""[..]), ("X", b"")]);
}

/// Spring Boot with a reverse proxy's own chunking sends `chunked` twice. The body is framed anew, so a
/// response's two codings count as one; in a request both are refused.
#[test]
fn two_equal_codings_of_a_response_are_one() {
    for (headers, framing) in [
        ("Transfer-Encoding: chunked, chunked\r\n", Ok(Framing::Chunked)),
        ("Transfer-Encoding: Chunked ,\tCHUNKED\r\n", Ok(Framing::Chunked)),
        ("Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n", Ok(Framing::Chunked)),
        ("Transfer-Encoding: chunked, chunked, chunked\r\n", Err(FramingError::InvalidCoding)),
        ("Transfer-Encoding: chunked,, chunked\r\n", Err(FramingError::InvalidCoding)),
        ("Transfer-Encoding: gzip, chunked, chunked\r\n", Err(FramingError::InvalidCoding)),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: gzip\r\n", Err(FramingError::RepeatedCoding)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", Err(FramingError::RepeatedCoding)),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked, chunked\r\n", Err(FramingError::BothLengths)),
    ] {
        assert_eq!(of_response("1.1 200 OK", headers, RequestKind::Other), framing, "{headers:?}");
        let bodiless = framing.map(|_| Framing::None);
        assert_eq!(of_response("1.1 200 OK", headers, RequestKind::Head), bodiless, "{headers:?}");
        assert!(of_request("HTTP/1.1", headers).is_err(), "{headers:?}");
    }
    let old = of_response("1.0 200 OK", "Transfer-Encoding: chunked, chunked\r\n", RequestKind::Other);
    assert_eq!(old, Err(FramingError::CodingInHttp10));
}
