//! What a page of an inbox with 100 mails costs the web's own thread, in µs of CPU: `cargo run --release -p mail --example
//! page_cost [REQUESTS]`. By the kernel's own account of the thread (`schedstat`), so that neither the client in this
//! process nor a busy machine is in it.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
};

use engine::cores::clock;
use mail::{
    samples,
    twin::{Retention, Twin},
    web::{Config, Web, serve},
};

const MAILS: usize = 100;

fn main() -> io::Result<()> {
    let requests: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2_000);
    let twin = Twin::new(Retention::default(), "night.test");
    let now_ms = clock::unix_ms();
    let set = samples::set("ann@night.test", (now_ms / 1000).cast_signed());
    for sample in set.iter().cycle().take(MAILS) {
        twin.deliver_at(now_ms, sample.envelope_from, &["ann@night.test".to_owned()], &sample.raw)
            .map_err(io::Error::other)?;
    }
    let config = Config { domain: "night.test".to_owned(), ..Config::default() };
    let web = serve(TcpListener::bind("127.0.0.1:0")?, twin, config)?;
    let mut out = io::stdout();
    for (what, path) in [
        ("inbox page", "/inbox/ann@night.test"),
        ("API list", "/api/v2/domains/public/inboxes/ann?limit=99"),
        ("home page", "/"),
    ] {
        ask(&web, path, requests / 10 + 1)?;
        let before = web_thread_ns()?;
        let bytes = ask(&web, path, requests)?;
        let spent_ns = web_thread_ns()? - before;
        writeln!(out, "{what}: {:.1} µs of CPU, {bytes} bytes", spent_ns as f64 / 1000.0 / requests as f64)?;
    }
    web.stop();
    Ok(())
}

/// Asks so many times over one connection; the size of a body.
fn ask(web: &Web, path: &str, requests: u64) -> io::Result<usize> {
    let mut stream = BufReader::new(TcpStream::connect(web.address())?);
    let mut bytes = 0;
    for _ in 0..requests {
        write!(stream.get_mut(), "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            if let Some(length) = line.strip_prefix("content-length: ") {
                bytes = length.trim().parse().map_err(io::Error::other)?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        io::copy(&mut (&mut stream).take(bytes as u64), &mut io::sink())?;
    }
    Ok(bytes)
}

/// Nanoseconds that the thread "mail-web" has been on a CPU (proc(5), schedstat).
fn web_thread_ns() -> io::Result<u64> {
    for task in fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm"))?.trim() == "mail-web" {
            let stat = fs::read_to_string(path.join("schedstat"))?;
            return stat.split_whitespace().next().unwrap_or_default().parse().map_err(io::Error::other);
        }
    }
    Err(io::Error::other("there is no thread mail-web"))
}
