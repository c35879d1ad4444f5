//! No operation compares or moves more than 4,096 items: counted, not timed.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use bheap::PageQueue;
use bheap::blocks::{Arena, TracedBlocks};
use bheap::trace::Trace;
use std::cell::Cell;
use std::cmp::Ordering;
use std::rc::Rc;

thread_local!(static COMPARED: Cell<u64> = const { Cell::new(0) });

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted(u64, u64);

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARED.set(COMPARED.get() + 1);
        self.0.cmp(&other.0)
    }
}

/// Items written, by bytes.
#[derive(Default)]
struct Moves(Cell<usize>);

impl Trace for Moves {
    fn read(&self, _: usize, _: usize) {}
    fn write(&self, _: usize, bytes: usize) {
        self.0.set(self.0.get() + bytes);
    }
}

const LIMIT: u64 = 4096;

#[test]
fn no_operation_is_long() {
    let items: u64 = if cfg!(debug_assertions) { 60_000 } else { 2_000_000 };
    for fan_out in [4, 16] {
        for kind in 0..6 {
            let moves = Rc::new(Moves::default());
            let store = TracedBlocks::new(Arena::<Counted>::new(4096).unwrap(), Rc::clone(&moves));
            let mut queue = PageQueue::with_store(store, fan_out);
            let (mut seed, mut worst, mut worst_moves) = (0x2545_F491_4F6C_DD1D_u64 ^ kind, 0, 0);
            let mut now = 0;
            let mut run = |queue: &mut PageQueue<Counted, _>, push: bool, step: u64| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let key = match kind {
                    0 => seed >> 33,
                    1 => step,
                    2 => u64::MAX - step,
                    3 => now + [60_000, 3_600_000, 86_400_000][(seed >> 40) as usize % 3] + seed % 16,
                    4 => 42,
                    _ => ((seed >> 20) % 7) << 40 | seed & 0xFF,
                };
                COMPARED.set(0);
                moves.0.set(0);
                if push {
                    queue.push(Counted(key, step));
                } else if let Some(item) = queue.pop() {
                    now = item.0;
                }
                worst = worst.max(COMPARED.get());
                worst_moves = worst_moves.max(moves.0.get() / size_of::<Counted>());
            };
            for step in 0..items {
                run(&mut queue, true, step);
            }
            for step in 0..items {
                run(&mut queue, step % 2 == 1, items + step);
            }
            while !queue.is_empty() {
                run(&mut queue, false, 0);
            }
            println!(
                "fan-out {fan_out}, kind {kind}: compared {worst}, moved {worst_moves}, late {}",
                queue.late_steps()
            );
            assert!(worst <= LIMIT, "{worst} comparisons, fan-out {fan_out}, kind {kind}");
            assert!(worst_moves <= LIMIT as usize, "{worst_moves} moves, fan-out {fan_out}, kind {kind}");
            assert_eq!(queue.late_steps(), 0, "fan-out {fan_out}, kind {kind}");
        }
    }
}
