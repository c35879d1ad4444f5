//! Parser for an answer with several ranges (RFC 9110 §14.6).

use crate::{Response, client::find};

/// A part of a `multipart/byteranges` answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Value of the part's `Content-Type` field.
    pub content_type: Option<String>,
    /// Offset of the part's first byte in the whole representation.
    pub first: u64,
    /// Content of the part.
    pub bytes: Vec<u8>,
}

/// Returns the parts of an answer, in their order.
///
/// # Panics
/// When the answer is not `multipart/byteranges` of a representation of `complete` bytes, or is truncated.
#[track_caller]
pub fn parts(answer: &Response, complete: u64) -> Vec<Part> {
    let said = answer.header("content-type").expect("a type");
    let boundary = said.strip_prefix("multipart/byteranges; boundary=").expect("several parts");
    let delimiter = format!("--{boundary}");
    let (mut rest, mut parts) = (&answer.body[..], Vec::new());
    loop {
        rest = rest.strip_prefix(delimiter.as_bytes()).expect("a delimiter");
        if rest == b"--\r\n" {
            return parts;
        }
        let end = find(rest, b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(rest[2..end].to_vec()).expect("text");
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let range = field("Content-Range: bytes ").expect("a range");
        let (range, of) = range.split_once('/').expect("a length");
        assert_eq!(of, complete.to_string());
        let (first, last) = range.split_once('-').expect("two ends");
        let (first, last): (u64, u64) = (first.parse().expect("one"), last.parse().expect("one"));
        let content_type = field("Content-Type: ").map(str::to_owned);
        let from = end + 4;
        let to = from + usize::try_from(last - first + 1).expect("a length");
        parts.push(Part { content_type, first, bytes: rest[from..to].to_vec() });
        rest = rest[to..].strip_prefix(b"\r\n").expect("the end of a part");
    }
}
