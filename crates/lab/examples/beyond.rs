#![allow(missing_docs, clippy::print_stdout, clippy::disallowed_methods)]
use bheap::{
    PageQueue,
    blocks::{Arena, Blocks, TracedBlocks},
    trace::Trace,
};
use lab::experiments::bheap_sim::{keys::Random3, lru::AllSizes};
struct Skip {
    m: AllSizes,
    lo: usize,
    hi: usize,
}
impl Trace for &Skip {
    fn read(&self, a: usize, b: usize) {
        if a < self.lo || a >= self.hi {
            self.m.read(a, b)
        }
    }
    fn write(&self, a: usize, b: usize) {
        if a < self.lo || a >= self.hi {
            self.m.write(a, b)
        }
    }
}
fn run(n: usize, fan: usize, lo: usize, hi: usize, detail: bool) {
    let m = Skip { m: AllSizes::new(4096), lo, hi };
    let mut q = PageQueue::with_store(TracedBlocks::new(Arena::new(4096).unwrap(), &m), fan);
    let mut r = Random3::new(1);
    let show = |what: &str| {
        if detail {
            println!(
                "   {what}: {:?}",
                [9, 64, 128, 256, 512, 1024]
                    .map(|s| (s, (m.m.transfers(s).charged() as f64 / n as f64 * 1e4).round() / 4e4))
            );
        }
    };
    for _ in 0..n {
        q.push(r.next().unwrap() as u64);
    }
    show("insert");
    for _ in 0..n {
        q.pop();
        q.push(r.next().unwrap() as u64);
    }
    show("hold");
    for _ in 0..n {
        q.pop();
    }
    show("remove");
    println!(
        "fan {fan} skip {lo}-{hi} pages {} late {}: {:?}",
        m.m.pages(),
        q.late_steps(),
        [8, 9, 10, 12, 16, 32, 64, 128, 256, 1024, 1800, 1953, 1970, 2000]
            .map(|s| (s, (m.m.transfers(s).charged() as f64 / n as f64 * 1e4).round() / 4e4))
    );
}
fn main() {
    let n: usize = std::env::args().nth(1).map_or(1_000_000, |a| a.parse().unwrap());
    let mut fans: Vec<usize> = std::env::args().skip(2).map(|a| a.parse().unwrap()).collect();
    if fans.is_empty() {
        fans = vec![4, 5, 6, 16, 32];
    }
    for &f in &fans {
        run(n, f, 0, 0, true);
    }
    let f = fans[0];
    run(n, f, 0, 32768, false);
    run(n, f, 32768, 65536, false);
    run(n, f, 65536, 65536 + 131072, false);
}
