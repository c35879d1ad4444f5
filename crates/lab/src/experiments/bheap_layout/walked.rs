//! Figures 5 and 6 of the B-heap article, animated: the same insertions and removals in both heaps, and the
//! pages that each touches.
//!
//! This module provides the reference: the heaps of the crate `bheap` themselves, traced by its recorder. The
//! page's script (`report/play_heaps.js`) steps through the same operations, and a test in a browser compares
//! the two.

use std::cell::RefCell;

use bheap::{
    Heap,
    layout::{Binary, Layout, PageLayout},
    trace::{Trace, TracedRows},
};
use serde::Serialize;
use serde_json::json;

use crate::paired::spread::Draws;

/// Items per page in the article's figures 5 and 6.
pub(super) const PAGE_ITEMS: usize = 8;
const ITEM_BYTES: usize = size_of::<u64>();
/// Number of initial keys: four pages in each heap, with room for three more in the smaller drawing.
const KEYS: usize = 28;
/// Upper bound of the keys: two digits fit into a cell.
const KEY_END: usize = 100;

/// An operation, and the indices and pages that it touches in each heap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Walk {
    /// Key that is inserted; `None` removes the smallest key.
    insert: Option<u64>,
    textbook: TouchLog,
    paged: TouchLog,
}

/// Indices and pages in the order in which they were first touched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct TouchLog {
    /// Indices in the article's numbering: the root is 1.
    indices: Vec<usize>,
    pages: Vec<usize>,
}

/// Returns the initial keys of both heaps. They are inserted in ascending order, so that both heaps have the
/// same order, and a later small key rises to the root.
pub(super) fn keys() -> Vec<u64> {
    let mut draws = Draws::new(10);
    let mut keys: Vec<u64> = Vec::new();
    while keys.len() < KEYS {
        let key = 10 + draws.below(KEY_END - 10) as u64;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.sort_unstable();
    keys
}

/// Returns the operations that are compared: small and large keys, equal keys, removals until few keys are
/// left, and descending keys, each of which rises to the root from a different leaf.
fn operations() -> Vec<Option<u64>> {
    let mut operations = vec![Some(5), None, Some(99), Some(50), Some(0), None, None, Some(50), Some(7)];
    operations.extend([None; KEYS]);
    operations.extend((1..=28).rev().map(Some));
    operations.extend([None; 12]);
    operations
}

/// Runs all operations on the heaps of `bheap`.
pub(super) fn walks() -> Vec<Walk> {
    let Ok(paged) = PageLayout::new(PAGE_ITEMS) else { unreachable!("eight is a power of two above four") };
    let operations = operations();
    let (textbook, paged) = (touched(Binary, &operations), touched(paged, &operations));
    operations
        .into_iter()
        .zip(textbook.into_iter().zip(paged))
        .map(|(insert, (textbook, paged))| Walk { insert, textbook, paged })
        .collect()
}

/// Returns the initial keys and all operations as JSON.
pub(super) fn data() -> serde_json::Value {
    json!({ "page_items": PAGE_ITEMS, "keys": keys(), "walks": walks() })
}

/// Records the touched indices and pages.
#[derive(Debug, Default)]
struct Recorder(RefCell<TouchLog>);

impl Recorder {
    fn touch(&self, address: usize) {
        let index = address / ITEM_BYTES;
        let page = index / PAGE_ITEMS;
        let mut touched = self.0.borrow_mut();
        if !touched.indices.contains(&index) {
            touched.indices.push(index);
        }
        if !touched.pages.contains(&page) {
            touched.pages.push(page);
        }
    }
}

impl Trace for Recorder {
    fn read(&self, address: usize, _: usize) {
        self.touch(address);
    }

    fn write(&self, address: usize, _: usize) {
        self.touch(address);
    }
}

fn touched(layout: impl Layout, operations: &[Option<u64>]) -> Vec<TouchLog> {
    let recorder = Recorder::default();
    // Index 0 is unused in both figures.
    let base = PageLayout::INDEX_OF_ROOT * ITEM_BYTES;
    let mut heap = Heap::with_rows(layout, TracedRows::new(Vec::new(), &recorder, base));
    for key in keys() {
        heap.push(key);
    }
    operations
        .iter()
        .map(|insert| {
            recorder.0.take();
            match insert {
                Some(key) => heap.push(*key),
                None => _ = heap.pop(),
            }
            recorder.0.take()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_key_touches_fewer_b_heap_pages() {
        let walks = walks();
        // The path from index 29 is 29, 14, 7, 3, 1 in the textbook's heap; 29, 26, 24, then 6, 3, 1 in page
        // 0 in the B-heap.
        let textbook = TouchLog { indices: vec![29, 14, 7, 3, 1], pages: vec![3, 1, 0] };
        let paged = TouchLog { indices: vec![29, 26, 24, 6, 3, 1], pages: vec![3, 0] };
        assert_eq!(walks[0], Walk { insert: Some(5), textbook, paged });
        let sum = |pick: fn(&Walk) -> usize| walks.iter().map(pick).sum::<usize>();
        assert!(sum(|walk| walk.paged.pages.len()) < sum(|walk| walk.textbook.pages.len()));
    }

    #[test]
    fn operations_keep_the_heap_within_the_drawing() {
        let keys = keys();
        assert!(keys.is_sorted() && keys.len() == KEYS && keys.iter().all(|key| *key < KEY_END as u64));
        let mut items = KEYS;
        for insert in operations() {
            items = if insert.is_some() { items + 1 } else { items - 1 };
            assert!((1..=31).contains(&items), "{items}");
        }
    }
}
