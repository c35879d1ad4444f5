//! The location of a record in a file.

use std::fmt;

use super::format::UNIT_BYTES;

/// Bits of a location that hold the offset; the others are the low bits of the segment's life number.
const PLACE_BITS: u32 = 40;
const LIFE_MASK: u64 = (1 << (64 - PLACE_BITS)) - 1;

/// Location of a record, including the life of its segment: a location from an earlier life finds no record.
///
/// 40 bits count units of 16 bytes from the start of the file, 24 bits are the low bits of the life number.
/// Never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(u64);

impl Location {
    pub(super) fn new(offset: u64, life: u64) -> Self {
        debug_assert!(
            offset.is_multiple_of(UNIT_BYTES as u64) && (offset / UNIT_BYTES as u64) >> PLACE_BITS == 0
        );
        Self((offset / UNIT_BYTES as u64) | ((life & LIFE_MASK) << PLACE_BITS))
    }

    /// Converts back from [`Location::bits`]; `None` for zero.
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }

    /// Returns the location as a number, for storing in an index.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the file offset at which the record begins; its payload begins
    /// [`RECORD_HEADER_BYTES`](super::format::RECORD_HEADER_BYTES) later.
    pub fn offset(self) -> u64 {
        (self.0 & ((1 << PLACE_BITS) - 1)) * UNIT_BYTES as u64
    }

    /// Returns whether this record was written after another record of the same writer: compares their lives,
    /// which wrap around after 2^24, then their offsets.
    pub fn is_after(self, other: Self) -> bool {
        let (life, of_other) = (self.0 >> PLACE_BITS, other.0 >> PLACE_BITS);
        let ahead = life.wrapping_sub(of_other) & LIFE_MASK;
        if ahead == 0 { self.offset() > other.offset() } else { ahead <= LIFE_MASK / 2 }
    }

    /// Returns whether this location and another in the same segment have the same life number.
    pub fn is_of_the_life_of(self, other: Self) -> bool {
        self.0 >> PLACE_BITS == other.0 >> PLACE_BITS
    }

    /// Returns whether this location may belong to the given life: only its low 24 bits are compared.
    pub(super) fn is_of(self, life: u64) -> bool {
        self.0 >> PLACE_BITS == life & LIFE_MASK
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (life {})", self.offset(), self.0 >> PLACE_BITS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_location_keeps_its_place_and_its_life(units in 1u64..1 << 40, life in any::<u64>()) {
            let location = Location::new(units * 16, life);
            prop_assert_eq!(location.offset(), units * 16);
            prop_assert!(location.is_of(life) && !location.is_of(life ^ 1));
            prop_assert_eq!(Location::from_bits(location.bits()), Some(location));
        }
    }
}
