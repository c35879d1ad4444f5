//! A client's whole HTTP/2 connection, after its preface: events and output are the same wherever the input
//! is cut; each accepted request is the same request in HTTP/1; the output is valid frames; memory stays
//! within the limits. The first bytes of the input choose how requests are answered.

use super::cut::Cut;
use super::http2_head;
use wire::http2::{
    Progress,
    connection::{Connection, ConnectionError, Event, Limits},
    error::ErrorCode,
    frame::{self, Frame, PREFACE},
    hpack::{self, FieldSection, Strings, TABLE_BYTES_MAX},
    request::HeadRoom,
};

/// Small limits, so that they are reached.
const LIMITS: Limits = Limits {
    streams_max: 4,
    stream_window: 65_535,
    connection_window: 70_000,
    extended_connect: true,
    header_block_bytes_max: 300,
    continuations_max: 3,
    settings_max: 4,
    stall_ms_max: 5,
    progress_bytes_min: 16 << 10,
    settings_ack_ms_max: 1000,
    resets: rate(3),
    forced_resets: rate(2),
    refusals: rate(2),
    settings: rate(4),
    pings: rate(3),
    priorities: rate(3),
    small_frames: rate(4),
    useless_frames: rate(4),
    window_updates: rate(6),
    tiny_windows: rate(3),
};

const fn rate(burst: u32) -> wire::http2::connection::Rate {
    wire::http2::connection::Rate { burst, per_s: 100 }
}

const FIELDS_MAX: usize = 24;

/// Time that passes with each frame.
const FRAME_MS: u64 = 2;

/// Answers of the session to requests.
#[derive(Clone, Copy)]
struct Answers {
    /// Number of frames until the answer; 0 for no answer.
    after: u8,
    content_bytes: u16,
    /// Received content is released at once, and not only at the end.
    release: bool,
    /// The connection is drained after the first request.
    drain: bool,
    /// An answer that waits for a window is cut short by an empty frame.
    cut_short: bool,
}

pub(crate) fn check(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let [after, flags] = cut.array();
    let content_bytes = cut.u16();
    let answers = Answers {
        after: after % 4,
        content_bytes,
        release: flags & 1 == 0,
        drain: flags & 2 == 2,
        cut_short: flags & 8 == 8,
    };
    let client = if flags & 4 == 0 { [PREFACE, cut.0].concat() } else { cut.0.to_vec() };
    let whole = Session::run(answers, &client, usize::MAX);
    for step in [1, 7] {
        assert_eq!(Session::run(answers, &client, step), whole, "in steps of {step}");
    }
}

struct Session {
    answers: Answers,
    connection: Connection,
    section: FieldSection,
    /// Room in which requests are written as heads, one after the other.
    room: HeadRoom,
    /// Events as text; beside it, the output.
    told: Vec<String>,
    out: Vec<u8>,
    /// Content that is not released yet: a stream and the number of bytes.
    taken: Vec<(u32, usize)>,
    /// Responses under way: a stream, frames until it begins, content left.
    responses: Vec<(u32, u8, usize)>,
    now_ms: u64,
}

impl Session {
    /// Runs a session with the client's bytes, `step` at a time; returns its events and its output.
    fn run(answers: Answers, client: &[u8], step: usize) -> (Vec<String>, Vec<u8>) {
        let mut session = Self {
            answers,
            connection: Connection::new(LIMITS, 0),
            section: FieldSection::new(TABLE_BYTES_MAX, FIELDS_MAX),
            room: HeadRoom::default(),
            told: Vec::new(),
            out: Vec::new(),
            taken: Vec::new(),
            responses: Vec::new(),
            now_ms: 0,
        };
        session.connection.greet(&session.section, 0, &mut session.out);
        if let Err(ended) = session.receive(client, step) {
            session.told.push(format!("ended {ended:?}"));
            session.connection.goaway(ended.code, &mut session.out);
        }
        are_frames(&session.out);
        (session.told, session.out)
    }

    fn receive(&mut self, client: &[u8], step: usize) -> Result<(), ConnectionError> {
        let (mut at, mut there) = (0, step.min(client.len()));
        loop {
            match self.frame(&client[at..there])? {
                Progress::Complete((), total) => {
                    assert!(total > 0 && total <= there - at);
                    at += total;
                    self.now_ms += FRAME_MS;
                    self.send()?;
                    self.holds_what_it_may();
                }
                Progress::NeedMore(need) if there == client.len() => {
                    assert!(need > there - at);
                    return Ok(());
                }
                Progress::NeedMore(_) => there = there.saturating_add(step).min(client.len()),
            }
        }
    }

    fn frame(&mut self, bytes: &[u8]) -> Result<Progress<()>, ConnectionError> {
        let (event, total) = match self.connection.receive(bytes, &mut self.section, self.now_ms)? {
            Progress::Complete(event, total) => (event, total),
            Progress::NeedMore(need) => return Ok(Progress::NeedMore(need)),
        };
        self.told.push(told(&event));
        self.connection.reply(&event, &mut self.out);
        match event {
            Event::Request { stream, .. } | Event::HeadTooLarge { stream, .. } => {
                if self.answers.after > 0 {
                    let content_bytes = self.answers.content_bytes.into();
                    self.responses.push((stream, self.answers.after, content_bytes));
                }
                if let Event::Request { request, .. } = &event {
                    let copy = Copied::of(request);
                    http2_head::check(request, &copy.section);
                    http2_head::is_found_behind(request, &mut self.room);
                }
                if self.answers.drain {
                    self.connection.announce_drain(&mut self.out);
                    self.connection.drain(&mut self.out);
                }
            }
            Event::Data { stream, payload, .. } => {
                self.taken.push((stream, payload.len()));
                if self.answers.release {
                    for (stream, bytes) in self.taken.drain(..) {
                        self.connection.release(stream, bytes, &mut self.out);
                    }
                }
            }
            _ => {}
        }
        Ok(Progress::Complete((), total))
    }

    /// Sends the responses as far as the windows allow.
    fn send(&mut self) -> Result<(), ConnectionError> {
        let Self { answers, connection, responses, out, now_ms, .. } = self;
        for (stream, wait, content) in responses.iter_mut().filter(|(_, wait, _)| *wait > 0) {
            *wait -= 1;
            if *wait == 0 {
                let mut block = Vec::new();
                hpack::status(&mut block, 200);
                hpack::field(&mut block, b"x-answer", b"as asked for", Strings::Shorter);
                connection.send_headers(*stream, &block, *content == 0, out);
            }
        }
        responses.retain(|(stream, ..)| connection.is_open(*stream));
        while let Some(stream) = connection
            .next(|id| responses.iter().any(|&(stream, wait, left)| stream == id && wait == 0 && left > 0))
        {
            let Some(response) = responses.iter_mut().find(|(id, ..)| *id == stream) else { break };
            let bytes = connection.sendable(stream, response.2, *now_ms)?;
            assert!(bytes > 0, "the next one may send");
            response.2 -= bytes;
            out.extend_from_slice(&connection.data_header(stream, bytes, response.2 == 0));
            out.resize(out.len() + bytes, b'x');
        }
        for &(stream, wait, left) in responses.iter() {
            if wait == 0 && left > 0 {
                assert_eq!(connection.sendable(stream, left, *now_ms)?, 0);
                if answers.cut_short && connection.is_open(stream) {
                    out.extend_from_slice(&connection.data_header(stream, 0, true));
                }
            }
        }
        while let Some(wire::http2::connection::WindowOwner::Stream(stream)) = connection.stalled(*now_ms) {
            assert!(connection.reset(stream, ErrorCode::CANCEL, out));
            self.told.push(format!("stalled {stream}"));
        }
        Ok(())
    }

    fn holds_what_it_may(&self) {
        assert!(self.connection.streams() <= LIMITS.streams_max as usize);
        // A vector has at most twice the capacity that was requested, and a first fragment may be as long as
        // a frame.
        let most = 5000 + 2 * LIMITS.streams_max as usize * 80 + (1 << 15);
        assert!(self.connection.held_bytes() <= most, "{}", self.connection.held_bytes());
    }
}

/// A copy of the request's field section, because the request borrows the original.
struct Copied {
    section: FieldSection,
}

impl Copied {
    fn of(request: &wire::http2::request::Request<'_>) -> Self {
        let mut block = Vec::new();
        // Pseudo-headers count toward the size, too.
        for (name, value) in [(":method", request.method), (":authority", request.authority)] {
            hpack::field(&mut block, name.as_bytes(), value.as_bytes(), Strings::Plain);
        }
        if let wire::http2::request::RequestTarget::Resource { path, .. }
        | wire::http2::request::RequestTarget::Upgrade { path, .. } = request.ask
        {
            hpack::field(&mut block, b":path", path.as_bytes(), Strings::Plain);
            hpack::field(&mut block, b":scheme", b"http", Strings::Plain);
        }
        for (name, value) in request.fields() {
            hpack::field(&mut block, name, value, Strings::Plain);
        }
        let mut section = FieldSection::new(2 * TABLE_BYTES_MAX, 2 * FIELDS_MAX);
        let decoded = hpack::Decoder::new().decode(&block, &mut section);
        assert_eq!(decoded, Ok(()));
        Self { section }
    }
}

/// An event as text.
pub(crate) fn told(event: &Event<'_, '_>) -> String {
    match event {
        Event::Request { stream, request, end } => {
            let fields: Vec<_> = request
                .fields()
                .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
                .collect();
            let (method, ask, content) = (request.method, request.ask, request.content);
            format!("request {stream} {end} {method} {ask:?} {content:?} {fields:?}")
        }
        Event::Trailers { stream, trailers } => {
            let fields: Vec<_> = trailers
                .fields()
                .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
                .collect();
            format!("trailers {stream} {fields:?}")
        }
        Event::Data { stream, payload, end } => format!("data {stream} {end} {}", payload.escape_ascii()),
        other => format!("{other:?}"),
    }
}

/// Checks that the output consists of whole, valid frames.
fn are_frames(mut out: &[u8]) {
    let mut open = None;
    while !out.is_empty() {
        let Ok(Progress::Complete(frame, total)) = frame::parse(out, 1 << 24) else {
            panic!("no frame: {}", out.escape_ascii());
        };
        open = match (open, frame) {
            (None, Frame::Headers { stream, end_headers: false, .. }) => Some(stream),
            (Some(open), Frame::Continuation { stream, end_headers, .. }) if open == stream => {
                (!end_headers).then_some(open)
            }
            (None, Frame::Continuation { .. }) => panic!("CONTINUATION of nothing"),
            (None, _) => None,
            (Some(_), _) => panic!("a field block without its end"),
        };
        out = &out[total..];
    }
    assert_eq!(open, None);
}
