//! The queues that page: one that is asked for by name, built over a file, and pushed and popped.

use std::fs::File;
use std::io;

use bheap::heap::Heap;
use bheap::layout::{Binary, Layout, Paged};
use engine::sys::mapping::{MappedWords, Pattern, Word};
use serde::{Deserialize, Serialize};

use super::rows::MappedRows;

/// Which queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The textbook's.
    BinaryHeap,
    /// As published.
    BHeap,
}

impl Kind {
    /// All of them, the slowest first.
    pub const ALL: [Self; 2] = [Self::BinaryHeap, Self::BHeap];

    /// What it is called in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BinaryHeap => "binary heap",
            Self::BHeap => "B-heap",
        }
    }
}

/// A queue of keys of 8 bytes that takes the smallest.
pub trait Paging {
    /// Removes the smallest and inserts another; says what was removed.
    fn remove_insert(&mut self, key: u64) -> Option<u64>;
    /// How many keys it holds.
    fn len(&self) -> usize;
}

impl<L: Layout> Paging for Heap<Word, L, MappedRows> {
    fn remove_insert(&mut self, key: u64) -> Option<u64> {
        // Two operations, as the article's phase has them, and not the one that both could be made of.
        let removed = self.pop()?.load();
        self.push(Word::new(key));
        Some(removed)
    }
    fn len(&self) -> usize {
        Self::len(self)
    }
}

/// A queue of this kind over all of `file`'s words, of which the first belongs to no item; the words are put in
/// order in O(n). The queue then pages at random.
///
/// # Errors
/// If the file cannot be mapped, or a page holds no sensible number of items.
pub fn built(kind: Kind, file: &File, items: usize, page_bytes: usize) -> io::Result<Box<dyn Paging>> {
    let words = MappedWords::map(file, items + Paged::INDEX_OF_ROOT)?;
    words.expect(Pattern::Random)?;
    let rows = MappedRows::new(words, Paged::INDEX_OF_ROOT, items);
    Ok(match kind {
        Kind::BinaryHeap => Box::new(Heap::with_rows(Binary, rows)),
        Kind::BHeap => {
            let layout = Paged::for_page_bytes::<Word>(page_bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
            Box::new(Heap::with_rows(layout, rows))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::memory_ladder::random::Random;
    use crate::experiments::scratch::Scratch;

    #[test]
    fn both_take_what_the_library_takes() {
        let scratch = Scratch::on_disk(None).unwrap();
        for kind in Kind::ALL {
            let mut random = Random::new(4);
            let mut twin = std::collections::BinaryHeap::new();
            let file = scratch
                .words(kind.name(), 5001, |at| {
                    let key = random.word() >> 33;
                    if at >= Paged::INDEX_OF_ROOT {
                        twin.push(std::cmp::Reverse(key));
                    }
                    key
                })
                .unwrap();
            let mut queue = built(kind, &file, 5000, 4096).unwrap();
            for _ in 0..20_000 {
                let key = random.word() >> 33;
                let least = twin.pop().unwrap().0;
                twin.push(std::cmp::Reverse(key));
                assert_eq!(queue.remove_insert(key), Some(least));
            }
            assert_eq!(queue.len(), 5000);
        }
    }
}
