//! The two ends of a flow: a producer with pre-encoded messages, and a consumer that verifies every message.
//!
//! ```text
//!  Producer: batch (frames encoded once; sequence, time and checksum stamped anew) ─write─▶ server
//!  Consumer: scratch of the thread ◀─read─ server;  stride by stride: head, stamp, sequence, tail
//! ```
//! Neither of them blocks; the caller waits with epoll, or polls.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use wire::nats::stamp::{self, Stamp};

use super::wire::{Frame, Wire, is_later};
use crate::peers::PeerError;

/// Size of the read buffer that the consumers of a thread share.
pub const SCRATCH_BYTES: usize = 256 << 10;
/// Maximum length of a protocol line that a server sends between messages (an INFO).
const LINE_BYTES_MAX: usize = 16 << 10;

/// Publishing client of a flow.
#[derive(Debug)]
pub struct Producer {
    stream: TcpStream,
    frame: Frame,
    wire: Wire,
    id: u32,
    /// Frames of the messages, encoded once and stamped before each send.
    batch: Vec<u8>,
    /// Range of `batch` that is stamped and not yet sent.
    unsent: std::ops::Range<usize>,
    /// Number of stamped messages.
    pub stamped: u64,
}

impl Producer {
    /// Connects and encodes a batch of `batch_messages` messages.
    ///
    /// # Errors
    /// The errors of [`Wire::producer`].
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

    /// Returns the producer's socket, for epoll.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns whether all stamped messages are sent.
    pub fn is_idle(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Stamps up to `messages` further messages (as many as fit the batch) and sends as much as the socket
    /// accepts. The n-th message of the producer, counted from 0, is due at `intended_ns(n)`.
    ///
    /// # Errors
    /// An I/O error if the connection breaks.
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

    /// Waits until the server has processed everything that was sent, by sending a ping and reading its
    /// answer.
    ///
    /// # Errors
    /// `PeerError` if the server does not answer.
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

    /// Reads and discards what the server sends to a producer. `scratch` is a temporary buffer.
    ///
    /// # Errors
    /// `PeerError` if the server closes the connection or reports an error.
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

/// Receiving client of a flow, which verifies every message.
#[derive(Debug)]
pub struct Consumer {
    stream: TcpStream,
    frame: Frame,
    wire: Wire,
    producer: u32,
    /// Start of a frame whose remainder has not arrived yet.
    rest: Vec<u8>,
    /// Number of messages that arrived complete, in order and undamaged.
    pub received: u64,
}

impl Consumer {
    /// Connects and subscribes; the messages must come from the producer with the id `producer`.
    ///
    /// # Errors
    /// The errors of [`Wire::consumer`].
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

    /// Returns the consumer's socket, for epoll.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads once and verifies the messages, calling `arrived` with each message's stamp. Returns whether the
    /// socket had data.
    ///
    /// # Errors
    /// `PeerError` if a message is missing, damaged or out of order, or the server closes the connection.
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

    /// Returns whether the next NATS protocol line is not a message: PING, INFO or -ERR.
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
