//! Who sends: postfix's `smtp-source`, and a client of our own that pipelines.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::paired::{
    place::find,
    tree::{Cores, pinned},
};

use super::{MAIL_BYTES, SESSIONS};
use crate::peers::PeerError;

/// Mails that our client has on their way in a connection.
const WINDOW: usize = 8;

/// Sends so many mails by `smtp-source`, with one recipient of its own each.
///
/// # Errors
/// It is not there, or ended otherwise than well.
pub fn source(to: SocketAddr, load: &Cores, mails: u64, reuse: bool) -> Result<(), PeerError> {
    let program = find("smtp-source")
        .ok_or_else(|| PeerError::Failed("smtp-source is missing (Debian: postfix)".to_owned()))?;
    let mut command = pinned(load, &program.to_string_lossy());
    command.args([
        "-N",
        "-s",
        &SESSIONS.to_string(),
        "-m",
        &mails.to_string(),
        "-l",
        &MAIL_BYTES.to_string(),
    ]);
    if reuse {
        command.arg("-d");
    }
    command.args([
        "-f",
        "sender@bench.test",
        "-t",
        "user@bench.test",
        &format!("inet:{}:{}", to.ip(), to.port()),
    ]);
    let output = command.output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(PeerError::Failed(format!("smtp-source: {}", String::from_utf8_lossy(&output.stderr).trim())))
    }
}

/// How long our client sends.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// So many were sent.
    Mails(u64),
    /// So long.
    Time(Duration),
}

/// Sends by BDAT, several mails on their way in each of the connections; how many got their 250. `inboxes` 0: 100,000.
///
/// # Errors
/// A connection that breaks, a mail that is refused.
pub fn pipelined(address: SocketAddr, until: Until, inboxes: u64) -> Result<u64, PeerError> {
    let next = Arc::new(AtomicU64::new(0));
    let deadline = match until {
        Until::Time(time) => Some(Instant::now() + time),
        Until::Mails(_) => None,
    };
    let most = match until {
        Until::Mails(mails) => mails,
        Until::Time(_) => u64::MAX,
    };
    // At ten mails an inbox.
    let inboxes = if inboxes == 0 { 100_000 } else { inboxes.div_ceil(10) };
    let senders: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let next = Arc::clone(&next);
            thread::spawn(move || send(address, &next, most, deadline, inboxes))
        })
        .collect();
    let mut sent = 0;
    for sender in senders {
        sent += sender.join().map_err(|_| PeerError::Failed("a sender panicked".to_owned()))??;
    }
    Ok(sent)
}

fn send(
    address: SocketAddr,
    next: &AtomicU64,
    most: u64,
    deadline: Option<Instant>,
    inboxes: u64,
) -> Result<u64, PeerError> {
    let mut stream = BufReader::with_capacity(16 << 10, TcpStream::connect(address)?);
    stream.get_ref().set_nodelay(true)?;
    let mut line = Vec::new();
    expect(&mut stream, &mut line, b'2')?;
    stream.get_mut().write_all(b"EHLO bench.test\r\n")?;
    expect(&mut stream, &mut line, b'2')?;
    let body = "x".repeat(62) + "\r\n";
    let body = body.repeat(MAIL_BYTES / 64);
    let (mut batch, mut sent) = (Vec::new(), 0);
    loop {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(sent);
        }
        let first = next.fetch_add(WINDOW as u64, Ordering::Relaxed);
        let count = most.saturating_sub(first).min(WINDOW as u64);
        if count == 0 {
            return Ok(sent);
        }
        batch.clear();
        for number in first..first + count {
            let head = format!("From: sender@bench.test\r\nSubject: mail {number}\r\n\r\n");
            let inbox = number % inboxes;
            write!(
                batch,
                "MAIL FROM:<sender@bench.test>\r\nRCPT TO:<i{inbox}@bench.test>\r\nBDAT {} LAST\r\n{head}{body}",
                head.len() + body.len()
            )?;
        }
        stream.get_mut().write_all(&batch)?;
        for _ in 0..3 * count {
            expect(&mut stream, &mut line, b'2')?;
        }
        sent += count;
    }
}

/// Reads a reply, which must begin so.
fn expect(stream: &mut BufReader<TcpStream>, line: &mut Vec<u8>, begin: u8) -> Result<(), PeerError> {
    loop {
        line.clear();
        stream.read_until(b'\n', line)?;
        if line.first() != Some(&begin) {
            return Err(PeerError::Failed(format!("the server said {:?}", String::from_utf8_lossy(line))));
        }
        if line.get(3) != Some(&b'-') {
            return Ok(());
        }
    }
}

/// Asks for a page so many times over one connection; the bytes of all answers' bodies.
///
/// # Errors
/// An answer is not 200, or has no body.
pub fn ask(address: SocketAddr, path: &str, requests: u64) -> Result<u64, PeerError> {
    let mut stream = BufReader::with_capacity(64 << 10, TcpStream::connect(address)?);
    stream.get_ref().set_nodelay(true)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (mut line, mut all) = (String::new(), 0);
    for _ in 0..requests {
        stream.get_mut().write_all(request.as_bytes())?;
        let (mut bytes, mut status, mut is_chunked) = (0u64, None, false);
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            status.get_or_insert_with(|| line.trim_end().to_owned());
            let lower = line.to_ascii_lowercase();
            if let Some(length) = lower.strip_prefix("content-length:") {
                bytes = length.trim().parse().map_err(|_| PeerError::Failed(line.clone()))?;
            }
            is_chunked |= lower.starts_with("transfer-encoding:") && lower.contains("chunked");
            if line.trim_end().is_empty() {
                break;
            }
        }
        if is_chunked {
            bytes = chunks(&mut stream, &mut line)?;
        }
        let status = status.unwrap_or_default();
        if !status.contains(" 200 ") || bytes == 0 {
            return Err(PeerError::Failed(format!("{path}: {status}, {bytes} bytes")));
        }
        if !is_chunked {
            io::copy(&mut (&mut stream).take(bytes), &mut io::sink())?;
        }
        all += bytes;
    }
    Ok(all)
}

/// Reads a body in chunks to its end (RFC 9112, 7.1); its bytes.
fn chunks(stream: &mut BufReader<TcpStream>, line: &mut String) -> Result<u64, PeerError> {
    let mut all = 0;
    loop {
        line.clear();
        stream.read_line(line)?;
        let bytes = u64::from_str_radix(line.trim(), 16).map_err(|_| PeerError::Failed(line.clone()))?;
        // And the line end behind it.
        io::copy(&mut stream.by_ref().take(bytes + 2), &mut io::sink())?;
        all += bytes;
        if bytes == 0 {
            return Ok(all);
        }
    }
}

/// Opens so many connections, each greeted, and leaves them alone.
///
/// # Errors
/// One of them is not greeted.
pub fn idle(address: SocketAddr, connections: usize) -> Result<Vec<TcpStream>, PeerError> {
    // Each is a file here.
    let mut line = Vec::new();
    (0..connections)
        .map(|_| {
            let mut stream = BufReader::with_capacity(512, TcpStream::connect(address)?);
            expect(&mut stream, &mut line, b'2')?;
            stream.get_mut().write_all(b"EHLO bench.test\r\n")?;
            expect(&mut stream, &mut line, b'2')?;
            Ok(stream.into_inner())
        })
        .collect()
}
