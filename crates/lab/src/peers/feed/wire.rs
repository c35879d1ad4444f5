//! Encoding of messages in each protocol, and the handshake of a connection.
//!
//! Every frame has a head and a tail of constant length around the payload, because subject, length and
//! subscription are constant. So a consumer compares frames at a fixed stride instead of parsing them.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::peers::PeerError;

/// Time that a handshake may take.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// NATS frames without a handshake; the order of the connections tells consumers from the producer.
    Floor,
    /// The NATS protocol.
    Nats,
    /// Redis publish/subscribe over RESP2.
    Redis,
    /// MQTT 3.1.1, quality of service 0.
    Mqtt,
}

/// Encoding of a message around its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes before the payload.
    pub head: Vec<u8>,
    /// Length of the payload.
    pub payload_bytes: usize,
    /// Bytes after the payload.
    pub tail: &'static [u8],
}

impl Frame {
    /// Returns the length of a whole frame.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.payload_bytes + self.tail.len()
    }
}

impl Wire {
    /// Returns the frame that a producer sends.
    pub fn publication(self, subject: &str, payload_bytes: usize) -> Frame {
        let (head, tail): (Vec<u8>, &[u8]) = match self {
            Self::Floor | Self::Nats => (format!("PUB {subject} {payload_bytes}\r\n").into(), b"\r\n"),
            Self::Redis => (
                format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{subject}\r\n${payload_bytes}\r\n", subject.len())
                    .into(),
                b"\r\n",
            ),
            Self::Mqtt => (mqtt_publish(subject, payload_bytes), b""),
        };
        Frame { head, payload_bytes, tail }
    }

    /// Returns the frame that the consumer with this number (from 0) receives.
    pub fn delivery(self, subject: &str, payload_bytes: usize, consumer: usize) -> Frame {
        let (head, tail): (Vec<u8>, &[u8]) = match self {
            Self::Floor => (format!("MSG {subject} 1 {payload_bytes}\r\n").into(), b"\r\n"),
            Self::Nats => (format!("MSG {subject} {} {payload_bytes}\r\n", sid(consumer)).into(), b"\r\n"),
            Self::Redis => (
                format!("*3\r\n$7\r\nmessage\r\n${}\r\n{subject}\r\n${payload_bytes}\r\n", subject.len())
                    .into(),
                b"\r\n",
            ),
            Self::Mqtt => (mqtt_publish(subject, payload_bytes), b""),
        };
        Frame { head, payload_bytes, tail }
    }

    /// Returns whether the server answers each publication; the producer must read those answers, so that
    /// they do not fill the socket.
    pub fn answers_publications(self) -> bool {
        self == Self::Redis
    }

    /// Returns a ping and the end of its answer, which the server sends after it has processed everything
    /// before. A floor has no ping: the producer closes its side, and the floor closes the connection.
    pub fn question(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Self::Floor => (b"", b""),
            Self::Nats => (b"PING\r\n", b"PONG\r\n"),
            Self::Redis => (b"PING\r\n", b"+PONG\r\n"),
            Self::Mqtt => (b"\xc0\x00", b"\xd0\x00"),
        }
    }

    /// Opens a producer's connection, ready to publish.
    ///
    /// # Errors
    /// `PeerError` if the connection fails or the handshake is not as expected.
    pub fn producer(self, address: SocketAddr) -> Result<TcpStream, PeerError> {
        self.connect(address, None)
    }

    /// Opens a consumer's connection and subscribes: everything published from now on reaches it.
    ///
    /// # Errors
    /// The errors of [`Wire::producer`].
    pub fn consumer(
        self,
        address: SocketAddr,
        subject: &str,
        consumer: usize,
    ) -> Result<TcpStream, PeerError> {
        self.connect(address, Some((subject, consumer)))
    }

    fn connect(self, address: SocketAddr, subscribe: Option<(&str, usize)>) -> Result<TcpStream, PeerError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANDSHAKE_WAIT))?;
        match self {
            Self::Floor => {}
            Self::Nats => nats_handshake(&stream, subscribe)?,
            Self::Redis => {
                if let Some((subject, _)) = subscribe {
                    redis_subscribe(&stream, subject)?;
                }
            }
            Self::Mqtt => mqtt_handshake(&stream, subscribe)?,
        }
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// Returns the subscription identifier of a consumer; each consumer has its own.
fn sid(consumer: usize) -> usize {
    consumer + 1
}

fn nats_handshake(stream: &TcpStream, subscribe: Option<(&str, usize)>) -> Result<(), PeerError> {
    let mut reader = BufReader::with_capacity(4096, stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if !line.starts_with("INFO ") {
        return Err(PeerError::failed(format!("no NATS server: it said {:?}", line.trim_end())));
    }
    let mut hello = String::from(
        "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"bench\",\"version\":\"1\",\"protocol\":0}\r\n",
    );
    if let Some((subject, consumer)) = subscribe {
        hello += &format!("SUB {subject} {}\r\n", sid(consumer));
    }
    hello += "PING\r\n";
    (&*stream).write_all(hello.as_bytes())?;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.starts_with("-ERR") {
            return Err(PeerError::failed(format!("not let in: {:?}", line.trim_end())));
        }
        if line.starts_with("PONG") {
            return if reader.buffer().is_empty() {
                Ok(())
            } else {
                Err(PeerError::failed("bytes after the handshake's end"))
            };
        }
    }
}

fn redis_subscribe(stream: &TcpStream, subject: &str) -> Result<(), PeerError> {
    let command = format!("*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{subject}\r\n", subject.len());
    let answer = format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{subject}\r\n:1\r\n", subject.len());
    exchange(stream, command.as_bytes(), answer.as_bytes())
}

/// Performs the MQTT 3.1.1 handshake (sections 3.1–3.9): CONNECT with a clean session and no keep-alive,
/// SUBSCRIBE with packet identifier 1.
fn mqtt_handshake(stream: &TcpStream, subscribe: Option<(&str, usize)>) -> Result<(), PeerError> {
    exchange(stream, b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", b"\x20\x02\x00\x00")?;
    let Some((subject, _)) = subscribe else { return Ok(()) };
    let length = u8::try_from(subject.len()).map_err(|_| PeerError::failed("a long subject"))?;
    let mut packet = vec![0x82, length + 5, 0, 1, 0, length];
    packet.extend_from_slice(subject.as_bytes());
    packet.push(0);
    exchange(stream, &packet, b"\x90\x03\x00\x01\x00")
}

fn exchange(mut stream: &TcpStream, say: &[u8], expect: &[u8]) -> Result<(), PeerError> {
    stream.write_all(say)?;
    let mut answer = vec![0; expect.len()];
    stream.read_exact(&mut answer)?;
    if answer == expect {
        Ok(())
    } else {
        Err(PeerError::failed(format!("an unexpected answer: {:?}", String::from_utf8_lossy(&answer))))
    }
}

/// Encodes a PUBLISH packet up to its payload (MQTT 3.1.1, section 3.3; the length by section 2.2.3).
fn mqtt_publish(subject: &str, payload_bytes: usize) -> Vec<u8> {
    let mut head = vec![0x30];
    let mut left = 2 + subject.len() + payload_bytes;
    loop {
        let low = (left % 128) as u8;
        left /= 128;
        head.push(if left > 0 { low | 0x80 } else { low });
        if left == 0 {
            break;
        }
    }
    head.extend_from_slice(&(subject.len() as u16).to_be_bytes());
    head.extend_from_slice(subject.as_bytes());
    head
}

/// Returns whether an error of a non-blocking socket only means that the call must be repeated later.
pub fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_the_protocols_say() {
        let text = |frame: Frame| String::from_utf8_lossy(&frame.head).into_owned();
        assert_eq!(text(Wire::Nats.publication("a.b", 100)), "PUB a.b 100\r\n");
        assert_eq!(text(Wire::Nats.delivery("a.b", 100, 9)), "MSG a.b 10 100\r\n");
        assert_eq!(text(Wire::Floor.delivery("a.b", 100, 9)), "MSG a.b 1 100\r\n");
        assert_eq!(Wire::Nats.publication("a.b", 100).bytes(), 115);
        assert_eq!(Wire::Mqtt.publication("a", 100).head, b"\x30\x67\x00\x01a");
        assert_eq!(Wire::Mqtt.publication("a", 200).head, b"\x30\xcb\x01\x00\x01a");
        assert_eq!(text(Wire::Redis.delivery("a", 100, 3)), "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$100\r\n");
    }
}
