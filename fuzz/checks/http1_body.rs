//! A body: cut as the fuzzer chooses, the same comes out as in one piece; and that is what the slow twin says.

use super::cut::Cut;
use super::naive::{self, Naive, drive};
use wire::http1::framing::{CHUNK_LINE_BYTES_MAX, Framing, TRAILER_BYTES_MAX};

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
    }
}
