//! Bytes in use per live item while the queue grows, keeps its size, and shrinks; with handles and removals.

use bheap::layout::PageSizeError;
use bheap::{HandleQueue, LazyQueue, PageQueue};

use super::contenders::{Item, Items};
use crate::experiments::bheap_sim::article::PAGE_BYTES;
use crate::experiments::memory_ladder::random::Random;

/// Bytes in use, as a multiple of the live items' own bytes: the maximum in each phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Space {
    /// Maximum number of live items.
    pub items: usize,
    /// Maximum while items are only added, sampled after an eighth of them is in the queue.
    pub growing: f64,
    /// Maximum while as many items leave as arrive.
    pub held: f64,
    /// Maximum while items are only removed, until half of them are left. Allocated memory is kept for reuse.
    pub to_a_half: f64,
}

/// Number of samples in a phase.
const LOOKS: usize = 256;

/// Measures keys with handles that the caller chooses, without removals: 16 bytes per item.
///
/// # Errors
/// [`PageSizeError`] never occurs with the page size used here.
pub fn plain(items: usize) -> Result<Space, PageSizeError> {
    let mut queue: PageQueue<Item> = PageQueue::new(PAGE_BYTES)?;
    let mut source = Items::new(3);
    let look = (items / LOOKS).max(1);
    let part = |queue: &PageQueue<Item>| queue.bytes() as f64 / (queue.len() * size_of::<Item>()) as f64;
    let mut space = Space { items, growing: 0.0, held: 0.0, to_a_half: 0.0 };
    for at in 0..items {
        queue.push(source.take());
        if at >= items / 8 && at.is_multiple_of(look) {
            space.growing = space.growing.max(part(&queue));
        }
    }
    for at in 0..items {
        queue.pop();
        queue.push(source.take());
        if at.is_multiple_of(look) {
            space.held = space.held.max(part(&queue));
        }
    }
    for at in 0..items / 2 {
        queue.pop();
        if at.is_multiple_of(look) {
            space.to_a_half = space.to_a_half.max(part(&queue));
        }
    }
    Ok(space)
}

/// Bytes of a live item with a handle: the key, and the handle that its owner keeps.
pub const HANDLED_BYTES: usize = size_of::<u64>() + size_of::<bheap::Handle>();

/// Measures keys with handles, each of which is replaced twice on average, half of the time by removal and
/// insertion. Also returns the maximum share of entries that are removed but still queued.
///
/// # Errors
/// [`PageSizeError`] never occurs with the page size used here.
///
/// # Panics
/// Panics if the queue calls a live handle stale.
pub fn with_handles(items: usize) -> Result<(Space, f64), PageSizeError> {
    let mut queue: LazyQueue<u64> = LazyQueue::new(PAGE_BYTES)?;
    let (mut source, mut random) = (Items::new(5), Random::new(5));
    let look = (items / LOOKS).max(1);
    let part = |queue: &LazyQueue<u64>| queue.bytes() as f64 / (queue.len() * HANDLED_BYTES) as f64;
    let mut space = Space { items, growing: 0.0, held: 0.0, to_a_half: 0.0 };
    let (mut handles, mut garbage) = (Vec::with_capacity(items), 0.0_f64);
    let inserted = |queue: &mut LazyQueue<u64>, key| match queue.insert(key) {
        Ok(handle) => handle,
        Err(full) => panic!("there is memory for it: {full}"),
    };
    for at in 0..items {
        handles.push(inserted(&mut queue, source.take().0));
        if at >= items / 8 && at.is_multiple_of(look) {
            space.growing = space.growing.max(part(&queue));
        }
    }
    for at in 0..2 * items {
        let place = random.below(items);
        let key = source.take().0;
        handles[place] = if random.below(2) == 0 {
            let Ok(handle) = queue.update(handles[place], key) else { panic!("the handle is live") };
            handle
        } else {
            assert!(queue.remove(handles[place]).is_ok(), "the handle is live");
            inserted(&mut queue, key)
        };
        if at.is_multiple_of(look) {
            space.held = space.held.max(part(&queue));
            garbage = garbage.max(queue.garbage() as f64 / queue.len() as f64);
        }
    }
    for at in 0..items / 2 {
        queue.pop();
        if at.is_multiple_of(look) {
            space.to_a_half = space.to_a_half.max(part(&queue));
        }
    }
    Ok((space, garbage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_space_covers_items_and_spare_capacity() {
        let plain = plain(40_000).unwrap();
        let (handled, garbage) = with_handles(40_000).unwrap();
        for space in [plain, handled] {
            assert!(space.growing >= 0.8 && space.held >= 0.8, "{space:?}");
        }
        assert!(plain.growing >= 1.0 && plain.held >= 1.0, "{plain:?}");
        // Allocated memory is kept: when half of the items are left, it is about twice as much per item.
        assert!(plain.to_a_half > plain.held * 1.5, "{plain:?}");
        assert!(garbage > 0.0 && garbage < 0.5, "{garbage}");
    }
}
