//! The queues' experiments by name, until the program's own `lab` command runs them.
#![allow(clippy::print_stdout, reason = "an example prints")]

use lab::experiments::{bheap_layout, bheap_sim, queue_beyond};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let items = arguments.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let rounds = arguments.next().map_or(Ok(5), |n| n.parse())?;
    let outcome = match name.as_str() {
        "bheap-sim" => bheap_sim::experiment(items, 1)?,
        "bheap-layout" => bheap_layout::experiment()?,
        "queue-beyond" => queue_beyond::under_pressure(items)?,
        "queue-beyond-ram" => queue_beyond::in_memory(items, rounds, |_, _| Vec::new())?,
        _ => return Err("name one of bheap-sim, bheap-layout, queue-beyond, queue-beyond-ram".into()),
    };
    println!("{}", outcome.text());
    if let Some(file) = std::env::var_os("HTML") {
        std::fs::write(file, outcome.html())?;
    }
    Ok(())
}
