//! Queues with handles compared with a slow twin: insert, pop, remove, update; stale and foreign handles;
//! garbage.
//!
//! `BHEAP_STEPS=100000000` sets the number of operations.

use crate::random::Random;
use bheap::{Handle, HandleQueue, IndexedHeap, LazyQueue, Refusal, StaleHandle};
use std::collections::BTreeSet;

fn steps() -> usize {
    std::env::var("BHEAP_STEPS").ok().map_or(500_000, |steps| steps.parse().unwrap())
}

/// Runs random operations on a queue and its twin. Keys are unique, so that the twin is an ordered set;
/// handles are kept beside it.
fn against_the_twin<Q: HandleQueue<u64>>(mut queue: Q, seed: u64, check: impl Fn(&Q)) {
    let mut random = Random(seed);
    let mut twin: BTreeSet<u64> = BTreeSet::new();
    let mut held: Vec<(u64, Handle)> = Vec::new();
    let mut gone: Vec<Handle> = Vec::new();
    let mut place = std::collections::HashMap::new();
    let mut mode = 0;
    for step in 0..steps() {
        if step % (steps() / 20) == 0 {
            mode = random.below(3);
        }
        let what = random.below(10);
        let fresh = (random.below(1 << 40) << 20) | step as u64;
        if what < [6, 4, 3][mode as usize] {
            let handle = queue.insert(fresh).unwrap();
            assert!(twin.insert(fresh));
            place.insert(fresh, held.len());
            held.push((fresh, handle));
        } else if what < 8 && !held.is_empty() {
            let at = random.below(held.len() as u64) as usize;
            let (key, handle) = held[at];
            if random.below(3) == 0 {
                let new = queue.update(handle, fresh).unwrap();
                if new != handle {
                    gone.push(handle);
                }
                assert!(twin.remove(&key) && twin.insert(fresh));
                place.remove(&key);
                place.insert(fresh, at);
                held[at] = (fresh, new);
            } else {
                assert_eq!(queue.remove(handle), Ok(()));
                assert!(twin.remove(&key));
                gone.push(handle);
                place.remove(&key);
                held.swap_remove(at);
                if let Some((moved, _)) = held.get(at) {
                    place.insert(*moved, at);
                }
            }
        } else {
            let smallest = twin.pop_first();
            let popped = queue.pop();
            assert_eq!(popped.map(|(key, _)| key), smallest, "step {step}");
            if let Some((key, handle)) = popped {
                let at = place.remove(&key).unwrap();
                assert_eq!(held[at].1, handle, "the handle that was given out");
                gone.push(handle);
                held.swap_remove(at);
                if let Some((moved, _)) = held.get(at) {
                    place.insert(*moved, at);
                }
            }
        }
        assert_eq!(queue.len(), twin.len());
        assert_eq!(queue.peek().map(|(key, _)| *key), twin.first().copied(), "step {step}");
        if let Some(old) = gone.get(random.below(1 + gone.len() as u64) as usize) {
            assert_eq!(queue.remove(*old), Err(StaleHandle), "a handle that has left");
        }
        if step % 997 == 0 {
            check(&queue);
        }
    }
    while let Some((key, _)) = queue.pop() {
        assert_eq!(Some(key), twin.pop_first());
    }
    assert!(twin.is_empty());
}

#[test]
fn a_binary_heap_with_handles() {
    against_the_twin(IndexedHeap::binary(), 7, |_| {});
}

#[test]
fn a_b_heap_with_handles() {
    against_the_twin(IndexedHeap::paged(4096).unwrap(), 8, |_| {});
    against_the_twin(IndexedHeap::paged(64).unwrap(), 9, |_| {});
}

#[test]
fn a_page_queue_with_handles() {
    against_the_twin(LazyQueue::new(4096).unwrap(), 10, LazyQueue::assert_invariants);
    against_the_twin(LazyQueue::new(512).unwrap(), 11, LazyQueue::assert_invariants);
}

fn loads_and_lists(mut queue: impl HandleQueue<u64>) {
    let first = queue.insert(500).unwrap();
    let mut handles = Vec::new();
    let keys: Vec<u64> = (0..5000).map(|n| n * 7919 % 5003).collect();
    queue.load(keys.clone(), |handle| handles.push(handle)).unwrap();
    // After removals the smallest items are elsewhere, in the window.
    for handle in &handles[100..1500] {
        queue.remove(*handle).unwrap();
    }
    let mut more = Vec::new();
    queue.load((0..3000).map(|n| n * 3 + 1).collect(), |handle| more.push(handle)).unwrap();
    assert!(queue.contains(first) && !queue.contains(handles[100]));
    let mut expected: Vec<(u64, Handle)> = vec![(500, first)];
    expected.extend(
        keys.into_iter()
            .zip(handles)
            .enumerate()
            .filter(|(n, _)| !(100..1500).contains(n))
            .map(|(_, pair)| pair),
    );
    expected.extend((0..3000).map(|n| n * 3 + 1).zip(more));
    let order = |a: &(u64, Handle), b: &(u64, Handle)| a.0.cmp(&b.0).then(a.1.slot().cmp(&b.1.slot()));
    expected.sort_by(order);
    let mut listed = Vec::new();
    queue.for_each(|key, handle| listed.push((*key, handle)));
    listed.sort_by(order);
    assert!(listed == expected, "{} listed, {} expected", listed.len(), expected.len());
    assert_eq!(queue.len(), expected.len());
    let drained: Vec<(u64, Handle)> = queue.drain().collect();
    assert!(drained.iter().map(|(key, _)| key).is_sorted());
    let mut drained = drained;
    drained.sort_by(order);
    assert!(drained == expected);
}

#[test]
fn many_are_loaded_at_once_listed_and_drained() {
    loads_and_lists(IndexedHeap::binary());
    loads_and_lists(IndexedHeap::paged(4096).unwrap());
    loads_and_lists(LazyQueue::new(4096).unwrap());
    loads_and_lists(LazyQueue::new(256).unwrap());
}

#[test]
fn a_foreign_handle_is_refused() {
    let (mut one, mut two) = (LazyQueue::new(4096).unwrap(), LazyQueue::new(4096).unwrap());
    let (a, b) = (one.insert(1_u64).unwrap(), two.insert(1).unwrap());
    assert_eq!(one.remove(b), Err(StaleHandle));
    assert_eq!(two.update(a, 5), Err(Refusal::Stale));
    let (mut one, mut two) = (IndexedHeap::binary(), IndexedHeap::binary());
    let (a, b) = (one.insert(1_u64).unwrap(), two.insert(1).unwrap());
    assert_eq!(one.remove(b), Err(StaleHandle));
    assert_eq!(two.update(a, 5), Err(Refusal::Stale));
    assert_eq!(one.remove(a), Ok(()));
    assert_eq!(one.remove(a), Err(StaleHandle));
}

#[test]
fn marked_entries_are_few_and_memory_is_bounded() {
    let items = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let mut random = Random(12);
    let mut queue = LazyQueue::new(4096).unwrap();
    let mut handles: Vec<Handle> = (0..items).map(|_| queue.insert(random.below(1 << 40)).unwrap()).collect();
    let (mut worst_garbage, mut worst_bytes) = (0, 0);
    // Each item is removed and queued again, twice over: all garbage comes from the middle of the queue.
    for step in 0..2 * items {
        let at = random.below(items as u64) as usize;
        queue.remove(handles[at]).unwrap();
        handles[at] = queue.insert(random.below(1 << 40)).unwrap();
        if step % 1000 == 0 {
            worst_garbage = worst_garbage.max(queue.garbage());
            worst_bytes = worst_bytes.max(queue.bytes());
        }
    }
    let per_item = worst_bytes as f64 / items as f64 / 16.0;
    println!("garbage at most {worst_garbage} of {items}; {per_item:.3} times the bytes of the live items");
    assert!(worst_garbage * 16 < items, "{worst_garbage} marked entries");
    assert!(per_item <= 1.5, "{per_item}");
}
