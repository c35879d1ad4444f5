//! The byte format of a log file (`docs/formats/store.md`): encoders and decoders only.
//!
//! ```text
//! file     | header | header again | ... | segment 0 | segment 1 | ...
//! segment  | segment header | record | record | ...      gap      ... | entry n-1 | ... | entry 0 | footer |
//! record   | header, 64 bytes | payload | a checksum for each 64 KiB of it | zeros to 16 bytes |
//! ```
//! All numbers are little-endian. Every header has a checksum seeded with the file's own random bytes, so
//! that bytes of another file (or from a client) are never taken for this file's records.

pub use super::location::Location;

/// Format version of new files.
pub const VERSION: u32 = 2;
/// Oldest format version that this program reads. An owner may accept only newer ones
/// ([`FileOptions::version_min`](super::FileOptions::version_min)); mail files of version 1 will always be
/// read.
pub const VERSION_MIN: u32 = 1;
/// Required features in the header that this program knows: none yet.
pub const FEATURES_KNOWN: u32 = 0;
/// Size of a block in bytes, the unit of all writes to the file (as `O_DIRECT` requires).
pub const BLOCK_BYTES: usize = 4096;
/// Alignment of records in bytes, and the unit of record locations.
pub const UNIT_BYTES: usize = 16;
/// Payload bytes covered by one checksum.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Offset in the file at which segment 0 begins.
pub const SEGMENTS_AT: u64 = 64 << 10;
/// Bytes in use at the start of each of the two blocks that hold the file's header.
pub const HEADER_BYTES: usize = 128;
/// Size in bytes of a segment's header, which precedes its first record.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// Size in bytes of the footer at the end of a sealed segment.
pub const FOOTER_BYTES: usize = 64;
/// Size of a record's header in bytes.
pub const RECORD_HEADER_BYTES: usize = 64;
/// Size in bytes of an entry in a table of contents.
pub const ENTRY_BYTES: usize = 32;
/// Upper bound of the segments' life numbers. No file reaches it; a larger number is treated as damage, so
/// that later additions cannot overflow.
pub const LIVES_END: u64 = 1 << 62;
/// Minimum and maximum bytes of a segment.
pub const SEGMENT_BYTES_GIVEN: (u32, u32) = (64 << 10, 64 << 20);

const HEADER_MAGIC: [u8; 8] = *b"NTSTORE\n";
const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"NTsg");
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"NTft");
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"NTrc");

/// Kind of a record. 0, 254 and 255 belong to the log; all others are defined by the owner. A record of a
/// kind from 64 to 127 *claims* the record that it ends: the claimed record is no longer independent, but a
/// part of the claiming one. Recovery reports the claimed record to the owner
/// ([`FoundRecord::is_claimed`](super::FoundRecord::is_claimed)) until the claiming record is ended itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind(pub u8);

impl Kind {
    /// Reserved space whose record was never completed.
    pub const UNFINISHED: Self = Self(0);
    /// Record whose only purpose is to end another record, as a deletion does.
    pub const MARKER: Self = Self(255);
    /// Marker like [`Kind::MARKER`] that replaces a claim whose segment was freed. The target is ended,
    /// unless another record still claims it.
    pub const PAST_CLAIM: Self = Self(254);

    /// Returns whether a record of this kind belongs to the log's owner.
    pub fn is_owners(self) -> bool {
        self != Self::UNFINISHED && !self.is_end_alone()
    }

    /// Returns whether the only purpose of a record of this kind is to end another.
    pub fn is_end_alone(self) -> bool {
        self == Self::MARKER || self == Self::PAST_CLAIM
    }

    /// Returns whether a record of this kind claims its target, which then becomes a part of the claiming
    /// record.
    pub fn claims(self) -> bool {
        (64..128).contains(&self.0)
    }

    /// Returns the kind of the marker that keeps the target ended after a record of this kind is freed.
    pub(super) fn carried(self) -> Self {
        if self.claims() || self == Self::PAST_CLAIM { Self::PAST_CLAIM } else { Self::MARKER }
    }
}

/// Header of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Format version of the file.
    pub version: u32,
    /// Random identifier that distinguishes this file's records from those of other files.
    pub uuid: [u8; 16],
    /// Purpose of the file, padded with zeros ("cache", "mail").
    pub purpose: [u8; 8],
    /// Size of a segment in bytes.
    pub segment_bytes: u32,
    /// Number of segments.
    pub segments: u32,
    /// Random seed for the owner's hashes of names; 0 in version 1, whose hashes had no seed.
    pub hash_seed: u64,
    /// Required features: a program that does not know all of these bits must not open the file
    /// ([`FEATURES_KNOWN`]).
    pub must_know: u32,
    /// Optional features: a program that does not know these bits may ignore them, and keeps them unchanged.
    pub may_ignore: u32,
}

/// Reasons why a header is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderFault {
    /// The header consists of zeros only.
    Empty,
    /// The bytes are not a header of a log file.
    Foreign,
    /// The header has another format version.
    Version(u32),
    /// The header requires features that this program does not know.
    Features(u32),
    /// The header is damaged: its checksum does not match.
    Checksum,
}

impl Header {
    /// Returns the segment that contains a location.
    pub fn segment_of(&self, location: Location) -> u32 {
        // There are fewer than 2^32 segments, so the number fits.
        (location.offset().saturating_sub(SEGMENTS_AT) / u64::from(self.segment_bytes)) as u32
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&HEADER_MAGIC);
        put(&mut bytes, 8, &self.version.to_le_bytes());
        put(&mut bytes, 12, &(HEADER_BYTES as u32).to_le_bytes());
        put(&mut bytes, 16, &self.uuid);
        put(&mut bytes, 32, &self.purpose);
        put(&mut bytes, 40, &self.segment_bytes.to_le_bytes());
        put(&mut bytes, 44, &self.segments.to_le_bytes());
        if self.version > 1 {
            put(&mut bytes, 48, &self.hash_seed.to_le_bytes());
            put(&mut bytes, 56, &self.must_know.to_le_bytes());
            put(&mut bytes, 60, &self.may_ignore.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
        put(&mut bytes, HEADER_BYTES - 4, &checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header from [`HEADER_BYTES`] bytes.
    ///
    /// # Errors
    /// Returns the [`HeaderFault`] if the bytes are not a valid header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderFault> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(HeaderFault::Empty);
        }
        if bytes[..8] != HEADER_MAGIC {
            return Err(HeaderFault::Foreign);
        }
        // The version is checked first, because another version may have its checksum elsewhere.
        let version = u32_at(bytes, 8);
        let checksum_with = |version: u32| {
            let mut ours = *bytes;
            put(&mut ours, 8, &version.to_le_bytes());
            crc32c::crc32c(&ours[..HEADER_BYTES - 4]) == u32_at(bytes, HEADER_BYTES - 4)
        };
        let mut known = VERSION_MIN..=VERSION;
        if !known.contains(&version) {
            // A flipped bit in the version number is reported as damage, if the checksum reveals it.
            let damaged = !checksum_with(version) && known.any(checksum_with);
            return Err(if damaged { HeaderFault::Checksum } else { HeaderFault::Version(version) });
        }
        if !checksum_with(version) {
            return Err(HeaderFault::Checksum);
        }
        // These bytes have no meaning in version 1.
        let is_before_seeds = version == 1;
        let [must_know, may_ignore] =
            if is_before_seeds { [0; 2] } else { [56, 60].map(|at| u32_at(bytes, at)) };
        if must_know & !FEATURES_KNOWN != 0 {
            return Err(HeaderFault::Features(must_know & !FEATURES_KNOWN));
        }
        let mut header = Self {
            version,
            uuid: [0; 16],
            purpose: [0; 8],
            segment_bytes: u32_at(bytes, 40),
            segments: u32_at(bytes, 44),
            hash_seed: if is_before_seeds { 0 } else { u64_at(bytes, 48) },
            must_know,
            may_ignore,
        };
        header.uuid.copy_from_slice(&bytes[16..32]);
        header.purpose.copy_from_slice(&bytes[32..40]);
        let (min, max) = SEGMENT_BYTES_GIVEN;
        let possible = header.segment_bytes.is_power_of_two() && (min..=max).contains(&header.segment_bytes);
        if possible && header.segments > 0 { Ok(header) } else { Err(HeaderFault::Checksum) }
    }

    /// Returns the length of the whole file in bytes.
    pub fn file_bytes(&self) -> u64 {
        SEGMENTS_AT + u64::from(self.segments) * u64::from(self.segment_bytes)
    }

    /// Returns the seed of every checksum in this file.
    pub fn seed(&self) -> u32 {
        crc32c::crc32c(&self.uuid)
    }
}

/// Header of a segment, before its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Life number: identifies this use of the segment; unique in the file and increasing.
    pub life: u64,
    /// Class of the owner's writer to which the segment belongs.
    pub class: u8,
    /// True if this life is over: no record in the segment is live. The life number stays in the file, so
    /// that it is never used again.
    pub is_over: bool,
    /// Version of the program that wrote this header. If a later program continues a file of version 1,
    /// segments of several versions exist side by side.
    pub version: u8,
}

/// Result of decoding the first block of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentStart {
    /// The segment was never used.
    Fresh,
    /// The segment is in use, or was freed after use.
    Used(SegmentHeader),
    /// The bytes are not a valid header.
    Damaged,
}

impl SegmentHeader {
    /// Encodes the header of a segment.
    pub fn encode(&self, seed: u32, segment: u32) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        put(&mut bytes, 0, &SEGMENT_MAGIC.to_le_bytes());
        bytes[4] = self.class;
        bytes[5] = u8::from(self.is_over);
        // Version 1 wrote a zero here.
        bytes[6] = if self.version > 1 { self.version } else { 0 };
        put(&mut bytes, 8, &self.life.to_le_bytes());
        put(&mut bytes, 16, &segment.to_le_bytes());
        seal(&mut bytes, seed);
        bytes
    }

    /// Decodes the first bytes of a segment.
    pub fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES], seed: u32, segment: u32) -> SegmentStart {
        if bytes.iter().all(|byte| *byte == 0) {
            return SegmentStart::Fresh;
        }
        if !is_sealed(bytes, seed) || u32_at(bytes, 0) != SEGMENT_MAGIC || u32_at(bytes, 16) != segment {
            return SegmentStart::Damaged;
        }
        let life = u64_at(bytes, 8);
        if life >= LIVES_END {
            return SegmentStart::Damaged;
        }
        let version = bytes[6].max(1);
        SegmentStart::Used(Self { life, class: bytes[4], is_over: bytes[5] != 0, version })
    }
}

/// Footer at the end of a sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Life number of the segment. If the segment's header has another one, this footer is left over from an
    /// earlier life.
    pub life: u64,
    /// Class of the segment's writer, the same as in the segment's header.
    pub class: u8,
    /// Number of entries in the table of contents.
    pub entries: u32,
    /// Number of entries whose record ends another one (their `target` is set).
    pub targets: u32,
    /// Checksum of the table of contents.
    pub table_checksum: u32,
}

impl Footer {
    /// Encodes the footer.
    pub fn encode(&self, seed: u32, segment: u32) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        put(&mut bytes, 0, &FOOTER_MAGIC.to_le_bytes());
        bytes[4] = self.class;
        put(&mut bytes, 8, &self.life.to_le_bytes());
        put(&mut bytes, 16, &segment.to_le_bytes());
        put(&mut bytes, 20, &self.entries.to_le_bytes());
        put(&mut bytes, 24, &self.targets.to_le_bytes());
        put(&mut bytes, 28, &self.table_checksum.to_le_bytes());
        seal(&mut bytes, seed);
        bytes
    }

    /// Decodes the last bytes of a segment; `None` if they are not a footer.
    pub fn decode(bytes: &[u8; FOOTER_BYTES], seed: u32, segment: u32) -> Option<Self> {
        let is_footer = is_sealed(bytes, seed)
            && u32_at(bytes, 0) == FOOTER_MAGIC
            && u32_at(bytes, 16) == segment
            && u64_at(bytes, 8) < LIVES_END;
        is_footer.then(|| Self {
            life: u64_at(bytes, 8),
            class: bytes[4],
            entries: u32_at(bytes, 20),
            targets: u32_at(bytes, 24),
            table_checksum: u32_at(bytes, 28),
        })
    }
}

/// Header of a record, before its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Kind of the record.
    pub kind: Kind,
    /// Hash of the record's name, computed by the log's owner.
    pub hash: u64,
    /// Information that the owner needs about the record without reading it.
    pub tag: u64,
    /// Record that this one ends, by replacing or deleting it.
    pub target: Option<Location>,
    /// Length of the payload in bytes.
    pub payload_bytes: u32,
    /// Number of the record in its segment; life and number together order all records of a writer.
    pub number: u32,
    /// Number of bytes from this header to the next: at least [`record_bytes`] for this payload.
    pub space_bytes: u32,
}

impl RecordHeader {
    /// Encodes the header of a record at `offset` of a segment in this life.
    pub fn encode(&self, seed: u32, life: u64, offset: usize) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        put(&mut bytes, 0, &RECORD_MAGIC.to_le_bytes());
        bytes[4] = self.kind.0;
        put(&mut bytes, 8, &self.payload_bytes.to_le_bytes());
        put(&mut bytes, 12, &self.number.to_le_bytes());
        put(&mut bytes, 16, &life.to_le_bytes());
        put(&mut bytes, 24, &self.hash.to_le_bytes());
        put(&mut bytes, 32, &self.tag.to_le_bytes());
        put(&mut bytes, 40, &self.target.map_or(0, Location::bits).to_le_bytes());
        put(&mut bytes, 48, &self.space_bytes.to_le_bytes());
        put(&mut bytes, 52, &(offset as u32).to_le_bytes());
        seal(&mut bytes, seed);
        bytes
    }

    /// Decodes a record header at `offset` of a segment; also returns the life number in it. `None` if the
    /// bytes are not a record header.
    pub fn decode(bytes: &[u8; RECORD_HEADER_BYTES], seed: u32, offset: usize) -> Option<(Self, u64)> {
        if u32_at(bytes, 0) != RECORD_MAGIC || u32_at(bytes, 52) as usize != offset || !is_sealed(bytes, seed)
        {
            return None;
        }
        let header = Self {
            kind: Kind(bytes[4]),
            hash: u64_at(bytes, 24),
            tag: u64_at(bytes, 32),
            target: Location::from_bits(u64_at(bytes, 40)),
            payload_bytes: u32_at(bytes, 8),
            number: u32_at(bytes, 12),
            space_bytes: u32_at(bytes, 48),
        };
        let fits = record_bytes(header.payload_bytes as usize) <= header.space_bytes as usize
            && (header.space_bytes as usize).is_multiple_of(UNIT_BYTES);
        fits.then_some((header, u64_at(bytes, 16)))
    }
}

/// Entry of a segment's table of contents: the fields of a record's header that recovery needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableEntry {
    /// Kind of the record, see [`RecordHeader`].
    pub kind: Kind,
    /// Hash of the record, see [`RecordHeader`].
    pub hash: u64,
    /// Tag of the record, see [`RecordHeader`].
    pub tag: u64,
    /// Target of the record, see [`RecordHeader`].
    pub target: Option<Location>,
    /// Offset of the record in the segment.
    pub offset: u32,
    /// Length of the payload in bytes.
    pub payload_bytes: u32,
}

impl TableEntry {
    /// Encodes the entry.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        put(&mut bytes, 0, &self.hash.to_le_bytes());
        put(&mut bytes, 8, &self.tag.to_le_bytes());
        put(&mut bytes, 16, &self.target.map_or(0, Location::bits).to_le_bytes());
        let place = (self.offset / UNIT_BYTES as u32) | (u32::from(self.kind.0) << 24);
        put(&mut bytes, 24, &place.to_le_bytes());
        put(&mut bytes, 28, &self.payload_bytes.to_le_bytes());
        bytes
    }

    /// Decodes an entry from bytes that a checksum has already verified.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let place = u32_at(bytes, 24);
        Self {
            kind: Kind((place >> 24) as u8),
            hash: u64_at(bytes, 0),
            tag: u64_at(bytes, 8),
            target: Location::from_bits(u64_at(bytes, 16)),
            offset: (place & 0x00ff_ffff) * UNIT_BYTES as u32,
            payload_bytes: u32_at(bytes, 28),
        }
    }
}

/// Returns the offset of entry `number` of a table in a segment of `segment_bytes`; the table grows
/// downwards.
pub fn entry_at(segment_bytes: usize, number: u32) -> usize {
    segment_bytes - FOOTER_BYTES - ENTRY_BYTES * (number as usize + 1)
}

/// Returns the number of checksums that a payload needs.
pub fn chunks(payload_bytes: usize) -> usize {
    payload_bytes.div_ceil(CHUNK_BYTES)
}

/// Returns the bytes of a record with a payload of `payload_bytes`.
pub fn record_bytes(payload_bytes: usize) -> usize {
    (RECORD_HEADER_BYTES + payload_bytes + 4 * chunks(payload_bytes)).next_multiple_of(UNIT_BYTES)
}

/// Returns the maximum payload of a record in segments of `segment_bytes`.
pub fn payload_bytes_max(segment_bytes: usize) -> usize {
    let room = segment_bytes - SEGMENT_HEADER_BYTES - FOOTER_BYTES - ENTRY_BYTES - UNIT_BYTES;
    room - RECORD_HEADER_BYTES - 4 * chunks(room)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

/// Stores the checksum of the first 60 bytes in the last four.
fn seal(bytes: &mut [u8; 64], seed: u32) {
    let checksum = crc32c::crc32c_append(seed, &bytes[..60]);
    put(bytes, 60, &checksum.to_le_bytes());
}

fn is_sealed(bytes: &[u8; 64], seed: u32) -> bool {
    u32_at(bytes, 60) == crc32c::crc32c_append(seed, &bytes[..60])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        let (hash_seed, must_know, may_ignore) = (0x1234_5678_9abc_def0, 0, 5);
        let (uuid, purpose) = ([7; 16], *b"cache\0\0\0");
        let (segment_bytes, segments) = (1 << 20, 9);
        Header { version: VERSION, uuid, purpose, segment_bytes, segments, hash_seed, must_know, may_ignore }
    }

    /// Builds a file header as version 1 wrote it.
    fn header_1() -> Header {
        Header { version: 1, hash_seed: 0, may_ignore: 0, ..header() }
    }

    #[test]
    fn any_flipped_bit_of_a_header_is_seen() {
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), Err(HeaderFault::Empty));
        for header in [header(), header_1()] {
            let bytes = header.encode();
            assert_eq!(Header::decode(&bytes), Ok(header));
            for bit in 0..HEADER_BYTES * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                let fault = Header::decode(&flipped).unwrap_err();
                let expected = if bit < 64 { HeaderFault::Foreign } else { HeaderFault::Checksum };
                assert_eq!(fault, expected, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let newer = Header { version: VERSION + 1, ..header() };
        assert_eq!(Header::decode(&newer.encode()), Err(HeaderFault::Version(VERSION + 1)));
        let newer = Header { must_know: 1 << 7, ..header() };
        assert_eq!(Header::decode(&newer.encode()), Err(HeaderFault::Features(1 << 7)));
        let newer = Header { may_ignore: u32::MAX, ..header() };
        assert_eq!(Header::decode(&newer.encode()), Ok(newer), "and kept as it is");
        // Version 1 did not define these bytes, so bits that are set there do not count as features.
        let mut bytes = header_1().encode();
        bytes[48..64].fill(0xff);
        let checksum = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
        put(&mut bytes, HEADER_BYTES - 4, &checksum.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Ok(header_1()));
    }

    #[test]
    fn the_largest_payload_fills_one_segment() {
        for bits in 16..=26 {
            let segment = 1usize << bits;
            let room = segment - SEGMENT_HEADER_BYTES - FOOTER_BYTES - ENTRY_BYTES;
            let max = payload_bytes_max(segment);
            assert!(record_bytes(max) <= room, "{bits}");
            assert!(record_bytes(max + 64) > room, "{bits}: {max} wastes");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            (kind, hash, tag, target) in (any::<u8>(), any::<u64>(), any::<u64>(), any::<u64>()),
            (payload, number, seed, life) in (0u32..1 << 26, any::<u32>(), any::<u32>(), 0..LIVES_END),
            (offset, slack, flip) in (0usize..1 << 22, 0u32..9, 0usize..512),
        ) {
            let offset = offset * UNIT_BYTES;
            let space = record_bytes(payload as usize) as u32 + slack * UNIT_BYTES as u32;
            let record = RecordHeader {
                kind: Kind(kind), hash, tag, target: Location::from_bits(target), payload_bytes: payload, number,
                space_bytes: space,
            };
            let bytes = record.encode(seed, life, offset);
            prop_assert_eq!(RecordHeader::decode(&bytes, seed, offset), Some((record, life)));
            prop_assert_eq!(RecordHeader::decode(&bytes, seed ^ 1, offset), None);
            prop_assert_eq!(RecordHeader::decode(&bytes, seed, offset + UNIT_BYTES), None);
            let mut flipped = bytes;
            flipped[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(RecordHeader::decode(&flipped, seed, offset), None);
            let entry = TableEntry {
                kind: Kind(kind), hash, tag, target: Location::from_bits(target), offset: offset as u32,
                payload_bytes: payload,
            };
            prop_assert_eq!(TableEntry::decode(&entry.encode()), entry);
            let segment = SegmentHeader { life, class: kind, is_over: flip % 2 == 0, version: kind.max(1) };
            let bytes = segment.encode(seed, number);
            prop_assert_eq!(SegmentHeader::decode(&bytes, seed, number), SegmentStart::Used(segment));
            prop_assert_eq!(SegmentHeader::decode(&bytes, seed, number ^ 1), SegmentStart::Damaged);
            let footer = Footer { life, class: kind, entries: number, targets: payload, table_checksum: seed };
            prop_assert_eq!(Footer::decode(&footer.encode(seed, number), seed, number), Some(footer));
        }
    }
}
