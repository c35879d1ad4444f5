//! Honest clients: they measure how long they wait, and check that acknowledged messages and mails are there.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::{
    Target, Until, origin,
    server::{connect_as_guest, get},
};
use crate::mail::Smtp;

/// Pause between two requests or messages.
const PAUSE: Duration = Duration::from_millis(10);
/// Pause between two mails.
const PAUSE_OF_MAILS: Duration = Duration::from_secs(1);
/// Longest wait of a client; after it, the client gives up and counts a failure.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of mails per inbox: fewer than a list shows.
const MAILS_AN_INBOX: usize = 50;

/// Results of one kind of client.
#[derive(Debug, Default)]
pub struct Met {
    /// Waits in µs, sorted.
    pub waits_us: Vec<u64>,
    /// Attempts that ended in an error.
    pub failed: u64,
    /// Messages or mails that had been acknowledged and were missing afterwards.
    pub lost: u64,
}

impl Met {
    /// Returns the wait that this share of all waits did not exceed, in µs.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> u64 {
        let last = self.waits_us.len().saturating_sub(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index in the list")]
        let at = (last as f64 * share).round() as usize;
        self.waits_us.get(at).copied().unwrap_or(0)
    }

    fn noted(mut self) -> Self {
        self.waits_us.sort_unstable();
        self
    }
}

/// Kinds of honest clients.
pub const KINDS: [&str; 6] = ["pages", "passes", "messages", "flow", "mails", "echoes"];

/// Runs all kinds of clients until the end: stored pages and passed ones, messages and mails, as far as the
/// target has the part. Echoes of a server of our own that no attacker knows show how long a request and its
/// answer wait for the processors meanwhile.
///
/// # Panics
/// If a client panics.
#[must_use]
pub fn run(target: &Target, until: &Until) -> [(&'static str, Met); KINDS.len()] {
    let Target { cache, feed, smtp, pages: inboxes, .. } = *target;
    thread::scope(|scope| {
        let echoes = Some(scope.spawn(|| echoes(until)));
        let stored =
            cache.map(|cache| scope.spawn(move || pages(cache, "/about", &cache.to_string(), until)));
        let passes = cache.map(|cache| scope.spawn(move || pages(cache, "/page", origin::HOST, until)));
        let messages = feed.map(|feed| scope.spawn(move || messages(feed, &SMALL, until)));
        let flow = feed.map(|feed| scope.spawn(move || self::messages(feed, &FLOW, until)));
        let mails = smtp.map(|smtp| scope.spawn(move || mails(smtp, inboxes, until)));
        let mut clients = [stored, passes, messages, flow, mails, echoes].into_iter();
        KINDS.map(|kind| {
            let client = clients.next().flatten();
            (kind, client.map(|client| client.join().expect("no panic").noted()).unwrap_or_default())
        })
    })
}

fn micros(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Measures the least that can answer: a thread of ours that reads a byte and writes it back.
fn echoes(until: &Until) -> Met {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("the client below");
            let mut byte = [0];
            // Ends when the client has gone.
            while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
        });
        let mut met = Met::default();
        let mut stream = TcpStream::connect(address).expect("the server above");
        while !until.is_over() {
            let start = Instant::now();
            match stream.write_all(b"?").and_then(|()| stream.read_exact(&mut [0])) {
                Ok(()) => met.waits_us.push(micros(start)),
                Err(_) => met.failed += 1,
            }
            thread::sleep(PAUSE);
        }
        met
    })
}

/// Requests one page over and over, on one connection for as long as it stays open.
fn pages(address: SocketAddr, path: &str, host: &str, until: &Until) -> Met {
    let mut met = Met::default();
    let mut connection: Option<BufReader<TcpStream>> = None;
    while !until.is_over() {
        let start = Instant::now();
        match page(&mut connection, address, path, host) {
            Ok(()) => met.waits_us.push(micros(start)),
            Err(_) => {
                met.failed += 1;
                connection = None;
            }
        }
        thread::sleep(PAUSE);
    }
    met
}

fn page(
    connection: &mut Option<BufReader<TcpStream>>,
    address: SocketAddr,
    path: &str,
    host: &str,
) -> io::Result<()> {
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let stream = connect_as_guest(address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            connection.insert(BufReader::new(stream))
        }
    };
    write!(stream.get_mut(), "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
    let (mut length, mut line, mut is_ok) = (None, String::new(), false);
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        is_ok |= line.starts_with("HTTP/1.1 200");
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().ok();
        }
        if line == "\r\n" {
            break;
        }
    }
    let length: u64 = length.filter(|_| is_ok).ok_or(io::ErrorKind::InvalidData)?;
    if io::copy(&mut stream.by_ref().take(length), &mut io::sink())? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Messages of one producer and one consumer.
struct Messages {
    subject: &'static str,
    bytes: usize,
    /// Time between the moments at which two messages are due.
    every: Duration,
}

const SMALL: Messages = Messages { subject: "honest.siege", bytes: 64, every: PAUSE };
/// Messages of 8 MB a second, enough to fill the backlog of a consumer that reads nothing.
const FLOW: Messages =
    Messages { subject: "honest.flow", bytes: 100 * 1024, every: Duration::from_micros(12_500) };

/// Runs a producer and a consumer; each message carries its number and the time at which it was due. None may
/// be missing while both are connected. A late message delays the next ones, and their wait counts from when
/// they were due.
fn messages(address: SocketAddr, of: &Messages, until: &Until) -> Met {
    let mut met = Met::default();
    let begun = Instant::now();
    let connect = || -> io::Result<BufReader<TcpStream>> {
        let stream = connect_as_guest(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(BufReader::with_capacity(64 << 10, stream))
    };
    let Messages { subject, bytes, every } = *of;
    let mut message_bytes = Vec::with_capacity(bytes + 256);
    'connected: while !until.is_over() {
        let (Ok(mut consumer), Ok(mut producer)) = (connect(), connect()) else {
            met.failed += 1;
            thread::sleep(PAUSE);
            continue;
        };
        let greeting = b"CONNECT {\"verbose\":false}\r\n";
        let subscribe = format!("CONNECT {{\"verbose\":false}}\r\nSUB {subject} 1\r\nPING\r\n");
        if consumer.get_mut().write_all(subscribe.as_bytes()).and_then(|()| pong(&mut consumer)).is_err()
            || producer.get_mut().write_all(greeting).is_err()
        {
            met.failed += 1;
            continue;
        }
        let mut expected = 0_u64;
        let mut due = Instant::now();
        while !until.is_over() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let head = format!("{expected} {} ", due.duration_since(begun).as_micros());
            message_bytes.clear();
            message_bytes.extend_from_slice(format!("PUB {subject} {bytes}\r\n{head}").as_bytes());
            message_bytes.resize(message_bytes.len() + bytes - head.len(), b'.');
            message_bytes.extend_from_slice(b"\r\n");
            let sent = producer.get_mut().write_all(&message_bytes);
            let (Ok(()), Ok(heard)) = (sent, message(&mut consumer)) else {
                met.failed += 1;
                continue 'connected;
            };
            let mut numbers = heard.split(' ').filter_map(|number| number.parse::<u64>().ok());
            let (Some(number), Some(at)) = (numbers.next(), numbers.next()) else {
                met.failed += 1;
                continue 'connected;
            };
            met.lost += number - expected;
            met.waits_us.push(micros(begun).saturating_sub(at));
            expected = number + 1;
            due += every;
        }
    }
    met
}

fn pong(stream: &mut BufReader<TcpStream>) -> io::Result<()> {
    let mut line = String::new();
    while line != "PONG\r\n" {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Reads the next message's payload, and answers the server's pings on the way.
fn message(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.starts_with("PING") {
            stream.get_mut().write_all(b"PONG\r\n")?;
        } else if line.starts_with("MSG ") {
            line.clear();
            stream.read_line(&mut line)?;
            return Ok(line.trim_end().to_owned());
        }
    }
}

/// Sends a mail a second. At the end, each mail that got a 250 must be in its inbox, if there is a web server
/// to check.
fn mails(smtp: SocketAddr, pages: Option<SocketAddr>, until: &Until) -> Met {
    let mut met = Met::default();
    let mut promised = Vec::new();
    for number in 0.. {
        if until.is_over() {
            break;
        }
        let start = Instant::now();
        match mail(smtp, number) {
            Ok(true) => {
                met.waits_us.push(micros(start));
                promised.push(number);
            }
            Ok(false) | Err(_) => met.failed += 1,
        }
        thread::sleep(PAUSE_OF_MAILS);
    }
    let Some(pages) = pages else { return met };
    for inbox in promised.iter().map(|number| number / MAILS_AN_INBOX).collect::<BTreeSet<_>>() {
        // The attackers are leaving; a web server that has no room for us yet will have it soon.
        let path = format!("/inbox/honest{inbox}@night.test/api/v1/messages?limit=99");
        let list = (0..30).find_map(|_| {
            let answer = get(pages, &path).ok().filter(|answer| answer.starts_with("HTTP/1.1 200"));
            if answer.is_none() {
                thread::sleep(Duration::from_secs(1));
            }
            answer
        });
        let list = list.unwrap_or_default();
        let of_inbox = promised.iter().filter(|number| *number / MAILS_AN_INBOX == inbox);
        met.lost +=
            of_inbox.filter(|number| !list.contains(&format!("\"honest mail {number}.\""))).count() as u64;
    }
    met
}

/// Sends a mail, and returns whether it was accepted.
fn mail(smtp: SocketAddr, number: usize) -> io::Result<bool> {
    let recipient = format!("honest{}@night.test", number / MAILS_AN_INBOX);
    let data = format!("Subject: honest mail {number}.\r\n\r\nsee you at nine");
    Smtp::over(connect_as_guest(smtp)?)?.mail(&recipient, &data)
}
