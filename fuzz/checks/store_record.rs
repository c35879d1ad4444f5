//! A record of the accelerator's file: any bytes are no object, or an object whose pieces follow each other
//! and fill the record's end. An unknown flag of a newer program is ignored or makes the object absent,
//! depending on its half of the flags. A list of parts names each byte of its body once.

use engine::store::tier::{PartsList, image::Image};

/// Position of the flags.
const FLAGS: std::ops::Range<usize> = 4..8;
/// Known flags of the half that a reader must understand.
const IN_PARTS: u32 = 1 << 16;
const HEAD_ALONE: u32 = 1 << 17;

pub(crate) fn check(bytes: &[u8]) {
    let _ = PartsList::parse(bytes, 7);
    let Some(image) = Image::parse(bytes) else { return };
    let pieces = [image.key, image.head, image.extra, image.body, image.tail];
    let all: usize = pieces.iter().map(|piece| piece.len()).sum();
    assert_eq!(&bytes[bytes.len() - all..], pieces.concat(), "the pieces are the end of the record");

    let flags =
        bytes.get(FLAGS).and_then(|flags| flags.first_chunk()).map_or(0, |flags| u32::from_le_bytes(*flags));
    assert_eq!(flags & 0xffff_0000 & !(IN_PARTS | HEAD_ALONE), 0, "a flag that must be known");
    let with = |flags: u32| {
        let mut other = bytes.to_vec();
        other[FLAGS].copy_from_slice(&flags.to_le_bytes());
        other
    };
    for bit in 0..32 {
        let other = with(flags ^ 1 << bit);
        match bit {
            0..16 => assert_eq!(Image::parse(&other), Some(image), "flag {bit}"),
            16 | 17 => {}
            _ => assert_eq!(Image::parse(&other), None, "flag {bit}"),
        }
    }
    assert!(flags & HEAD_ALONE == 0 || (image.body.is_empty() && image.tail.is_empty()));
    assert_eq!(Image::parse(&bytes[..bytes.len() - 1]), None);
    assert_eq!(Image::parse(&[bytes, b"x"].concat()), None);

    let Some(list) = PartsList::parse(image.body, 7) else { return };
    let mut next = 0;
    // A list has at most as many parts as it has bytes.
    for number in 0..image.body.len() {
        let Some(part) = list.part(number) else { break };
        assert!(part.first == next && part.bytes > 0 && list.number_at(next) == number);
        assert_eq!(list.body_of(number, image.key), None, "a key is no part");
        next += part.bytes as u64;
    }
    assert_eq!(next, list.body_bytes());
}
