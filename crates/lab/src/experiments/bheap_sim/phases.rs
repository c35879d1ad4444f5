//! The three phases of the B-heap article's simulation, for any queue.

use bheap::PageQueue;
use bheap::blocks::Blocks;
use bheap::heap::Heap;
use bheap::layout::Layout;

/// Operations that a queue needs for the article's phases.
pub trait Subject {
    /// Adds a key.
    fn push(&mut self, key: u64);
    /// Removes and returns the smallest key.
    fn pop(&mut self) -> Option<u64>;
}

impl<T, L, R> Subject for Heap<T, L, R>
where
    T: Ord + Copy + TryFrom<u64> + TryInto<u64>,
    L: Layout,
    R: bheap::Rows<T>,
{
    fn push(&mut self, key: u64) {
        let Ok(item) = T::try_from(key) else { panic!("keys of random(3) have 31 bits") };
        Heap::push(self, item);
    }
    fn pop(&mut self) -> Option<u64> {
        // Users of a heap, such as Varnish's expiry, look at the smallest item and then remove it. (At nine
        // pages this moves the binary heap's total by 0.4%: the root's page is touched before the last.)
        self.peek()?;
        Heap::pop(self)?.try_into().ok()
    }
}

impl<T, B> Subject for PageQueue<T, B>
where
    T: Ord + Copy + TryFrom<u64> + TryInto<u64>,
    B: Blocks<T>,
{
    fn push(&mut self, key: u64) {
        let Ok(item) = T::try_from(key) else { panic!("the item has room for every key") };
        Self::push(self, item);
    }
    fn pop(&mut self) -> Option<u64> {
        self.peek()?;
        Self::pop(self)?.try_into().ok()
    }
}

/// Runs the article's three phases: insert `items`; remove one and insert one, as many times; remove all.
///
/// # Panics
/// Panics if the queue loses an item.
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
