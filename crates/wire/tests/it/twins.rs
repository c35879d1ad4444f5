//! The HTTP/1 parsers compared with their slow twins, on nearly valid inputs, whole and in pieces.

use crate::naive::{Naive, drive};
use proptest::{collection::vec, prelude::*, sample::select};
use wire::http1::{
    framing::{CHUNK_LINE_BYTES_MAX, Framing, TRAILER_BYTES_MAX},
    head::{HeadLimits, HeaderSlots, may_end_in},
};

/// Damages text made of mostly valid pieces: a few bytes are replaced, inserted or removed.
fn damaged(pieces: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![select(b"\r\n\t :;,\"*/0\x00\x7f\x80aH".to_vec()), any::<u8>()];
    let edits = vec((any::<prop::sample::Index>(), 0..3u8, byte), 0..3);
    (pieces, edits).prop_map(|(mut text, edits)| {
        for (index, kind, byte) in edits {
            let at = index.index(text.len() + 1);
            match kind {
                0 => text.insert(at, byte),
                1 if at < text.len() => text[at] = byte,
                _ if at < text.len() => drop(text.remove(at)),
                _ => {}
            }
        }
        text
    })
}

fn joined(parts: Vec<Vec<u8>>) -> Vec<u8> {
    parts.concat()
}

fn header_lines() -> impl Strategy<Value = Vec<u8>> {
    let line = select(vec![
        "Host: example.com\r\n",
        "host:[::1]:8080\r\n",
        "HOST: a:\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "X: \r\n",
        "Cookie:\ta=b;c=\"d\" \t\r\n",
        "x-long-name-that-nobody-knows: \u{e9} some value, with; everything\r\n",
        "If-None-Match: \"a\", W/\"b\"\r\n",
    ]);
    prop_oneof![
        vec(line.clone(), 0..6).prop_map(|lines| lines.concat().into_bytes()),
        vec(line, 20..30).prop_map(|lines| lines.concat().into_bytes()),
        (120..135usize).prop_map(|n| "A: b\r\n".repeat(n).into_bytes()),
    ]
}

fn request_text() -> impl Strategy<Value = Vec<u8>> {
    let lead = select(vec!["", "", "", "\r\n", "\r\n\r\n", "\n"]);
    let method = select(vec!["GET ", "POST ", "OPTIONS ", "CONNECT ", "X-Y! "]);
    let target =
        select(vec!["/ ", "/a/b?c=d|e ", "* ", "http://a.b:80/c ", "HTTPS://[::1] ", "a.b:443 ", "/\\^`{} "]);
    let version = select(vec!["HTTP/1.1\r\n", "HTTP/1.1\r\n", "HTTP/1.0\r\n", "HTTP/2.0\r\n"]);
    let host = select(vec!["Host: h\r\n", "Host: h\r\n", ""]);
    let end = select(vec!["\r\n", "\r\nbody", ""]);
    (lead, method, target, version, host, header_lines(), end).prop_map(|(l, m, t, v, h, lines, e)| {
        joined(vec![l.into(), m.into(), t.into(), v.into(), h.into(), lines, e.into()])
    })
}

fn response_text() -> impl Strategy<Value = Vec<u8>> {
    let line = select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 404 \r\n",
        "HTTP/1.1 999\r\n",
        "HTTP/1.1 101 Switching  Protocols\r\n",
        "HTTP/1.1 099 x\r\n",
        "HTTP/1.1 200 \u{e9}t\u{e9}\r\n",
    ]);
    let end = select(vec!["\r\n", "\r\nbody", ""]);
    (line, header_lines(), end).prop_map(|(line, lines, end)| joined(vec![line.into(), lines, end.into()]))
}

fn chunked_text() -> impl Strategy<Value = Vec<u8>> {
    let extension = select(vec![
        "",
        "",
        "",
        ";a",
        " ;a=b",
        ";a=\"b\\\"\"",
        ";a=\"b",
        ";\"\\\"",
        ";a\\=\"\"",
        "\t; \t",
        " ",
    ]);
    let chunk = (vec(any::<u8>(), 1..40), extension, any::<bool>()).prop_map(|(data, extension, upper)| {
        let size = if upper { format!("{:X}", data.len()) } else { format!("0{:x}", data.len()) };
        joined(vec![size.into(), extension.into(), b"\r\n".to_vec(), data, b"\r\n".to_vec()])
    });
    let last = select(vec!["0\r\n", "000;x\r\n", "", "fffffffffffffffff\r\n", "ffffffffffffffff\r\n"]);
    let trailers = select(vec!["", "A: b\r\n", "Etag: \"x\"\r\nB:\r\n", ": x\r\n", " fold\r\n"]);
    let end = select(vec!["\r\n", "\r\nGET / HTTP/1.1\r\n", ""]);
    (vec(chunk, 0..5).prop_map(joined), last, trailers, end).prop_map(|(chunks, last, trailers, end)| {
        joined(vec![chunks, last.into(), trailers.into(), end.into()])
    })
}

/// Splits a buffer at the cuts.
fn cut<'a>(buf: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(buf.len() + 1)).collect();
    at.extend([0, buf.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &buf[ends[0]..ends[1]]).collect()
}

fn agrees<T: PartialEq + std::fmt::Debug, E: std::fmt::Debug>(real: Result<Option<T>, E>, naive: Naive<T>) {
    match (real, naive) {
        (Ok(Some(real)), Naive::Complete(naive)) => assert_eq!(real, naive),
        (Ok(None) | Err(_), Naive::Unfinished) | (Err(_), Naive::Refused) => {}
        (real, naive) => panic!("{real:?} but the twin says {naive:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(unify::cases(256, 16_384)))]

    #[test]
    fn requests_agree_with_the_twin(text in damaged(request_text())) {
        let mut slots = HeaderSlots::new();
        agrees(drive::request(&text, &mut slots, &HeadLimits::default()), crate::naive::request(&text));
    }

    #[test]
    fn responses_agree_with_the_twin(text in damaged(response_text())) {
        let mut slots = HeaderSlots::new();
        agrees(drive::response(&text, &mut slots, &HeadLimits::default()), crate::naive::response(&text));
    }

    /// `header`, `headers`, `known` and `known_all` agree with a search of the list, even if the slots still
    /// hold another head.
    #[test]
    fn headers_are_found_as_by_a_search(first in request_text(), text in request_text()) {
        use wire::http1::{head::{Progress, parse_request}, known::KnownHeader};
        let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
        let _ = parse_request(&first, &mut slots, &limits);
        if let Ok(Progress::Complete((head, _))) = parse_request(&text, &mut slots, &limits) {
            for known in KnownHeader::ALL {
                let found: Vec<_> = head.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(known.name())).map(|(_, v)| v).collect();
                prop_assert_eq!(head.known(known), found.first().copied());
                prop_assert_eq!(head.headers.has(known), !found.is_empty());
                prop_assert_eq!(head.headers.is_repeated(known), found.len() > 1);
                prop_assert_eq!(head.headers.known_all(known).collect::<Vec<_>>(), found.clone());
                prop_assert_eq!(head.headers(&known.name().to_uppercase()).collect::<Vec<_>>(), found);
                prop_assert_eq!(head.header(known.name()), head.known(known));
            }
            prop_assert_eq!(head.headers.iter().count(), head.headers.len());
        }
    }

    #[test]
    fn chunked_bodies_agree_with_the_twin(text in damaged(chunked_text())) {
        let real = drive::body(Framing::Chunked, [&text[..]], false);
        let real = real.end.clone().map(|_| real.complete());
        agrees(real, crate::naive::chunked(&text, CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX));
    }

    /// A body decodes to the same payload however it is cut, and whether payload goes through the decoder or
    /// bypasses it.
    #[test]
    fn bodies_in_pieces_are_bodies(
        text in damaged(chunked_text()),
        cuts in vec(any::<prop::sample::Index>(), 0..8),
        length in 0..200u64,
        raw in any::<bool>(),
    ) {
        for framing in [Framing::Chunked, Framing::Length(length), Framing::UntilClose, Framing::None] {
            let whole = drive::body(framing, [&text[..]], false);
            prop_assert_eq!(&drive::body(framing, cut(&text, &cuts), raw), &whole);
            prop_assert_eq!(&drive::body(framing, text.chunks(1), raw), &whole);
        }
    }

    /// RFC 9112 §6.2, §6.3: bodies of known length and until the close have the lengths computed by
    /// arithmetic.
    #[test]
    fn plain_bodies_are_what_arithmetic_says(text in vec(any::<u8>(), 0..100), length in 0..200u64) {
        let whole = drive::body(Framing::Length(length), [&text[..]], false);
        let taken = length.min(text.len() as u64) as usize;
        prop_assert_eq!((&whole.payload[..], whole.consumed), (&text[..taken], Some(taken)));
        prop_assert_eq!(whole.end, Ok((taken as u64 == length).then(Vec::new)));
        let close = drive::body(Framing::UntilClose, [&text[..]], false);
        prop_assert_eq!((&close.payload, close.end), (&text, Ok(None)));
        let none = drive::body(Framing::None, [&text[..]], false);
        prop_assert_eq!((none.consumed, none.end), (Some(0), Ok(Some(Vec::new()))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(unify::cases(256, 4_096)))]

    /// Every prefix of a head needs more or breaks the same rule, with tight limits and with the defaults.
    #[test]
    fn heads_split_at_every_byte_are_the_same(
        text in damaged(request_text()),
        response in damaged(response_text()),
        line_bytes_max in prop_oneof![0..60usize, Just(8192)],
        head_bytes_max in prop_oneof![0..200usize, Just(32768)],
    ) {
        let (mut slots, limits) = (HeaderSlots::new(), HeadLimits { line_bytes_max, head_bytes_max });
        drive::check_prefixes(&text, |head: &crate::naive::Head| head.len, |buf| drive::request(buf, &mut slots, &limits));
        drive::check_prefixes(&response, |head: &crate::naive::Head| head.len, |buf| drive::response(buf, &mut slots, &limits));
    }

    /// A caller that parses only when `may_end_in` returns true misses nothing: it is true at the byte that
    /// completes a head.
    #[test]
    fn may_end_in_never_hides_an_end(
        text in damaged(request_text()),
        line_bytes_max in prop_oneof![0..60usize, Just(8192)],
        head_bytes_max in prop_oneof![0..200usize, Just(32768)],
        step in 1..40usize,
    ) {
        let (mut slots, limits) = (HeaderSlots::new(), HeadLimits { line_bytes_max, head_bytes_max });
        let mut seen = 0;
        for end in (1..text.len()).step_by(step).chain([text.len()]) {
            let worth_while = may_end_in(&text[..end], seen, &limits);
            let outcome = drive::request(&text[..end], &mut slots, &limits);
            if !worth_while {
                prop_assert!(!matches!(outcome, Ok(Some(_))), "hid {}", text[..end].escape_ascii());
            }
            if !matches!(outcome, Ok(None)) {
                break;
            }
            seen = end;
        }
    }
}
