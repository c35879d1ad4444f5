//! A body: cut as the fuzzer chooses, the same comes out as in one piece; and that is what the slow twin says.
#![no_main]

#[path = "../../crates/wire/tests/it/naive/mod.rs"]
mod naive;

use libfuzzer_sys::fuzz_target;
use naive::{Naive, drive};
use wire::http1::framing::{CHUNK_LINE_BYTES_MAX, Framing, TRAILER_BYTES_MAX};

fuzz_target!(|input: (u8, u16, [u8; 8], &[u8])| {
    let (kind, length, cuts, text) = input;
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
});
