//! `bheap-sim`: the article's simulation, repeated.

pub mod keys;
pub mod lru;

use bheap::heap::Heap;
use bheap::layout::{Binary, Layout, Paged};
use bheap::trace::{Trace, Traced};
use keys::Random3;
use lru::AllSizes;
use std::rc::Rc;

/// What a queue must be able to do to be put through the article's phases.
pub trait Subject {
    /// Adds a key.
    fn push(&mut self, key: u64);
    /// Takes the smallest.
    fn pop(&mut self) -> Option<u64>;
}

impl<L: Layout, R: bheap::Rows<u64>> Subject for Heap<u64, L, R> {
    fn push(&mut self, key: u64) {
        Heap::push(self, key);
    }
    fn pop(&mut self) -> Option<u64> {
        // As the users of a heap do, Varnish's expiry among them: look at the smallest, then remove it. (At
        // nine pages this moves the binary heap's total by 0.4%: the root's page is touched before the last.)
        self.peek()?;
        Heap::pop(self)
    }
}

/// The article's three phases: insert `items`; as many times remove one and insert one; remove all.
///
/// # Panics
/// If the queue loses an item.
pub fn three_phases(queue: &mut impl Subject, items: usize, mut keys: impl FnMut(u64) -> u64) {
    for _ in 0..items {
        queue.push(keys(0));
    }
    for _ in 0..items {
        let Some(now) = queue.pop() else { panic!("an item was lost") };
        queue.push(keys(now));
    }
    let mut last = 0;
    for _ in 0..items {
        let Some(key) = queue.pop() else { panic!("an item was lost") };
        assert!(key >= last, "keys leave in order");
        last = key;
    }
    assert!(queue.pop().is_none(), "no item was doubled");
}

/// The binary heap's and the B-heap's pages under memory of every size.
#[must_use]
pub fn classics(items: usize, page_bytes: usize, base: usize, seed: u32) -> (Rc<AllSizes>, Rc<AllSizes>) {
    let run = |which: bool| {
        let memory = Rc::new(AllSizes::new(page_bytes));
        let rows = Traced::new(Vec::new(), Rc::clone(&memory), base + 8);
        let mut random = Random3::new(seed);
        let keys = |_| random.next().map_or(0, u64::from);
        if which {
            three_phases(&mut Heap::with_rows(Binary, rows), items, keys);
        } else {
            let Ok(layout) = Paged::for_page_bytes::<u64>(page_bytes) else { panic!("page size") };
            three_phases(&mut Heap::with_rows(layout, rows), items, keys);
        }
        memory
    };
    (run(true), run(false))
}

/// Unused for now.
pub fn trace_of(_: &dyn Trace) {}
