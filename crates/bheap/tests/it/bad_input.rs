//! Behaviour of queues when the storage is full, the page size is odd, or a comparison panics.

use crate::random::Random;
use bheap::blocks::Arena;
use bheap::layout::PageSizeError;
use bheap::{BHeap, BinaryHeap, Full, Handle, HandleQueue, IndexedHeap, LazyQueue, PageQueue, PriorityQueue};
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
fn a_full_queue_returns_the_item_and_continues() {
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

    let mut lazy = LazyQueue::with_limit(512, 700).unwrap();
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

/// Calls `operation` with a comparison that may panic. Returns `None` if it did.
fn attempt<R>(random: &mut Random, operation: impl FnOnce() -> R) -> Option<R> {
    let soon = [5, 40, 3000][random.below(3) as usize];
    FUSE.set(if random.below(10) == 0 { 1 + random.below(soon) } else { u64::MAX });
    let outcome = catch_unwind(AssertUnwindSafe(operation));
    FUSE.set(u64::MAX);
    outcome.ok()
}

fn sorted(mut items: Vec<u64>) -> Vec<u64> {
    items.sort_unstable();
    items
}

/// Runs operations in which comparisons panic; the queue must contain each item that was added and not
/// removed, exactly once. An item whose own operation panicked may be in the queue or not, but never in part.
fn survives<Q: PriorityQueue<Item = Touchy>>(mut queue: Q) {
    let all = |queue: &Q| {
        let mut items = Vec::new();
        queue.for_each(|item| items.push(item.0));
        sorted(items)
    };
    let mut random = Random(42);
    let mut expected: Vec<u64> = Vec::new();
    let mut panics = [0; 4];
    for n in 0..30_000_u64 {
        let item = Touchy(random.next() >> 40 << 20 | n);
        let what = if n < 8_000 { random.below(4) / 3 } else { random.below(100) };
        let mut may_be_in = vec![item.0];
        let kind = match what {
            0 | 4..40 => 0,
            1 | 40..60 => 1,
            2 => 2,
            _ => 3,
        };
        let done = match kind {
            0 => attempt(&mut random, || queue.try_push(item)).map(|pushed| {
                if pushed.is_ok() {
                    expected.push(item.0);
                }
            }),
            1 => attempt(&mut random, || queue.pop_push(item)).map(|taken| {
                if let Some(taken) = taken {
                    take(&mut expected, taken.0);
                }
                expected.push(item.0);
            }),
            2 => {
                let many: Vec<Touchy> =
                    (0..10 + random.below(3) * 100).map(|m| Touchy(item.0 ^ m << 40)).collect();
                may_be_in = many.iter().map(|item| item.0).collect();
                attempt(&mut random, || queue.load(many)).map(|loaded| {
                    if loaded.is_ok() {
                        expected.extend(&may_be_in);
                    }
                })
            }
            _ => attempt(&mut random, || queue.pop()).map(|taken| {
                assert_eq!(taken.is_none(), expected.is_empty());
                if let Some(taken) = taken {
                    take(&mut expected, taken.0);
                }
            }),
        };
        if done.is_none() {
            panics[kind] += 1;
            let now = all(&queue);
            assert!(now.windows(2).all(|pair| pair[0] != pair[1]), "at {n}: an item twice");
            // Every earlier item must still be there; a new one must be an item that was being added.
            let before = sorted(expected.clone());
            let missing = before.iter().filter(|item| now.binary_search(item).is_err()).count();
            assert!(missing == 0, "at {n}: {missing} items lost");
            for item in &now {
                assert!(
                    before.binary_search(item).is_ok() || may_be_in.contains(item),
                    "at {n}: a foreign item"
                );
            }
            expected = now;
        }
        if n % 5_000 == 0 {
            assert!(all(&queue) == sorted(expected.clone()), "at {n}");
        }
    }
    assert!(panics.iter().all(|count| *count > 5), "comparisons that panicked: {panics:?}");
}

fn take(expected: &mut Vec<u64>, item: u64) {
    let at = expected.iter().position(|expected| *expected == item).expect("what leaves was there");
    expected.swap_remove(at);
}

/// Runs such operations on queues with handles: removals and updates too.
fn survives_with_handles<Q: HandleQueue<Touchy>>(mut queue: Q) {
    let all = |queue: &Q| {
        let mut items = Vec::new();
        queue.for_each(|key, handle| items.push((key.0, handle)));
        items.sort_unstable_by_key(|(key, _)| *key);
        items
    };
    let mut random = Random(4711);
    let mut held: Vec<(u64, Handle)> = Vec::new();
    let mut panics = [0; 4];
    for n in 0..30_000_u64 {
        let item = Touchy(random.next() >> 20 << 20 | n);
        let what = if n < 8_000 { 0 } else { random.below(100) };
        let at = random.below(held.len().max(1) as u64) as usize;
        let Some(&(old, handle)) = held.get(at).or(held.first()) else {
            let handle = queue.insert(item).unwrap();
            held.push((item.0, handle));
            continue;
        };
        let (kind, done) = match what {
            0..30 => (
                0,
                attempt(&mut random, || queue.insert(item).unwrap())
                    .map(|handle| held.push((item.0, handle))),
            ),
            30..50 => (
                1,
                attempt(&mut random, || queue.pop().unwrap()).map(|(key, handle)| {
                    let at =
                        held.iter().position(|held| *held == (key.0, handle)).expect("what leaves was there");
                    held.swap_remove(at);
                }),
            ),
            50..80 => (
                2,
                attempt(&mut random, || queue.remove(handle)).map(|removed| {
                    removed.unwrap();
                    held.swap_remove(at);
                }),
            ),
            _ => (
                3,
                attempt(&mut random, || queue.update(handle, item))
                    .map(|new| held[at] = (item.0, new.unwrap())),
            ),
        };
        if done.is_none() {
            panics[kind] += 1;
            let now = all(&queue);
            held.sort_unstable_by_key(|(key, _)| *key);
            for (key, handle) in &held {
                let is_there =
                    now.binary_search_by_key(key, |(key, _)| *key).is_ok_and(|at| now[at].1 == *handle);
                // The update may have been performed; then the item has the new key.
                let is_updated = kind == 3 && *key == old && now.iter().any(|(key, _)| *key == item.0);
                assert!(is_there != is_updated, "at {n}: {key} lost or doubled, kind {kind}");
            }
            let more = usize::from(kind == 0 && now.iter().any(|(key, _)| *key == item.0));
            assert_eq!(now.len(), held.len() + more, "at {n}: an item twice, kind {kind}");
            assert_eq!(now.len(), queue.len());
            held = now;
        }
        if n % 3_000 == 0 {
            held.sort_unstable_by_key(|(key, _)| *key);
            assert!(all(&queue) == held, "at {n}");
        }
    }
    assert!(panics.iter().all(|count| *count > 20), "comparisons that panicked: {panics:?}");
}

#[test]
fn a_panicking_comparison_neither_loses_nor_duplicates_items() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.payload_as_str().unwrap_or("");
        if text != "the comparison panics" {
            eprintln!("{info}");
        }
    }));
    survives(BinaryHeap::new());
    survives(BHeap::new(64).unwrap());
    survives(BHeap::with_limit(64, 9_000).unwrap());
    survives(PageQueue::new(4096).unwrap());
    survives(PageQueue::new(256).unwrap());
    survives_with_handles(IndexedHeap::binary());
    survives_with_handles(IndexedHeap::paged(64).unwrap());
    survives_with_handles(LazyQueue::new(4096).unwrap());
    survives_with_handles(LazyQueue::new(256).unwrap());
}
