//! Several ranges of one object, as one answer in parts (RFC 9110 §14.6, §15.3.7.2).
//!
//! ```text
//!  head, without its Content-Type │ --boundary, Content-Type, Content-Range │ bytes │ --boundary, … │ bytes │ --boundary--
//!                                   └────────────── ours ─────────────────┘ └ where they are: pinned, or in blocks
//! ```
//! The ranges ascend and lie apart ([`several_ranges`]), so a pinned object lets go of what is behind. *Bounds:*
//! [`RANGES_MAX`](crate::policy::conditional::RANGES_MAX) heads of parts an answer, of some hundred bytes each.

use std::ops::Range;

use engine::store::PinnedObject;
use wire::http1::{fields::append_field, head::Headers};

use crate::{
    blocks::Blocks,
    core::Core,
    policy::conditional::several_ranges,
    response_head::{append_but, stored_values},
};

/// What is sent of which ranges, and between them.
pub(crate) struct Plan {
    /// The head of the answer.
    pub(crate) head: Vec<u8>,
    /// What is before each range's bytes, and the range; at least two.
    parts: Vec<(Vec<u8>, Range<u64>)>,
    /// What is behind the last.
    end: Vec<u8>,
    /// Bytes of all this.
    pub(crate) bytes: u64,
}

impl Plan {
    /// For a request of which [`evaluate`](crate::policy::evaluate) said so, and an object's head.
    pub(crate) fn of(core: &Core, headers: &Headers<'_, '_>, head: &[u8], complete: u64) -> Self {
        Self::with_boundary(&boundary(core, head), headers, head, complete)
    }

    fn with_boundary(boundary: &str, headers: &Headers<'_, '_>, head: &[u8], complete: u64) -> Self {
        const CONTENT_TYPE: &str = "Content-Type";
        let mut content_type = Vec::new();
        for value in stored_values(head, "content-type") {
            append_field(&mut content_type, CONTENT_TYPE, value);
        }
        let mut of_answer = Vec::with_capacity(head.len() + 64);
        append_but(&mut of_answer, head, b"content-type:");
        let ours = format!("multipart/byteranges; boundary={boundary}");
        append_field(&mut of_answer, CONTENT_TYPE, ours.as_bytes());
        let mut bytes = 0;
        let mut parts = Vec::new();
        for range in several_ranges(headers, complete) {
            let mut before = if parts.is_empty() { Vec::new() } else { b"\r\n".to_vec() };
            before.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
            before.extend_from_slice(&content_type);
            let said = format!("bytes {}-{}/{complete}", range.start, range.end - 1);
            append_field(&mut before, "Content-Range", said.as_bytes());
            before.extend_from_slice(b"\r\n");
            bytes += before.len() as u64 + (range.end - range.start);
            parts.push((before, range));
        }
        let end = format!("\r\n--{boundary}--\r\n").into_bytes();
        Self { head: of_answer, bytes: bytes + end.len() as u64, parts, end }
    }

    /// The first of the ranges.
    pub(crate) fn first(&self) -> Range<u64> {
        self.parts.first().map_or(0..0, |(_, range)| range.clone())
    }
}

/// Separates the parts: nobody can put it into the content, because nobody knows the store's seed.
fn boundary(core: &Core, head: &[u8]) -> String {
    let once = core.store.hash(&[head, b"1"].concat());
    let twice = core.store.hash(&[head, b"2", &once.word().to_le_bytes()].concat());
    format!("{:016x}{:016x}", once.word(), twice.word())
}

/// Where the bytes are.
pub(crate) enum Source {
    Pinned(PinnedObject),
    Blocks(Blocks),
}

/// An answer's body.
pub(crate) struct Several {
    plan: Plan,
    next: usize,
    pub(crate) source: Source,
}

impl Several {
    pub(crate) fn new(plan: Plan, source: Source) -> Self {
        Self { plan, next: 0, source }
    }

    /// What comes next: bytes of ours, and the range behind them; none behind the last.
    pub(crate) fn take(&mut self) -> Option<(Vec<u8>, Option<Range<u64>>)> {
        let at = self.next;
        self.next += 1;
        match self.plan.parts.get_mut(at) {
            Some((before, range)) => Some((std::mem::take(before), Some(range.clone()))),
            None => (at == self.plan.parts.len()).then(|| (std::mem::take(&mut self.plan.end), None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::with_request;

    #[test]
    fn a_plan_says_how_long_it_is_and_where_each_part_begins() {
        let head = b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-TYPE: text/x\r\nETag: \"v\"\r\n";
        with_request("GET /", "Range: bytes=0-1, 500-501,502-502, 900-", |request| {
            let plan = Plan::with_boundary("b", &request.headers, head, 1000);
            let said = "HTTP/1.1 200 OK\r\nA: 1\r\nETag: \"v\"\r\n\
                        Content-Type: multipart/byteranges; boundary=b\r\n";
            assert_eq!(String::from_utf8_lossy(&plan.head), said);
            assert_eq!(plan.first(), 0..2);
            let bytes = plan.bytes;
            let (mut several, mut sent, mut ranges) = (plan, 0, Vec::new());
            let mut all = Vec::new();
            for (before, range) in several.parts.drain(..) {
                sent += before.len() as u64 + (range.end - range.start);
                all.push(String::from_utf8(before).expect("text"));
                ranges.push(range);
            }
            assert_eq!(sent + several.end.len() as u64, bytes);
            assert_eq!(ranges, [0..2, 500..503, 900..1000]);
            assert_eq!(all[0], "--b\r\nContent-Type: text/x\r\nContent-Range: bytes 0-1/1000\r\n\r\n");
            assert_eq!(
                all[2],
                "\r\n--b\r\nContent-Type: text/x\r\nContent-Range: bytes 900-999/1000\r\n\r\n"
            );
            assert_eq!(several.end, b"\r\n--b--\r\n");
        });
    }
}
