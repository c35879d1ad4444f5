//! The two ends of a flow: a producer with its messages encoded ahead, a consumer that verifies every one.
//!
//! ```text
//!  Producer: batch (frames encoded once; sequence, time and checksum stamped anew) ─write─▶ server
//!  Consumer: scratch of the thread ◀─read─ server;  stride by stride: head, stamp, sequence, tail
//! ```
//! Neither blocks; a caller waits by epoll or not at all.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use wire::nats::stamp::{self, Stamp};

use super::wire::{Frame, Wire, is_later};
use crate::peers::PeerError;

/// What a consumer reads into at once; one a thread.
pub const SCRATCH_BYTES: usize = 256 << 10;
/// The longest line that a server says between messages (an INFO).
const LINE_BYTES_MAX: usize = 16 << 10;

/// Sends.
#[derive(Debug)]
pub struct Producer {
    stream: TcpStream,
    frame: Frame,
    wire: Wire,
    id: u32,
    /// Frames, encoded once.
    batch: Vec<u8>,
    /// What of `batch` is stamped and not yet sent.
    unsent: std::ops::Range<usize>,
    /// Messages stamped.
    pub stamped: u64,
}

impl Producer {
    /// Connects, with a batch of so many messages encoded ahead.
    ///
    /// # Errors
    /// As [`Wire::producer`].
    pub fn connect(
        wire: Wire,
        address: SocketAddr,
        subject: &str,
        payload_bytes: usize,
        id: u32,
        batch_messages: usize,
    ) -> Result<Self, PeerError> {
        let frame = wire.publication(subject, payload_bytes);
        let mut batch = Vec::with_capacity(frame.bytes() * batch_messages);
        for _ in 0..batch_messages {
            batch.extend_from_slice(&frame.head);
            batch.resize(batch.len() + payload_bytes, b'.');
            batch.extend_from_slice(frame.tail);
        }
        let stream = wire.producer(address)?;
        Ok(Self { stream, frame, wire, id, batch, unsent: 0..0, stamped: 0 })
    }

    /// Its socket, to wait on.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether all that was stamped has left.
    pub fn is_idle(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Stamps up to `messages` further ones (as many as fit the batch) and sends what the socket takes. The n-th of
    /// them (from 0) is intended for `intended_ns(n)`.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, messages: u64, intended_ns: impl Fn(u64) -> u64) -> Result<(), PeerError> {
        if self.is_idle() {
            let stride = self.frame.bytes();
            let messages = messages.min((self.batch.len() / stride) as u64);
            let body = self.frame.head.len()..self.frame.head.len() + self.frame.payload_bytes;
            for (n, frame) in (0..messages).zip(self.batch.chunks_exact_mut(stride)) {
                let stamp = Stamp {
                    producer: self.id,
                    sequence: self.stamped + n,
                    intended_ns: intended_ns(self.stamped + n),
                };
                stamp::stamp(&mut frame[body.clone()], stamp);
            }
            self.stamped += messages;
            self.unsent = 0..messages as usize * stride;
        }
        if self.unsent.is_empty() {
            return Ok(());
        }
        match self.stream.write(&self.batch[self.unsent.clone()]) {
            Ok(sent) => self.unsent.start += sent,
            Err(error) if is_later(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Waits until the server has dealt with all that was sent: it answers a question that comes behind it.
    ///
    /// # Errors
    /// It did not answer.
    pub fn wait_until_taken(&mut self, scratch: &mut [u8]) -> Result<(), PeerError> {
        let (question, answer) = self.wire.question();
        self.stream.set_nonblocking(false)?;
        self.stream.write_all(question)?;
        if question.is_empty() {
            self.stream.shutdown(Shutdown::Write)?;
        }
        let mut end: Vec<u8> = Vec::new();
        loop {
            let bytes = self.stream.read(scratch)?;
            if bytes == 0 {
                let is_expected = answer.is_empty();
                return if is_expected {
                    Ok(())
                } else {
                    Err(PeerError::failed("closed instead of answering"))
                };
            }
            end.extend_from_slice(&scratch[bytes.saturating_sub(answer.len())..bytes]);
            if !answer.is_empty() && end.ends_with(answer) {
                return Ok(());
            }
            end.drain(..end.len().saturating_sub(answer.len()));
        }
    }

    /// Reads away what the server says to a producer. `scratch` is for the moment.
    ///
    /// # Errors
    /// The server closed, or complained.
    pub fn hear(&mut self, scratch: &mut [u8]) -> Result<(), PeerError> {
        match self.stream.read(scratch) {
            Ok(0) => Err(PeerError::failed("the server closed the producer's connection")),
            Ok(bytes) => {
                let said = &scratch[..bytes];
                if self.wire.answers_publications() {
                    return Ok(());
                }
                if said.starts_with(b"-ERR") {
                    let text = String::from_utf8_lossy(said);
                    return Err(PeerError::failed(format!("the producer was told {:?}", text.trim_end())));
                }
                if self.wire == Wire::Nats && said.windows(6).any(|six| six == b"PING\r\n") && self.is_idle()
                {
                    self.stream.write_all(b"PONG\r\n")?;
                }
                Ok(())
            }
            Err(error) if is_later(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Receives and verifies.
#[derive(Debug)]
pub struct Consumer {
    stream: TcpStream,
    frame: Frame,
    wire: Wire,
    producer: u32,
    /// The beginning of a frame whose end has not arrived.
    rest: Vec<u8>,
    /// Messages that arrived whole, in order and undamaged.
    pub received: u64,
}

impl Consumer {
    /// Connects and subscribes; messages of `producer` are expected.
    ///
    /// # Errors
    /// As [`Wire::consumer`].
    pub fn connect(
        wire: Wire,
        address: SocketAddr,
        subject: &str,
        payload_bytes: usize,
        number: usize,
        producer: u32,
    ) -> Result<Self, PeerError> {
        let stream = wire.consumer(address, subject, number)?;
        let frame = wire.delivery(subject, payload_bytes, number);
        Ok(Self { stream, frame, wire, producer, rest: Vec::with_capacity(LINE_BYTES_MAX), received: 0 })
    }

    /// Its socket, to wait on.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads once and verifies; `arrived` is handed each message's stamp. Whether anything was there.
    ///
    /// # Errors
    /// A message is missing, damaged or out of order, or the server closed.
    pub fn receive(&mut self, scratch: &mut [u8], mut arrived: impl FnMut(Stamp)) -> Result<bool, PeerError> {
        let kept = self.rest.len();
        scratch[..kept].copy_from_slice(&self.rest);
        let bytes = match self.stream.read(&mut scratch[kept..]) {
            Ok(0) => return Err(PeerError::failed("the server closed a consumer's connection")),
            Ok(bytes) => bytes,
            Err(error) if is_later(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut left = &scratch[..kept + bytes];
        let (head, stride) = (self.frame.head.len(), self.frame.bytes());
        loop {
            if left.len() >= stride && left.starts_with(&self.frame.head) {
                let (frame, after) = left.split_at(stride);
                let (payload, tail) = frame[head..].split_at(self.frame.payload_bytes);
                let stamp = stamp::verify(payload).map_err(|damage| self.wrong(&damage.to_string()))?;
                if tail != self.frame.tail {
                    return Err(self.wrong("its end is not where it should be"));
                }
                if stamp.producer != self.producer || stamp.sequence != self.received {
                    let said = format!("{} of producer {} came", stamp.sequence, stamp.producer);
                    return Err(self.wrong(&said));
                }
                self.received += 1;
                arrived(stamp);
                left = after;
            } else if self.is_line(left) {
                let Some(end) = left.iter().position(|&byte| byte == b'\n') else { break };
                self.hear(&left[..end])?;
                left = &left[end + 1..];
            } else {
                break;
            }
        }
        if left.len() > LINE_BYTES_MAX.max(stride) {
            return Err(self.wrong("what came is no message"));
        }
        self.rest.clear();
        self.rest.extend_from_slice(left);
        Ok(true)
    }

    /// NATS says other things than messages: PING, INFO, -ERR.
    fn is_line(&self, bytes: &[u8]) -> bool {
        self.wire == Wire::Nats && bytes.first().is_some_and(|&first| first != b'M')
    }

    fn hear(&mut self, line: &[u8]) -> Result<(), PeerError> {
        if line.starts_with(b"PING") {
            self.stream.write_all(b"PONG\r\n")?;
        } else if line.starts_with(b"-ERR") {
            return Err(self.wrong(&String::from_utf8_lossy(line)));
        }
        Ok(())
    }

    fn wrong(&self, what: &str) -> PeerError {
        PeerError::failed(format!("message {}: {what}", self.received))
    }
}
