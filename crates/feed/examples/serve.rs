//! A bare feed, to measure without the program around it: `serve ADDRESS [CORES]`, cores as in `0,1`.
#![allow(clippy::print_stdout, reason = "an example")]

use feed::{Config, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().ok_or("usage: serve ADDRESS [CORES]")?.parse()?;
    let cores = match arguments.next() {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let server = Server::start(Config { listen, cores, ..Config::default() })?;
    println!("listening on {:?}", server.addresses());
    loop {
        std::thread::park();
    }
}
