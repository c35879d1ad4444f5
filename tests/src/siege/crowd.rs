//! A crowd of connections in one thread, without blocking on any of them.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::Until;
use crate::connections::connect_from;

/// Pause between two rounds over the crowd.
const PAUSE: Duration = Duration::from_millis(10);
/// Time that an attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_millis(100);
/// Most connections that are opened in a round, so that refusals do not cause a storm of attempts.
const CONNECTS_A_ROUND: usize = 32;

/// Results of a crowd.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Connections that were opened.
    pub opened: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Connections that the server ended.
    pub ended: u64,
    /// Bytes that the server accepted.
    pub bytes: u64,
    /// Sum of the lifetimes of connections that the server ended, in milliseconds.
    pub lived_ms: u64,
    /// Longest of these lifetimes, in milliseconds.
    pub longest_ms: u64,
}

/// One connection of a crowd.
#[derive(Debug)]
pub struct Member {
    stream: TcpStream,
    /// Number in the crowd, from 0.
    pub number: usize,
    /// Rounds since the connection was opened.
    pub age: u64,
    since: Instant,
    /// Offset in the bytes that are sent repeatedly.
    at: usize,
    written: u64,
}

impl Member {
    /// Writes `bytes` over and over, from where it stopped, as much as the socket takes.
    ///
    /// # Errors
    /// The kernel's error when the connection has ended.
    pub fn pump(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Enough to fill every buffer on the way, and few enough that the other members get their round.
        for _ in 0..16 {
            match self.stream.write(&bytes[self.at..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.written += written as u64;
                    self.at = (self.at + written) % bytes.len();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes `first` once, and then `again` over and over.
    ///
    /// # Errors
    /// See [`Self::pump`].
    pub fn pump_behind(&mut self, first: &[u8], again: &[u8]) -> io::Result<()> {
        self.finish(first)?;
        if self.written >= first.len() as u64 { self.pump(again) } else { Ok(()) }
    }

    /// Writes one byte of `bytes`, the next in each call.
    ///
    /// # Errors
    /// See [`Self::pump`].
    pub fn drip(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.stream.write(&bytes[self.at..=self.at]) {
            Ok(written) => {
                self.written += written as u64;
                self.at = (self.at + written) % bytes.len();
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes the rest of `bytes`, and nothing after it.
    ///
    /// # Errors
    /// See [`Self::pump`].
    pub fn finish(&mut self, bytes: &[u8]) -> io::Result<()> {
        while self.written < bytes.len() as u64 {
            match self.stream.write(&bytes[self.written as usize..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` once in every `rounds` rounds.
    ///
    /// # Errors
    /// See [`Self::pump`].
    pub fn pump_once_each(&mut self, bytes: &[u8], rounds: u64) -> io::Result<()> {
        let due = (self.age / rounds + 1) * bytes.len() as u64;
        while self.written < due {
            match self.stream.write(&bytes[self.at..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.written += written as u64;
                    self.at = (self.at + written) % bytes.len();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads at most `most` bytes and drops them.
    ///
    /// # Errors
    /// The kernel's error, or `UnexpectedEof` at the connection's end.
    pub fn sip(&mut self, most: usize) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let mut left = most;
        while left > 0 {
            let room = left.min(buffer.len());
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => left -= read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Holds `count` connections until the end, and calls `what` for each in every round; a connection that ended
/// is opened again.
pub fn hold(
    address: SocketAddr,
    count: usize,
    until: &Until,
    what: impl FnMut(&mut Member) -> io::Result<()>,
) -> Tally {
    hold_by(|_| TcpStream::connect_timeout(&address, CONNECT_WITHIN), count, until, what)
}

/// Holds connections like [`hold`], from `addresses` addresses of this machine in turn.
pub fn hold_from_many(
    address: SocketAddr,
    addresses: u8,
    count: usize,
    until: &Until,
    what: impl FnMut(&mut Member) -> io::Result<()>,
) -> Tally {
    let connect = |number: usize| {
        let last = u8::try_from(number % usize::from(addresses)).expect("below a byte");
        connect_from([127, 0, 1, last + 1], address)
    };
    hold_by(connect, count, until, what)
}

fn hold_by(
    connect: impl Fn(usize) -> io::Result<TcpStream>,
    count: usize,
    until: &Until,
    mut what: impl FnMut(&mut Member) -> io::Result<()>,
) -> Tally {
    let mut tally = Tally::default();
    let mut crowd: Vec<Option<Member>> = (0..count).map(|_| None).collect();
    while !until.is_over() {
        let mut connects = 0;
        for (number, place) in crowd.iter_mut().enumerate() {
            let member = match place {
                Some(member) => member,
                None if connects == CONNECTS_A_ROUND || until.is_over() => continue,
                None => {
                    connects += 1;
                    let Ok(stream) = connect(number) else {
                        tally.refused += 1;
                        continue;
                    };
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    tally.opened += 1;
                    place.insert(Member { stream, number, age: 0, since: Instant::now(), at: 0, written: 0 })
                }
            };
            let written = member.written;
            let done = what(member);
            tally.bytes += member.written - written;
            member.age += 1;
            if done.is_err() {
                let lived_ms = u64::try_from(member.since.elapsed().as_millis()).unwrap_or(u64::MAX);
                tally.ended += 1;
                tally.lived_ms += lived_ms;
                tally.longest_ms = tally.longest_ms.max(lived_ms);
                *place = None;
            }
        }
        thread::sleep(PAUSE);
    }
    tally
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn pumped_bytes_arrive_in_order_despite_short_writes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let reader = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut got = vec![0; 1 << 20];
            stream.read_exact(&mut got).expect("bytes");
            got
        });
        let pattern: Vec<u8> = (0..=250).collect();
        let until = Until::after(crate::PATIENCE);
        let tally = hold(address, 1, &until, |member| {
            if reader.is_finished() {
                until.stop();
            }
            member.pump(&pattern)
        });
        let got = reader.join().expect("no panic");
        assert!(got.iter().zip(pattern.iter().cycle()).all(|(got, sent)| got == sent));
        assert!(tally.bytes >= 1 << 20 && tally.opened >= 1);
    }
}
