//! `h2://` and `h2c://`: GETs on the streams of one HTTP/2 connection.
//!
//! ```text
//!   request ─▶ HEADERS on the next stream ─▶ `asked`       answers come in the server's order:
//!   received ─▶ HEADERS, DATA … END_STREAM ─▶ its place in `asked` ─▶ `places` ─▶ next_answered
//! ```
//! The client is cheap on purpose, so that the generator is not the bottleneck. The request is encoded once;
//! from the second request on it consists of six references to the server's table, like a browser's. Windows
//! are as large as possible, so that one WINDOW_UPDATE per gigabyte suffices. Content is skipped as it
//! arrives, without collecting whole frames in memory. We announce an empty table (SETTINGS_HEADER_TABLE_SIZE
//! 0), so the server's field blocks carry no state, and only `:status`, with which they begin, needs to be
//! read.

use std::collections::VecDeque;

use wire::http2::{
    Progress,
    error::ErrorCode,
    frame::{self, FRAME_BYTES_MIN, Frame, FrameHeader, HEADER_BYTES, PREFACE, Setting, flag, kind},
    hpack::{self, Decoder, FIELD_OVERHEAD, FieldSection, NO_TABLE, Strings},
};

use super::{Client, InvalidReply};

/// Window of each stream and of the connection: the largest that all servers support.
const WINDOW_BYTES: u32 = (1 << 30) - 1;
/// Number of streams that a server is assumed to accept before its SETTINGS (RFC 9113 §6.5.2 recommends at
/// least this many).
const STREAMS_AT_START: usize = 100;
/// Highest identifier of a stream (RFC 9113 §5.1.1).
const STREAM_MAX: u32 = (1 << 31) - 1;
/// Maximum bytes and fields of a head that is decoded because its status is uncommon.
const SECTION_BYTES: usize = 64 << 10;
const SECTION_FIELDS: usize = 256;
/// Statuses in the static table, from its entry 8 on (RFC 7541 appendix A).
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];

pub(in super::super) struct Http2 {
    /// Field blocks of the first request, whose fields the server enters in its table, and of the later ones.
    first: Vec<u8>,
    later: Vec<u8>,
    /// Size of the dynamic-table entries that the first request creates, computed as in RFC 7541 §4.1.
    table_bytes: usize,
    /// Identifier of the next stream.
    next: u32,
    /// Streams that wait for the end of their answer, in the order in which they were opened.
    asked: VecDeque<OpenStream>,
    /// Positions in `asked` for [`Client::next_answered`].
    places: VecDeque<usize>,
    streams_max: usize,
    /// True once the server's SETTINGS have arrived.
    is_greeted: bool,
    /// True once the server accepts no more streams; it closes after the open ones.
    is_draining: bool,
    /// An incomplete header, or an incomplete frame other than DATA.
    partial: Vec<u8>,
    /// Remaining bytes of a DATA frame, and the stream that ends with them.
    content_left: usize,
    ends: Option<u32>,
    /// Bytes of content received since the last WINDOW_UPDATE for the connection.
    owed: u32,
    refused: u64,
    first_refusal: Option<String>,
}

/// A stream that waits for its answer.
struct OpenStream {
    stream: u32,
    /// True once the head of the answer has arrived.
    has_head: bool,
}

impl Http2 {
    pub(in super::super) fn new(scheme: &str, authority: &str, path: &str) -> Self {
        let fields = [
            (&b":path"[..], path.as_bytes()),
            (b":authority", authority.as_bytes()),
            (b"user-agent", b"nighttrain-lab"),
            (b"accept", b"*/*"),
        ];
        // ":method: GET" and ":scheme" in the static table (RFC 7541 appendix A).
        let mut first = vec![0x82, if scheme == "https" { 0x87 } else { 0x86 }];
        let mut later = first.clone();
        for (place, (name, value)) in fields.into_iter().enumerate() {
            hpack::entered_field(&mut first, name, value, Strings::Plain);
            // The dynamic table follows the 61 entries of the static table, the newest entry first.
            hpack::reference(&mut later, 61 + fields.len() - place);
        }
        let table_bytes = fields.iter().map(|(name, value)| name.len() + value.len() + FIELD_OVERHEAD).sum();
        Self {
            first,
            later,
            table_bytes,
            next: 1,
            asked: VecDeque::new(),
            places: VecDeque::new(),
            streams_max: STREAMS_AT_START,
            is_greeted: false,
            is_draining: false,
            partial: Vec::new(),
            content_left: 0,
            ends: None,
            owed: 0,
            refused: 0,
            first_refusal: None,
        }
    }

    /// Consumes everything but the incomplete beginning of a frame; returns the position of that beginning.
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, InvalidReply> {
        let mut at = 0;
        loop {
            let passed = self.content_left.min(bytes.len() - at);
            at += passed;
            self.content_left -= passed;
            if self.content_left > 0 {
                return Ok(at);
            }
            if let Some(stream) = self.ends.take() {
                self.end(stream)?;
            }
            let rest = &bytes[at..];
            let Some(header) = FrameHeader::parse(rest) else { return Ok(at) };
            if header.kind == kind::DATA {
                self.content(header, out)?;
                at += HEADER_BYTES;
                continue;
            }
            match frame::parse(rest, FRAME_BYTES_MIN).map_err(|fault| self.nonsense(rest, &fault))? {
                Progress::NeedMore(_) => return Ok(at),
                Progress::Complete(frame, bytes) => {
                    self.frame(&frame, out)?;
                    at += bytes;
                }
            }
        }
    }

    fn nonsense(&self, bytes: &[u8], fault: &dyn std::fmt::Display) -> InvalidReply {
        if !self.is_greeted && bytes.starts_with(b"HTTP/1.") {
            return InvalidReply("the server answers by HTTP/1, not by HTTP/2".into());
        }
        InvalidReply(format!("not HTTP/2: {fault}"))
    }

    /// Handles the beginning of a DATA frame.
    fn content(&mut self, header: FrameHeader, out: &mut Vec<u8>) -> Result<(), InvalidReply> {
        if header.length > FRAME_BYTES_MIN {
            return Err(InvalidReply(format!(
                "a DATA frame of {} bytes, more than was allowed",
                header.length
            )));
        }
        self.asked(header.stream)?;
        self.content_left = header.length as usize;
        self.ends = (header.flags & flag::END_STREAM != 0).then_some(header.stream);
        self.owed += header.length;
        if self.owed > WINDOW_BYTES / 2 {
            // No WINDOW_UPDATE is sent for a stream: no answer is that long.
            frame::window_update(out, 0, std::mem::take(&mut self.owed));
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), InvalidReply> {
        match frame {
            Frame::Headers { stream, fragment, end_stream, .. } => {
                self.head(*stream, fragment, *end_stream)?
            }
            Frame::Reset { stream, code } => {
                // A server may reset a stream after its complete answer (RFC 9113 §8.1).
                if self.asked.iter().any(|asked| asked.stream == *stream) {
                    self.refuse(format!("RST_STREAM, code {}", code.0));
                    self.end(*stream)?;
                }
            }
            Frame::Settings(settings) => {
                for (setting, value) in settings.iter() {
                    match setting {
                        Setting::MAX_CONCURRENT_STREAMS => self.streams_max = value as usize,
                        Setting::HEADER_TABLE_SIZE if (value as usize) < self.table_bytes => {
                            return Err(InvalidReply(format!(
                                "a table of {value} bytes for the fields of requests, less than one request's"
                            )));
                        }
                        _ => {}
                    }
                }
                self.is_greeted = true;
                frame::settings_ack(out);
            }
            Frame::Ping { ack: false, opaque } => frame::ping(out, true, *opaque),
            Frame::GoAway { code: ErrorCode::NO_ERROR, .. } => self.is_draining = true,
            Frame::GoAway { code, debug, .. } => {
                let (code, debug) = (code.0, String::from_utf8_lossy(debug));
                let why = format!("the server ends the connection by GOAWAY, code {code} {debug}");
                return Err(InvalidReply(why.trim_end().to_owned()));
            }
            Frame::PushPromise { .. } => return Err(InvalidReply("a push, which was not allowed".into())),
            // The preceding HEADERS frame already had the status and END_STREAM.
            Frame::Continuation { .. } => {}
            Frame::Data { .. }
            | Frame::Priority { .. }
            | Frame::SettingsAck
            | Frame::Ping { ack: true, .. }
            | Frame::WindowUpdate { .. }
            | Frame::PriorityUpdate { .. }
            | Frame::Unknown { .. } => {}
        }
        Ok(())
    }

    /// Handles a head, or trailers.
    fn head(&mut self, stream: u32, block: &[u8], ends: bool) -> Result<(), InvalidReply> {
        let asked = self.asked(stream)?;
        if !asked.has_head {
            let status = status(block)?;
            asked.has_head = status >= 200;
            if !(100..400).contains(&status) {
                self.refuse(status.to_string());
            }
        }
        if ends { self.end(stream) } else { Ok(()) }
    }

    fn asked(&mut self, stream: u32) -> Result<&mut OpenStream, InvalidReply> {
        self.asked
            .iter_mut()
            .find(|asked| asked.stream == stream)
            .ok_or_else(|| InvalidReply(format!("a response that nobody asked for, on stream {stream}")))
    }

    fn end(&mut self, stream: u32) -> Result<(), InvalidReply> {
        self.asked(stream)?;
        if let Some(place) = self.asked.iter().position(|asked| asked.stream == stream) {
            self.asked.remove(place);
            self.places.push_back(place);
        }
        Ok(())
    }

    fn refuse(&mut self, why: String) {
        self.refused += 1;
        self.first_refusal.get_or_insert(why);
    }
}

/// Returns the status with which a head's field block begins. Nothing else is decoded if the status is a
/// common one: our table is empty, so no block depends on another.
fn status(block: &[u8]) -> Result<u16, InvalidReply> {
    let start = block.iter().take_while(|byte| **byte == NO_TABLE).count();
    if let Some(status) = block.get(start).and_then(|byte| STATUSES.get(usize::from(byte.wrapping_sub(0x88))))
    {
        return Ok(*status);
    }
    let mut section = FieldSection::new(SECTION_BYTES, SECTION_FIELDS);
    Decoder::new()
        .decode(block, &mut section)
        .map_err(|error| InvalidReply(format!("a broken head: {error}")))?;
    let status = section.iter().next().filter(|(name, _)| *name == b":status").map(|(_, value)| value);
    status
        .and_then(|value| std::str::from_utf8(value).ok()?.parse().ok())
        .ok_or_else(|| InvalidReply("a response whose head does not begin with its status".into()))
}

impl Client for Http2 {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        let settings = [
            (Setting::HEADER_TABLE_SIZE, 0),
            (Setting::ENABLE_PUSH, 0),
            (Setting::INITIAL_WINDOW_SIZE, WINDOW_BYTES),
        ];
        frame::settings(out, &settings);
        frame::window_update(out, 0, WINDOW_BYTES - frame::WINDOW_AT_START);
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        let block = if self.next == 1 { &self.first } else { &self.later };
        frame::headers(out, self.next, block, true, FRAME_BYTES_MIN);
        self.asked.push_back(OpenStream { stream: self.next, has_head: false });
        self.next += 2;
    }

    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, InvalidReply> {
        let mut joined = std::mem::take(&mut self.partial);
        let bytes = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let at = self.take(bytes, out)?;
        self.partial = bytes[at..].to_vec();
        Ok(self.places.len())
    }

    fn next_answered(&mut self) -> usize {
        self.places.pop_front().unwrap_or(0)
    }

    fn closed(&mut self) -> Result<usize, InvalidReply> {
        if self.asked.is_empty() {
            Ok(0)
        } else {
            Err(InvalidReply("the server closed the connection before its answers were whole".into()))
        }
    }

    fn is_ready(&self) -> bool {
        self.is_greeted && !self.is_draining && self.next <= STREAM_MAX
    }

    fn depth(&self) -> usize {
        self.streams_max
    }

    fn refusals(&self) -> (u64, Option<&str>) {
        (self.refused, self.first_refusal.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> (Http2, Vec<u8>) {
        let (mut http2, mut out) = (Http2::new("http", "h", "/"), Vec::new());
        http2.greet(&mut out);
        assert!(out.starts_with(PREFACE) && !http2.is_ready());
        out.clear();
        let mut settings = Vec::new();
        frame::settings(&mut settings, &[(Setting::MAX_CONCURRENT_STREAMS, 7)]);
        assert_eq!(http2.received(&settings, &mut out), Ok(0));
        assert!(http2.is_ready() && http2.depth() == 7);
        out.clear();
        (http2, out)
    }

    /// Writes HEADERS with a status and another field, and content of this length.
    fn answer(bytes: &mut Vec<u8>, stream: u32, status: u16, content: usize, ends: bool) {
        let mut block = Vec::new();
        hpack::status(&mut block, status);
        hpack::field(&mut block, b"server", b"test", Strings::Shorter);
        frame::headers(bytes, stream, &block, content == 0 && ends, FRAME_BYTES_MIN);
        if content > 0 {
            bytes.extend_from_slice(&frame::data_header(stream, content, ends));
            bytes.resize(bytes.len() + content, b'x');
        }
    }

    /// Returns the positions of the answers in the order in which they end, with the bytes cut in two.
    fn places(http2: &mut Http2, bytes: &[u8], cut: usize) -> Vec<usize> {
        let (first, second) = bytes.split_at(cut);
        let mut places = Vec::new();
        for part in [first, second] {
            let answers = http2.received(part, &mut Vec::new()).unwrap();
            places.extend((0..answers).map(|_| http2.next_answered()));
        }
        places
    }

    #[test]
    fn each_response_counts_once_at_any_split() {
        let mut bytes = Vec::new();
        answer(&mut bytes, 5, 200, 700, true);
        // A head, other frames, and content in two pieces with trailers; another answer completes in between.
        answer(&mut bytes, 1, 103, 0, false);
        answer(&mut bytes, 1, 200, 300, false);
        frame::ping(&mut bytes, false, *b"12345678");
        answer(&mut bytes, 3, 304, 0, true);
        bytes.extend_from_slice(&frame::data_header(1, 0, false));
        let mut trailers = Vec::new();
        hpack::field(&mut trailers, b"x-sum", b"1", Strings::Plain);
        frame::headers(&mut bytes, 1, &trailers, true, FRAME_BYTES_MIN);
        // END_STREAM is in a separate, empty DATA frame.
        answer(&mut bytes, 7, 200, 20, false);
        bytes.extend_from_slice(&frame::data_header(7, 0, true));
        for cut in 0..=bytes.len() {
            let (mut http2, mut out) = ready();
            (0..4).for_each(|_| http2.request(&mut out));
            // The third of streams 1, 3, 5 and 7 ends first, then the second of 1, 3 and 7, the first of 1 and 7,
            // and stream 7.
            assert_eq!(places(&mut http2, &bytes, cut), [2, 1, 0, 0], "cut at {cut}");
            assert_eq!((http2.closed(), http2.refusals().0), (Ok(0), 0), "cut at {cut}");
        }
    }

    #[test]
    fn requests_decode_correctly_and_shrink_when_repeated() {
        let (mut http2, mut out) = ready();
        let (mut decoder, mut section) = (Decoder::new(), FieldSection::new(16 << 10, 16));
        for number in 0..3 {
            out.clear();
            http2.request(&mut out);
            let Ok(Progress::Complete(Frame::Headers { stream, fragment, end_stream: true, .. }, _)) =
                frame::parse(&out, FRAME_BYTES_MIN)
            else {
                panic!("{out:?} is no request")
            };
            assert_eq!(stream, 2 * number + 1);
            decoder.decode(fragment, &mut section).unwrap();
            let fields: Vec<_> = section
                .iter()
                .map(|(name, value)| [name, b": ", value].concat())
                .map(|line| String::from_utf8(line).unwrap())
                .collect();
            let expected = [
                ":method: GET",
                ":scheme: http",
                ":path: /",
                ":authority: h",
                "user-agent: nighttrain-lab",
                "accept: */*",
            ];
            assert_eq!(fields, expected);
            assert!(number == 0 || fragment.len() == 6, "{fragment:?}");
        }
    }

    #[test]
    fn refusals_are_counted_and_nonsense_is_wrong() {
        let (mut http2, mut out) = ready();
        (0..3).for_each(|_| http2.request(&mut out));
        let mut bytes = Vec::new();
        answer(&mut bytes, 3, 503, 4, true);
        frame::reset(&mut bytes, 1, ErrorCode::REFUSED_STREAM);
        frame::reset(&mut bytes, 3, ErrorCode::NO_ERROR);
        assert_eq!(places(&mut http2, &bytes, 0), [1, 0]);
        assert_eq!(http2.refusals(), (2, Some("503")));
        assert!(http2.closed().is_err(), "one still waits");
        bytes.clear();
        answer(&mut bytes, 9, 200, 1, true);
        assert!(http2.received(&bytes, &mut out).is_err(), "nobody asked on that stream");

        let fresh = || Http2::new("https", "h", "/");
        let of_http1 = fresh().received(b"HTTP/1.1 400 Bad Request\r\n\r\n", &mut out).unwrap_err();
        assert!(of_http1.0.contains("by HTTP/1"), "{of_http1}");
        assert!(fresh().received(b"220 mail.example ESMTP\r\n", &mut out).is_err());
        bytes.clear();
        frame::goaway(&mut bytes, 0, ErrorCode::ENHANCE_YOUR_CALM, b"too many");
        let told = fresh().received(&bytes, &mut out).unwrap_err();
        assert!(told.0.contains("too many"), "{told}");
    }

    #[test]
    fn a_goaway_ends_requests_and_pings_are_answered() {
        let (mut http2, mut out) = ready();
        http2.request(&mut out);
        let mut bytes = Vec::new();
        frame::goaway(&mut bytes, 1, ErrorCode::NO_ERROR, &[]);
        frame::ping(&mut bytes, false, [7; 8]);
        out.clear();
        assert_eq!(http2.received(&bytes, &mut out), Ok(0));
        assert!(!http2.is_ready());
        assert!(matches!(
            frame::parse(&out, FRAME_BYTES_MIN),
            Ok(Progress::Complete(Frame::Ping { ack: true, opaque: [7, 7, 7, 7, 7, 7, 7, 7] }, _))
        ));
        bytes.clear();
        answer(&mut bytes, 1, 200, 5, true);
        assert_eq!(places(&mut http2, &bytes, 3), [0]);
        assert_eq!(http2.closed(), Ok(0));
    }
}
