//! `nats://`: publishes messages to a subject of its own and receives them back.

use wire::nats::{
    Progress,
    server::{self, ServerOp},
    write,
};

use super::{Client, InvalidReply};

/// Maximum size in bytes of an incomplete operation from the server.
const PARTIAL_BYTES_MAX: usize = 2 << 20;
/// Maximum number of messages under way on a connection.
const DEPTH: usize = 64 << 10;

/// Client that publishes to a subject to which only it is subscribed; each message that comes back is an
/// answer.
#[derive(Debug)]
pub(in super::super) struct Nats {
    subject: Vec<u8>,
    payload: Vec<u8>,
    state: State,
    waiting: usize,
    partial: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for the server's INFO.
    Greeting,
    /// Has sent CONNECT, SUB and PING, and waits for PONG.
    Connecting,
    Ready,
}

impl Nats {
    /// Creates a client with messages of `bytes` bytes; no other connection may use `subject`.
    pub(in super::super) fn new(subject: &str, bytes: usize) -> Self {
        Self {
            subject: subject.as_bytes().to_vec(),
            payload: vec![b'n'; bytes],
            state: State::Greeting,
            waiting: 0,
            partial: Vec::new(),
        }
    }

    /// Handles complete operations from the start of `bytes`; returns their number of bytes, and the number
    /// of answers.
    fn operations(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, usize), InvalidReply> {
        let (mut done, mut answers) = (0, 0);
        while done < bytes.len() {
            let (operation, length) = match server::parse(&bytes[done..]) {
                Ok(Progress::Complete(operation, length)) => (operation, length),
                Ok(Progress::NeedMore(_)) => break,
                Err(fault) => return Err(InvalidReply(format!("not a NATS server: {fault}"))),
            };
            done += length;
            match operation {
                ServerOp::Info { .. } if self.state == State::Greeting => {
                    write::connect(
                        out,
                        br#"{"verbose":false,"pedantic":false,"lang":"nighttrain-lab","version":"1"}"#,
                    );
                    write::subscribe(out, &self.subject, b"", b"1");
                    out.extend_from_slice(b"PING\r\n");
                    self.state = State::Connecting;
                }
                ServerOp::Ping => out.extend_from_slice(b"PONG\r\n"),
                ServerOp::Pong => self.state = State::Ready,
                ServerOp::Message { .. } if self.waiting > 0 => {
                    self.waiting -= 1;
                    answers += 1;
                }
                ServerOp::Message { .. } => return Err(InvalidReply("a message that nobody sent".into())),
                ServerOp::Error { text } => {
                    return Err(InvalidReply(format!("the server says {}", String::from_utf8_lossy(text))));
                }
                _ => {}
            }
        }
        Ok((done, answers))
    }
}

impl Client for Nats {
    fn request(&mut self, out: &mut Vec<u8>) {
        write::publish(out, &self.subject, b"", &self.payload);
        self.waiting += 1;
    }

    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, InvalidReply> {
        if self.partial.is_empty() {
            let (done, answers) = self.operations(bytes, out)?;
            self.partial.extend_from_slice(&bytes[done..]);
            return Ok(answers);
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let (done, answers) = self.operations(&all, out)?;
        all.drain(..done);
        if all.len() > PARTIAL_BYTES_MAX {
            return Err(InvalidReply("a message without an end".into()));
        }
        self.partial = all;
        Ok(answers)
    }

    fn closed(&mut self) -> Result<usize, InvalidReply> {
        match (self.state, self.waiting) {
            (State::Ready, 0) => Ok(0),
            (State::Ready, waiting) => {
                Err(InvalidReply(format!("the server closed the connection and owes {waiting} messages")))
            }
            _ => Err(InvalidReply("the server closed the connection before it was ready".into())),
        }
    }

    fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn refusals(&self) -> (u64, Option<&str>) {
        (0, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALOGUE: &[u8] =
        b"INFO {\"server_id\":\"x\"} \r\nPING\r\nPONG\r\nMSG lab.1 1 3\r\nnnn\r\nMSG lab.1 1 3\r\nnnn\r\n";

    #[test]
    fn echoed_messages_count_at_any_split() {
        for cut in 0..=DIALOGUE.len() {
            let mut nats = Nats::new("lab.1", 3);
            let mut out = Vec::new();
            // Two requests are under way before anything arrives. A generator would wait; the count is the
            // same.
            nats.request(&mut out);
            nats.request(&mut out);
            let (first, second) = DIALOGUE.split_at(cut);
            let answers = nats.received(first, &mut out).unwrap() + nats.received(second, &mut out).unwrap();
            assert_eq!(answers, 2, "cut at {cut}");
            assert!(nats.is_ready() && nats.closed() == Ok(0));
            let said = String::from_utf8(out).unwrap();
            assert!(said.contains("SUB lab.1") && said.contains("PONG\r\n"), "{said}");
        }
    }

    #[test]
    fn errors_strangers_and_debts_are_named() {
        let mut nats = Nats::new("lab.1", 3);
        let wrong = |nats: &mut Nats, bytes: &[u8]| nats.received(bytes, &mut Vec::new()).unwrap_err().0;
        assert!(wrong(&mut nats, b"-ERR 'Authorization Violation'\r\n").contains("Authorization Violation"));
        assert!(wrong(&mut Nats::new("a", 1), b"MSG a 1 1\r\nx\r\n").contains("nobody sent"));
        assert!(wrong(&mut Nats::new("a", 1), b"HTTP/1.1 400 Bad Request\r\n").contains("not a NATS server"));
        assert!(nats.closed().is_err());
    }
}
