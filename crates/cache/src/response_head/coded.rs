//! What of a stored head differs where its content is sent in a coding that we have made: `Content-Encoding`, and an
//! entity tag of its own (RFC 9110 §8.8.3.3). All else is said of either, and is younger where the stored head is.

use engine::sys::span::Span;

use super::meta::StoredMeta;
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
    /// For what was judged to be [codable](mod@crate::policy::codable): its tag, if it has one, is one.
    #[inline]
    pub fn new(coding: Coding, meta: &StoredMeta) -> Self {
        let quote_at = (meta.etag_bytes > 0)
            .then(|| (meta.etag_at as usize + usize::from(meta.etag_bytes)).saturating_sub(1));
        Self { coding, quote_at }
    }

    /// Appends the head.
    #[inline]
    pub fn append_span(self, stored: Span<'_>, out: &mut Vec<u8>) {
        let quote_at = self.quote_at.unwrap_or(stored.len()).min(stored.len());
        stored.slice(0..quote_at).copy_to(out);
        self.append_suffix(out);
        stored.slice(quote_at..stored.len()).copy_to(out);
        self.append_encoding(out);
    }

    /// The same, of a head that is not in the store.
    pub fn append(self, stored: &[u8], out: &mut Vec<u8>) {
        let (before, after) = stored.split_at(self.quote_at.unwrap_or(stored.len()).min(stored.len()));
        out.extend_from_slice(before);
        self.append_suffix(out);
        out.extend_from_slice(after);
        self.append_encoding(out);
    }

    #[inline]
    fn append_suffix(self, out: &mut Vec<u8>) {
        if self.quote_at.is_some() {
            out.extend_from_slice(self.coding.tag_suffix().as_bytes());
        }
    }

    #[inline]
    fn append_encoding(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.coding {
            Coding::AsSent => b"",
            Coding::Gzip => b"Content-Encoding: gzip\r\n",
            Coding::Brotli => b"Content-Encoding: br\r\n",
            Coding::Zstd => b"Content-Encoding: zstd\r\n",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response_head::BLANK;

    fn coded(coding: Coding, head: &str, tag: &str) -> String {
        let at = head.find(tag).unwrap_or(0);
        let meta = StoredMeta { etag_at: at as u32, etag_bytes: tag.len() as u16, ..BLANK };
        let mut out = Vec::new();
        CodedHead::new(coding, &meta).append(head.as_bytes(), &mut out);
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
}
