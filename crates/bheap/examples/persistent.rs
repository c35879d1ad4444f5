//! A queue that outlives its process; run the example several times: `cargo run --example persistent --
//! FILE`.
#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use bheap::file::FileQueue;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args().nth(1) else {
        return Err("give it a file: cargo run --example persistent -- /tmp/a.queue".into());
    };
    let mut queue = match FileQueue::<(u64, u64)>::open(&path) {
        Ok(queue) => queue,
        Err(_) if !std::path::Path::new(&path).exists() => FileQueue::create(&path, 100_000)?,
        Err(error) => return Err(error.into()),
    };
    println!("{} items since checkpoint {}", queue.len(), queue.sequence());
    let run = queue.sequence();
    for n in 0..1_000 {
        queue.push((n * 7919 % 1_000, run))?;
    }
    for (key, from) in (0..5).filter_map(|_| queue.pop()).collect::<Vec<_>>() {
        println!("took {key}, queued in run {from}");
    }
    // Everything up to here is kept, whatever happens to the process or the machine.
    queue.checkpoint()?;
    Ok(())
}
