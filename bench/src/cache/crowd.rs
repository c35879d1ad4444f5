//! Many clients that wait for one page which the origin answers late.
//!
//! All servers face the same situation: every client has connected and sent its request before the origin
//! answers. A client's measured time begins with the origin's answer and ends with the client's first byte.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use lab::paired::{Latency, Work};
use lab::peers::PeerError;
use lab::peers::cache::origin::{Origin, Page};

/// Time limit for the answers, longer than any client waits.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Requests a page of `body_bytes` that is not stored yet from `clients` connections to a loopback port. The
/// latencies count from the origin's answer to each client's first byte.
///
/// # Errors
/// `PeerError` if a client gets no answer, or a wrong one.
pub(crate) fn ask(
    origin: &Origin,
    port: u16,
    clients: u32,
    body_bytes: u64,
    id: u64,
) -> Result<Work, PeerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (asked_at, mut heard_at) = runtime.block_on(async {
        let mut streams = Vec::new();
        for _ in 0..clients {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let request = format!(
            "GET {}{body_bytes}/{id} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
            Page::Awaited.root()
        );
        for stream in &mut streams {
            stream.write_all(request.as_bytes()).await?;
        }
        let asked_at = Instant::now();
        let readers: Vec<_> = streams.into_iter().map(|stream| tokio::spawn(first_byte(stream))).collect();
        let mut heard_at = Vec::new();
        for reader in readers {
            let heard = tokio::time::timeout(ANSWER_WAIT, reader).await;
            heard_at.push(heard.map_err(|_| io::ErrorKind::TimedOut)?.map_err(io::Error::other)??);
        }
        Ok::<_, io::Error>((asked_at, heard_at))
    })?;
    heard_at.sort_unstable();
    let answered_at =
        origin.answered_awaited().ok_or_else(|| PeerError::failed("the origin was not asked"))?;
    let after = |heard: &Instant| heard.saturating_duration_since(answered_at).as_secs_f64() * 1e6;
    let at = |share: f64| heard_at.get((heard_at.len() as f64 * share) as usize).map_or(0.0, after);
    let last_us = heard_at.last().map_or(0.0, after);
    let latency = Latency { p50_us: at(0.5), p95_us: None, p99_us: at(0.99), last_us: Some(last_us) };
    let doubts = if answered_at < asked_at {
        vec!["not all had asked when the origin answered".into()]
    } else {
        vec![]
    };
    Ok(Work { units: u64::from(clients), wall_s: None, latency: Some(latency), doubts })
}

/// Returns the time at which the first byte of the answer arrives.
async fn first_byte(mut stream: TcpStream) -> io::Result<Instant> {
    let mut start = [0; 1];
    stream.read_exact(&mut start).await?;
    let heard_at = Instant::now();
    let mut status = [0; 11];
    stream.read_exact(&mut status).await?;
    if &status != b"TTP/1.1 200" {
        return Err(io::Error::other(format!("H{}", String::from_utf8_lossy(&status))));
    }
    Ok(heard_at)
}
