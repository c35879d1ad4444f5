//! The dynamic table of a decoder (RFC 7541 §2.3.2 and §4): fields to which the peer may refer later.
//!
//! ```text
//!   bytes   [ . . name value name value name value . . ]   a ring: the oldest entry's bytes are freed first
//!   entries [ . . . . e n+1    e n+2      e n+3  . . . ]   a ring of their offsets and lengths
//! ```
//! Each entry counts for 32 bytes more than its length (RFC 7541 §4.1). The number of entries is therefore
//! bounded, and both rings have a fixed size: 4,864 bytes for a connection, allocated once. An entry's bytes
//! may wrap around to the ring's beginning.

/// Maximum size of the table, counted as in RFC 7541 §4.1. Every client may assume this size before it knows
/// our settings (RFC 9113 §6.5.2), so a smaller one would save nothing until the client has acknowledged
/// them.
pub const TABLE_BYTES_MAX: usize = 4096;

/// Number of bytes added for each table entry and each field of a list (RFC 7541 §4.1, RFC 9113 §10.5.1).
pub const FIELD_OVERHEAD: usize = 32;

/// Maximum number of entries.
const ENTRIES_MAX: usize = TABLE_BYTES_MAX / FIELD_OVERHEAD;
const _: () = assert!(TABLE_BYTES_MAX.is_power_of_two() && ENTRIES_MAX.is_power_of_two());

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Offset of the name in the ring of bytes; the value follows it.
    at: u16,
    name_bytes: u16,
    value_bytes: u16,
}

#[derive(Debug)]
struct Rings {
    bytes: [u8; TABLE_BYTES_MAX],
    entries: [Entry; ENTRIES_MAX],
}

/// Dynamic table of a decoder.
#[derive(Debug)]
pub(super) struct DynamicTable {
    rings: Box<Rings>,
    /// Position of the next entry in the ring of entries; `count` is the number of entries.
    next: usize,
    count: usize,
    /// Position of the next entry's bytes in the ring of bytes.
    next_byte: usize,
    /// Size of the entries, counted as in RFC 7541 §4.1; never more than `bytes_max`.
    bytes: usize,
    /// Size limit that the peer set last; never more than [`TABLE_BYTES_MAX`].
    bytes_max: usize,
}

impl DynamicTable {
    /// Size of both rings in bytes.
    pub(super) const HELD_BYTES: usize = size_of::<Rings>();

    pub(super) fn new() -> Self {
        let empty = Entry { at: 0, name_bytes: 0, value_bytes: 0 };
        let rings = Box::new(Rings { bytes: [0; TABLE_BYTES_MAX], entries: [empty; ENTRIES_MAX] });
        Self { rings, next: 0, count: 0, next_byte: 0, bytes: 0, bytes_max: TABLE_BYTES_MAX }
    }

    /// Returns the size of the entries, counted as in RFC 7541 §4.1.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the table's size limit. Returns whether that is allowed.
    pub(super) fn resize(&mut self, bytes_max: usize) -> bool {
        if bytes_max > TABLE_BYTES_MAX {
            return false;
        }
        self.bytes_max = bytes_max;
        self.evict(0);
        true
    }

    /// Removes the oldest entries until `room` bytes are free.
    fn evict(&mut self, room: usize) {
        while self.bytes + room > self.bytes_max && self.count > 0 {
            let oldest = self.rings.entries[self.next.wrapping_sub(self.count) % ENTRIES_MAX];
            self.bytes -= usize::from(oldest.name_bytes) + usize::from(oldest.value_bytes) + FIELD_OVERHEAD;
            self.count -= 1;
        }
        assert!(self.count > 0 || self.bytes == 0, "an empty table counts for nothing");
    }

    /// Adds a field. A field that is larger than the table empties it (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        if size > self.bytes_max {
            return self.clear();
        }
        self.evict(size);
        let at = self.next_byte;
        self.append(name);
        self.append(value);
        self.rings.entries[self.next % ENTRIES_MAX] =
            Entry { at: at as u16, name_bytes: name.len() as u16, value_bytes: value.len() as u16 };
        self.next = (self.next + 1) % ENTRIES_MAX;
        self.count += 1;
        self.bytes += size;
    }

    pub(super) fn clear(&mut self) {
        (self.count, self.bytes) = (0, 0);
    }

    fn append(&mut self, part: &[u8]) {
        let (first, second) = part.split_at(part.len().min(TABLE_BYTES_MAX - self.next_byte));
        self.rings.bytes[self.next_byte..][..first.len()].copy_from_slice(first);
        self.rings.bytes[..second.len()].copy_from_slice(second);
        self.next_byte = (self.next_byte + part.len()) % TABLE_BYTES_MAX;
    }

    /// Returns the entry added `age` entries before the last one.
    fn entry(&self, age: usize) -> Option<Entry> {
        (age < self.count).then(|| self.rings.entries[self.next.wrapping_sub(age + 1) % ENTRIES_MAX])
    }

    /// Returns the lengths of an entry's name and value.
    #[inline]
    pub(super) fn lengths(&self, age: usize) -> Option<(usize, usize)> {
        self.entry(age).map(|entry| (entry.name_bytes.into(), entry.value_bytes.into()))
    }

    /// Copies as much of an entry (its name, then its value) as `out` holds. The entry must exist.
    #[inline]
    pub(super) fn copy(&self, age: usize, out: &mut [u8]) {
        let Some(entry) = self.entry(age) else { return };
        let from = &self.rings.bytes[entry.at as usize..];
        if let Some(whole) = from.get(..out.len()) {
            out.copy_from_slice(whole);
        } else {
            let (first, second) = out.split_at_mut(from.len());
            first.copy_from_slice(from);
            second.copy_from_slice(&self.rings.bytes[..second.len()]);
        }
    }
}
