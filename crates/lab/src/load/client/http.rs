//! `http://` and `https://`: one GET after another on a persistent connection.

use wire::http1::{
    framing::{BodyDecoder, RequestKind, StepState, response_framing},
    head::{HeadLimits, HeaderSlots, Progress, parse_response},
};

use super::{Client, InvalidReply};

/// Maximum size of a response's head in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// HTTP/1.1 client that sends one request at a time on its connection, without pipelining.
pub(in super::super) struct Http {
    request: Vec<u8>,
    state: State,
    /// Beginning of a head that is not complete yet.
    partial: Vec<u8>,
    slots: Box<HeaderSlots>,
    limits: HeadLimits,
    refused: u64,
    first_refusal: Option<String>,
}

enum State {
    Idle,
    Head,
    Body(BodyDecoder),
}

impl Http {
    pub(in super::super) fn new(authority: &str, path: &str) -> Self {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: nighttrain-lab\r\nAccept: */*\r\n\r\n"
        );
        Self {
            request: request.into_bytes(),
            state: State::Idle,
            partial: Vec::new(),
            slots: Box::new(HeaderSlots::new()),
            limits: HeadLimits { head_bytes_max: HEAD_BYTES_MAX, ..HeadLimits::default() },
            refused: 0,
            first_refusal: None,
        }
    }

    /// Parses a head at the start of `bytes`; returns its length if it is complete.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, InvalidReply> {
        match parse_response(bytes, &mut self.slots, &self.limits) {
            Ok(Progress::NeedMore) => Ok(None),
            Err(error) => Err(InvalidReply(format!("not an HTTP response: {error}"))),
            Ok(Progress::Complete((head, head_bytes))) => {
                if head.is_interim() {
                    return Ok(Some(head_bytes));
                }
                if !(200..400).contains(&head.status) {
                    self.refused += 1;
                    self.first_refusal
                        .get_or_insert_with(|| format!("{} {}", head.status, head.reason).trim().to_owned());
                }
                let framing = response_framing(&head, RequestKind::of_method("GET"))
                    .map_err(|error| InvalidReply(format!("an ambiguous HTTP response: {error}")))?;
                self.state = State::Body(BodyDecoder::new(framing));
                Ok(Some(head_bytes))
            }
        }
    }

    /// Takes one step through `bytes`; returns how many were consumed (0: more are needed), and whether an
    /// answer has ended.
    fn step(&mut self, bytes: &[u8]) -> Result<(usize, bool), InvalidReply> {
        match &mut self.state {
            State::Idle if bytes.is_empty() => Ok((0, false)),
            State::Idle => Err(InvalidReply("a response that nobody asked for".into())),
            State::Head => {
                let Some(head_bytes) = self.head(bytes)? else { return Ok((0, false)) };
                let whole = matches!(&self.state, State::Body(body) if body.is_done());
                if whole {
                    self.state = State::Idle;
                }
                Ok((head_bytes, whole))
            }
            State::Body(body) => {
                let step = body
                    .decode(bytes)
                    .map_err(|error| InvalidReply(format!("a broken body: {}", error.rule)))?;
                let done = step.state == StepState::Done;
                if done {
                    self.state = State::Idle;
                }
                Ok((step.consumed, done))
            }
        }
    }
}

impl Client for Http {
    fn request(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
        self.state = State::Head;
    }

    fn received(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<usize, InvalidReply> {
        let joined;
        let mut rest = if self.partial.is_empty() {
            bytes
        } else {
            let mut all = std::mem::take(&mut self.partial);
            all.extend_from_slice(bytes);
            joined = all;
            &joined
        };
        let mut answers = 0;
        while !rest.is_empty() {
            let (consumed, answered) = self.step(rest)?;
            answers += usize::from(answered);
            if consumed == 0 {
                self.partial = rest.to_vec();
                break;
            }
            rest = &rest[consumed..];
        }
        Ok(answers)
    }

    fn closed(&mut self) -> Result<usize, InvalidReply> {
        match &self.state {
            State::Idle => Ok(0),
            State::Body(body) if body.at_eof().is_ok() => {
                self.state = State::Idle;
                Ok(1)
            }
            State::Head | State::Body(_) => {
                Err(InvalidReply("the server closed the connection before its answer was whole".into()))
            }
        }
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn depth(&self) -> usize {
        1
    }

    fn refusals(&self) -> (u64, Option<&str>) {
        (self.refused, self.first_refusal.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: &[&str] = &[
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ];

    #[test]
    fn each_answer_counts_once_wherever_it_is_cut() {
        for answer in ANSWERS {
            for cut in 0..=answer.len() {
                let mut http = Http::new("h", "/");
                let mut out = Vec::new();
                http.request(&mut out);
                let (first, second) = answer.as_bytes().split_at(cut);
                let answers =
                    http.received(first, &mut out).unwrap() + http.received(second, &mut out).unwrap();
                assert_eq!(answers, 1, "{answer:?} cut at {cut}");
                assert_eq!(http.closed(), Ok(0), "{answer:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn only_close_delimited_bodies_end_with_the_connection() {
        let mut http = Http::new("h", "/");
        http.request(&mut Vec::new());
        assert_eq!(http.received(b"HTTP/1.1 200 OK\r\n\r\nsome", &mut Vec::new()), Ok(0));
        assert_eq!(http.closed(), Ok(1));
        http.request(&mut Vec::new());
        assert_eq!(
            http.received(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome", &mut Vec::new()),
            Ok(0)
        );
        assert!(http.closed().is_err());
    }

    #[test]
    fn refusals_are_counted_and_nonsense_is_wrong() {
        let mut http = Http::new("h", "/");
        http.request(&mut Vec::new());
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(http.received(answer, &mut Vec::new()), Ok(1));
        assert_eq!(http.refusals(), (1, Some("503 Service Unavailable")));
        assert!(http.received(b"HTTP/1.1 200 OK\r\n\r\n", &mut Vec::new()).is_err(), "not asked for");
        http.request(&mut Vec::new());
        assert!(http.received(b"220 mail.example ESMTP\r\n", &mut Vec::new()).is_err());
    }
}
