//! Memory of the queues in relation to the bytes of the queued items.
//!
//! `BHEAP_ITEMS=4000000` sets a larger number of items than the default.

use crate::random::Random;
use bheap::{Handle, HandleQueue, LazyQueue, PageQueue};

fn sizes() -> Vec<usize> {
    let most = std::env::var("BHEAP_ITEMS").ok().map_or(250_000, |items| items.parse().unwrap());
    [8_000, 30_000, 100_000, most].into_iter().filter(|items| *items <= most).collect()
}

/// Bytes that do not grow with the items: the front, the small heap, the last block of each list.
const FIXED_BYTES: usize = 96 << 10;

/// Size of a key and a number, or of a key and its slot.
const ITEM_BYTES: usize = 16;

/// The largest ratio of the bytes beyond the fixed ones to the bytes of the queued items.
#[derive(Default)]
struct Worst(f64);

impl Worst {
    fn see(&mut self, bytes: usize, items: usize) {
        self.0 = self.0.max(bytes.saturating_sub(FIXED_BYTES) as f64 / (items.max(1) * ITEM_BYTES) as f64);
    }
}

#[test]
fn memory_overhead_without_handles_is_small() {
    for items in sizes() {
        let mut random = Random(items as u64);
        let mut queue = PageQueue::<(u64, u64)>::new(4096).unwrap();
        let [mut growing, mut steady, mut shrinking] = [Worst(0.0), Worst(0.0), Worst(0.0)];
        for n in 0..items {
            queue.push((random.next() >> 20, n as u64));
            if n % 500 == 0 {
                growing.see(queue.bytes(), queue.len());
            }
        }
        let whole = queue.bytes() as f64 / (items * ITEM_BYTES) as f64;
        for n in 0..2 * items {
            let (now, _) = queue.pop().unwrap();
            queue.push((now + (random.next() >> 20), n as u64));
            if n % 500 == 0 {
                steady.see(queue.bytes(), queue.len());
            }
        }
        let mut expected = queue.peek().copied();
        while queue.len() > items / 50 {
            for _ in 0..items / 5 {
                let popped = queue.pop();
                assert!(popped >= expected);
                expected = popped;
            }
            queue.shrink_to_fit();
            queue.assert_invariants();
            shrinking.see(queue.bytes(), queue.len());
        }
        eprintln!(
            "{items} items: growing {:.3}, steady {:.3}, shrinking {:.3}; when grown {whole:.3} with all that is fixed",
            growing.0, steady.0, shrinking.0
        );
        assert!(growing.0 <= 1.15 && steady.0 <= 1.15 && shrinking.0 <= 1.15);
        assert!(items < 100_000 || whole <= 1.15);
    }
}

#[test]
fn memory_overhead_with_handles_stays_below_half() {
    for items in sizes() {
        let mut random = Random(items as u64);
        let mut queue = LazyQueue::<u64>::new(4096).unwrap();
        let [mut growing, mut steady] = [Worst(0.0), Worst(0.0)];
        let mut handles: Vec<Handle> = Vec::new();
        for n in 0..items {
            handles.push(queue.insert(random.next() >> 20).unwrap());
            if n % 500 == 0 {
                growing.see(queue.bytes(), queue.len());
            }
        }
        let whole = queue.bytes() as f64 / (items * ITEM_BYTES) as f64;
        for n in 0..2 * items {
            let handle = &mut handles[(random.next() % items as u64) as usize];
            *handle = if n % 3 == 0 {
                queue.update(*handle, random.next() >> 20).unwrap()
            } else {
                queue.remove(*handle).unwrap();
                queue.insert(random.next() >> 20).unwrap()
            };
            if n % 500 == 0 {
                steady.see(queue.bytes(), queue.len());
            }
        }
        let [growing, steady] = [growing.0, steady.0];
        eprintln!(
            "{items} items with handles: growing {growing:.3}, steady {steady:.3}; when grown {whole:.3}"
        );
        assert!(growing <= 1.5 && steady <= 1.5 && (items < 100_000 || whole <= 1.5));
    }
}
