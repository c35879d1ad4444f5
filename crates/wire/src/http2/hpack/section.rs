//! A decoded field section: names and values in memory that the caller owns and reuses.
//!
//! One serves a whole loop: it holds fields only between a field block and what is made of it. Its bounds are those that
//! a peer is told (SETTINGS_MAX_HEADER_LIST_SIZE), counted as RFC 9113 §6.5.2 says, with 32 bytes for each field, and a
//! number of fields: a block of few bytes can refer a thousand times to one entry of the table (the "HTTP/2 bomb").
//!
//! A client that asks for a page's parts sends one request after the other that differ in their path alone. What was found
//! of the last one holds for the next, so the memory is there twice, and they are compared.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU32, Ordering},
};

use super::table::{FIELD_OVERHEAD, TABLE_BYTES_MAX};
use crate::http2::request::RequestLayout;

/// Why a section does not hold all that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Names, values and 32 bytes for each field are more than the limit.
    Bytes,
    /// There are more fields than the limit.
    Fields,
}

/// How many times its bounds a section may be before the connection ends. Up to there, who sends it is told 431 and
/// stays: the table must be kept as the peer believes it to be, so all of a block is decoded.
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
    /// How much of `bytes` holds fields.
    used: usize,
    /// How much of `places` does.
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

    /// Whether all names and values are those of `other`, but for the value of one field.
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

/// Names one section that one [`FieldSection`] has held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http2) struct Serial {
    memory: u32,
    section: u64,
}

/// The fields of one section; and those of the last request that was sound, because the next is often the same but for
/// its path.
#[derive(Debug)]
pub struct FieldSection {
    now: Fields,
    /// What was sent, by the RFC's count, and how many fields.
    list_bytes: usize,
    sent: usize,
    overflow: Option<Overflow>,
    serial: Serial,
    /// What the request was found to be that `now` holds, once it was read and is sound.
    found: Cell<Option<RequestLayout>>,
    /// The last such request before.
    before: Fields,
    /// Which it was and what it was found to be; with it, `before` holds its fields.
    found_before: Option<(Serial, RequestLayout)>,
}

impl FieldSection {
    /// One for sections of at most so much, by the count of RFC 9113 §6.5.2, and so many fields.
    ///
    /// # Panics
    /// If the bytes are fewer than a table may hold, or more than 16 MiB.
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

    /// Forgets all fields, but for comparison.
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

    /// Which section it holds.
    pub(in crate::http2) fn serial(&self) -> Serial {
        self.serial
    }

    /// Notes what the request is that it holds. It stays so until [`clear`](Self::clear).
    pub(in crate::http2) fn note(&self, found: RequestLayout) {
        self.found.set(Some(found));
    }

    /// The last request that was noted before this section, which it is alike but for the value of that request's path.
    #[inline]
    pub(in crate::http2) fn alike_but_path(&self) -> Option<(Serial, RequestLayout)> {
        self.found_before.filter(|(_, found)| self.now.are_those_of(&self.before, found.path))
    }

    /// The value of a field by its number; empty if there is none.
    #[inline]
    pub(in crate::http2) fn value(&self, field: usize) -> &[u8] {
        let place = self.now.places[..self.now.count].get(field).copied().unwrap_or_default();
        &self.now.bytes[(place.at + place.name_bytes) as usize..][..place.value_bytes as usize]
    }

    /// Names and values in order; those before the limit was reached, if it was.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.now.places[..self.now.count].iter().map(|place| {
            let both =
                &self.now.bytes[place.at as usize..][..(place.name_bytes + place.value_bytes) as usize];
            both.split_at(place.name_bytes as usize)
        })
    }

    /// How many fields it holds.
    pub fn len(&self) -> usize {
        self.now.count
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.now.count == 0
    }

    /// Names and values and 32 bytes for each field (RFC 9113 §6.5.2), of all that was sent.
    pub fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    /// Which limit was reached, if one was: then fields are missing.
    pub fn overflow(&self) -> Option<Overflow> {
        self.overflow
    }

    /// SETTINGS_MAX_HEADER_LIST_SIZE.
    pub fn list_bytes_max(&self) -> usize {
        self.now.bytes.len()
    }

    /// Where the next field goes. After an overflow nothing is kept, and everything is room.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.now.bytes[self.now.used..]
    }

    /// Whether all of it is room.
    pub(super) fn is_all_room(&self) -> bool {
        self.now.used == 0
    }

    /// Gives up what it holds, for room.
    pub(super) fn overflow_with(&mut self, overflow: Overflow) {
        self.overflow.get_or_insert(overflow);
        (self.now.used, self.now.count) = (0, 0);
    }

    /// Counts a field that lies at the beginning of the room, and keeps it. Returns whether the peer may go on.
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
