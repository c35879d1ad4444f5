//! A typical use of a timer wheel: a hundred thousand connections, each with a timeout that is restarted
//! whenever data arrives. Exact to the tick, with no cascades. `cargo run --example timers`.
#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use bheap::{Handle, HandleQueue, LazyQueue};

const CONNECTIONS: usize = 100_000;
const TIMEOUT_TICKS: u64 = 30_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut timers = LazyQueue::<u64>::new(4096)?;
    let mut timeout: Vec<Handle> = Vec::with_capacity(CONNECTIONS);
    // A handle's slot is a small number that belongs to the timer alone while it runs: an index to its
    // connection.
    let mut connection_of = vec![0; CONNECTIONS + 1];
    for connection in 0..CONNECTIONS {
        let handle = timers.insert(TIMEOUT_TICKS + connection as u64 % 7)?;
        connection_of[handle.slot()] = connection;
        timeout.push(handle);
    }
    let (mut expired, mut arrivals) = (0, 0_u64);
    for now in 0..40_000_u64 {
        // Data arrives in every tick on ten connections.
        for n in 0..10_u64 {
            arrivals += 1;
            let connection =
                ((now * 10 + n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % CONNECTIONS;
            if timers.contains(timeout[connection]) {
                let handle = timers.update(timeout[connection], now + TIMEOUT_TICKS)?;
                if handle.slot() >= connection_of.len() {
                    connection_of.resize(handle.slot() + 1, 0);
                }
                connection_of[handle.slot()] = connection;
                timeout[connection] = handle;
            }
        }
        while timers.peek().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, handle)) = timers.pop() {
                let connection = connection_of[handle.slot()];
                assert_eq!(timeout[connection], handle, "the timer is this connection's");
                expired += 1;
            }
        }
    }
    println!("{arrivals} arrivals; {expired} connections timed out, {} are left", timers.len());
    Ok(())
}
