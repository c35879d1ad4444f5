//! Slabs with `u32` numbers, and hash tables of such numbers.
//!
//! Items are stored in a slab of the `slab` crate. This module adds `u32` numbers, because every subscription
//! has one; growth that copies less; and freeing of unused memory. Lookup by name uses a
//! `hashbrown::HashTable` of numbers, with five bytes per entry and some spare capacity; [`take_out`] frees
//! memory of that table.

use hashbrown::HashTable;

/// Length from which a slab grows by an eighth instead of doubling. At this size the kernel moves pages
/// instead of copying, and less memory is unused.
const GROW_BY_EIGHTHS_FROM: usize = 16 * 1024;

/// A slab whose memory is freed when the last item is removed.
#[derive(Debug)]
pub(crate) struct Slab<T>(slab::Slab<T>);

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self(slab::Slab::new())
    }
}

impl<T> Slab<T> {
    /// Adds an item and returns its number.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        if self.0.len() == self.0.capacity() && self.0.len() >= GROW_BY_EIGHTHS_FROM {
            self.0.reserve_exact(self.0.len() / 8);
        }
        let at = self.0.insert(thing);
        u32::try_from(at).unwrap_or_else(|_| panic!("a slab of four thousand million things"))
    }

    /// Removes an item.
    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let thing = self.0.try_remove(at as usize)?;
        if self.0.is_empty() {
            self.0 = slab::Slab::new();
        }
        Some(thing)
    }

    #[inline]
    pub(crate) fn find(&self, at: u32) -> Option<&T> {
        self.0.get(at as usize)
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, at: u32) -> Option<&mut T> {
        self.0.get_mut(at as usize)
    }

    /// Frees the unused memory behind the last item.
    pub(crate) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over all items with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.0.iter().map(|(at, thing)| (number(at), thing))
    }

    /// Iterates over all items with their numbers, by mutable reference.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.0.iter_mut().map(|(at, thing)| (number(at), thing))
    }

    /// Returns an exclusive upper bound on all numbers.
    pub(crate) fn end(&self) -> u32 {
        number(self.0.capacity())
    }
}

/// Converts an index to a number; [`Slab::insert`] has checked that it fits.
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.0[at as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.0[at as usize]
    }
}

/// Removes a number from a hash table that contains it; `hash_of` returns the hash of any number in the
/// table. Frees memory if most of the table is unused.
pub(crate) fn take_out(table: &mut HashTable<u32>, at: u32, hash_of: impl Fn(u32) -> u64) {
    match table.find_entry(hash_of(at), |&found| found == at) {
        Ok(entry) => entry.remove(),
        Err(_) => panic!("what is taken out of a table of numbers is in it"),
    };
    if table.is_empty() {
        *table = HashTable::new();
    } else if table.len() * 8 < table.capacity() {
        table.shrink_to(table.len() * 2, |&at| hash_of(at));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Comparison with a map: items are found by their numbers until they are removed, whatever their
        /// hashes.
        #[test]
        fn like_a_map(steps in prop::collection::vec((any::<bool>(), 0_u32..60), 0..400), bits in 0_u32..6) {
            let hash_of = |name: u32| u64::from(name & ((1 << bits) - 1)) << 50;
            let (mut things, mut table) = (Slab::<u32>::default(), HashTable::new());
            let mut twin = BTreeMap::new();
            for (add, name) in steps {
                if add && !twin.contains_key(&name) {
                    let at = things.insert(name);
                    table.insert_unique(hash_of(name), at, |&at| hash_of(things[at]));
                    twin.insert(name, at);
                } else if !add && let Some(at) = twin.remove(&name) {
                    take_out(&mut table, at, |at| hash_of(things[at]));
                    prop_assert_eq!(things.remove(at), Some(name));
                }
                for name in 0..60 {
                    let found = table.find(hash_of(name), |&at| things[at] == name);
                    prop_assert_eq!(found, twin.get(&name));
                }
                prop_assert_eq!((table.len(), things.len()), (twin.len(), twin.len()));
                prop_assert!(things.iter().all(|(at, name)| twin[name] == at && at < things.end()));
                prop_assert!(!twin.is_empty() || (table.capacity(), things.end()) == (0, 0));
            }
        }
    }

    /// A slot of the `slab` crate (its `Entry`, modelled here) is no larger than its item if the item's type
    /// has unused bit patterns.
    #[test]
    fn a_vacant_place_costs_nothing() {
        #[expect(dead_code, reason = "it is only measured")]
        enum Entry<T> {
            Vacant(usize),
            Occupied(T),
        }
        assert_eq!(size_of::<Entry<crate::client::connection::Subscription>>(), 40);
        assert_eq!(size_of::<Entry<crate::routing::trie::Node>>(), 40);
    }
}
