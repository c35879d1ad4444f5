//! The web server behind every contender: `/o/ID` answers the body of object ID ([`lab::pressure::objects`]).
//!
//! The origin uses one blocking thread per connection. Its request count is the number of requests that were not
//! answered from a store.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::SystemTime;

use lab::pressure::objects;

use crate::pressure::load::give_way;

const CONNECTIONS_MAX: usize = 1024;
const HEAD_LINES_MAX: usize = 100;
/// Stack size of a connection's thread, which needs little.
const STACK_BYTES: usize = 256 << 10;

/// A running origin.
pub(crate) struct Origin {
    pub(crate) port: u16,
    requests: Arc<AtomicU64>,
}

impl Origin {
    /// Listens on a free loopback port until the process ends.
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        let requests = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&requests);
        thread::Builder::new().name("origin".into()).spawn(move || accept(&listener, &counter))?;
        Ok(Self { port, requests })
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn accept(listener: &TcpListener, requests: &Arc<AtomicU64>) {
    give_way();
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().flatten() {
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue; // closed by the drop; the cache in front answers 502, and the bench sees that
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (requests, here) = (Arc::clone(requests), Arc::clone(&open));
        let spawned = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // A cache may close its connection at any time.
            let _ = serve(stream, &requests);
            here.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn serve(stream: TcpStream, requests: &AtomicU64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    let (mut line, mut answer) = (String::new(), Vec::new());
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let id = line.split(' ').nth(1).and_then(parse);
        let mut lines = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 || lines > HEAD_LINES_MAX {
                return Ok(());
            }
            lines += 1;
            if line.trim_end().is_empty() {
                break;
            }
        }
        requests.fetch_add(1, Ordering::Relaxed);
        let Some(id) = id else {
            write!(writer, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        };
        let bytes = objects::bytes(id) as usize;
        answer.clear();
        write!(
            answer,
            "HTTP/1.1 200 OK\r\nDate: {}\r\nCache-Control: max-age=86400\r\nContent-Length: {bytes}\r\n\r\n",
            httpdate::fmt_http_date(SystemTime::now())
        )?;
        let head_bytes = answer.len();
        answer.resize(head_bytes + bytes, 0);
        objects::fill(id, &mut answer[head_bytes..]);
        writer.write_all(&answer)?;
    }
}

/// Parses `/o/ID`, also in absolute form, which some caches send.
fn parse(target: &str) -> Option<u64> {
    target.split_once("/o/")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_forms_of_targets_are_read() {
        assert_eq!(["/o/7", "http://a:1/o/12"].map(parse), [Some(7), Some(12)]);
        assert_eq!(["/", "/o/", "/o/x", "/o/1/2"].map(parse), [None; 4]);
    }
}
