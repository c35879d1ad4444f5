//! The origin of a site under siege: a thread for each connection, so that a stalled exchange holds up no
//! other.
//!
//! | path | answer |
//! |---|---|
//! | `/about…` | 8 KiB, fresh for an hour |
//! | `/page…` | 1 KiB that may not be stored |
//! | `/slow…` | the same, five seconds later |
//! | `/large…` | 16 MiB in ranges, fresh for an hour |
//! | `/endless…` | 1 GiB that may not be stored, no ranges |
//! | `/events…` | an event stream of one event, open until the other side closes it |
//!
//! A POST is answered when its whole body has arrived.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Host name of the origin's site.
pub const HOST: &str = "origin.test";

/// Time before a slow page is answered.
const SLOW: Duration = Duration::from_secs(5);
const LARGE_BYTES: usize = 16 << 20;
const ENDLESS_BYTES: usize = 1 << 30;
/// Stack size of a connection's thread; there may be thousands.
const STACK_BYTES: usize = 128 << 10;
/// Bytes of a body that are written in one call.
const PIECE: [u8; 16 << 10] = [b'o'; 16 << 10];

/// A running origin. Its threads end with the process.
#[derive(Debug)]
pub struct Origin {
    /// Address where the origin listens.
    pub address: SocketAddr,
    streams: Arc<AtomicUsize>,
}

impl Origin {
    /// Starts the origin on a free port.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let streams = Arc::new(AtomicUsize::new(0));
        let of_threads = Arc::clone(&streams);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let streams = Arc::clone(&of_threads);
                // If no thread can be started, the connection is closed.
                let _ = thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn(move || while_open(stream, &streams));
            }
        });
        Self { address, streams }
    }

    /// Counts the event streams that the other side has not closed.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.load(Ordering::Acquire)
    }
}

fn while_open(stream: TcpStream, streams: &AtomicUsize) {
    // A body sent by a second write would wait for the other side's delayed acknowledgement.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut stream = BufReader::with_capacity(4096, stream);
    while exchange(&mut stream, streams).is_ok_and(|goes_on| goes_on) {}
}

/// Answers one request, and returns whether the connection stays open.
fn exchange(stream: &mut BufReader<TcpStream>, streams: &AtomicUsize) -> io::Result<bool> {
    let mut request = String::new();
    let (mut length, mut range) = (0_u64, None);
    if stream.read_line(&mut request)? == 0 {
        return Ok(false);
    }
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        }
        if let Some(bytes) = line.strip_prefix("range: bytes=") {
            range = bytes.split_once('-').and_then(|(first, last)| {
                let first: usize = first.parse().ok()?;
                Some((first, last.parse().unwrap_or(LARGE_BYTES - 1).min(LARGE_BYTES - 1)))
            });
        }
    }
    if length > 0 && io::copy(&mut stream.by_ref().take(length), &mut io::sink())? < length {
        return Ok(false);
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    let is_head = request.starts_with("HEAD ");
    let stream = stream.get_mut();
    if path.starts_with("/events") {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
                    Connection: close\r\n\r\ndata: first\n\n";
        streams.fetch_add(1, Ordering::AcqRel);
        // Ends with the other side's FIN.
        let end = stream.write_all(head.as_bytes()).and_then(|()| io::copy(stream, &mut io::sink()));
        streams.fetch_sub(1, Ordering::AcqRel);
        return end.map(|_| false);
    }
    let (fields, bytes, status) = match (path, range) {
        (path, Some((first, last))) if path.starts_with("/large") && first <= last => (
            format!(
                "Cache-Control: max-age=3600\r\nETag: \"large\"\r\nContent-Range: bytes {first}-{last}/{LARGE_BYTES}\r\n"
            ),
            last - first + 1,
            "206 Partial Content",
        ),
        (path, _) if path.starts_with("/large") => (
            "Cache-Control: max-age=3600\r\nETag: \"large\"\r\nAccept-Ranges: bytes\r\n".to_owned(),
            LARGE_BYTES,
            "200 OK",
        ),
        (path, _) if path.starts_with("/about") => {
            ("Cache-Control: max-age=3600\r\n".to_owned(), 8 << 10, "200 OK")
        }
        (path, _) if path.starts_with("/endless") => {
            ("Cache-Control: no-store\r\n".to_owned(), ENDLESS_BYTES, "200 OK")
        }
        (path, _) => {
            if path.starts_with("/slow") {
                thread::sleep(SLOW);
            }
            ("Cache-Control: no-store\r\n".to_owned(), 1 << 10, "200 OK")
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {bytes}\r\n{fields}\r\n"
    )?;
    let mut left = if is_head { 0 } else { bytes };
    while left > 0 {
        let piece = &PIECE[..left.min(PIECE.len())];
        stream.write_all(piece)?;
        left -= piece.len();
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(origin: &Origin, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(origin.address).expect("it listens");
        stream.set_read_timeout(Some(crate::PATIENCE)).expect("a time");
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    }

    #[test]
    fn ranges_and_bodies_have_their_lengths() {
        let origin = Origin::start();
        let mut stream = ask(
            &origin,
            "POST /page HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /large HTTP/1.1\r\nRange: bytes=5-9\r\n\r\n",
        );
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let (page, range) = text.split_once("HTTP/1.1 206").expect("a range");
        assert!(page.ends_with(&"o".repeat(1024)) && page.contains("no-store"), "{page}");
        assert!(
            range.contains("Content-Range: bytes 5-9/16777216\r\n") && range.ends_with("\r\n\r\nooooo"),
            "{range}"
        );
    }

    #[test]
    fn an_event_stream_counts_until_it_is_closed() {
        let origin = Origin::start();
        let stream = ask(&origin, "GET /events HTTP/1.1\r\n\r\n");
        crate::eventually("the stream is open", || origin.open_streams() == 1);
        drop(stream);
        crate::eventually("the stream is closed", || origin.open_streams() == 0);
    }
}
