//! What of a shard is on the file: hash to place, 24 bytes an object and a quarter more for room.
//!
//! ```text
//! top bits of the hash ─▶ table of 1024 ─▶ | hash | location | expiry, length |  open addressing, one run
//! ```
//! *Where:* plain memory of the shard's owner. *Who reads and writes:* the owner alone. Each table grows by itself, so
//! that no step moves more than a 1024th of the entries; before it grows it drops what points into segments that have
//! been given up since (nobody tells it of those), so that the number of entries is bounded by what the file holds. Where
//! memory is bounded, it is bounded too: a table that is full says who makes room for the next.

use crate::log::Location;

/// Tables; a power of two.
const TABLES: usize = 1024;
/// Entries of a table that has one.
const TABLE_MIN: usize = 8;
/// Entries among which the oldest makes room.
const LOOKED_AT_TO_MAKE_ROOM: usize = 16;

/// An object on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileObject {
    pub(crate) hash: u64,
    pub(crate) location: Location,
    pub(crate) expires_s: u32,
    pub(crate) payload_bytes: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// 0: vacant. No object's hash is.
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
    /// Most entries of a table.
    table_max: usize,
}

impl Directory {
    /// For about so many objects at most.
    pub(super) fn new(objects_max: u64) -> Self {
        let table_max = usize::try_from(objects_max / TABLES as u64).unwrap_or(usize::MAX).max(TABLE_MIN);
        Self { tables: (0..TABLES).map(|_| Table::default()).collect(), len: 0, capacity: 0, table_max }
    }

    /// Who must go before an object with this hash may be entered, if its table is full: the one of a few that was
    /// written first, or that has gone already.
    pub(super) fn in_the_way_of(
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
        // At most seven eighths of the entries are used: the first of all, if none of those was.
        oldest.or_else(|| table.entries.iter().find_map(Entry::kept))
    }

    /// Entries, some of which may point to what is gone.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Memory of all tables.
    pub(super) fn bytes(&self) -> usize {
        self.capacity * size_of::<Entry>() + TABLES * size_of::<Table>()
    }

    pub(super) fn find(&self, hash: u64) -> Option<FileObject> {
        let table = &self.tables[table_of(hash)];
        table.entries.get(table.position(hash)?)?.kept()
    }

    /// Enters an object, in place of the one with the same hash, which is returned. `is_living` says whether an older
    /// entry still has its record.
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
        // At most seven eighths, so that a search ends.
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
        // What lies behind moves up if the hole is on its way from home: no tombstones.
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

    /// All entries.
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

    /// Drops what is gone, and grows by a third if that was not a quarter.
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
    // The lowest bits choose the shard by their size, the highest the index page: those between are as good as any.
    (hash >> 20) as usize % TABLES
}

fn home(hash: u64, len: usize) -> usize {
    // Multiplied, because the bits that chose the table are the same for all in it.
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
                // A crowd lies in one table.
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
    fn what_is_gone_makes_room_and_an_object_costs_little() {
        let mut directory = Directory::new(u64::MAX);
        let hash = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in 0..1_000_000 {
            directory.insert(kept(hash(number), number + 1), |_| true);
        }
        let each = directory.bytes() as f64 / directory.len() as f64;
        assert!(each < 36.0, "{each} bytes an object");
        let bytes = directory.bytes();
        // Of ten times as many, only the youngest tenth is still there.
        for number in 1_000_000..3_000_000u64 {
            let oldest = number - 900_000;
            directory.insert(kept(hash(number), number + 1), |location| location.bits() > oldest);
        }
        assert!(directory.len() < 1_400_000, "{} entries", directory.len());
        assert!(directory.bytes() < bytes * 2, "{} bytes", directory.bytes());
        assert_eq!(directory.find(hash(2_999_999)), Some(kept(hash(2_999_999), 3_000_000)));
    }
}
