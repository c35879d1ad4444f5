#![allow(missing_docs, clippy::print_stdout, clippy::disallowed_methods)]
use bheap::{PageQueue, blocks::{Arena, TracedBlocks, Blocks}};
use lab::experiments::bheap_sim::{Subject, three_phases, keys::Random3, lru::AllSizes};
struct Q<B: Blocks<u64>>(PageQueue<u64, B>);
impl<B: Blocks<u64>> Subject for Q<B> {
    fn push(&mut self, k: u64) { self.0.push(k) }
    fn pop(&mut self) -> Option<u64> { self.0.pop() }
}
fn main() {
    let n: usize = std::env::args().nth(1).map_or(1_000_000, |a| a.parse().unwrap());
    for fan in [6] {
        let m = std::rc::Rc::new(AllSizes::new(4096));
        let mut q = Q(PageQueue::with_store(TracedBlocks::new(Arena::new(4096).unwrap(), m.clone()), fan));
        let mut r = Random3::new(1);
        three_phases(&mut q, n, |_| r.next().unwrap() as u64);
        println!("fan {fan} pages {} late {}: {:?}", m.pages(), q.0.late_steps(), [8, 9, 10, 12, 16, 32, 64, 128, 256, 1024, 1800, 1953, 1970, 2000].map(|s| (s, (m.transfers(s).charged() as f64 / 4e2).round()/1e4)));
    }
}
