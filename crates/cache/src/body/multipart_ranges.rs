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
    body::slices::Blocks,
    core::Core,
    head::response_head::{append_but, stored_values},
    policy::conditional::several_ranges,
};

/// What is sent of which ranges. What is between them is made when its turn comes: a field of 64 KiB in each of 32 parts
/// would be held for each slow client.
pub(crate) struct Plan {
    /// The head of the answer.
    pub(crate) head: Vec<u8>,
    /// The ranges; at least two.
    ranges: Vec<Range<u64>>,
    /// Lines of each part's head.
    content_type: Vec<u8>,
    boundary: String,
    complete: u64,
    /// Bytes of all this.
    pub(crate) bytes: u64,
}

impl Plan {
    /// For a request of which [`evaluate`](crate::policy::evaluate) said so, and an object's head.
    pub(crate) fn of(core: &Core, headers: &Headers<'_, '_>, head: &[u8], complete: u64) -> Self {
        Self::with_boundary(boundary(core, head), headers, head, complete)
    }

    fn with_boundary(boundary: String, headers: &Headers<'_, '_>, head: &[u8], complete: u64) -> Self {
        const CONTENT_TYPE: &str = "Content-Type";
        let mut content_type = Vec::new();
        for value in stored_values(head, "content-type") {
            append_field(&mut content_type, CONTENT_TYPE, value);
        }
        let mut of_answer = Vec::with_capacity(head.len() + 64);
        append_but(&mut of_answer, head, b"content-type:");
        let ours = format!("multipart/byteranges; boundary={boundary}");
        append_field(&mut of_answer, CONTENT_TYPE, ours.as_bytes());
        let ranges = several_ranges(headers, complete);
        let mut plan = Self { head: of_answer, ranges, content_type, boundary, complete, bytes: 0 };
        let parts = plan.ranges.iter().enumerate();
        let of_parts: u64 =
            parts.map(|(at, range)| plan.before(at).len() as u64 + (range.end - range.start)).sum();
        plan.bytes = of_parts + plan.end().len() as u64;
        plan
    }

    /// The first of the ranges.
    pub(crate) fn first(&self) -> Range<u64> {
        self.ranges.first().cloned().unwrap_or(0..0)
    }

    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// What is before a range's bytes.
    fn before(&self, at: usize) -> Vec<u8> {
        let mut before = if at == 0 { Vec::new() } else { b"\r\n".to_vec() };
        before.extend_from_slice(format!("--{}\r\n", self.boundary).as_bytes());
        before.extend_from_slice(&self.content_type);
        let Range { start, end } = self.ranges[at];
        let said = format!("bytes {start}-{}/{}", end - 1, self.complete);
        append_field(&mut before, "Content-Range", said.as_bytes());
        before.extend_from_slice(b"\r\n");
        before
    }

    /// What is behind the last.
    fn end(&self) -> Vec<u8> {
        format!("\r\n--{}--\r\n", self.boundary).into_bytes()
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
pub(crate) struct MultipartRanges {
    plan: Plan,
    next: usize,
    pub(crate) source: Source,
}

impl MultipartRanges {
    pub(crate) fn new(plan: Plan, source: Source) -> Self {
        Self { plan, next: 0, source }
    }

    /// What comes next: bytes of ours, and the range behind them; none behind the last.
    pub(crate) fn take(&mut self) -> Option<(Vec<u8>, Option<Range<u64>>)> {
        let at = self.next;
        self.next += 1;
        match self.plan.ranges.get(at) {
            Some(range) => Some((self.plan.before(at), Some(range.clone()))),
            None => (at == self.plan.ranges.len()).then(|| (self.plan.end(), None)),
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
            let plan = Plan::with_boundary("b".to_owned(), &request.headers, head, 1000);
            let said = "HTTP/1.1 200 OK\r\nA: 1\r\nETag: \"v\"\r\n\
                        Content-Type: multipart/byteranges; boundary=b\r\n";
            assert_eq!(String::from_utf8_lossy(&plan.head), said);
            assert_eq!(plan.first(), 0..2);
            let bytes = plan.bytes;
            let (mut sent, mut all) = (0, Vec::new());
            for (at, range) in plan.ranges.iter().enumerate() {
                let before = plan.before(at);
                sent += before.len() as u64 + (range.end - range.start);
                all.push(String::from_utf8(before).expect("text"));
            }
            let ranges = &plan.ranges;
            assert_eq!(sent + plan.end().len() as u64, bytes);
            assert_eq!(ranges, &[0..2, 500..503, 900..1000]);
            assert_eq!(all[0], "--b\r\nContent-Type: text/x\r\nContent-Range: bytes 0-1/1000\r\n\r\n");
            assert_eq!(
                all[2],
                "\r\n--b\r\nContent-Type: text/x\r\nContent-Range: bytes 900-999/1000\r\n\r\n"
            );
            assert_eq!(plan.end(), b"\r\n--b--\r\n");
        });
    }
}
