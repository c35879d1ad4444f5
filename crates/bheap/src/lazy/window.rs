//! Window of a lazy queue: once something has been removed, the smallest entries are kept here; all are live,
//! and each can be found by its slot.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// An entry of the window; equal keys are distinguished by their slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<K> {
    pub(super) key: K,
    pub(super) slot: u32,
}

impl<K: Ord> PartialEq for Place<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<K: Ord> Eq for Place<K> {}
impl<K: Ord> PartialOrd for Place<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<K: Ord> Ord for Place<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then(self.slot.cmp(&other.slot))
    }
}

/// Data of an entry in the window that does not fit into its slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<K> {
    pub(super) key: K,
    pub(super) generation: u32,
}

/// Live entries in order, and their records.
#[derive(Debug)]
pub(super) struct Window<K> {
    places: BTreeSet<Place<K>>,
    records: Vec<Record<K>>,
    /// Numbers of unused records.
    free: Vec<u32>,
}

impl<K: Ord + Copy> Window<K> {
    pub(super) const fn new() -> Self {
        Self { places: BTreeSet::new(), records: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn first(&self) -> Option<&Place<K>> {
        self.places.first()
    }

    pub(super) fn last(&self) -> Option<&Place<K>> {
        self.places.last()
    }

    pub(super) fn record(&self, number: u32) -> &Record<K> {
        &self.records[number as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place<K>> {
        self.places.iter()
    }

    /// Adds an entry; returns the number of its record. A comparison that panics leaves the window unchanged.
    pub(super) fn insert(&mut self, place: Place<K>, generation: u32) -> u32 {
        self.places.insert(place);
        let record = Record { key: place.key, generation };
        match self.free.pop() {
            Some(number) => {
                self.records[number as usize] = record;
                number
            }
            None => {
                self.records.push(record);
                (self.records.len() - 1) as u32
            }
        }
    }

    /// Removes the entry with this slot and record.
    pub(super) fn remove(&mut self, slot: u32, number: u32) {
        let key = self.record(number).key;
        assert!(self.places.remove(&Place { key, slot }), "what has a record is in the window");
        self.forget(number);
    }

    /// Removes the smallest entry, whose record has the given number.
    pub(super) fn pop_first(&mut self, number: u32) {
        self.places.pop_first();
        self.forget(number);
    }

    /// Removes the largest entry, whose record has the given number.
    pub(super) fn pop_last(&mut self, number: u32) {
        self.places.pop_last();
        self.forget(number);
    }

    fn forget(&mut self, number: u32) {
        self.free.push(number);
        if self.places.is_empty() {
            self.records.clear();
            self.free.clear();
        }
    }

    /// Returns the bytes of the entries (a tree's node is about two thirds full) and of the records.
    pub(super) fn bytes(&self) -> usize {
        self.places.len() * size_of::<Place<K>>() * 3 / 2
            + self.records.capacity() * size_of::<Record<K>>()
            + self.free.capacity() * size_of::<u32>()
    }
}
