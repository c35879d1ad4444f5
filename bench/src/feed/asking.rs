//! Request and reply through a server: clients with one outstanding request each, and one that answers all of
//! them.
//!
//! ```text
//!  asker n ── PUB ask.it back.n ─▶ server ── MSG ask.it 1 back.n ─▶ answerer ── PUB back.n ─▶ server ── MSG back.n ─▶ asker n
//! ```
//! A unit is an answered request: two messages through the server. Only the NATS protocol has replies.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use wire::nats::{Progress, server, server::ServerOp, write};

use lab::paired::Work;
use lab::peers::PeerError;
use lab::peers::feed::wire::{Wire, is_later};

const SUBJECT: &str = "ask.it";
/// Time after which an answer counts as lost.
const STUCK: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 128;

/// A connection with its unparsed input and unsent output.
struct End {
    stream: TcpStream,
    rest: Vec<u8>,
    unsent: Vec<u8>,
}

impl End {
    fn new(stream: TcpStream) -> Self {
        Self { stream, rest: Vec::new(), unsent: Vec::new() }
    }

    /// Reads once and calls `arrived` with an output buffer and each message's reply subject and payload;
    /// then sends the buffer.
    fn receive(&mut self, mut arrived: impl FnMut(&mut Vec<u8>, &[u8], &[u8])) -> Result<(), PeerError> {
        let kept = self.rest.len();
        self.rest.resize(kept + READ_BYTES, 0);
        let read = self.stream.read(&mut self.rest[kept..]);
        self.rest.truncate(kept + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => return Err(PeerError::failed("the server closed a connection")),
            Ok(_) => {}
            Err(error) if is_later(&error) => {}
            Err(error) => return Err(error.into()),
        }
        let mut done = 0;
        loop {
            match server::parse(&self.rest[done..]) {
                Ok(Progress::Complete(op, taken)) => {
                    match op {
                        ServerOp::Message { reply, payload, .. } => arrived(&mut self.unsent, reply, payload),
                        ServerOp::Ping => self.unsent.extend_from_slice(b"PONG\r\n"),
                        ServerOp::Error { text } => {
                            return Err(PeerError::failed(String::from_utf8_lossy(text).into_owned()));
                        }
                        _ => {}
                    }
                    done += taken;
                }
                Ok(_) => break,
                Err(error) => return Err(PeerError::failed(format!("not the protocol: {error:?}"))),
            }
        }
        self.rest.drain(..done);
        self.send()
    }

    fn send(&mut self) -> Result<(), PeerError> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Sends requests for `run` from `askers` connections, each with one outstanding request.
///
/// # Errors
/// `PeerError` if an answer is lost or belongs to another request, or the server closes a connection.
pub(crate) fn asking(
    address: SocketAddr,
    askers: usize,
    payload_bytes: usize,
    run: Duration,
) -> Result<Work, PeerError> {
    let question = |number: usize, nth: u64| {
        let mut body = format!("{number} {nth} ").into_bytes();
        body.resize(payload_bytes.max(body.len()), b'.');
        body
    };
    let mut ends = vec![End::new(Wire::Nats.consumer(address, SUBJECT, 0)?)];
    for number in 0..askers {
        ends.push(End::new(Wire::Nats.consumer(address, &format!("back.{number}"), 0)?));
    }
    let poll = epoll::create(CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
    for (n, end) in ends.iter().enumerate() {
        let data = EventData::new_u64(n as u64);
        epoll::add(&poll, &end.stream, data, EventFlags::IN).map_err(std::io::Error::from)?;
    }
    let mut answered = vec![0_u64; askers];
    let begun = Instant::now();
    for (number, end) in ends[1..].iter_mut().enumerate() {
        let reply = format!("back.{number}");
        write::publish(&mut end.unsent, SUBJECT.as_bytes(), reply.as_bytes(), &question(number, 0));
        end.send()?;
    }
    let (mut moved, mut seen, mut under_way) = (begun, 0, askers);
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut is_over = false;
    while under_way > 0 {
        events.clear();
        let wait = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        for event in &events {
            let data = event.data;
            let Some(number) = (data.u64() as usize).checked_sub(1) else {
                ends[0].receive(|out, reply, payload| write::publish(out, reply, b"", payload))?;
                continue;
            };
            let nth = &mut answered[number];
            let mut is_wrong = false;
            ends[number + 1].receive(|out, _, payload| {
                is_wrong |= payload != question(number, *nth);
                *nth += 1;
                if is_over {
                    under_way -= 1;
                } else {
                    let reply = format!("back.{number}");
                    write::publish(out, SUBJECT.as_bytes(), reply.as_bytes(), &question(number, *nth));
                }
            })?;
            if is_wrong {
                return Err(PeerError::failed(format!("asker {number} got an answer that is not his")));
            }
        }
        let (now, all) = (Instant::now(), answered.iter().sum());
        is_over = is_over || now.duration_since(begun) >= run;
        if all != seen {
            (seen, moved) = (all, now);
        } else if now.duration_since(moved) > STUCK {
            return Err(PeerError::failed(format!("no answer for {} s", STUCK.as_secs())));
        }
    }
    Ok(Work { units: seen, wall_s: Some(begun.elapsed().as_secs_f64()), ..Work::default() })
}
