//! What a queue does when its storage is full, its page size is odd, or a comparison panics.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use bheap::blocks::Arena;
use bheap::layout::PageSizeError;
use bheap::{BHeap, BinaryHeap, Full, HandleQueue, Lazy, PageQueue};
use std::cell::Cell;
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn odd_page_sizes_are_refused() {
    assert!(matches!(PageQueue::<u64>::new(1000), Err(PageSizeError::NotPowerOfTwo(1000))));
    assert!(matches!(PageQueue::<u64>::new(16), Err(PageSizeError::TooSmall(2))));
    assert!(matches!(PageQueue::<()>::new(4096), Err(PageSizeError::ZeroSized)));
    assert!(matches!(BHeap::<u64>::new(48), Err(PageSizeError::NotPowerOfTwo(6))));
    assert!(matches!(BHeap::<[u64; 3]>::new(4096), Err(PageSizeError::NotPowerOfTwo(_))));
}

#[test]
fn a_full_queue_gives_the_item_back_and_goes_on() {
    let mut heap = BHeap::with_limit(64, 10).unwrap();
    for n in 0..10 {
        heap.push(n);
    }
    assert_eq!(heap.try_push(99), Err(Full(99)));
    assert_eq!(heap.pop_push(99), Some(0));
    assert!(heap.drain().eq([1, 2, 3, 4, 5, 6, 7, 8, 9, 99]));

    // 700 blocks, of which 256 stay free so that every item can leave again.
    let mut queue = PageQueue::with_store(Arena::<u64>::new(512).unwrap().limited(700), 16);
    let mut seed = 1_u64;
    let mut kept = Vec::new();
    loop {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match queue.try_push(seed >> 8) {
            Ok(()) => kept.push(seed >> 8),
            Err(Full(item)) => {
                assert_eq!(item, seed >> 8);
                break;
            }
        }
    }
    assert!(kept.len() > 64 * 300, "{} items fit", kept.len());
    assert_eq!(queue.try_extend(&vec![0; 1_000_000]), Err(Full(1_000_000)));
    queue.assert_invariants();
    kept.sort_unstable();
    assert!(queue.drain().eq(kept));
    queue.push(5);
    assert_eq!(queue.pop(), Some(5));

    let mut lazy = Lazy::with_limit(512, 700).unwrap();
    let mut last = None;
    while let Ok(handle) = lazy.insert(u64::MAX - lazy.len() as u64) {
        last = Some(handle);
    }
    let before = lazy.len();
    assert!(last.is_some_and(|handle| lazy.remove(handle).is_ok()));
    assert_eq!(lazy.len(), before - 1);
}

#[test]
fn many_items_are_loaded_at_once() {
    for n in [0_u64, 1, 1000, 2000, 100_000] {
        let items: Vec<u64> = (0..n).map(|k| k.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20).collect();
        let mut queue = PageQueue::new(4096).unwrap();
        queue.push(7);
        queue.try_extend(&items).unwrap();
        queue.assert_invariants();
        let mut sorted = items.clone();
        sorted.push(7);
        sorted.sort_unstable();
        assert_eq!(queue.len(), sorted.len());
        assert!(queue.drain().eq(sorted));
    }
}

thread_local!(static FUSE: Cell<u64> = const { Cell::new(u64::MAX) });

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Touchy(u64);

impl PartialOrd for Touchy {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Touchy {
    fn cmp(&self, other: &Self) -> Ordering {
        FUSE.set(FUSE.get() - 1);
        assert!(FUSE.get() > 0, "the comparison panics");
        self.0.cmp(&other.0)
    }
}

/// Runs operations of which one panics in its n-th comparison; the items must be those that went in and did not
/// come out, each once.
fn survives<Q>(
    mut queue: Q,
    push: impl Fn(&mut Q, Touchy),
    pop: impl Fn(&mut Q) -> Option<Touchy>,
    all: impl Fn(&Q) -> Vec<u64>,
) {
    let mut seed = 42_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut expected: Vec<u64> = Vec::new();
    let mut panics = 0;
    for n in 0..60_000_u64 {
        let grow = n < 30_000 || n % 3 == 0;
        FUSE.set(if next() % 10 == 0 { 1 + next() % [5, 40, 3000][n as usize % 3] } else { u64::MAX });
        let item = Touchy(next() >> 20 << 16 | n);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if grow {
                push(&mut queue, item);
                None
            } else {
                pop(&mut queue)
            }
        }));
        FUSE.set(u64::MAX);
        match outcome {
            Ok(None) if grow => expected.push(item.0),
            Ok(Some(taken)) => {
                let at = expected.iter().position(|item| *item == taken.0).expect("what leaves was there");
                expected.swap_remove(at);
            }
            Ok(None) => panic!("a queue that is not empty gives an item"),
            Err(_) => {
                panics += 1;
                // An item whose push panicked may be in or out, but whole.
                let mut now = all(&queue);
                now.sort_unstable();
                if grow && now.binary_search(&item.0).is_ok() {
                    expected.push(item.0);
                }
                expected.sort_unstable();
                assert!(now == expected, "{} items instead of {}", now.len(), expected.len());
            }
        }
        if n % 5_000 == 0 {
            expected.sort_unstable();
            let mut now = all(&queue);
            now.sort_unstable();
            assert!(now == expected, "at {n}: {} items instead of {}", now.len(), expected.len());
        }
    }
    assert!(panics > 100, "{panics} comparisons panicked");
}

#[test]
fn a_comparison_that_panics_loses_no_item_and_doubles_none() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.payload_as_str().unwrap_or("");
        if text != "the comparison panics" {
            eprintln!("{info}");
        }
    }));
    survives(BinaryHeap::new(), BinaryHeap::push, BinaryHeap::pop, |q| q.iter().map(|i| i.0).collect());
    survives(BHeap::new(64).unwrap(), BHeap::push, BHeap::pop, |q| q.iter().map(|i| i.0).collect());
    let pages = |q: &PageQueue<Touchy>| {
        let mut items = Vec::new();
        q.for_each(|item| items.push(item.0));
        items
    };
    survives(PageQueue::new(4096).unwrap(), PageQueue::push, PageQueue::pop, pages);
    survives(PageQueue::new(256).unwrap(), PageQueue::push, PageQueue::pop, pages);
}
