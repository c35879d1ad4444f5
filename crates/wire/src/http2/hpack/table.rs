//! The dynamic table of a decoder (RFC 7541 §2.3.2 and §4): what the peer wants to refer to later.
//!
//! ```text
//!   bytes   [ . . name value name value name value . . ]   a ring: the oldest entry's bytes are freed first
//!   entries [ . . . . e n+1    e n+2      e n+3  . . . ]   a ring of where they lie
//! ```
//! Each entry counts for 32 bytes more than it has (RFC 7541 §4.1); so as many as fit are bounded, and both rings are
//! of a fixed size: 4,864 bytes for a connection, allocated once. An entry's bytes may go on at the ring's beginning.

/// The most that the table may hold, by its own count; it is what every client may assume before it knows our settings
/// (RFC 9113 §6.5.2), so that less would save nothing until it has acknowledged them.
pub const TABLE_BYTES_MAX: usize = 4096;

/// What each entry, and each field of a list, counts for beside its bytes (RFC 7541 §4.1, RFC 9113 §10.5.1).
pub const FIELD_OVERHEAD: usize = 32;

/// As many entries as there can be.
const ENTRIES_MAX: usize = TABLE_BYTES_MAX / FIELD_OVERHEAD;
const _: () = assert!(TABLE_BYTES_MAX.is_power_of_two() && ENTRIES_MAX.is_power_of_two());

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where the name begins in the ring of bytes; the value follows it.
    at: u16,
    name_bytes: u16,
    value_bytes: u16,
}

#[derive(Debug)]
struct Rings {
    bytes: [u8; TABLE_BYTES_MAX],
    entries: [Entry; ENTRIES_MAX],
}

/// The table.
#[derive(Debug)]
pub(super) struct DynamicTable {
    rings: Box<Rings>,
    /// Where the next entry goes in the ring of entries, and how many there are.
    next: usize,
    count: usize,
    /// Where the next entry's bytes go.
    next_byte: usize,
    /// What the entries count for; never more than `bytes_max`.
    bytes: usize,
    /// What the peer said last; never more than [`TABLE_BYTES_MAX`].
    bytes_max: usize,
}

impl DynamicTable {
    /// Bytes of both rings.
    pub(super) const HELD_BYTES: usize = size_of::<Rings>();

    pub(super) fn new() -> Self {
        let empty = Entry { at: 0, name_bytes: 0, value_bytes: 0 };
        let rings = Box::new(Rings { bytes: [0; TABLE_BYTES_MAX], entries: [empty; ENTRIES_MAX] });
        Self { rings, next: 0, count: 0, next_byte: 0, bytes: 0, bytes_max: TABLE_BYTES_MAX }
    }

    /// What the entries count for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes how much the table may hold. Returns whether that is allowed.
    pub(super) fn resize(&mut self, bytes_max: usize) -> bool {
        if bytes_max > TABLE_BYTES_MAX {
            return false;
        }
        self.bytes_max = bytes_max;
        self.evict(0);
        true
    }

    /// Removes the oldest until there is room for so much.
    fn evict(&mut self, room: usize) {
        while self.bytes + room > self.bytes_max && self.count > 0 {
            let oldest = self.rings.entries[self.next.wrapping_sub(self.count) % ENTRIES_MAX];
            self.bytes -= usize::from(oldest.name_bytes) + usize::from(oldest.value_bytes) + FIELD_OVERHEAD;
            self.count -= 1;
        }
        assert!(self.count > 0 || self.bytes == 0, "an empty table counts for nothing");
    }

    /// Enters a field. One that is larger than the table empties it (RFC 7541 §4.4).
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

    /// The entry that came `age` entries before the last one.
    fn entry(&self, age: usize) -> Option<Entry> {
        (age < self.count).then(|| self.rings.entries[self.next.wrapping_sub(age + 1) % ENTRIES_MAX])
    }

    /// The lengths of an entry's name and value.
    #[inline]
    pub(super) fn lengths(&self, age: usize) -> Option<(usize, usize)> {
        self.entry(age).map(|entry| (entry.name_bytes.into(), entry.value_bytes.into()))
    }

    /// Copies as much of an entry (its name, then its value) as `out` takes. The entry must be there.
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
