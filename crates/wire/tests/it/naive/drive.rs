//! Drives the real parsers as a connection would: in pieces, through copies or straight into memory.

use wire::http1::{
    framing::{BodyDecoder, BodyError, Framing, StepState},
    head::{HeadError, HeadLimits, HeaderSlots, Progress, parse_request, parse_response},
};

use super::{Body, Head};

/// Result of decoding a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Payload that was decoded.
    pub(crate) payload: Vec<u8>,
    /// Bytes consumed, if no rule was broken.
    pub(crate) consumed: Option<usize>,
    /// Trailers if the body is complete; `None` if it needs more; the error if it was refused.
    pub(crate) end: Result<Option<Vec<u8>>, BodyError>,
}

impl Outcome {
    /// Returns the body if it is complete.
    pub(crate) fn complete(&self) -> Option<Body> {
        match (&self.end, self.consumed) {
            (Ok(Some(trailers)), Some(len)) => {
                Some(Body { payload: self.payload.clone(), trailers: trailers.clone(), len })
            }
            _ => None,
        }
    }
}

/// Decodes a body that arrives in pieces. With `raw`, payload bypasses `decode` wherever that is allowed.
pub(crate) fn body<'a>(framing: Framing, pieces: impl IntoIterator<Item = &'a [u8]>, raw: bool) -> Outcome {
    let mut decoder = BodyDecoder::new(framing);
    let (mut payload, mut consumed) = (Vec::new(), 0);
    for mut piece in pieces {
        while !decoder.is_done() && !piece.is_empty() {
            let direct = decoder.raw_max().min(piece.len() as u64) as usize;
            if raw && direct > 0 {
                payload.extend_from_slice(&piece[..direct]);
                decoder.take_raw(direct as u64);
                consumed += direct;
                piece = &piece[direct..];
                continue;
            }
            let step = match decoder.decode(piece) {
                Ok(step) => step,
                Err(error) => {
                    assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(error), "an error stays");
                    assert_eq!(decoder.at_eof(), Err(error));
                    return Outcome { payload, consumed: None, end: Err(error) };
                }
            };
            assert!(step.consumed <= piece.len() && step.data.end <= step.consumed, "within the input");
            payload.extend_from_slice(&piece[step.data]);
            consumed += step.consumed;
            piece = &piece[step.consumed..];
            match step.state {
                StepState::More => assert!(!piece.is_empty() && step.consumed > 0, "there is progress"),
                StepState::NeedMore => assert!(piece.is_empty(), "all is consumed"),
                StepState::Done => assert!(decoder.is_done()),
            }
        }
    }
    let end = decoder.is_done().then(|| decoder.trailers().to_vec());
    Outcome { payload, consumed: Some(consumed), end: Ok(end) }
}

/// Parses a request's head into owned values.
pub(crate) fn request(
    buf: &[u8],
    slots: &mut HeaderSlots,
    limits: &HeadLimits,
) -> Result<Option<Head>, HeadError> {
    Ok(match parse_request(buf, slots, limits)? {
        Progress::NeedMore => None,
        Progress::Complete((head, len)) => Some(Head {
            line: [head.method.to_owned(), head.target.to_owned(), version(head.version)],
            headers: head.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
            len,
        }),
    })
}

/// Parses a response's head into owned values.
pub(crate) fn response(
    buf: &[u8],
    slots: &mut HeaderSlots,
    limits: &HeadLimits,
) -> Result<Option<Head>, HeadError> {
    Ok(match parse_response(buf, slots, limits)? {
        Progress::NeedMore => None,
        Progress::Complete((head, len)) => Some(Head {
            line: [version(head.version), head.status.to_string(), head.reason.to_owned()],
            headers: head.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
            len,
        }),
    })
}

fn version(version: wire::http1::head::Version) -> String {
    match version {
        wire::http1::head::Version::Http10 => "HTTP/1.0".to_owned(),
        wire::http1::head::Version::Http11 => "HTTP/1.1".to_owned(),
    }
}

/// Checks that every prefix of a head needs more input or breaks the same rule as the whole.
pub(crate) fn check_prefixes<T: PartialEq + std::fmt::Debug>(
    buf: &[u8],
    head_len: impl Fn(&T) -> usize,
    mut parse: impl FnMut(&[u8]) -> Result<Option<T>, HeadError>,
) {
    let whole = parse(buf);
    for cut in 0..buf.len() {
        match (parse(&buf[..cut]), &whole) {
            (Ok(None), Ok(Some(head))) => assert!(cut < head_len(head), "complete at {cut}"),
            (Ok(None), _) => {}
            (part, whole) => assert_eq!(&part, whole, "cut at {cut} of {}", buf.escape_ascii()),
        }
    }
}
