//! Every queue compared with the textbook heap: equal operations give equal results.
//!
//! `BHEAP_STEPS=100000000` sets the number of operations.

use crate::random::Random;
use bheap::{BHeap, BinaryHeap, PageQueue};

fn steps() -> usize {
    std::env::var("BHEAP_STEPS").ok().map_or(3_000_000, |steps| steps.parse().unwrap())
}

/// Returns the next key of a sequence; `now` is the key that left last.
fn key(kind: usize, step: u64, now: u64, random: &mut Random) -> u64 {
    match kind {
        0 => random.next() >> 33,
        1 => step,
        2 => u64::MAX - step,
        3 => now + [60, 3_600, 86_400, 120][random.below(4) as usize] * 1000 + random.below(10),
        4 => random.below(3),
        5 => (random.below(20) << 40) + random.below(1000),
        6 => now.saturating_sub(random.below(100)),
        7 => {
            if random.below(100) == 0 {
                random.next()
            } else {
                7
            }
        }
        _ => now + random.below(1 << 20).pow(2),
    }
}
const KINDS: usize = 9;

#[test]
fn the_page_queue_gives_what_the_twin_gives() {
    for kind in 0..KINDS {
        eprintln!("kind {kind}");
        for page in [64, 4096] {
            let mut random = Random(0x1234_5678_9ABC_DEF1 + kind as u64);
            let mut queue = PageQueue::<u64>::new(page).unwrap();
            let mut twin = BinaryHeap::new();
            let (mut now, mut step) = (0, 0);
            let mut phase = 60;
            for at in 0..steps() / 6 {
                if at % (steps() / 60) == 0 {
                    phase = [90, 50, 10, 60, 45, 99][random.below(6) as usize];
                }
                if random.below(100) < phase {
                    step += 1;
                    let item = key(kind, step, now, &mut random);
                    queue.push(item);
                    twin.push(item);
                } else {
                    let (a, b) = (queue.pop(), twin.pop());
                    assert_eq!(a, b, "kind {kind}, page {page}, step {at}");
                    now = a.unwrap_or(now);
                }
                if at % 1000 == 0 {
                    queue.assert_invariants();
                }
                assert_eq!(queue.len(), twin.len());
                assert_eq!(queue.peek(), twin.peek(), "kind {kind}, page {page}, step {at}");
            }
            while let Some(item) = twin.pop() {
                assert_eq!(queue.pop(), Some(item), "kind {kind}, page {page}, draining");
            }
            assert_eq!(queue.pop(), None);
            if page == 4096 {
                assert_eq!(queue.late_steps(), 0, "kind {kind}");
            }
        }
    }
}

#[test]
fn the_b_heap_gives_what_the_twin_gives() {
    for (kind, page) in [(0, 64), (0, 4096), (1, 64), (2, 64), (4, 512), (3, 256)] {
        let mut random = Random(99 + page as u64);
        let mut heap = BHeap::<u64>::new(page).unwrap();
        let mut twin = BinaryHeap::new();
        let (mut now, mut step) = (0, 0);
        for _ in 0..steps() / 10 {
            if random.below(100) < 52 {
                step += 1;
                let item = key(kind, step, now, &mut random);
                heap.push(item);
                twin.push(item);
            } else {
                let (a, b) = (heap.pop(), twin.pop());
                assert_eq!(a, b);
                now = a.unwrap_or(now);
            }
        }
        assert!(heap.is_ordered());
        assert!(heap.drain().eq(twin.drain()));
    }
}
