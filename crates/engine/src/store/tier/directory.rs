//! Directory of a shard's objects in the file: hash to location, 24 bytes per object and a quarter more for
//! free entries.
//!
//! ```text
//! top bits of the hash ─▶ table of 1024 ─▶ | hash | location | expiry, length |  open addressing, linear probing
//! ```
//! *Memory:* plain memory of the shard's owner, which alone reads and writes it. Each table grows by itself,
//! so that no step moves more than a 1024th of the entries. Before a table grows it drops entries that point
//! into segments that have been given up (the log does not report those), so the number of entries is bounded
//! by the capacity of the file. The directory also has a memory bound: when a table is full, an object is
//! chosen that must be removed before the next one is entered.

use crate::log::Location;

/// Number of tables in a directory; a power of two.
const TABLES: usize = 1024;
/// Number of entries in the smallest allocated table.
const TABLE_MIN: usize = 8;
/// Number of entries examined to find the oldest, which is removed to make room.
const LOOKED_AT_TO_MAKE_ROOM: usize = 16;

/// Directory entry of an object that is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileObject {
    pub(crate) hash: u64,
    pub(crate) location: Location,
    pub(crate) expires_s: u32,
    pub(crate) payload_bytes: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Hash of the object; 0: the entry is vacant, because no object's hash is zero.
    hash: u64,
    location: u64,
    expires_s: u32,
    payload_bytes: u32,
}

impl Entry {
    fn kept(&self) -> Option<FileObject> {
        let location = Location::from_bits(self.location)?;
        let Self { hash, expires_s, payload_bytes, .. } = *self;
        Some(FileObject { hash, location, expires_s, payload_bytes })
    }
}

#[derive(Debug, Default)]
struct Table {
    entries: Box<[Entry]>,
    used: usize,
}

#[derive(Debug)]
pub(super) struct Directory {
    tables: Box<[Table]>,
    len: usize,
    capacity: usize,
    /// Maximum entries of a table.
    table_max: usize,
}

impl Directory {
    /// Creates a directory for at most about `objects_max` objects.
    pub(super) fn new(objects_max: u64) -> Self {
        let table_max = usize::try_from(objects_max / TABLES as u64).unwrap_or(usize::MAX).max(TABLE_MIN);
        Self { tables: (0..TABLES).map(|_| Table::default()).collect(), len: 0, capacity: 0, table_max }
    }

    /// Returns the object that must be removed before an object with this hash can be entered, if its table
    /// is full. Of the few entries examined, one whose record is gone is preferred, else the one written
    /// first.
    pub(super) fn choose_victim(
        &self,
        hash: u64,
        is_living: impl Fn(Location) -> bool,
    ) -> Option<FileObject> {
        let table = &self.tables[table_of(hash)];
        let len = table.entries.len();
        if table.used < self.table_max || table.position(hash).is_some() {
            return None;
        }
        let mut oldest: Option<FileObject> = None;
        for step in 0..len.min(LOOKED_AT_TO_MAKE_ROOM) {
            let Some(kept) = table.entries[(home(hash, len) + step) % len].kept() else { continue };
            if !is_living(kept.location) {
                return Some(kept);
            }
            if oldest.is_none_or(|oldest| oldest.location.is_after(kept.location)) {
                oldest = Some(kept);
            }
        }
        // At most seven eighths of the entries are used: if all examined entries are vacant, the first used
        // entry of the table is taken.
        oldest.or_else(|| table.entries.iter().find_map(Entry::kept))
    }

    /// Returns the number of entries, some of which may point to records that are gone.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory of all tables in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.capacity * size_of::<Entry>() + TABLES * size_of::<Table>()
    }

    pub(super) fn find(&self, hash: u64) -> Option<FileObject> {
        let table = &self.tables[table_of(hash)];
        table.entries.get(table.position(hash)?)?.kept()
    }

    /// Enters an object and returns the entry with the same hash that it replaces. `is_living` tells whether
    /// the record of an existing entry is still in the file.
    pub(super) fn insert(
        &mut self,
        kept: FileObject,
        is_living: impl Fn(Location) -> bool,
    ) -> Option<FileObject> {
        let table = &mut self.tables[table_of(kept.hash)];
        let FileObject { hash, location, expires_s, payload_bytes } = kept;
        let entry = Entry { hash, location: location.bits(), expires_s, payload_bytes };
        if let Some(at) = table.position(hash) {
            let old = std::mem::replace(&mut table.entries[at], entry);
            return old.kept();
        }
        // At most seven eighths of the entries are used, so that a search always ends.
        if (table.used + 1) * 8 > table.entries.len() * 7 {
            let (used, len) = (table.used, table.entries.len());
            table.rebuild(&is_living);
            self.len -= used - table.used;
            self.capacity = self.capacity + table.entries.len() - len;
        }
        table.enter(entry);
        table.used += 1;
        self.len += 1;
        None
    }

    pub(super) fn remove(&mut self, hash: u64) -> Option<FileObject> {
        let table = &mut self.tables[table_of(hash)];
        let mut hole = table.position(hash)?;
        let removed = table.entries[hole].kept();
        table.entries[hole] = Entry::default();
        table.used -= 1;
        self.len -= 1;
        // Entries after the hole move up if the hole lies between their home position and their current one,
        // so no tombstones are needed.
        let len = table.entries.len();
        let mut at = hole;
        loop {
            at = (at + 1) % len;
            let entry = table.entries[at];
            if entry.hash == 0 {
                return removed;
            }
            let home = home(entry.hash, len);
            let from_home = (at + len - home) % len;
            let from_hole = (at + len - hole) % len;
            if from_home >= from_hole {
                table.entries[hole] = entry;
                table.entries[at] = Entry::default();
                hole = at;
            }
        }
    }

    /// Iterates over all entries.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = FileObject> {
        self.tables.iter().flat_map(|table| table.entries.iter()).filter_map(Entry::kept)
    }
}

impl Table {
    fn position(&self, hash: u64) -> Option<usize> {
        let len = self.entries.len();
        if len == 0 {
            return None;
        }
        let mut at = home(hash, len);
        loop {
            match self.entries[at].hash {
                0 => return None,
                found if found == hash => return Some(at),
                _ => at = (at + 1) % len,
            }
        }
    }

    fn enter(&mut self, entry: Entry) {
        let len = self.entries.len();
        let mut at = home(entry.hash, len);
        while self.entries[at].hash != 0 {
            at = (at + 1) % len;
        }
        self.entries[at] = entry;
    }

    /// Drops entries whose records are gone, and enlarges the table if less than a quarter of it is then
    /// vacant.
    fn rebuild(&mut self, is_living: &impl Fn(Location) -> bool) {
        let living: Vec<Entry> = self
            .entries
            .iter()
            .filter(|entry| entry.kept().is_some_and(|kept| is_living(kept.location)))
            .copied()
            .collect();
        let needed = (living.len() + 1) * 4 / 3;
        let len = self.entries.len().max(needed.next_multiple_of(4)).max(TABLE_MIN);
        self.entries = vec![Entry::default(); len].into();
        self.used = living.len();
        living.into_iter().for_each(|entry| self.enter(entry));
    }
}

fn table_of(hash: u64) -> usize {
    // The lowest bits choose the shard, the highest choose the index page; any bits between them will do.
    (hash >> 20) as usize % TABLES
}

fn home(hash: u64, len: usize) -> usize {
    // The hash is multiplied first, because the bits that chose the table are the same for all its entries.
    (((hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * len as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn kept(hash: u64, place: u64) -> FileObject {
        let location = Location::from_bits(place).expect("not zero");
        FileObject { hash, location, expires_s: (hash % 977) as u32, payload_bytes: (place % 1009) as u32 }
    }

    proptest! {
        #[test]
        fn it_does_what_a_map_does(
            operations in proptest::collection::vec((0u64..400, any::<bool>(), 1u64..1000), 0..2000),
            crowd in any::<bool>(),
        ) {
            let mut directory = Directory::new(u64::MAX);
            let mut twin = HashMap::new();
            for (number, is_removed, place) in operations {
                // With `crowd`, all hashes fall into one table.
                let hash = if crowd { 1 + (number << 40) } else { (number + 1).wrapping_mul(0x2545_f491_4f6c_dd1d) };
                if is_removed {
                    prop_assert_eq!(directory.remove(hash), twin.remove(&hash));
                } else {
                    let new = kept(hash, place);
                    prop_assert_eq!(directory.insert(new, |_| true), twin.insert(hash, new));
                }
                prop_assert_eq!(directory.len(), twin.len());
            }
            for (hash, kept) in &twin {
                prop_assert_eq!(directory.find(*hash), Some(*kept));
            }
            prop_assert_eq!(directory.iter().count(), twin.len());
        }
    }

    #[test]
    fn the_directory_stays_small_and_reclaims_entries() {
        let mut directory = Directory::new(u64::MAX);
        let hash = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in 0..1_000_000 {
            directory.insert(kept(hash(number), number + 1), |_| true);
        }
        let each = directory.bytes() as f64 / directory.len() as f64;
        assert!(each < 36.0, "{each} bytes an object");
        let bytes = directory.bytes();
        // Two million more objects are entered, and only records of the newest 900,000 are still there.
        for number in 1_000_000..3_000_000u64 {
            let oldest = number - 900_000;
            directory.insert(kept(hash(number), number + 1), |location| location.bits() > oldest);
        }
        assert!(directory.len() < 1_400_000, "{} entries", directory.len());
        assert!(directory.bytes() < bytes * 2, "{} bytes", directory.bytes());
        assert_eq!(directory.find(hash(2_999_999)), Some(kept(hash(2_999_999), 3_000_000)));
    }
}
