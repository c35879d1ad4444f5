//! A message body: cut as the fuzzer chooses, it decodes as in one piece and as by the slow twin; encoded
//! again, it is the same body with its permitted trailers.

use super::cut::Cut;
use super::naive::{self, Naive, drive};
use wire::http1::{
    framing::{BodyDecoder, CHUNK_LINE_BYTES_MAX, ChunkedEncoder, Framing, TRAILER_BYTES_MAX},
    head::{HeadLimits, HeaderSlots, Progress, parse_request},
    trailers::{is_forbidden, permitted},
};

pub(crate) fn check(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let (kind, length, cuts, text) = (cut.u8(), cut.u16(), cut.array::<8>(), cut.0);
    let framing = match kind & 7 {
        0 => Framing::None,
        1 => Framing::Length(length.into()),
        2 => Framing::UntilClose,
        _ => Framing::Chunked,
    };
    let whole = drive::body(framing, [text], false);
    let mut rest = text;
    let pieces = cuts.iter().chain([&255; 1]).enumerate().map(|(i, cut)| {
        let at = if i == cuts.len() { rest.len() } else { rest.len().min(usize::from(*cut)) };
        let (piece, after) = rest.split_at(at);
        rest = after;
        piece
    });
    assert_eq!(drive::body(framing, pieces, kind & 8 != 0), whole);
    if framing == Framing::Chunked {
        match (&whole.end, naive::chunked(text, CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX)) {
            (Ok(Some(_)), Naive::Complete(body)) => assert_eq!(whole.complete(), Some(body)),
            (Ok(None) | Err(_), Naive::Unfinished) | (Err(_), Naive::Refused) => {}
            (real, naive) => panic!("{real:?} but the twin says {naive:?}"),
        }
        if let Some(body) = whole.complete() {
            check_written(&body);
        }
    }
}

/// Checks the body as it is forwarded: in chunks of some size, with the trailers permitted in a message whose
/// head names `x-hop`.
fn check_written(body: &naive::Body) {
    let mut slots = HeaderSlots::new();
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x-hop\r\n\r\n";
    let Ok(Progress::Complete((head, _))) = parse_request(head, &mut slots, &HeadLimits::default()) else {
        panic!("a head");
    };
    let going_on = permitted(&body.trailers, &head.headers);
    assert_eq!(permitted(&going_on.lines, &head.headers).lines, going_on.lines, "they may go on");
    let mut written = Vec::new();
    for piece in body.payload.chunks(17) {
        written.extend_from_slice(&ChunkedEncoder::chunk_header(piece.len() as u64));
        written.extend_from_slice(piece);
        written.extend_from_slice(ChunkedEncoder::CHUNK_END);
    }
    written.extend_from_slice(&ChunkedEncoder::last_chunk(&going_on.lines).concat());
    let again = drive::body(Framing::Chunked, [&written[..]], false);
    let want =
        naive::Body { payload: body.payload.clone(), trailers: going_on.lines.clone(), len: written.len() };
    assert_eq!(again.complete(), Some(want));

    let mut decoder = BodyDecoder::new(Framing::Chunked);
    assert_eq!((decoder.remaining_known(), decoder.trailers()), (None, &b""[..]));
    let mut rest = &written[..];
    while let (false, Ok(step)) = (decoder.is_done(), decoder.decode(rest)) {
        rest = &rest[step.consumed..];
    }
    assert_eq!(decoder.remaining_known(), Some(0));
    let (mut lines, mut fields) = (0, Vec::new());
    for (name, value) in decoder.trailer_fields() {
        assert!(!is_forbidden(name) && !name.eq_ignore_ascii_case("x-hop"), "{name}");
        lines += 1;
        fields.extend_from_slice(value);
    }
    assert_eq!(lines + going_on.dropped, body.trailers.iter().filter(|byte| **byte == b'\n').count() as u64);
    assert!(fields.len() <= going_on.lines.len());
}
