//! Tasks by priority, which can be changed and withdrawn while they wait: `cargo run --example scheduler`.
#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use bheap::{HandleQueue, IndexedHeap};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Keys need not be `Copy` here: they are ordered by priority, then by name.
    let mut tasks = IndexedHeap::binary();
    let backup = tasks.insert((5, String::from("back up")))?;
    let report = tasks.insert((3, String::from("write the report")))?;
    tasks.insert((4, String::from("answer mail")))?;
    // The handle stays the same in an indexed heap.
    tasks.update(backup, (1, String::from("back up, because a disk is failing")))?;
    tasks.remove(report)?;
    assert!(tasks.remove(report).is_err(), "it has left");
    while let Some(((priority, name), _)) = tasks.pop() {
        println!("{priority}: {name}");
    }
    Ok(())
}
