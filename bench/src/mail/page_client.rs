//! An HTTP client for pages: over one connection, requests one after the other or at a steady rate.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use lab::peers::PeerError;

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A keep-alive HTTP connection.
#[derive(Debug)]
pub(crate) struct Pages {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Pages {
    /// Connects to a server.
    ///
    /// # Errors
    /// An I/O error if the server does not accept the connection.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, PeerError> {
        let stream = BufReader::with_capacity(64 << 10, TcpStream::connect(address)?);
        stream.get_ref().set_nodelay(true)?;
        stream.get_ref().set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, line: String::new() })
    }

    /// Requests a page and writes its body into `body`; returns the body's length.
    ///
    /// # Errors
    /// `PeerError` if the answer is not 200 or has no body.
    pub(crate) fn ask(&mut self, path: &str, body: &mut impl Write) -> Result<u64, PeerError> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (mut bytes, mut status, mut is_chunked) = (0u64, None, false);
        loop {
            self.line.clear();
            self.stream.read_line(&mut self.line)?;
            status.get_or_insert_with(|| self.line.trim_end().to_owned());
            let lower = self.line.to_ascii_lowercase();
            if let Some(length) = lower.strip_prefix("content-length:") {
                bytes = length.trim().parse().map_err(|_| PeerError::failed(&*self.line))?;
            }
            is_chunked |= lower.starts_with("transfer-encoding:") && lower.contains("chunked");
            if self.line.trim_end().is_empty() {
                break;
            }
        }
        if is_chunked {
            bytes = self.chunks(body)?;
        } else {
            io::copy(&mut (&mut self.stream).take(bytes), body)?;
        }
        let status = status.unwrap_or_default();
        if !status.contains(" 200 ") || bytes == 0 {
            return Err(PeerError::failed(format!("{path}: {status}, {bytes} bytes")));
        }
        Ok(bytes)
    }

    /// Requests a page and parses its JSON.
    ///
    /// # Errors
    /// The errors of [`Self::ask`], or an error if the body is not JSON.
    pub(crate) fn json(&mut self, path: &str) -> Result<serde_json::Value, PeerError> {
        let mut body = Vec::new();
        self.ask(path, &mut body)?;
        serde_json::from_slice(&body).map_err(|error| PeerError::failed(format!("{path}: {error}")))
    }

    /// Reads a chunked body to its end (RFC 9112, 7.1); returns its length.
    fn chunks(&mut self, body: &mut impl Write) -> Result<u64, PeerError> {
        let mut all = 0;
        loop {
            self.line.clear();
            self.stream.read_line(&mut self.line)?;
            let bytes =
                u64::from_str_radix(self.line.trim(), 16).map_err(|_| PeerError::failed(&*self.line))?;
            io::copy(&mut self.stream.by_ref().take(bytes), body)?;
            // The CRLF after the chunk is skipped.
            io::copy(&mut self.stream.by_ref().take(2), &mut io::sink())?;
            all += bytes;
            if bytes == 0 {
                return Ok(all);
            }
        }
    }
}

/// Requests a page `requests` times over one connection; returns the total length of the bodies.
///
/// # Errors
/// `PeerError` if an answer is not 200 or has no body.
pub(crate) fn ask(address: SocketAddr, path: &str, requests: u64) -> Result<u64, PeerError> {
    let mut pages = Pages::connect(address)?;
    let mut all = 0;
    for _ in 0..requests {
        all += pages.ask(path, &mut io::sink())?;
    }
    Ok(all)
}

/// Requests a page at a steady rate; returns the latencies in microseconds, shortest first. A latency counts
/// from the time at which the request was due, so a late answer also delays the requests behind it.
///
/// # Errors
/// The errors of [`ask`].
pub(crate) fn steadily(
    address: SocketAddr,
    path: &str,
    (every, lasting): (Duration, Duration),
) -> Result<Vec<f64>, PeerError> {
    let mut pages = Pages::connect(address)?;
    let (begun, mut due) = (Instant::now(), Duration::ZERO);
    let mut took_us = Vec::new();
    while due < lasting {
        thread::sleep(due.saturating_sub(begun.elapsed()));
        pages.ask(path, &mut io::sink())?;
        took_us.push((begun.elapsed() - due).as_secs_f64() * 1e6);
        due += every;
    }
    took_us.sort_unstable_by(f64::total_cmp);
    Ok(took_us)
}

/// Returns the quantile `part` of sorted values; 0 if there are none.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((part * last as f64).round() as usize).copied().unwrap_or_default()
}
