//! A round trip of one byte over loopback TCP: the loop itself, with three methods of waiting.
//!
//! ```text
//!  client thread                         server thread
//!  due? send ──────────▶ kernel ───────▶ receive
//!  receive ◀──────────── kernel ◀─────── send back
//! ```
//! One message is under way at a time. A message that becomes due in the meantime waits, and its wait counts
//! as latency. Each thread is pinned to its core.

use std::{
    io,
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll,
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use serde::Serialize;

use crate::{
    latency::Latencies,
    load::{Arrivals, Schedule},
    placement::restrict,
};

/// Method by which a thread waits for its byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// The thread polls the socket.
    Busy,
    /// The kernel wakes it through epoll.
    Epoll,
    /// The read itself blocks.
    Block,
}

impl Wait {
    /// Returns the method in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Busy => "busy-polled",
            Self::Epoll => "epoll",
            Self::Block => "blocking",
        }
    }
}

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Waiting method of both sides.
    pub wait: Wait,
    /// Messages per second; `None` sends each message as soon as the previous one is back.
    pub rate: Option<f64>,
    /// Time during which messages become due.
    pub duration: Duration,
    /// Cores of server and client.
    pub cores: (usize, usize),
}

/// Result of a run.
#[derive(Debug, Clone)]
pub struct Round {
    /// Both latencies of each message. A message that was due but never sent has only the latency from its
    /// due time: the wait until the run was given up.
    pub latencies: Latencies,
    /// Messages per second that came back.
    pub achieved: f64,
    /// Number of messages that were due and not sent when the run was given up.
    pub unsent: u64,
}

/// Multiple of its planned duration after which a run that does not keep up is given up.
const PATIENCE: u32 = 3;
/// Number of messages before the first that is recorded.
const WARM_UP: usize = 2_000;

struct Peer {
    socket: TcpStream,
    wait: Wait,
    epoll: Option<OwnedFd>,
}

impl Peer {
    fn new(socket: TcpStream, wait: Wait) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(wait != Wait::Block)?;
        let epoll = if wait == Wait::Epoll {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&epoll, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            Some(epoll)
        } else {
            None
        };
        Ok(Self { socket, wait, epoll })
    }

    fn send(&self) -> io::Result<()> {
        send(self.socket.as_fd(), b"x", SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for the byte; returns false at the end of the connection.
    fn receive(&self) -> io::Result<bool> {
        let mut byte = [0_u8; 1];
        loop {
            if let Some(epoll) = &self.epoll {
                let mut one = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 1];
                match epoll::wait(epoll, &mut one, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            match recv(self.socket.as_fd(), &mut byte, RecvFlags::empty()) {
                Ok((0, _)) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN | Errno::INTR) if self.wait != Wait::Block => {}
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn serve(listener: &TcpListener, run: Run) -> io::Result<()> {
    restrict(&[run.cores.0])?;
    let peer = Peer::new(listener.accept()?.0, run.wait)?;
    while peer.receive()? {
        peer.send()?;
    }
    Ok(())
}

/// Runs server and client, each on a thread of its own.
///
/// # Errors
/// Returns the system's error.
pub fn round(run: Run) -> io::Result<Round> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let failed = |_| io::Error::other("a thread of the measurement panicked");
    thread::scope(|scope| {
        let server = scope.spawn(move || serve(&listener, run));
        let client = scope.spawn(move || {
            restrict(&[run.cores.1])?;
            let peer = Peer::new(TcpStream::connect(address)?, run.wait)?;
            let round = ask(&peer, run);
            // The server ends with the connection.
            drop(peer);
            round
        });
        let round = client.join().map_err(failed)?;
        server.join().map_err(failed)??;
        round
    })
}

fn ask(peer: &Peer, run: Run) -> io::Result<Round> {
    for _ in 0..WARM_UP {
        peer.send()?;
        peer.receive()?;
    }
    let clock = Instant::now();
    let now = || clock.elapsed().as_nanos() as u64;
    let start = now() + 1_000;
    let end = start + run.duration.as_nanos() as u64;
    let given_up = start + (run.duration * PATIENCE).as_nanos() as u64;
    let mut schedule = Schedule::new(Arrivals::Constant, run.rate.unwrap_or(1.0), start, 0);
    let mut latencies = Latencies::new();
    let mut answered_ns = start;
    loop {
        let mut sent_ns = now();
        let due_ns = if run.rate.is_some() { schedule.due_ns() } else { sent_ns };
        if due_ns >= end || sent_ns >= given_up {
            break;
        }
        while sent_ns < due_ns {
            sent_ns = now();
        }
        peer.send()?;
        peer.receive()?;
        answered_ns = now();
        latencies.record(due_ns, sent_ns, answered_ns);
        schedule.advance();
    }
    let achieved = latencies.count() as f64 * 1e9 / (answered_ns - start).max(1) as f64;
    let mut unsent = 0;
    while run.rate.is_some() && schedule.due_ns() < end {
        latencies.record_unsent(schedule.due_ns(), answered_ns);
        unsent += 1;
        schedule.advance();
    }
    Ok(Round { latencies, achieved, unsent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{latency::LatencyOrigin, placement::allowed};

    #[test]
    fn each_kind_brings_every_message_back() {
        let cores = allowed().unwrap();
        let cores = (cores[0], cores[cores.len() - 1]);
        for wait in [Wait::Busy, Wait::Epoll, Wait::Block] {
            // Two polling threads on one core only make each other wait.
            if wait == Wait::Busy && cores.0 == cores.1 {
                continue;
            }
            let run = Run { wait, rate: Some(500.0), duration: Duration::from_millis(100), cores };
            let round = round(run).unwrap();
            assert_eq!(round.latencies.count(), 50, "{wait:?}");
            assert!(
                round.latencies.quantile(LatencyOrigin::Due, 0.5)
                    >= round.latencies.quantile(LatencyOrigin::Sent, 0.5)
            );
        }
    }

    #[test]
    fn unsent_requests_count_with_their_waiting_time() {
        let core = allowed().unwrap()[0];
        let duration = Duration::from_millis(5);
        let run = Run { wait: Wait::Block, rate: Some(5e7), duration, cores: (core, core) };
        let round = round(run).unwrap();
        assert_eq!(round.latencies.count(), 250_000);
        assert!(round.unsent > 100_000, "{}", round.unsent);
        assert!(
            round.latencies.quantile(LatencyOrigin::Due, 0.5)
                > 10 * round.latencies.quantile(LatencyOrigin::Sent, 0.1)
        );
    }
}
