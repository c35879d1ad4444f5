//! What of a stored head differs where its content is sent in a coding that we have made, or without the one that it came
//! in: `Content-Encoding`, and an entity tag of its own (RFC 9110 §8.8.3.3). All else is said of either, and is younger
//! where the stored head is.

use engine::sys::span::Span;

use super::{meta::StoredMeta, origin_head::drop_lines};
use crate::coding::Coding;

/// What every head says of which there is more than one representation.
pub const VARY: &[u8] = b"Vary: Accept-Encoding\r\n";

/// How a stored head becomes that of its content in a coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodedHead {
    coding: Coding,
    /// Where the quote is that ends its entity tag, if it has one.
    quote_at: Option<usize>,
}

impl CodedHead {
    /// For what was judged to be [codable or decodable](mod@crate::policy::codable): its tag, if it has one, is one.
    #[inline]
    pub fn new(coding: Coding, meta: &StoredMeta) -> Self {
        let quote_at = (meta.etag_bytes > 0)
            .then(|| (meta.etag_at as usize + usize::from(meta.etag_bytes)).saturating_sub(1));
        Self { coding, quote_at }
    }

    /// Appends the head; by how many bytes its entity tag comes earlier in it than in the stored one.
    #[inline]
    pub fn append_span(self, stored: Span<'_>, out: &mut Vec<u8>) -> usize {
        let quote_at = self.quote_at.unwrap_or(stored.len()).min(stored.len());
        let begin = out.len();
        stored.slice(0..quote_at).copy_to(out);
        self.append_suffix(out);
        stored.slice(quote_at..stored.len()).copy_to(out);
        self.say_encoding(out, begin, quote_at)
    }

    /// The same, of a head that is not in the store.
    pub fn append(self, stored: &[u8], out: &mut Vec<u8>) -> usize {
        let quote_at = self.quote_at.unwrap_or(stored.len()).min(stored.len());
        let (before, after) = stored.split_at(quote_at);
        let begin = out.len();
        out.extend_from_slice(before);
        self.append_suffix(out);
        out.extend_from_slice(after);
        self.say_encoding(out, begin, quote_at)
    }

    #[inline]
    fn append_suffix(self, out: &mut Vec<u8>) {
        if self.quote_at.is_some() {
            out.extend_from_slice(self.coding.tag_suffix().as_bytes());
        }
    }

    /// Says the coding at the end of the head that begins at `begin`, or that there is none; how many bytes were before
    /// the tag that are not there any more.
    #[inline]
    fn say_encoding(self, out: &mut Vec<u8>, begin: usize, quote_at: usize) -> usize {
        out.extend_from_slice(match self.coding {
            Coding::AsSent => b"",
            Coding::Decoded => return drop_lines(out, begin, b"content-encoding:", begin + quote_at),
            Coding::Gzip => b"Content-Encoding: gzip\r\n",
            Coding::Brotli => b"Content-Encoding: br\r\n",
            Coding::Zstd => b"Content-Encoding: zstd\r\n",
        });
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::response_head::BLANK;

    fn coded(coding: Coding, head: &str, tag: &str) -> String {
        let at = head.find(tag).unwrap_or(0);
        let meta = StoredMeta { etag_at: at as u32, etag_bytes: tag.len() as u16, ..BLANK };
        let mut out = Vec::new();
        let earlier = CodedHead::new(coding, &meta).append(head.as_bytes(), &mut out);
        if !tag.is_empty() {
            let (inside, suffix) = (&tag[..tag.len() - 1], coding.tag_suffix());
            let meta = meta.with_tag(suffix, earlier);
            assert_eq!(meta.etag_of(&out), Some(format!("{inside}{suffix}\"").as_bytes()), "{head}");
        }
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_head_says_its_coding_and_has_a_tag_of_its_own() {
        let head = "HTTP/1.1 200 OK\r\nETag: W/\"x\"\r\nA: 1\r\n";
        assert_eq!(
            coded(Coding::Brotli, head, "W/\"x\""),
            "HTTP/1.1 200 OK\r\nETag: W/\"x-br\"\r\nA: 1\r\nContent-Encoding: br\r\n"
        );
        assert_eq!(
            coded(Coding::Gzip, head, ""),
            "HTTP/1.1 200 OK\r\nETag: W/\"x\"\r\nA: 1\r\nContent-Encoding: gzip\r\n"
        );
        assert_eq!(coded(Coding::AsSent, head, "W/\"x\""), head);
        assert!(coded(Coding::Zstd, "ETag: \"\"\r\n", "\"\"").starts_with("ETag: \"-zst\"\r\n"));
    }

    #[test]
    fn a_head_without_its_coding_says_none() {
        let head = "HTTP/1.1 200 OK\r\nA: 1\r\nCONTENT-encoding: gzip\r\nETag: \"x\"\r\nB: 2\r\n";
        let want = "HTTP/1.1 200 OK\r\nA: 1\r\nETag: \"x-id\"\r\nB: 2\r\n";
        assert_eq!(coded(Coding::Decoded, head, "\"x\""), want);
        let last = "HTTP/1.1 200 OK\r\nContent-Encoding-Not: 1\r\nContent-Encoding:br\r\n";
        let want = "HTTP/1.1 200 OK\r\nContent-Encoding-Not: 1\r\n";
        assert_eq!(coded(Coding::Decoded, last, ""), want);
        // What is before it in the buffer is another answer's.
        let mut out = head.as_bytes().to_vec();
        CodedHead::new(Coding::Decoded, &BLANK).append(last.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).expect("text"), format!("{head}{want}"));
    }
}
