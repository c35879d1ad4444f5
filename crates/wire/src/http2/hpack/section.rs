//! A decoded field section: names and values in memory that the caller owns and reuses.
//!
//! One section serves a whole loop: it holds fields only from the decoding of a field block until the request
//! is built. Its bounds are the announced ones (SETTINGS_MAX_HEADER_LIST_SIZE), counted as in RFC 9113 §6.5.2
//! with 32 bytes for each field, and a maximum number of fields: a block of few bytes can refer a thousand
//! times to one table entry (the "HTTP/2 bomb").
//!
//! A client that fetches a page's resources sends successive requests that differ only in their paths. The
//! validation of the previous request then holds for the next, so the section keeps two sets of fields and
//! compares them.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU32, Ordering},
};

use super::table::{FIELD_OVERHEAD, TABLE_BYTES_MAX};
use crate::http2::request::RequestLayout;

/// Reason why a section does not hold all fields that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Names, values and 32 bytes for each field exceed the limit.
    Bytes,
    /// The number of fields exceeds the limit.
    Fields,
}

/// Factor by which a section may exceed its bounds before the connection ends. Below that the client gets a
/// 431 and stays connected: the whole block is decoded to keep the table in step with the peer's.
pub const OVERRUN_MAX: usize = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    at: u32,
    name_bytes: u32,
    value_bytes: u32,
}

/// Memory for the fields of one section.
#[derive(Debug)]
struct Fields {
    bytes: Box<[u8]>,
    places: Box<[Place]>,
    /// Number of `bytes` in use.
    used: usize,
    /// Number of `places` in use.
    count: usize,
}

impl Fields {
    fn new(bytes_max: usize, fields_max: usize) -> Self {
        Self {
            bytes: vec![0; bytes_max].into(),
            places: vec![Place::default(); fields_max].into(),
            used: 0,
            count: 0,
        }
    }

    /// Returns whether all names and values equal those of `other`, except for the value of the field `but`.
    fn are_those_of(&self, other: &Self, but: usize) -> bool {
        let (ours, theirs) = (&self.places[..self.count], &other.places[..other.count]);
        let (Some(place), Some(their_place)) = (ours.get(but), theirs.get(but)) else { return false };
        if ours.len() != theirs.len() || place.at != their_place.at {
            return false;
        }
        let lengths_differ = |field: usize| {
            (ours[field].name_bytes ^ theirs[field].name_bytes)
                | (ours[field].value_bytes ^ theirs[field].value_bytes)
        };
        if place.name_bytes != their_place.name_bytes
            || (0..ours.len()).filter(|&field| field != but).any(|field| lengths_differ(field) != 0)
        {
            return false;
        }
        let value_at = (place.at + place.name_bytes) as usize;
        let behind = value_at + place.value_bytes as usize;
        let behind_theirs = value_at + their_place.value_bytes as usize;
        self.bytes[..value_at] == other.bytes[..value_at]
            && self.bytes[behind..self.used] == other.bytes[behind_theirs..other.used]
    }
}

/// Identifies one section that a [`FieldSection`] has held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http2) struct Serial {
    memory: u32,
    section: u64,
}

/// The fields of one section, and those of the last valid request, because the next is often equal except for
/// its path.
#[derive(Debug)]
pub struct FieldSection {
    now: Fields,
    /// Size of all fields received, counted as in RFC 9113 §6.5.2; `sent` is the number of fields.
    list_bytes: usize,
    sent: usize,
    overflow: Option<Overflow>,
    serial: Serial,
    /// Layout of the request in `now`, once it has been read and is valid.
    found: Cell<Option<RequestLayout>>,
    /// Fields of the last valid request before the one in `now`.
    before: Fields,
    /// Serial and layout of the request in `before`; `None` if `before` holds none.
    found_before: Option<(Serial, RequestLayout)>,
}

impl FieldSection {
    /// Creates a section of at most `list_bytes_max` bytes, counted as in RFC 9113 §6.5.2, and at most
    /// `fields_max` fields.
    ///
    /// # Panics
    /// Panics if `list_bytes_max` is less than the maximum size of a dynamic table, or more than 16 MiB.
    pub fn new(list_bytes_max: usize, fields_max: usize) -> Self {
        assert!((TABLE_BYTES_MAX..=1 << 24).contains(&list_bytes_max), "a section holds what a table does");
        static MEMORIES: AtomicU32 = AtomicU32::new(0);
        let memory = MEMORIES.fetch_add(1, Ordering::Relaxed);
        Self {
            now: Fields::new(list_bytes_max, fields_max),
            list_bytes: 0,
            sent: 0,
            overflow: None,
            serial: Serial { memory, section: 0 },
            found: Cell::new(None),
            before: Fields::new(list_bytes_max, fields_max),
            found_before: None,
        }
    }

    /// Removes all fields, but keeps those of a valid request for comparison.
    #[inline]
    pub fn clear(&mut self) {
        if let Some(found) = self.found.take() {
            std::mem::swap(&mut self.now, &mut self.before);
            self.found_before = Some((self.serial, found));
        }
        self.serial.section += 1;
        (self.now.used, self.now.count) = (0, 0);
        (self.list_bytes, self.sent, self.overflow) = (0, 0, None);
    }

    /// Returns the serial of the current section.
    pub(in crate::http2) fn serial(&self) -> Serial {
        self.serial
    }

    /// Records the layout of the request in this section. It stays valid until [`clear`](Self::clear).
    pub(in crate::http2) fn note(&self, found: RequestLayout) {
        self.found.set(Some(found));
    }

    /// Returns the last valid request before this section, if the two are equal except for the value of the
    /// path.
    #[inline]
    pub(in crate::http2) fn alike_but_path(&self) -> Option<(Serial, RequestLayout)> {
        self.found_before.filter(|(_, found)| self.now.are_those_of(&self.before, found.path))
    }

    /// Returns the value of the field at index `field`; empty if there is none.
    #[inline]
    pub(in crate::http2) fn value(&self, field: usize) -> &[u8] {
        let place = self.now.places[..self.now.count].get(field).copied().unwrap_or_default();
        &self.now.bytes[(place.at + place.name_bytes) as usize..][..place.value_bytes as usize]
    }

    /// Iterates over names and values in order; after an overflow there are none.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.now.places[..self.now.count].iter().map(|place| {
            let both =
                &self.now.bytes[place.at as usize..][..(place.name_bytes + place.value_bytes) as usize];
            both.split_at(place.name_bytes as usize)
        })
    }

    /// Returns the number of fields held.
    pub fn len(&self) -> usize {
        self.now.count
    }

    /// Returns whether the section holds no fields.
    pub fn is_empty(&self) -> bool {
        self.now.count == 0
    }

    /// Returns the size of all fields sent: names, values and 32 bytes for each field (RFC 9113 §6.5.2).
    pub fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    /// Returns the limit that was exceeded, if any: fields are then missing.
    pub fn overflow(&self) -> Option<Overflow> {
        self.overflow
    }

    /// Returns the value for SETTINGS_MAX_HEADER_LIST_SIZE.
    pub fn list_bytes_max(&self) -> usize {
        self.now.bytes.len()
    }

    /// Returns the memory for the next field. After an overflow nothing is kept, and all memory is free.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.now.bytes[self.now.used..]
    }

    /// Returns whether all of the memory is free.
    pub(super) fn is_all_room(&self) -> bool {
        self.now.used == 0
    }

    /// Records the overflow and drops all fields to free their memory.
    pub(super) fn overflow_with(&mut self, overflow: Overflow) {
        self.overflow.get_or_insert(overflow);
        (self.now.used, self.now.count) = (0, 0);
    }

    /// Counts the field that was written to the beginning of `room`, and keeps it. Returns whether the
    /// section is still within [`OVERRUN_MAX`] times its bounds.
    #[inline]
    pub(super) fn add(&mut self, name_bytes: usize, value_bytes: usize) -> bool {
        self.list_bytes += name_bytes + value_bytes + FIELD_OVERHEAD;
        self.sent += 1;
        if self.overflow.is_none() {
            if self.list_bytes > self.now.bytes.len() {
                self.overflow_with(Overflow::Bytes);
            } else if let Some(place) = self.now.places.get_mut(self.now.count) {
                *place = Place {
                    at: self.now.used as u32,
                    name_bytes: name_bytes as u32,
                    value_bytes: value_bytes as u32,
                };
                self.now.count += 1;
                self.now.used += name_bytes + value_bytes;
                return true;
            } else {
                self.overflow_with(Overflow::Fields);
            }
        }
        self.list_bytes <= OVERRUN_MAX * self.now.bytes.len()
            && self.sent <= OVERRUN_MAX * self.now.places.len()
    }
}
