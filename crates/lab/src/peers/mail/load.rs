//! Senders of mail: Postfix's `smtp-source`, and a pipelining client.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::paired::{
    place::find,
    tree::{Cores, pinned},
};

use super::{MAIL_BYTES, SESSIONS, contenders::ServerProcess};
use crate::peers::PeerError;

/// Maximum number of unacknowledged mails per connection of the pipelining client.
const WINDOW: usize = 8;

/// Sends `mails` mails with `smtp-source`, each to its own recipient.
///
/// # Errors
/// `PeerError` if `smtp-source` is missing or fails.
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

/// Condition that ends the pipelining client's run.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// Ends after this number of mails.
    Mails(u64),
    /// Ends after this time.
    Time(Duration),
}

/// Sends as many mails as possible for the time `lasting`, to 100,000 inboxes; returns the number of mails
/// acknowledged with 250.
///
/// # Errors
/// `PeerError` if a connection breaks or a mail is refused.
pub fn pipelined(address: SocketAddr, lasting: Duration) -> Result<u64, PeerError> {
    written(address, Until::Time(lasting), &plain(100_000))
}

/// Returns a writer of mails that differ only in their number, to `inboxes` inboxes in turn.
pub fn plain(inboxes: u64) -> impl Fn(u64, &mut Vec<u8>) -> u64 + Sync {
    let body = "x".repeat(62) + "\r\n";
    let body = body.repeat(MAIL_BYTES / 64);
    move |number, mail| {
        mail.extend_from_slice(b"From: sender@bench.test\r\nSubject: mail ");
        mail.extend_from_slice(number.to_string().as_bytes());
        mail.extend_from_slice(b"\r\n\r\n");
        mail.extend_from_slice(body.as_bytes());
        number % inboxes
    }
}

/// Fills a server with `mails` mails, by the fastest method that it supports.
///
/// # Errors
/// `PeerError` if a connection breaks or a mail is refused.
pub fn fill(
    running: &ServerProcess,
    mails: u64,
    write: &(impl Fn(u64, &mut Vec<u8>) -> u64 + Sync),
) -> Result<(), PeerError> {
    if running.is_ours() {
        written(running.address, Until::Mails(mails), write).map(|_| ())
    } else {
        handed_together(running.address, mails, write)
    }
}

/// Sends mails with BDAT over several connections, each with several mails outstanding; returns the number of
/// mails acknowledged with 250. `write` appends the mail with the given number, and returns the index of its
/// inbox among `i0@bench.test`, `i1@bench.test`, ….
///
/// # Errors
/// `PeerError` if a connection breaks or a mail is refused.
pub fn written(
    address: SocketAddr,
    until: Until,
    write: &(impl Fn(u64, &mut Vec<u8>) -> u64 + Sync),
) -> Result<u64, PeerError> {
    let next = AtomicU64::new(0);
    let deadline = match until {
        Until::Time(time) => Some(Instant::now() + time),
        Until::Mails(_) => None,
    };
    let most = match until {
        Until::Mails(mails) => mails,
        Until::Time(_) => u64::MAX,
    };
    thread::scope(|scope| {
        let senders: Vec<_> =
            (0..SESSIONS).map(|_| scope.spawn(|| send(address, &next, (most, deadline), write))).collect();
        let mut sent = 0;
        for sender in senders {
            sent += sender.join().map_err(|_| PeerError::failed("a sender panicked"))??;
        }
        Ok(sent)
    })
}

/// Opens an SMTP session and sends EHLO.
fn greeted(address: SocketAddr, line: &mut Vec<u8>) -> Result<BufReader<TcpStream>, PeerError> {
    let mut stream = BufReader::with_capacity(16 << 10, TcpStream::connect(address)?);
    stream.get_ref().set_nodelay(true)?;
    expect(&mut stream, line, b'2')?;
    stream.get_mut().write_all(b"EHLO bench.test\r\n")?;
    expect(&mut stream, line, b'2')?;
    Ok(stream)
}

fn send(
    address: SocketAddr,
    next: &AtomicU64,
    (most, deadline): (u64, Option<Instant>),
    write: &impl Fn(u64, &mut Vec<u8>) -> u64,
) -> Result<u64, PeerError> {
    let mut line = Vec::new();
    let mut stream = greeted(address, &mut line)?;
    let (mut batch, mut mail, mut sent) = (Vec::new(), Vec::new(), 0);
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
            mail.clear();
            let inbox = write(number, &mut mail);
            write!(
                batch,
                "MAIL FROM:<sender@bench.test>\r\nRCPT TO:<i{inbox}@bench.test>\r\nBDAT {} LAST\r\n",
                mail.len()
            )?;
            batch.extend_from_slice(&mail);
        }
        stream.get_mut().write_all(&batch)?;
        for _ in 0..3 * count {
            expect(&mut stream, &mut line, b'2')?;
        }
        sent += count;
    }
}

/// Sends mails one after the other in one session with DATA, which every server supports.
///
/// # Errors
/// `PeerError` if a connection breaks or a mail is refused.
pub fn handed(
    address: SocketAddr,
    mails: impl IntoIterator<Item = (String, Vec<u8>)>,
) -> Result<(), PeerError> {
    let mut line = Vec::new();
    let mut stream = greeted(address, &mut line)?;
    for (to, mail) in mails {
        for command in ["MAIL FROM:<sender@bench.test>", &format!("RCPT TO:<{to}>"), "DATA"] {
            stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
            expect(&mut stream, &mut line, if command == "DATA" { b'3' } else { b'2' })?;
        }
        let mut data = String::from_utf8_lossy(&mail).replace("\r\n.", "\r\n..");
        data.push_str("\r\n.\r\n");
        stream.get_mut().write_all(data.as_bytes())?;
        expect(&mut stream, &mut line, b'2')?;
    }
    Ok(())
}

/// Sends mails with DATA in [`SESSIONS`] parallel sessions, with `write` as in [`written`].
fn handed_together(
    address: SocketAddr,
    mails: u64,
    write: &(impl Fn(u64, &mut Vec<u8>) -> u64 + Sync),
) -> Result<(), PeerError> {
    let written = |number| {
        let mut mail = Vec::new();
        let inbox = write(number, &mut mail);
        (format!("i{inbox}@bench.test"), mail)
    };
    thread::scope(|scope| {
        let senders: Vec<_> = (0..SESSIONS as u64)
            .map(|first| scope.spawn(move || handed(address, (first..mails).step_by(SESSIONS).map(written))))
            .collect();
        for sender in senders {
            sender.join().map_err(|_| PeerError::failed("a sender panicked"))??;
        }
        Ok(())
    })
}

/// Reads an SMTP reply, whose first digit must be `begin`.
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

/// Opens `connections` connections, sends EHLO on each, and leaves them idle.
///
/// # Errors
/// `PeerError` if a connection gets no greeting.
pub fn idle(address: SocketAddr, connections: usize) -> Result<Vec<TcpStream>, PeerError> {
    // Each connection uses a file descriptor of this process.
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
