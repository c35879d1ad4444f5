#![allow(missing_docs, clippy::print_stdout, clippy::disallowed_methods)]
use lab::experiments::bheap_sim::classics;
fn main() {
    let n = std::env::args().nth(1).map_or(1_000_000, |a| a.parse().unwrap());
    let t = std::time::Instant::now();
    let (b, p) = classics(n, 4096, 0, 1);
    println!("{:?} pages {} {}", t.elapsed(), b.pages(), p.pages());
    for m in [8, 9, 10, 16, 32, 64, 128, 256, 512, 1024, 1800, 1950, 1953] {
        let (x, y) = (b.transfers(m), p.transfers(m));
        println!(
            "{m} {} {} {:.4} {:.5}  {:.5} {:.5}",
            x.free(),
            y.free(),
            x.free() as f64 / 4e6,
            y.free() as f64 / 4e6,
            x.charged() as f64 / 4e6,
            y.charged() as f64 / 4e6
        );
    }
}
