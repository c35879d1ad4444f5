//! Parts of large objects that are in memory because somebody is being sent them: who comes to one meanwhile has it from
//! there, and who comes while it is being read waits for that read.
//!
//! A part is kept by those who send it, and goes with the last of them. On each core by itself: nothing is locked.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use engine::log::Location;
use tokio::sync::OnceCell;

/// Names of parts that are gone are swept out when there are so many.
const NAMES_MAX: usize = 256;

/// What a part's record holds, when it has been read.
pub(crate) type Cell = OnceCell<Vec<u8>>;

/// The parts that one core has in memory, by where they are.
#[derive(Default)]
pub(crate) struct PartsInMemory(HashMap<Location, Weak<Cell>>);

impl PartsInMemory {
    /// The place of a part, and whether somebody else has it.
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

/// The payload of a part's record.
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
    fn a_part_is_there_as_long_as_somebody_has_it() {
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
    fn names_of_what_is_gone_do_not_pile_up() {
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
