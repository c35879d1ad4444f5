//! How an object lies in a segment.
//!
//! ```text
//! every record   word 0: kind 8 | key length 24 | units of 16 bytes 32      word 1: hash      word 2: sequence
//! whole          3: head 21 | tail 21 | extra 21  4: body length  5: on file  6..14: meta
//!                key, head, extra, 0..7 unused, body, tail
//!                bit 63 of word 4: the body is on the file in parts, and what lies here is the list of them
//! chained        as whole, but 5: extents; key, head, extra, 0..7 unused, table, tail
//! extent         3: number of the extent  4: body bytes in it  5: 0                 body bytes
//! dead           word 0 only: what was reserved and given up, or is still being filled
//!
//! table: for each extent its place (location 40 | units 24) and where in the body it ends
//! ```
//! Records are 16-byte aligned. They frame themselves, so that a segment can be walked by eviction. A record is
//! written before the index points to it and never after (I1).
//!
//! A record begins anywhere in a line: the words that every hit reads (hash, lengths, the first of meta) are its first
//! 64 bytes, so that at most two lines have them.

use super::hash::Hash;
use crate::sys::{
    atomics::{AtomicU64, Ordering::Relaxed},
    span::Span,
};

/// Bytes of a unit: records are aligned to it and counted in it.
pub(super) const UNIT: usize = 16;
/// Words of the caller's own in a record's header.
pub const META_WORDS: usize = 8;
const WORD: usize = 8;
const META: usize = 6;
const HEADER_WORDS: usize = META + META_WORDS;
const EXTENT_HEADER_WORDS: usize = 6;
/// Where an extent's bytes start in its record.
pub(super) const EXTENT_HEADER_BYTES: usize = EXTENT_HEADER_WORDS * WORD;
const ENTRY_WORDS: usize = 2;
const LOCATION_BITS: u32 = 40;
/// Bits of each length that word 3 has: more than a record has bytes.
const LENGTH_BITS: u32 = 21;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
/// In the word of the body's length: what lies here is a list of parts.
const IN_PARTS: u64 = 1 << 63;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Given up, or not whole yet.
    Dead = 1,
    /// An object with its body.
    Whole = 2,
    /// An object whose body is in extents.
    Chained = 3,
    /// A piece of a chained object's body.
    Extent = 4,
}

/// A record where it lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    words: &'a [AtomicU64],
}

/// Where a record is: location in units (40 bits) and length in units (24 bits), as the index has it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) location: u64,
    pub(super) units: u32,
}

impl Place {
    pub(super) fn word(self) -> u64 {
        self.location | u64::from(self.units) << LOCATION_BITS
    }

    pub(super) fn of(word: u64) -> Self {
        Self { location: word & ((1 << LOCATION_BITS) - 1), units: (word >> LOCATION_BITS) as u32 }
    }

    pub(super) fn bytes(self) -> usize {
        self.units as usize * UNIT
    }
}

/// Lengths in bytes that decide how much room an object's record needs. `rest` is the body or the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub(super) key: usize,
    pub(super) head: usize,
    pub(super) extra: usize,
    pub(super) rest: usize,
    pub(super) tail: usize,
}

impl Lengths {
    /// Units of the record; `None` if no record can be so long.
    pub(super) fn units(self) -> Option<u32> {
        let before =
            self.key.checked_add(self.head)?.checked_add(self.extra)?.checked_next_multiple_of(WORD)?;
        let bytes =
            [HEADER_WORDS * WORD, self.rest, self.tail].into_iter().try_fold(before, usize::checked_add)?;
        u32::try_from(bytes.div_ceil(UNIT)).ok().filter(|units| *units < 1 << 24)
    }
}

/// Bytes that the table of so many extents takes.
pub(super) const fn table_bytes(extents: usize) -> usize {
    extents * ENTRY_WORDS * WORD
}

/// Units of an extent's record for so many body bytes.
pub(super) fn extent_units(body_bytes: usize) -> u32 {
    (EXTENT_HEADER_BYTES + body_bytes).div_ceil(UNIT) as u32
}

/// Body bytes that an extent's record of so many units has room for.
pub(super) fn extent_room(units: u32) -> usize {
    (units as usize * UNIT).saturating_sub(EXTENT_HEADER_BYTES)
}

/// An object's header as it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) hash: Hash,
    pub(super) sequence: u64,
    pub(super) lengths: Lengths,
    pub(super) body_bytes: u64,
    pub(super) extents: u32,
    /// The body is the list of the parts that are on the file.
    pub(super) in_parts: bool,
    pub(super) meta: [u64; META_WORDS],
}

impl<'a> Record<'a> {
    /// The record at a location of the arena.
    #[inline]
    pub(super) fn at(arena: &'a [AtomicU64], location: u64) -> Self {
        Self { words: &arena[location as usize * (UNIT / WORD)..] }
    }

    #[inline]
    fn word(&self, number: usize) -> u64 {
        self.words[number].load(Relaxed)
    }

    pub(super) fn kind(&self) -> Kind {
        match self.word(0) & 0xff {
            1 => Kind::Dead,
            2 => Kind::Whole,
            3 => Kind::Chained,
            4 => Kind::Extent,
            other => panic!("a record of kind {other} in the arena: a segment was read that is not written"),
        }
    }

    pub(super) fn units(&self) -> u32 {
        (self.word(0) >> 32) as u32
    }

    #[inline]
    fn key_bytes(&self) -> usize {
        (self.word(0) >> 8 & 0xff_ffff) as usize
    }

    #[inline]
    pub(super) fn hash(&self) -> Hash {
        Hash::from_word(self.word(1))
    }

    pub(super) fn sequence(&self) -> u64 {
        self.word(2)
    }

    fn head_bytes(&self) -> usize {
        (self.word(3) & LENGTH_MASK) as usize
    }

    fn tail_bytes(&self) -> usize {
        (self.word(3) >> LENGTH_BITS & LENGTH_MASK) as usize
    }

    fn extra_bytes(&self) -> usize {
        (self.word(3) >> (2 * LENGTH_BITS) & LENGTH_MASK) as usize
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.word(4) & !IN_PARTS
    }

    /// Whether the body is a list of parts.
    pub(super) fn is_in_parts(&self) -> bool {
        self.word(4) & IN_PARTS != 0
    }

    pub(super) fn extents(&self) -> usize {
        self.word(5) as usize
    }

    pub(super) fn meta(&self) -> [u64; META_WORDS] {
        std::array::from_fn(|number| self.word(META + number))
    }

    #[inline]
    fn span(&self, start: usize, len: usize) -> Span<'a> {
        Span::new(self.words, start..start + len)
    }

    /// The key.
    #[inline]
    pub(super) fn key(&self) -> Span<'a> {
        self.span(HEADER_WORDS * WORD, self.key_bytes())
    }

    /// The caller's head bytes.
    pub(super) fn head(&self) -> Span<'a> {
        self.span(HEADER_WORDS * WORD + self.key_bytes(), self.head_bytes())
    }

    /// The caller's extra bytes.
    pub(super) fn extra(&self) -> Span<'a> {
        self.span(HEADER_WORDS * WORD + self.key_bytes() + self.head_bytes(), self.extra_bytes())
    }

    /// Where the body (or the table) starts.
    pub(super) fn rest_start(&self) -> usize {
        let names = self.key_bytes() + self.head_bytes() + self.extra_bytes();
        (HEADER_WORDS * WORD + names).next_multiple_of(WORD)
    }

    /// The body of a whole record.
    pub(super) fn body(&self) -> Span<'a> {
        self.span(self.rest_start(), self.body_bytes() as usize)
    }

    /// The body of a whole record, the table of a chained one.
    pub(super) fn rest(&self) -> Span<'a> {
        let rest = if self.kind() == Kind::Chained {
            table_bytes(self.extents())
        } else {
            self.body_bytes() as usize
        };
        self.span(self.rest_start(), rest)
    }

    /// The tail bytes.
    pub(super) fn tail(&self) -> Span<'a> {
        self.span(self.rest_start() + self.rest().len(), self.tail_bytes())
    }

    /// Where a whole record's copy on the file is; 0: nowhere.
    #[cfg(not(feature = "loom"))]
    pub(super) fn file(&self) -> u64 {
        self.word(5)
    }

    /// Notes where a whole record's copy on the file is. The one word that changes while readers may look: whoever
    /// reads the old value does without the file.
    pub(super) fn write_file(&self, location: u64) {
        self.words[5].store(location, Relaxed);
    }

    /// Gives an object that was stored before the number that it had.
    pub(super) fn write_sequence(&self, sequence: u64) {
        self.words[2].store(sequence, Relaxed);
    }

    /// Entry `number` of a chained record's table: the extent's place, and where in the body it ends.
    pub(super) fn extent(&self, number: usize) -> (Place, u64) {
        let at = self.rest_start() / WORD + number * ENTRY_WORDS;
        (Place::of(self.word(at)), self.word(at + 1))
    }

    /// Number of the extent that holds byte `at` of a chained body.
    pub(super) fn extent_of(&self, at: u64) -> usize {
        let (mut low, mut high) = (0, self.extents());
        while low < high {
            let middle = (low + high) / 2;
            if self.extent(middle).1 <= at { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Number of this extent in its object.
    pub(super) fn extent_number(&self) -> usize {
        self.word(3) as usize
    }

    /// The first `len` body bytes of an extent's record.
    pub(super) fn extent_body(&self, len: usize) -> Span<'a> {
        self.span(EXTENT_HEADER_BYTES, len)
    }

    /// All bytes of the record.
    pub(super) fn whole(&self) -> Span<'a> {
        self.span(0, self.units() as usize * UNIT)
    }

    /// All bytes of a record of so many units that is yet to be written.
    pub(super) fn whole_at(&self, units: u32) -> Span<'a> {
        self.span(0, units as usize * UNIT)
    }

    /// Frames reserved space, so that a walk passes over it.
    pub(super) fn write_dead(&self, units: u32) {
        self.words[0].store(Kind::Dead as u64 | u64::from(units) << 32, Relaxed);
    }

    /// Writes an object's header; `units` is the length of its space.
    pub(super) fn write_header(&self, kind: Kind, units: u32, header: &Header) {
        let Lengths { key, head, extra, tail, .. } = header.lengths;
        assert!(head.max(tail).max(extra) as u64 <= LENGTH_MASK, "a record has fewer bytes than its parts");
        self.words[0].store(kind as u64 | (key as u64) << 8 | u64::from(units) << 32, Relaxed);
        self.words[1].store(header.hash.word(), Relaxed);
        self.words[2].store(header.sequence, Relaxed);
        let lengths = head as u64 | (tail as u64) << LENGTH_BITS | (extra as u64) << (2 * LENGTH_BITS);
        self.words[3].store(lengths, Relaxed);
        self.words[4].store(header.body_bytes | if header.in_parts { IN_PARTS } else { 0 }, Relaxed);
        self.words[5].store(u64::from(header.extents), Relaxed);
        for (word, meta) in self.words[META..].iter().zip(header.meta) {
            word.store(meta, Relaxed);
        }
    }

    /// The header of an object that has all of this one but its head and the caller's words. Nowhere on the file, as one
    /// record.
    pub(super) fn header_with(&self, lengths: Lengths, meta: [u64; META_WORDS]) -> Header {
        Header {
            hash: self.hash(),
            sequence: self.sequence(),
            lengths,
            body_bytes: self.body_bytes(),
            extents: if self.kind() == Kind::Chained { self.extents() as u32 } else { 0 },
            in_parts: self.is_in_parts(),
            meta,
        }
    }

    /// Writes an extent's header.
    pub(super) fn write_extent(&self, units: u32, hash: Hash, number: usize, body_bytes: u64) {
        self.words[0].store(Kind::Extent as u64 | u64::from(units) << 32, Relaxed);
        self.words[1].store(hash.word(), Relaxed);
        for (word, value) in self.words[2..].iter().zip([0, number as u64, body_bytes, 0]) {
            word.store(value, Relaxed);
        }
    }

    /// Writes an entry of the table.
    pub(super) fn write_table(&self, number: usize, place: Place, end: u64) {
        let at = self.rest_start() / WORD + number * ENTRY_WORDS;
        self.words[at].store(place.word(), Relaxed);
        self.words[at + 1].store(end, Relaxed);
    }

    /// Writes key, head and extra behind a header that says their lengths.
    pub(super) fn write_names(&self, key: &[u8], head: &[u8], extra: &[u8]) {
        self.key().write_from(key);
        self.head().write_from(head);
        self.extra().write_from(extra);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::sys::arena::Words;

    #[test]
    fn what_was_written_is_read_and_stays_in_its_units() {
        for key in [0, 1, 7, 8, 30] {
            for head in [0, 5, 8, 100] {
                for (rest, tail, extra) in [(0, 0, 0), (1, 0, 5), (77, 3, 16), (1000, 9, 0)] {
                    let lengths = Lengths { key, head, extra, rest, tail };
                    let units = lengths.units().unwrap();
                    let arena = Words::reserve(1024, false).unwrap();
                    let record = Record::at(&arena, 3);
                    let meta = [1, 2, 3, 4, 5, 6, 7, u64::MAX];
                    let hash = Hash::seeded(b"k", 0);
                    let (body_bytes, in_parts) = (rest as u64, tail > 0);
                    let header =
                        Header { hash, sequence: 9, lengths, body_bytes, extents: 0, in_parts, meta };
                    record.write_header(Kind::Whole, units, &header);
                    record.write_names(&vec![1; key], &vec![2; head], &vec![5; extra]);
                    record.body().write_from(&vec![3; rest]);
                    record.tail().write_from(&vec![4; tail]);
                    assert_eq!((record.kind(), record.units(), record.hash()), (Kind::Whole, units, hash));
                    assert_eq!(
                        (record.sequence(), record.body_bytes(), record.meta()),
                        (9, rest as u64, meta)
                    );
                    assert_eq!(record.is_in_parts(), in_parts);
                    assert!(record.key().eq(&vec![1; key]) && record.head().eq(&vec![2; head]));
                    assert!(record.extra().eq(&vec![5; extra]) && record.rest().eq(&vec![3; rest]));
                    assert!(record.body().eq(&vec![3; rest]) && record.tail().eq(&vec![4; tail]));
                    let beyond = 3 * 2 + units as usize * 2;
                    assert!(
                        arena[beyond..].iter().all(|word| word.load(Relaxed) == 0),
                        "wrote beyond {units} units"
                    );
                    assert!(
                        units as usize * UNIT < record.rest_start() + rest + tail + UNIT,
                        "a unit is wasted"
                    );
                }
            }
        }
        assert_eq!(Lengths { key: usize::MAX, head: 1, extra: 0, rest: 0, tail: 0 }.units(), None);
        assert_eq!(Lengths { key: 0, head: 0, extra: 0, rest: 1 << 29, tail: 0 }.units(), None);
    }

    #[test]
    fn the_extent_of_a_byte_is_found() {
        let arena = Words::reserve(1024, false).unwrap();
        let record = Record::at(&arena, 0);
        let lengths = Lengths { key: 3, head: 2, extra: 0, rest: table_bytes(3), tail: 0 };
        let header = Header {
            hash: Hash::seeded(b"k", 0),
            sequence: 1,
            lengths,
            body_bytes: 60,
            extents: 3,
            in_parts: false,
            meta: [0; META_WORDS],
        };
        record.write_header(Kind::Chained, lengths.units().unwrap(), &header);
        for (number, end) in [10, 30, 60].into_iter().enumerate() {
            record.write_table(number, Place { location: 100 + number as u64, units: 5 }, end);
        }
        for at in 0..61 {
            let expected = [10, 30, 60].iter().filter(|end| **end <= at).count();
            assert_eq!(record.extent_of(at), expected, "byte {at}");
        }
        assert_eq!(record.extent(2), (Place { location: 102, units: 5 }, 60));
    }
}
