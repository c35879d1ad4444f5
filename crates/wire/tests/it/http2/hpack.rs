//! Field blocks: the RFC's own examples, comparisons with twins, and blocks that must be refused.

use crate::{
    fuzz_seeds::http2_hpack,
    naive_hpack::{Fields, NaiveDecoder, decoded},
};
use proptest::prelude::*;
use wire::http2::hpack::{
    self, DecodeError, Decoder, FieldSection, NO_TABLE, Overflow, Strings, TABLE_BYTES_MAX, huffman_code,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex"))
        .collect()
}

fn text(section: &FieldSection) -> Vec<String> {
    let line = |(name, value): (&[u8], &[u8])| {
        format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    section.iter().map(line).collect()
}

/// Decodes the blocks of one connection, and checks each block's fields and the table's size afterwards.
fn decodes(blocks: &[(&str, &[&str], usize)]) {
    let mut section = FieldSection::new(1 << 14, 100);
    let mut decoder = Decoder::new();
    for (block, fields, table_bytes) in blocks {
        assert_eq!(decoder.decode(&hex(block), &mut section), Ok(()), "{block}");
        assert_eq!(text(&section), *fields);
        assert_eq!(decoder.table_bytes(), *table_bytes, "{block}");
    }
}

/// RFC 7541 appendix C.2: each representation of a field.
#[test]
fn fields_of_each_kind() {
    let literal = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    decodes(&[(literal, &["custom-key: custom-header"], 55)]);
    decodes(&[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], 0)]);
    decodes(&[("1008 7061 7373 776f 7264 0673 6563 7265 74", &["password: secret"], 0)]);
    decodes(&[("82", &[":method: GET"], 0)]);
}

/// RFC 7541 appendices C.3 and C.4: the same requests, plain and Huffman-coded.
#[test]
fn requests_of_one_connection() {
    let first = [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
    let second = [&first[..], &["cache-control: no-cache"]].concat();
    let third = [
        ":method: GET",
        ":scheme: https",
        ":path: /index.html",
        ":authority: www.example.com",
        "custom-key: custom-value",
    ];
    decodes(&[
        ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", &first, 57),
        ("8286 84be 5808 6e6f 2d63 6163 6865", &second, 110),
        ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", &third, 164),
    ]);
    decodes(&[
        ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", &first, 57),
        ("8286 84be 5886 a8eb 1064 9cbf", &second, 110),
        ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", &third, 164),
    ]);
}

/// RFC 7541 appendices C.5 and C.6, in which entries are evicted from a table of 256 bytes.
#[test]
fn responses_that_evict() {
    let first = [
        ":status: 302",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ];
    let second = [&[":status: 307"], &first[1..]].concat();
    let third = [
        ":status: 200",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:22 GMT",
        "location: https://www.example.com",
        "content-encoding: gzip",
        "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ];
    decodes(&[
        (
            "3fe101 4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a
             3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            &first,
            222,
        ),
        ("4803 3330 37c1 c0bf", &second, 222),
        (
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a
             6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d
             6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
            &third,
            215,
        ),
    ]);
    decodes(&[
        (
            "3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
             919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            &first,
            222,
        ),
        ("4883 640e ffc1 c0bf", &second, 222),
        (
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d
             d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106
             3d50 07",
            &third,
            215,
        ),
    ]);
}

#[test]
fn what_breaks_a_rule_is_refused() {
    let cases: [(&str, DecodeError); 26] = [
        ("80", DecodeError::Index),
        ("be", DecodeError::Index),
        ("4001610162 bf", DecodeError::Index),
        ("7e0161", DecodeError::Index),
        ("0f2f0161", DecodeError::Index),
        ("ff", DecodeError::Truncated),
        ("ff80", DecodeError::Truncated),
        ("40", DecodeError::Truncated),
        ("4001", DecodeError::Truncated),
        ("400161", DecodeError::Truncated),
        ("40016102", DecodeError::Truncated),
        ("7f", DecodeError::Truncated),
        ("ff ffffffff01", DecodeError::Integer),
        ("ff 8080808000", DecodeError::Integer),
        // Integers that would wrap around 64 bits, at each position that has one (Apache Traffic Server, July
        // 2026).
        ("ff ffffffffffffffffff01", DecodeError::Integer),
        ("7f ffffffffffffffffff01 0161", DecodeError::Integer),
        ("0f f0ffffffffffffffff01 0161", DecodeError::Integer),
        ("40 7f ffffffffffffffffff01", DecodeError::Integer),
        ("400161 ff 81ffffffffffffffff01", DecodeError::Integer),
        ("3f e1ffffffffffffffff01", DecodeError::Integer),
        // Padding of zeros, of eight ones, and the end symbol itself (RFC 7541 §5.2).
        ("400161 81 18", DecodeError::Huffman),
        ("400161 82 1fff", DecodeError::Huffman),
        ("400161 84 ffffffff", DecodeError::Huffman),
        ("20 21 22 82", DecodeError::TableSize),
        ("82 20", DecodeError::TableSize),
        ("3fe21f", DecodeError::TableSize),
    ];
    let mut section = FieldSection::new(1 << 14, 100);
    for (block, error) in cases {
        assert_eq!(Decoder::new().decode(&hex(block), &mut section), Err(error), "{block}");
    }
    for sound in ["", "20", "20 3fe11f 82", "400161 81 1f", "400161 80"] {
        assert_eq!(Decoder::new().decode(&hex(sound), &mut section), Ok(()), "{sound}");
    }
}

/// A table entry and a one-byte reference for each field: limited by the RFC's byte count and by the number
/// of fields.
#[test]
fn an_hpack_bomb_is_refused_early() {
    let entry = [b"\x40\x01a\x7f\xa1\x1e".as_slice(), &[b'v'; 4000]].concat();
    let (mut decoder, mut section) = (Decoder::new(), FieldSection::new(16 << 10, 100));
    assert_eq!(decoder.decode(&entry, &mut section), Ok(()));
    assert_eq!((section.len(), section.list_bytes()), (1, 4033));
    // Four references are within the limit, five are not; the connection goes on.
    assert_eq!(decoder.decode(&[0xbe; 4], &mut section), Ok(()));
    assert_eq!((section.overflow(), section.len()), (None, 4));
    assert_eq!(decoder.decode(&[0xbe; 5], &mut section), Ok(()));
    assert_eq!((section.overflow(), section.len()), (Some(Overflow::Bytes), 0));
    assert_eq!(decoder.decode(&[0xbe; 16], &mut section), Ok(()));
    assert_eq!(decoder.decode(&[0xbe; 17], &mut section), Err(DecodeError::Bomb));
    // Small fields are limited by their number.
    let mut section = FieldSection::new(64 << 10, 100);
    assert_eq!(decoder.decode(&[0x82; 100], &mut section), Ok(()));
    assert_eq!((section.overflow(), section.len()), (None, 100));
    assert_eq!(decoder.decode(&[0x82; 101], &mut section), Ok(()));
    assert_eq!((section.overflow(), section.len()), (Some(Overflow::Fields), 0));
    assert_eq!(decoder.decode(&[0x82; 400], &mut section), Ok(()));
    assert_eq!(decoder.decode(&[0x82; 401], &mut section), Err(DecodeError::Bomb));
}

/// A field that the section cannot keep must still enter the table, which would otherwise differ from the
/// peer's.
#[test]
fn the_table_survives_a_section_that_overflows() {
    let (mut decoder, mut section) = (Decoder::new(), FieldSection::new(TABLE_BYTES_MAX, 10));
    let large = [b"\x00\x01a\x7f\xa1\x1e".as_slice(), &[b'v'; 4000]].concat();
    let block = [&large[..], &large, b"\x40\x01b\x01c", &large].concat();
    assert_eq!(decoder.decode(&block, &mut section), Ok(()));
    assert_eq!(section.overflow(), Some(Overflow::Bytes));
    assert_eq!(decoder.decode(&[0xbe], &mut section), Ok(()));
    assert_eq!(text(&section), ["b: c"]);
    // A field that is larger than the section empties the table (RFC 7541 §4.4).
    let larger = [b"\x40\x01a\x7f\x89\x26".as_slice(), &[b'v'; 5000]].concat();
    assert_eq!(decoder.decode(&larger, &mut section), Ok(()));
    assert_eq!((section.overflow(), decoder.table_bytes()), (Some(Overflow::Bytes), 0));
    assert_eq!(decoder.decode(&[0xbe], &mut section), Err(DecodeError::Index));
}

#[test]
fn responses_are_encoded_with_the_static_table() {
    let mut block = vec![NO_TABLE];
    hpack::status(&mut block, 200);
    hpack::status(&mut block, 429);
    hpack::field(&mut block, b"Content-Type", b"text/html", Strings::Plain);
    hpack::field(&mut block, b"X-Cache", b"HIT", Strings::Shorter);
    hpack::secret_field(&mut block, b"set-cookie", b"a=b", Strings::Plain);
    // "x-cache" is shorter in Huffman code, and "HIT" is not.
    let want = hex("20 88 08 03 343239 0f10 09 746578742f68746d6c 00 85 f2b10649cb 03 484954 1f28 03 613d62");
    let mut section = FieldSection::new(1 << 14, 100);
    assert_eq!(Decoder::new().decode(&block, &mut section), Ok(()));
    let fields =
        [":status: 200", ":status: 429", "content-type: text/html", "x-cache: HIT", "set-cookie: a=b"];
    assert_eq!(text(&section), fields);
    assert_eq!(block, want);
}

/// RFC 7541 appendix B, for some symbols of each code length.
#[test]
fn codes_are_those_of_the_rfc() {
    for (symbol, bits) in [
        (b'0', "00000"),
        (b't', "01001"),
        (b' ', "010100"),
        (b':', "1011100"),
        (b'&', "11111000"),
        (b'!', "1111111000"),
        (b'\'', "11111111010"),
        (b'#', "111111111010"),
        (0, "1111111111000"),
        (b'\\', "1111111111111110000"),
        (b'\n', "111111111111111111111111111100"),
    ] {
        let code = u32::from_str_radix(bits, 2).expect("bits");
        assert_eq!(huffman_code(symbol.into()), (code, bits.len() as u8), "{symbol}");
    }
    assert_eq!(huffman_code(256), (0x3fff_ffff, 30));
}

/// A representation of a field, with numbers that are often meaningful.
#[derive(Debug, Clone)]
enum Piece {
    Indexed(usize),
    Literal { kind: u8, index: usize, name: Vec<u8>, value: Vec<u8>, coded: bool },
}

fn integer(out: &mut Vec<u8>, representation: u8, bits: u32, value: usize) {
    let max = (1 << bits) - 1;
    if value < max {
        return out.push(representation | value as u8);
    }
    out.push(representation | max as u8);
    let mut rest = value - max;
    while rest >= 128 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn string(out: &mut Vec<u8>, string: &[u8], coded: bool) {
    if !coded {
        integer(out, 0, 7, string.len());
        return out.extend_from_slice(string);
    }
    let mut bits: Vec<bool> = Vec::new();
    for &byte in string {
        let (code, len) = huffman_code(byte.into());
        bits.extend((0..len).rev().map(|bit| code >> bit & 1 == 1));
    }
    let bytes: Vec<u8> = bits
        .chunks(8)
        .map(|chunk| (0..8).fold(0, |byte, at| byte << 1 | u8::from(*chunk.get(at).unwrap_or(&true))))
        .collect();
    integer(out, 0x80, 7, bytes.len());
    out.extend_from_slice(&bytes);
}

impl Piece {
    fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Indexed(index) => integer(out, 0x80, 7, *index),
            Self::Literal { kind, index, name, value, coded } => {
                let (representation, bits) = [(0x40, 6), (0, 4), (0x10, 4)][usize::from(*kind)];
                integer(out, representation, bits, *index);
                if *index == 0 {
                    string(out, name, *coded);
                }
                string(out, value, *coded);
            }
        }
    }
}

fn piece() -> impl Strategy<Value = Piece> {
    let bytes = || {
        prop_oneof![
            proptest::collection::vec(b'a'..=b'z', 0..20),
            proptest::collection::vec(any::<u8>(), 0..40),
            proptest::collection::vec(any::<u8>(), 200..300),
        ]
    };
    prop_oneof![
        2 => (1usize..66).prop_map(Piece::Indexed),
        1 => (0usize..200).prop_map(Piece::Indexed),
        4 => (0u8..3, prop_oneof![Just(0usize), 1usize..66], bytes(), bytes(), any::<bool>()).prop_map(
            |(kind, index, name, value, coded)| Piece::Literal { kind, index, name, value, coded }
        ),
    ]
}

proptest! {
    /// Our decoder agrees with a slow twin and with the loona-hpack crate on many blocks of one connection.
    #[test]
    fn three_decoders_agree(blocks in proptest::collection::vec(proptest::collection::vec(piece(), 0..12), 0..30)) {
        let (mut ours, mut naive) = (Decoder::new(), NaiveDecoder::new());
        let mut theirs = loona_hpack::Decoder::new();
        let mut section = FieldSection::new(1 << 16, 100);
        for pieces in blocks {
            let mut block = Vec::new();
            pieces.iter().for_each(|piece| piece.append(&mut block));
            let decoded = ours.decode(&block, &mut section);
            let slow = naive.decode(&block);
            let other = theirs.decode(&block);
            prop_assert_eq!(decoded.is_ok(), slow.is_ok(), "{:?}", decoded);
            prop_assert_eq!(decoded.is_ok(), other.is_ok(), "{:?}", block);
            let (Ok(slow), Ok(other)) = (slow, other) else { break };
            let fields: Fields = section.iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
            prop_assert_eq!(&fields, &slow);
            prop_assert_eq!(fields, other);
            prop_assert_eq!(ours.table_bytes(), naive.table_bytes());
        }
    }

    /// Any bytes as a Huffman-coded string decode as they do bit by bit.
    #[test]
    fn coded_strings_are_read_as_bit_by_bit(
        string in proptest::collection::vec(any::<u8>(), 0..80),
        ones in 0usize..8,
    ) {
        let mut coded = string;
        coded.extend(std::iter::repeat_n(0xff, ones));
        let block = [&[0x40, 1, b'a', 0x80 | coded.len() as u8], &coded[..]].concat();
        let mut section = FieldSection::new(1 << 14, 10);
        match decoded(&coded) {
            Ok(value) => {
                prop_assert_eq!(Decoder::new().decode(&block, &mut section), Ok(()));
                prop_assert_eq!(section.iter().next(), Some((b"a".as_slice(), &value[..])));
            }
            Err(_) => prop_assert_eq!(Decoder::new().decode(&block, &mut section), Err(DecodeError::Huffman)),
        }
    }

    #[test]
    fn others_read_what_we_encode(
        fields in proptest::collection::vec((proptest::collection::vec(b'a'..=b'z', 1..30), proptest::collection::vec(any::<u8>(), 0..200)), 0..20),
        shorter in any::<bool>(),
    ) {
        let strings = if shorter { Strings::Shorter } else { Strings::Plain };
        let mut block = Vec::new();
        for (name, value) in &fields {
            hpack::field(&mut block, name, value, strings);
        }
        prop_assert_eq!(loona_hpack::Decoder::new().decode(&block).expect("sound"), fields);
    }

    #[test]
    fn random_blocks_decode_as_in_the_twin(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        http2_hpack::check(&bytes);
    }
}
