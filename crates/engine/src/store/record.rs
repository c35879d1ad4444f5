//! The layout of an object in a segment.
//!
//! ```text
//! every record   word 0: kind 8 | key length 24 | units of 16 bytes 32      word 1: hash      word 2: sequence
//! whole          3: head 21 | tail 21 | extra 21  4: body length  5: location in the file  6..14: meta
//!                key, head, extra, 0..7 unused, body, tail
//!                bit 63 of word 4: the body is stored in the file in parts, and this record holds the list of them
//! chained        like whole, but 5: extents; key, head, extra, 0..7 unused, table, tail
//! extent         3: number of the extent  4: body bytes in it  5: 0                 body bytes
//! dead           word 0 only: space that was reserved and abandoned, or is still being filled
//!
//! table: for each extent its place (location 40 | units 24) and the offset in the body at which it ends
//! ```
//! Records are 16-byte aligned. Each record states its own length, so that eviction can walk a segment. A
//! record is written before the index points to it and never changed after that (I1).
//!
//! A record may begin anywhere in a cache line. The words that every hit reads (hash, lengths, the first of
//! meta) are its first 64 bytes, so that they lie in at most two lines.

use super::hash::Hash;
use crate::sys::{
    atomics::{AtomicU64, Ordering::Relaxed},
    span::Span,
};

/// Size of a unit in bytes. Alignment, location and length of records are counted in units.
pub(super) const UNIT: usize = 16;
/// Number of words in a record's header that the caller may use.
pub const META_WORDS: usize = 8;
const WORD: usize = 8;
const META: usize = 6;
const HEADER_WORDS: usize = META + META_WORDS;
const EXTENT_HEADER_WORDS: usize = 6;
/// Offset of the body bytes in an extent's record.
pub(super) const EXTENT_HEADER_BYTES: usize = EXTENT_HEADER_WORDS * WORD;
const ENTRY_WORDS: usize = 2;
const LOCATION_BITS: u32 = 40;
/// Number of bits for each length in word 3 of a record's header; enough for the largest record.
const LENGTH_BITS: u32 = 21;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
/// Flag in the header word with the body's length: the record holds a list of parts.
const IN_PARTS: u64 = 1 << 63;

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A record that was abandoned, or is not complete yet.
    Dead = 1,
    /// An object together with its body.
    Whole = 2,
    /// An object whose body is stored in separate extents.
    Chained = 3,
    /// A piece of a chained object's body.
    Extent = 4,
}

/// View of a record in the arena.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    words: &'a [AtomicU64],
}

/// Place of a record: location in units (40 bits) and length in units (24 bits), as in the index.
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

/// Lengths in bytes that determine the size of an object's record. `rest` is the body or the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub(super) key: usize,
    pub(super) head: usize,
    pub(super) extra: usize,
    pub(super) rest: usize,
    pub(super) tail: usize,
}

impl Lengths {
    /// Returns the length of the record in units; `None` if it exceeds the maximum.
    pub(super) fn units(self) -> Option<u32> {
        let before =
            self.key.checked_add(self.head)?.checked_add(self.extra)?.checked_next_multiple_of(WORD)?;
        let bytes =
            [HEADER_WORDS * WORD, self.rest, self.tail].into_iter().try_fold(before, usize::checked_add)?;
        u32::try_from(bytes.div_ceil(UNIT)).ok().filter(|units| *units < 1 << 24)
    }
}

/// Returns the bytes that a table of `extents` entries takes.
pub(super) const fn table_bytes(extents: usize) -> usize {
    extents * ENTRY_WORDS * WORD
}

/// Returns the length in units of an extent's record with this number of body bytes.
pub(super) fn extent_units(body_bytes: usize) -> u32 {
    (EXTENT_HEADER_BYTES + body_bytes).div_ceil(UNIT) as u32
}

/// Returns the number of body bytes that fit into an extent's record of `units` units.
pub(super) fn extent_room(units: u32) -> usize {
    (units as usize * UNIT).saturating_sub(EXTENT_HEADER_BYTES)
}

/// Header of an object, before it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) hash: Hash,
    pub(super) sequence: u64,
    pub(super) lengths: Lengths,
    pub(super) body_bytes: u64,
    pub(super) extents: u32,
    /// True if the record's body is a list of parts that are in the file.
    pub(super) in_parts: bool,
    pub(super) meta: [u64; META_WORDS],
}

impl<'a> Record<'a> {
    /// Returns the record at a location of the arena.
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
            other => {
                panic!("record of kind {other} in the arena: the segment was read before it was written")
            }
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

    /// Returns whether the record's body is a list of parts.
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

    /// Returns the key.
    #[inline]
    pub(super) fn key(&self) -> Span<'a> {
        self.span(HEADER_WORDS * WORD, self.key_bytes())
    }

    /// Returns the head: bytes that the caller stored before the body.
    pub(super) fn head(&self) -> Span<'a> {
        self.span(HEADER_WORDS * WORD + self.key_bytes(), self.head_bytes())
    }

    /// Returns the additional bytes that the caller stored before the body.
    pub(super) fn extra(&self) -> Span<'a> {
        self.span(HEADER_WORDS * WORD + self.key_bytes() + self.head_bytes(), self.extra_bytes())
    }

    /// Returns the offset in the record at which the body (or the table of extents) starts.
    pub(super) fn rest_start(&self) -> usize {
        let names = self.key_bytes() + self.head_bytes() + self.extra_bytes();
        (HEADER_WORDS * WORD + names).next_multiple_of(WORD)
    }

    /// Returns the body of a record of kind [`Kind::Whole`].
    pub(super) fn body(&self) -> Span<'a> {
        self.span(self.rest_start(), self.body_bytes() as usize)
    }

    /// Returns the body of a whole record, or the table of extents of a chained one.
    pub(super) fn rest(&self) -> Span<'a> {
        let rest = if self.kind() == Kind::Chained {
            table_bytes(self.extents())
        } else {
            self.body_bytes() as usize
        };
        self.span(self.rest_start(), rest)
    }

    /// Returns the bytes that the caller stored after the body.
    pub(super) fn tail(&self) -> Span<'a> {
        self.span(self.rest_start() + self.rest().len(), self.tail_bytes())
    }

    /// Returns the location of a whole record's copy in the file; 0: no copy.
    #[cfg(not(feature = "loom"))]
    pub(super) fn file(&self) -> u64 {
        self.word(5)
    }

    /// Stores the location of a whole record's copy in the file. This is the only word that may change while
    /// readers see the record; a reader that sees the old value does not use the file.
    pub(super) fn write_file(&self, location: u64) {
        self.words[5].store(location, Relaxed);
    }

    /// Restores the previous sequence number of an object that was read back from the file.
    pub(super) fn write_sequence(&self, sequence: u64) {
        self.words[2].store(sequence, Relaxed);
    }

    /// Returns entry `number` of a chained record's table of extents: the extent's location and length, and
    /// the offset in the body at which it ends.
    pub(super) fn extent(&self, number: usize) -> (Place, u64) {
        let at = self.rest_start() / WORD + number * ENTRY_WORDS;
        (Place::of(self.word(at)), self.word(at + 1))
    }

    /// Returns the number of the extent that holds byte `at` of a chained body.
    pub(super) fn extent_of(&self, at: u64) -> usize {
        let (mut low, mut high) = (0, self.extents());
        while low < high {
            let middle = (low + high) / 2;
            if self.extent(middle).1 <= at { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Returns the number of this extent among those of its object.
    pub(super) fn extent_number(&self) -> usize {
        self.word(3) as usize
    }

    /// Returns the first `len` body bytes of an extent's record.
    pub(super) fn extent_body(&self, len: usize) -> Span<'a> {
        self.span(EXTENT_HEADER_BYTES, len)
    }

    /// Returns all bytes of the record.
    pub(super) fn whole(&self) -> Span<'a> {
        self.span(0, self.units() as usize * UNIT)
    }

    /// Returns the space of a record of `units` units that is not written yet.
    pub(super) fn whole_at(&self, units: u32) -> Span<'a> {
        self.span(0, units as usize * UNIT)
    }

    /// Writes the header of a dead record over reserved space, so that eviction skips it.
    pub(super) fn write_dead(&self, units: u32) {
        self.words[0].store(Kind::Dead as u64 | u64::from(units) << 32, Relaxed);
    }

    /// Writes an object's header; `units` is the length of the record's space.
    pub(super) fn write_header(&self, kind: Kind, units: u32, header: &Header) {
        let Lengths { key, head, extra, tail, .. } = header.lengths;
        assert!(head.max(tail).max(extra) as u64 <= LENGTH_MASK, "record shorter than its parts");
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

    /// Returns a header with the hash, sequence and body of this record, but with other lengths and metadata
    /// words. The new record has no copy in the file.
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

    /// Writes an entry of the table of extents.
    pub(super) fn write_table(&self, number: usize, place: Place, end: u64) {
        let at = self.rest_start() / WORD + number * ENTRY_WORDS;
        self.words[at].store(place.word(), Relaxed);
        self.words[at + 1].store(end, Relaxed);
    }

    /// Writes key, head and extra. The header with their lengths must already be written.
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
    fn records_round_trip_within_their_units() {
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
