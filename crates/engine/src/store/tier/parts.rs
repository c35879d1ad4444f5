//! A large object in the file: its body in parts, one record each, and a small object that lists them.
//!
//! ```text
//!  record of kind 2   | magic 4 | number 4 | hash 8 | object 8 | 0 8 | body …       one part, at most 480 KiB of body
//!  record of kind 1   an object like any other (image.rs, magic NTo2), whose body is the list:
//!                     | magic 4 | part 4 | body 8 | object 8 | parts 4 | 0 4 | place 8 | place 8 | …
//! ```
//! The list is written after the parts. A listed part may be missing (helpers write segments in any order,
//! and the oldest segments are given up first), so an object exists only if its list *and* all of its parts
//! do, and each part names its object. Recovery matches parts and objects by their tags alone ([`tag`]),
//! without reading any record. A part that no list names is dead.
//!
//! *Memory:* 16 bytes of the owner's memory for each part; and for each object in memory the list, with 8
//! bytes per part. *Bounds:* the list is one record in memory and in the file; the body is at most a
//! [`FILE_SHARE`]th of the file.

use std::collections::HashMap;

use super::{FileObject, FileRecord, lifetimes::LifetimeWriters};
use crate::log::{AppendRefusal, Kind, Location, NewRecord, Reader, RecordWriter};

/// Record kind of a part of a large object.
pub(super) const PART: Kind = Kind(2);
/// Maximum body bytes of a part: together with its headers it fits into one read of the helpers
/// (`io::READ_BYTES_MAX`).
pub const PART_BODY_BYTES_MAX: usize = 480 << 10;
/// Divisor for the maximum size of an object relative to the file, so that an object requested once does not
/// displace all others.
const FILE_SHARE: u64 = 2;
/// Minimum number of objects in parts for a sweep that removes objects with lost lists.
pub(super) const SWEEP_AT_MIN: usize = 64;

const PART_MAGIC: u32 = u32::from_le_bytes(*b"NTp2");
const LIST_MAGIC: u32 = u32::from_le_bytes(*b"NTl2");
/// Number of bytes before the body in the payload of a part's record.
pub(super) const PART_HEADER_BYTES: usize = 32;
const LIST_HEADER_BYTES: usize = 40;
const PLACE_BYTES: usize = 8;

/// Returns the maximum body length of an object on this reader's file.
pub(super) fn body_bytes_max(reader: &Reader) -> u64 {
    reader.usage().capacity_bytes / FILE_SHARE
}

/// Returns the mark that links an object to its parts in their tags, derived from the object's sequence
/// number; never zero.
pub(super) fn mark_of(id: u64) -> u32 {
    (id % u64::from(u32::MAX)) as u32 + 1
}

/// Builds a record's tag. An object's tag has its expiry and the mark of its parts (0: no parts); a part's
/// tag has its number and the mark of its object.
pub(super) fn tag(expires_s_or_number: u32, mark: u32) -> u64 {
    u64::from(expires_s_or_number) | u64::from(mark) << 32
}

/// Splits a [`tag`] into its low half (expiry or number) and its mark.
pub(super) fn split_tag(tag: u64) -> (u32, u32) {
    (tag as u32, (tag >> 32) as u32)
}

/// Returns the length of the list for a body that is split into parts of `part_bytes` bytes; `None` if that
/// overflows.
pub(super) fn list_bytes(body_bytes: u64, part_bytes: usize) -> Option<usize> {
    let parts = usize::try_from(body_bytes.div_ceil(part_bytes as u64)).ok()?;
    parts.checked_mul(PLACE_BYTES)?.checked_add(LIST_HEADER_BYTES)
}

/// List of the parts in which an object is stored in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsList {
    hash: u64,
    id: u64,
    body_bytes: u64,
    part_bytes: u32,
    /// Hash of the origin's strong validator and the length, if the parts come from several answers, so that
    /// bytes of two versions are never mixed; 0 if all parts come from a single answer.
    validator: u64,
    places: Vec<Location>,
}

/// A part of a large object in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Location and length of the part's record.
    pub cold: FileRecord,
    /// Offset of the part in the body.
    pub first: u64,
    /// Number of body bytes in the part.
    pub bytes: usize,
}

impl PartsList {
    /// Parses an object's body as a list of parts; `None` if it is not one. A valid list does not prove that
    /// the parts are right: each part names its own object.
    pub fn parse(bytes: &[u8], hash: u64) -> Option<Self> {
        let (header, places) = bytes.split_first_chunk::<LIST_HEADER_BYTES>()?;
        let [magic, part_bytes] = [0, 4].map(|at| u32_at(header, at));
        let [body_bytes, id, validator] = [8, 16, 32].map(|at| u64_at(header, at));
        let is_list = magic == LIST_MAGIC
            && (1..=PART_BODY_BYTES_MAX as u32).contains(&part_bytes)
            && body_bytes > 0
            && u64::from(u32_at(header, 24)) == body_bytes.div_ceil(u64::from(part_bytes))
            && Some(bytes.len()) == list_bytes(body_bytes, part_bytes as usize);
        let (places, _) = places.as_chunks::<PLACE_BYTES>();
        let places: Option<_> =
            places.iter().map(|place| Location::from_bits(u64::from_le_bytes(*place))).collect();
        is_list.then_some(Self { hash, id, body_bytes, part_bytes, validator, places: places? })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LIST_HEADER_BYTES + PLACE_BYTES * self.places.len());
        bytes.extend_from_slice(&LIST_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&self.part_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.body_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&(self.places.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.validator.to_le_bytes());
        for place in &self.places {
            bytes.extend_from_slice(&place.bits().to_le_bytes());
        }
        bytes
    }

    /// Returns the length of the whole body in bytes.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Returns the sequence number of the object in its shard ([`crate::store::Object::sequence`]).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of the part that contains byte `at` of the body.
    pub fn number_at(&self, at: u64) -> usize {
        (at / u64::from(self.part_bytes)) as usize
    }

    /// Returns part `number`; `None` after the last part.
    pub fn part(&self, number: usize) -> Option<Part> {
        let location = *self.places.get(number)?;
        let (first, bytes) = self.range(number);
        let cold = FileRecord { location, payload_bytes: (PART_HEADER_BYTES + bytes) as u32 };
        Some(Part { cold, first, bytes })
    }

    /// Returns the offset in the body at which part `number` begins, and its length; 0 bytes after the last
    /// part.
    fn range(&self, number: usize) -> (u64, usize) {
        let first = (number as u64 * u64::from(self.part_bytes)).min(self.body_bytes);
        (first, (self.body_bytes - first).min(u64::from(self.part_bytes)) as usize)
    }

    /// Returns the records of all parts.
    fn records(&self) -> impl Iterator<Item = FileRecord> {
        (0..self.places.len()).filter_map(|number| self.part(number)).map(|part| part.cold)
    }

    /// Returns the body bytes in the payload of part `number`; `None` if the payload belongs to another part
    /// or object.
    pub fn body_of<'b>(&self, number: usize, payload: &'b [u8]) -> Option<&'b [u8]> {
        let part = self.part(number)?;
        let (header, body) = payload.split_first_chunk::<PART_HEADER_BYTES>()?;
        let is_it = *header == part_header(number as u32, self.hash, self.id, self.validator)
            && body.len() == part.bytes;
        is_it.then_some(body)
    }
}

fn part_header(number: u32, hash: u64, id: u64, validator: u64) -> [u8; PART_HEADER_BYTES] {
    let mut header = [0; PART_HEADER_BYTES];
    header[..4].copy_from_slice(&PART_MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&number.to_le_bytes());
    header[8..16].copy_from_slice(&hash.to_le_bytes());
    header[16..24].copy_from_slice(&id.to_le_bytes());
    header[24..32].copy_from_slice(&validator.to_le_bytes());
    header
}

fn u32_at(bytes: &[u8; LIST_HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; LIST_HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Parts that are being written to the file. If this is dropped before the list is written, the parts are
/// dead.
#[derive(Debug)]
pub(super) struct PartsWriter {
    /// List of the parts that have been written so far.
    list: PartsList,
    reader: Reader,
}

impl PartsWriter {
    pub(super) fn new(hash: u64, id: u64, body_bytes: u64, part_bytes: usize, reader: Reader) -> Self {
        let (part_bytes, validator, places) = (part_bytes as u32, 0, Vec::new());
        let list = PartsList { hash, id, body_bytes, part_bytes, validator, places };
        Self { list, reader }
    }

    /// Returns the number of body bytes in the next part; 0 after the last part.
    pub(super) fn next_bytes(&self) -> usize {
        self.list.range(self.list.places.len()).1
    }

    /// Returns the number of body bytes in the parts that have been written.
    pub(super) fn written(&self) -> u64 {
        self.list.range(self.list.places.len()).0
    }

    pub(super) fn id(&self) -> u64 {
        self.list.id
    }

    /// Appends the next part; `write` writes the part's body. A part is appended only if the log has spare
    /// room, because a large object can wait.
    pub(super) fn append(
        &mut self,
        writers: &mut LifetimeWriters,
        expires_s: u32,
        write: impl FnOnce(&mut RecordWriter),
    ) -> Result<(), AppendRefusal> {
        let PartsList { hash, id, validator, .. } = self.list;
        let (number, bytes) = (self.list.places.len() as u32, self.next_bytes());
        let new = NewRecord { kind: PART, hash, tag: tag(number, mark_of(id)), target: None };
        let writer = writers.of(expires_s);
        let mut filling = writer.begin_if_spare(new, PART_HEADER_BYTES + bytes)?;
        filling.write(&part_header(number, hash, id, validator));
        write(&mut filling);
        assert!(filling.len() == PART_HEADER_BYTES + bytes, "a part has the bytes that it says");
        let location = writer.finish(filling).location;
        writers.note_part(location);
        self.list.places.push(location);
        Ok(())
    }

    /// Encodes the list of all parts, to be written to the file.
    pub(super) fn list(&self) -> Vec<u8> {
        assert!(self.next_bytes() == 0, "a list is written when all parts are");
        self.list.encode()
    }

    /// Returns the parts for the owner to keep track of, once the list is written.
    pub(super) fn into_owned(mut self) -> OwnedParts {
        let parts = self.list.records().collect();
        // Cleared, so that dropping this writer releases no part.
        self.list.places.clear();
        OwnedParts { mark: mark_of(self.list.id), parts }
    }
}

impl Drop for PartsWriter {
    fn drop(&mut self) {
        self.list.records().for_each(|part| part.died(&self.reader));
    }
}

/// Parts of one object in the file, as the shard's owner keeps track of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OwnedParts {
    pub(super) mark: u32,
    parts: Box<[FileRecord]>,
}

impl OwnedParts {
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns whether these parts are exactly the ones that the list names.
    pub(super) fn are(&self, list: &PartsList) -> bool {
        self.mark == mark_of(list.id) && self.parts.iter().copied().eq(list.records())
    }

    /// Returns whether all parts are still in the file: their segments have not been freed.
    pub(super) fn are_there(&self, reader: &Reader) -> bool {
        self.parts.iter().all(|part| reader.segment_of(part.location).is_some())
    }

    /// Builds the list of these parts, for the object with this hash, sequence number and length.
    pub(super) fn list(&self, hash: u64, id: u64, body_bytes: u64) -> Option<Vec<u8>> {
        let part_bytes = self.parts.first()?.payload_bytes - PART_HEADER_BYTES as u32;
        let places = self.parts.iter().map(|part| part.location).collect();
        Some(PartsList { hash, id, body_bytes, part_bytes, validator: 0, places }.encode())
    }

    /// Reports to the log that all these parts are dead.
    pub(super) fn died(self, reader: &Reader) {
        self.parts.into_iter().for_each(|part| part.died(reader));
    }
}

/// Parts found by recovery, collected until their objects are known.
#[derive(Debug, Default)]
pub(super) struct FoundParts {
    /// Parts by the hash and mark of their object, each with its number.
    parts: HashMap<(u64, u32), Vec<(u32, FileRecord)>>,
    /// Objects that consist of parts, by hash, each with its location and mark.
    lists: HashMap<u64, (Location, u32)>,
}

impl FoundParts {
    /// Registers a part that recovery found.
    pub(super) fn part(&mut self, hash: u64, tag: u64, location: Location, payload_bytes: u32) {
        let (number, mark) = split_tag(tag);
        self.parts.entry((hash, mark)).or_default().push((number, FileRecord { location, payload_bytes }));
    }

    /// Registers an object that recovery found and that is so far the newest with its hash.
    pub(super) fn object(&mut self, kept: &FileObject, mark: u32) {
        if mark != 0 {
            self.lists.insert(kept.hash, (kept.location, mark));
        }
    }

    /// Assigns the parts to their objects once the whole file has been read (`is_known` tells whether an
    /// object is the newest with its hash). All other parts are dead.
    pub(super) fn claimed(
        self,
        is_known: impl Fn(u64, Location) -> bool,
        reader: &Reader,
    ) -> Vec<(u64, OwnedParts)> {
        let Self { parts, lists } = self;
        let mut claimed = Vec::new();
        for ((hash, mark), mut found) in parts {
            found.sort_unstable_by_key(|(number, _)| *number);
            let owned = OwnedParts { mark, parts: found.into_iter().map(|(_, part)| part).collect() };
            match lists.get(&hash) {
                Some((location, of)) if *of == mark && is_known(hash, *location) => {
                    claimed.push((hash, owned))
                }
                _ => owned.died(reader),
            }
        }
        claimed
    }
}

const _: () =
    assert!(PART_BODY_BYTES_MAX + PART_HEADER_BYTES + 1024 + (8 << 10) <= crate::io::READ_BYTES_MAX);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn only_an_intact_parts_list_is_read(
            (hash, id, part_bytes) in (any::<u64>(), any::<u64>(), 1..=PART_BODY_BYTES_MAX as u32),
            (parts, rest, validator) in (1u64..40, any::<u32>(), any::<u64>()),
            (at, value) in (0usize..LIST_HEADER_BYTES, any::<u8>()),
        ) {
            let rest = u64::from(rest % part_bytes) + 1;
            let body_bytes = (parts - 1) * u64::from(part_bytes) + rest;
            let places = (0..parts).map(|number| Location::from_bits(number * 77 + 1).expect("not zero")).collect();
            let list = PartsList { hash, id, body_bytes, part_bytes, validator, places };
            let mut bytes = list.encode();
            prop_assert_eq!(Some(bytes.len()), list_bytes(body_bytes, part_bytes as usize));
            let read = PartsList::parse(&bytes, hash);
            prop_assert_eq!(read.as_ref(), Some(&list));
            for cut in 0..bytes.len() {
                prop_assert_eq!(PartsList::parse(&bytes[..cut], hash), None);
            }
            let mut next = 0;
            for number in 0..parts as usize {
                let part = list.part(number).expect("a part");
                prop_assert_eq!(part.first, next);
                prop_assert_eq!(list.number_at(part.first), number);
                next += part.bytes as u64;
                prop_assert_eq!(list.number_at(next - 1), number);
            }
            prop_assert_eq!(next, body_bytes);
            prop_assert_eq!(list.part(parts as usize), None);
            // The parser must not panic for any changed byte, and must not return a part beyond the list.
            bytes[at] = value;
            if let Some(list) = PartsList::parse(&bytes, hash) {
                prop_assert!(list.part(list.number_at(list.body_bytes() - 1)).is_some());
            }
        }

        #[test]
        fn a_misplaced_or_altered_part_is_refused(
            (hash, id, number, len) in (any::<u64>(), any::<u64>(), 0usize..3, 1usize..100),
            (at, bit) in (0usize..PART_HEADER_BYTES, 0u32..8),
        ) {
            let place = Location::from_bits(5).expect("not zero");
            let (body_bytes, part_bytes, validator) = (3 * len as u64, len as u32, id ^ 5);
            let list = PartsList { hash, id, body_bytes, part_bytes, validator, places: vec![place; 3] };
            let mut payload = part_header(number as u32, hash, id, validator).to_vec();
            payload.extend(vec![7; len]);
            prop_assert_eq!(list.body_of(number, &payload), Some(&vec![7; len][..]));
            prop_assert_eq!(list.body_of((number + 1) % 3, &payload), None);
            prop_assert_eq!(list.body_of(number, &payload[..payload.len() - 1]), None);
            payload[at] ^= 1 << bit;
            prop_assert_eq!(list.body_of(number, &payload), None);
        }
    }

    #[test]
    fn tags_round_trip_and_marks_are_nonzero() {
        for id in [0, 1, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            assert_ne!(mark_of(id), 0);
            assert_eq!(split_tag(tag(77, mark_of(id))), (77, mark_of(id)));
            assert_eq!(split_tag(tag(u32::MAX, mark_of(id))), (u32::MAX, mark_of(id)));
        }
        // This is the tag of an object that is not stored in parts.
        assert_eq!(split_tag(u64::from(u32::MAX)), (u32::MAX, 0));
    }
}
