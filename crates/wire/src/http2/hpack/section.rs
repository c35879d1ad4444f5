//! A decoded field section: names and values in memory that the caller owns and reuses.
//!
//! One serves a whole loop: it holds fields only between a field block and what is made of it. Its bounds are those that
//! a peer is told (SETTINGS_MAX_HEADER_LIST_SIZE), counted as RFC 9113 §6.5.2 says, with 32 bytes for each field, and a
//! number of fields: a block of few bytes can refer a thousand times to one entry of the table (the "HTTP/2 bomb").

use super::table::{FIELD_OVERHEAD, TABLE_BYTES_MAX};

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

/// The fields of one section.
#[derive(Debug)]
pub struct FieldSection {
    bytes: Box<[u8]>,
    fields: Box<[Place]>,
    /// How much of `bytes` holds fields.
    used: usize,
    /// How much of `fields` does.
    count: usize,
    /// What was sent, by the RFC's count, and how many fields.
    list_bytes: usize,
    sent: usize,
    overflow: Option<Overflow>,
}

impl FieldSection {
    /// One for sections of at most so much, by the count of RFC 9113 §6.5.2, and so many fields.
    ///
    /// # Panics
    /// If the bytes are fewer than a table may hold, or more than 16 MiB.
    pub fn new(list_bytes_max: usize, fields_max: usize) -> Self {
        assert!((TABLE_BYTES_MAX..=1 << 24).contains(&list_bytes_max), "a section holds what a table does");
        Self {
            bytes: vec![0; list_bytes_max].into(),
            fields: vec![Place::default(); fields_max].into(),
            used: 0,
            count: 0,
            list_bytes: 0,
            sent: 0,
            overflow: None,
        }
    }

    /// Forgets all fields.
    pub fn clear(&mut self) {
        (self.used, self.count, self.list_bytes, self.sent, self.overflow) = (0, 0, 0, 0, None);
    }

    /// Names and values in order; those before the limit was reached, if it was.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.fields[..self.count].iter().map(|place| {
            let both = &self.bytes[place.at as usize..][..(place.name_bytes + place.value_bytes) as usize];
            both.split_at(place.name_bytes as usize)
        })
    }

    /// How many fields it holds.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
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
        self.bytes.len()
    }

    /// Where the next field goes. After an overflow nothing is kept, and everything is room.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used..]
    }

    /// Whether all of it is room.
    pub(super) fn is_all_room(&self) -> bool {
        self.used == 0
    }

    /// Gives up what it holds, for room.
    pub(super) fn overflow_with(&mut self, overflow: Overflow) {
        self.overflow.get_or_insert(overflow);
        (self.used, self.count) = (0, 0);
    }

    /// Counts a field that lies at the beginning of the room, and keeps it. Returns whether the peer may go on.
    #[inline]
    pub(super) fn add(&mut self, name_bytes: usize, value_bytes: usize) -> bool {
        self.list_bytes += name_bytes + value_bytes + FIELD_OVERHEAD;
        self.sent += 1;
        if self.overflow.is_none() {
            if self.list_bytes > self.bytes.len() {
                self.overflow_with(Overflow::Bytes);
            } else if let Some(place) = self.fields.get_mut(self.count) {
                *place = Place {
                    at: self.used as u32,
                    name_bytes: name_bytes as u32,
                    value_bytes: value_bytes as u32,
                };
                self.count += 1;
                self.used += name_bytes + value_bytes;
                return true;
            } else {
                self.overflow_with(Overflow::Fields);
            }
        }
        self.list_bytes <= OVERRUN_MAX * self.bytes.len() && self.sent <= OVERRUN_MAX * self.fields.len()
    }
}
