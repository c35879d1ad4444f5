//! Parts of large objects that are in memory because they are being sent. Further requests for such a part
//! share it; a request that arrives during the read waits for that read.
//!
//! A part is kept by the answers that send it and is freed with the last of them. Each core has its own
//! table, without locks.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use engine::log::Location;
use tokio::sync::OnceCell;

/// Table size at which entries of freed parts are removed.
const NAMES_MAX: usize = 256;

/// Payload of a part's record, once it has been read.
pub(crate) type Cell = OnceCell<Vec<u8>>;

/// The parts that one core has in memory, by location.
#[derive(Default)]
pub(crate) struct PartsInMemory(HashMap<Location, Weak<Cell>>);

impl PartsInMemory {
    /// Returns the cell of a part, and whether another answer already uses it.
    pub(crate) fn place(&mut self, at: Location) -> (Arc<Cell>, bool) {
        if let Some(cell) = self.0.get(&at).and_then(Weak::upgrade) {
            return (cell, true);
        }
        if self.0.len() >= NAMES_MAX {
            self.0.retain(|_, cell| cell.strong_count() > 0);
        }
        let cell = Arc::new(Cell::new());
        self.0.insert(at, Arc::downgrade(&cell));
        (cell, false)
    }
}

/// Payload of a part's record, shared by the answers that send it.
pub(crate) struct Payload(pub(crate) Arc<Cell>);

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.get().map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64) -> Location {
        Location::from_bits(number).expect("not zero")
    }

    #[test]
    fn a_part_is_shared_while_held() {
        let mut parts = PartsInMemory::default();
        let (first, is_shared) = parts.place(at(1));
        assert!(!is_shared);
        let (second, is_shared) = parts.place(at(1));
        assert!(is_shared && Arc::ptr_eq(&first, &second));
        assert!(!parts.place(at(2)).1);
        drop((first, second));
        assert!(!parts.place(at(1)).1);
    }

    #[test]
    fn names_of_dropped_parts_are_bounded() {
        let mut parts = PartsInMemory::default();
        let kept = parts.place(at(1)).0;
        for number in 2..10_000 {
            parts.place(at(number));
        }
        assert!(parts.0.len() <= NAMES_MAX);
        assert!(parts.place(at(1)).1);
        drop(kept);
    }
}
