#![allow(missing_docs, clippy::print_stdout, clippy::disallowed_methods)]
use bheap::{
    PageQueue,
    blocks::Arena,
    heap::Heap,
    layout::{Binary, Dary, Paged},
    memory::AlignedRows,
};
use std::time::Instant;
type I = (u64, u64);
struct R(u64);
impl R {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 33
    }
}
trait Q {
    fn push(&mut self, i: I);
    fn pop(&mut self) -> Option<I>;
}
impl<L: bheap::layout::Layout, S: bheap::Rows<I>> Q for Heap<I, L, S> {
    fn push(&mut self, i: I) {
        Heap::push(self, i)
    }
    fn pop(&mut self) -> Option<I> {
        Heap::pop(self)
    }
}
impl Q for PageQueue<I> {
    fn push(&mut self, i: I) {
        PageQueue::push(self, i)
    }
    fn pop(&mut self) -> Option<I> {
        PageQueue::pop(self)
    }
}
impl Q for std::collections::BinaryHeap<std::cmp::Reverse<I>> {
    fn push(&mut self, i: I) {
        self.push(std::cmp::Reverse(i))
    }
    fn pop(&mut self) -> Option<I> {
        self.pop().map(|r| r.0)
    }
}
impl Q for dary_heap::DaryHeap<std::cmp::Reverse<I>, 8> {
    fn push(&mut self, i: I) {
        self.push(std::cmp::Reverse(i))
    }
    fn pop(&mut self) -> Option<I> {
        self.pop().map(|r| r.0)
    }
}
fn go(name: &str, mut q: impl Q, n: usize, reps: usize) {
    let mut r = R(88172645463325252);
    let mut t = [0.0; 3];
    for _ in 0..reps {
        let s = Instant::now();
        for _ in 0..n {
            let k = r.next();
            q.push((k, k));
        }
        t[0] += s.elapsed().as_secs_f64();
        let s = Instant::now();
        for _ in 0..n {
            q.pop();
            let k = r.next();
            q.push((k, k));
        }
        t[1] += s.elapsed().as_secs_f64();
        let s = Instant::now();
        for _ in 0..n {
            q.pop();
        }
        t[2] += s.elapsed().as_secs_f64();
    }
    let f = 1e9 / (n * reps) as f64;
    println!(
        "{name:18} insert {:7.1} hold/2 {:7.1} remove {:7.1}  per op {:7.1}",
        t[0] * f,
        t[1] * f / 2.0,
        t[2] * f,
        (t[0] + t[1] + t[2]) * f / 4.0
    );
}
fn main() {
    let n: usize = std::env::args().nth(1).map_or(1_000_000, |a| a.parse().unwrap());
    let reps = (2_000_000 / n).max(1);
    for f in [4, 8, 16, 32] {
        go(&format!("page f={f}"), PageQueue::with_store(Arena::new(4096).unwrap(), f), n, reps);
    }
    go("page 16k f=16", PageQueue::with_store(Arena::new(16384).unwrap(), 16), n, reps);
    go("8ary aligned", Heap::with_rows(Dary::<8>, AlignedRows::new(128, 7).unwrap()), n, reps);
    go("4ary", Heap::with_rows(Dary::<4>, Vec::new()), n, reps);
    go("binary", Heap::with_rows(Binary, Vec::new()), n, reps);
    go(
        "bheap",
        Heap::with_rows(Paged::for_page_bytes::<I>(4096).unwrap(), AlignedRows::new(4096, 1).unwrap()),
        n,
        reps,
    );
    go("std", std::collections::BinaryHeap::new(), n, reps);
    go("dary_heap 8", dary_heap::DaryHeap::new(), n, reps);
}
