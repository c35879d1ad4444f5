//! Test client with scripted frames, and the server side of its connection.

use crate::fuzz_seeds::http2_connection::told;
use wire::http2::{
    Progress,
    connection::{Connection, ConnectionError, ConnectionFault, Limits},
    error::ErrorCode,
    frame::{self, Frame, PREFACE, Setting},
    hpack::{self, FieldSection, Strings},
};

/// A test client, and the server side of its connection.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) section: FieldSection,
    /// Bytes that the server sent.
    pub(crate) out: Vec<u8>,
    pub(crate) now_ms: u64,
}

pub(crate) const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/")];

pub(crate) const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "https"), (":authority", "a.example"), (":path", "/")];

impl Client {
    /// Creates a client whose preface and SETTINGS have been received.
    pub(crate) fn new(limits: Limits) -> Self {
        let mut client = Self::silent(limits);
        let mut bytes = PREFACE.to_vec();
        frame::settings(&mut bytes, &[]);
        assert_eq!(client.sends(&bytes), ["Nothing", "SettingsToAck"]);
        client.out.clear();
        client
    }

    pub(crate) fn silent(limits: Limits) -> Self {
        let section = FieldSection::new(16 << 10, 100);
        let mut client = Self { connection: Connection::new(limits, 0), section, out: Vec::new(), now_ms: 0 };
        client.connection.greet(&client.section, 0, &mut client.out);
        client
    }

    /// Passes whole frames to the connection, and returns the events.
    pub(crate) fn tries(&mut self, mut bytes: &[u8]) -> Result<Vec<String>, ConnectionError> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            match self.connection.receive(bytes, &mut self.section, self.now_ms)? {
                Progress::Complete(event, total) => {
                    events.push(told(&event));
                    self.connection.reply(&event, &mut self.out);
                    bytes = &bytes[total..];
                }
                Progress::NeedMore(need) => panic!("needs {need} of {}", bytes.len()),
            }
        }
        Ok(events)
    }

    pub(crate) fn sends(&mut self, bytes: &[u8]) -> Vec<String> {
        self.tries(bytes).unwrap_or_else(|ended| panic!("{ended}"))
    }

    pub(crate) fn ends(&mut self, bytes: &[u8]) -> (ErrorCode, ConnectionFault) {
        match self.tries(bytes) {
            Err(ConnectionError { code, why }) => (code, why),
            Ok(events) => panic!("{events:?}"),
        }
    }

    /// Returns the frames that the server has sent since the last call.
    pub(crate) fn answers(&mut self) -> Vec<String> {
        let mut answers = Vec::new();
        let mut rest = &self.out[..];
        while !rest.is_empty() {
            let Ok(Progress::Complete(frame, total)) = frame::parse(rest, 1 << 24) else {
                panic!("{rest:?}")
            };
            answers.push(match frame {
                Frame::Data { stream, payload, end_stream, .. } => {
                    format!("DATA {stream} {} {end_stream}", payload.len())
                }
                Frame::Headers { stream, end_stream, .. } => format!("HEADERS {stream} {end_stream}"),
                Frame::Reset { stream, code } => format!("RST_STREAM {stream} {:x}", code.0),
                Frame::WindowUpdate { stream, increment } => format!("WINDOW_UPDATE {stream} {increment}"),
                Frame::GoAway { last_stream, code, .. } => format!("GOAWAY {last_stream} {:x}", code.0),
                Frame::Ping { ack, .. } => format!("PING {ack}"),
                other => format!("{other:?}"),
            });
            rest = &rest[total..];
        }
        self.out.clear();
        answers
    }

    /// Sends a response as far as the windows allow; returns the number of bytes left.
    pub(crate) fn respond(&mut self, stream: u32, bytes: usize) -> usize {
        let mut block = Vec::new();
        hpack::status(&mut block, 200);
        self.connection.send_headers(stream, &block, bytes == 0, &mut self.out);
        self.content(stream, bytes)
    }

    /// Sends content as far as the windows allow; returns the number of bytes left.
    pub(crate) fn content(&mut self, stream: u32, bytes: usize) -> usize {
        let mut left = bytes;
        while left > 0 {
            let now = self.connection.sendable(stream, left, self.now_ms).expect("no crumbs");
            if now == 0 {
                break;
            }
            left -= now;
            let header = self.connection.data_header(stream, now, left == 0);
            self.out.extend_from_slice(&header);
            self.out.resize(self.out.len() + now, b'x');
        }
        left
    }
}

pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        hpack::field(&mut block, name.as_bytes(), value.as_bytes(), Strings::Plain);
    }
    block
}

pub(crate) fn headers(stream: u32, fields: &[(&str, &str)], end: bool) -> Vec<u8> {
    let mut out = Vec::new();
    frame::headers(&mut out, stream, &block(fields), end, 1 << 14);
    out
}

pub(crate) fn written(frame: Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, &frame);
    out
}

pub(crate) fn data(stream: u32, payload: &[u8], end_stream: bool) -> Vec<u8> {
    written(Frame::Data { stream, payload, flow_bytes: 0, end_stream })
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    written(Frame::Reset { stream, code: ErrorCode::CANCEL })
}

pub(crate) fn update(stream: u32, increment: u32) -> Vec<u8> {
    written(Frame::WindowUpdate { stream, increment })
}

pub(crate) fn setting(setting: Setting, value: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::settings(&mut out, &[(setting, value)]);
    out
}
