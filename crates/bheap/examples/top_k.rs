//! The ten largest of many numbers, with memory for ten: `cargo run --example top_k`.
#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use bheap::BinaryHeap;

fn main() {
    const K: usize = 10;
    let mut largest = BinaryHeap::with_capacity(K);
    for n in 0..1_000_000_u64 {
        let number = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        if largest.len() < K {
            largest.push(number);
        } else if largest.peek().is_some_and(|least| number > *least) {
            // `pop_push` walks down once; a push and a pop would walk up and then down.
            largest.pop_push(number);
        }
    }
    let mut largest: Vec<u64> = largest.drain().collect();
    largest.reverse();
    println!("{largest:?}");
}
