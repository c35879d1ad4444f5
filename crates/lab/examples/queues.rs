//! The queues' experiments by name, until the program's own `lab` command runs them.
#![allow(clippy::print_stdout, reason = "an example prints")]

use lab::experiments::bheap_sim::Which;
use lab::experiments::{bheap_layout, bheap_paging, bheap_sim, queue_beyond};
use std::path::Path;
use std::process::Command;

fn again(which: Which, items: usize, pairs: u64, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_default());
    let which = match which {
        Which::Binary => 0,
        Which::BHeap => 1,
        Which::Beyond(_) => 2,
    };
    command
        .args(["bheap-paging-child", &items.to_string(), &pairs.to_string(), &which.to_string()])
        .arg(folder);
    command
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let items = arguments.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let rounds = arguments.next().map_or(Ok(5), |n| n.parse())?;
    let outcome = match name.as_str() {
        "bheap-sim" => bheap_sim::experiment(items, 1)?,
        "bheap-layout" => bheap_layout::experiment()?,
        "queue-beyond" => queue_beyond::under_pressure(items)?,
        "queue-beyond-ram, bheap-paging" => queue_beyond::in_memory(items, rounds, |_, _| Vec::new())?,
        "bheap-paging" => bheap_paging::experiment(items, rounds as u64, &again)?,
        "bheap-paging-child" => {
            let which = match arguments.next().as_deref() {
                Some("0") => Which::Binary,
                Some("1") => Which::BHeap,
                _ => Which::Beyond(64),
            };
            let folder = arguments.next().unwrap_or_default();
            return bheap_paging::child(which, items, rounds as u64, Path::new(&folder));
        }
        _ => {
            return Err(
                "name one of bheap-sim, bheap-layout, queue-beyond, queue-beyond-ram, bheap-paging".into()
            );
        }
    };
    println!("{}", outcome.text());
    if let Some(file) = std::env::var_os("HTML") {
        std::fs::write(file, outcome.html())?;
    }
    Ok(())
}
