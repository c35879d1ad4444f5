//! Decoder for the bytes of a mail after DATA (RFC 5321, 4.5.2) and BDAT (RFC 3030).
//!
//! ```text
//!            '.'           CR            LF
//!   Start ───────▶ Dot ─────────▶ DotCr ─────▶ end of data
//!     ▲ ▲           │ other: the dot is dropped; in DotCr, the CR is passed on
//!  LF │ └───────────┼───────────────────────────┐
//!    Cr ◀── CR ── Text ◀────────────────────────┘
//! ```
//! `Start` is the beginning of a line: after CRLF, or of the data. **Only CRLF.CRLF ends the data.** A lone
//! CR or LF is an ordinary byte: it neither ends a line nor begins one, so `\n.\n`, `\n.\r\n`, `\r.\r\n` and
//! the like are text. A mail that a relay forwards with such bytes therefore remains one mail: no second mail
//! can be smuggled in.

use memchr::{memchr2, memmem};

/// Position of the decoder in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LinePosition {
    /// At the beginning of a line.
    #[default]
    Start,
    /// Within a line.
    Text,
    /// After a CR.
    Cr,
    /// After a dot at the beginning of a line; the dot is held back.
    Dot,
    /// After such a dot and a CR; both are held back.
    DotCr,
}

/// Decoder that removes stuffed dots and finds the end of the data. Any split of the input gives the same
/// mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Data {
    at: LinePosition,
    bare: bool,
}

/// Result of decoding some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataProgress {
    /// All bytes were consumed, and the mail is not complete yet.
    All,
    /// The mail ended after this number of bytes.
    Ended(usize),
}

impl Data {
    /// Creates a decoder at the beginning of a mail.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether a lone CR or LF has occurred so far.
    #[must_use]
    pub fn had_bare_line_ends(&self) -> bool {
        self.bare
    }

    /// Passes the bytes that belong to the mail to `sink`, in pieces of any size.
    pub fn take(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> DataProgress {
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            match (self.at, byte) {
                (LinePosition::Start, b'.') => {
                    self.at = LinePosition::Dot;
                    at += 1;
                }
                (LinePosition::Dot, b'\r') => {
                    self.at = LinePosition::DotCr;
                    at += 1;
                }
                (LinePosition::DotCr, b'\n') => return DataProgress::Ended(at + 1),
                (LinePosition::DotCr, _) => {
                    sink(b"\r");
                    self.at = LinePosition::Cr;
                }
                (LinePosition::Cr, b'\n') => {
                    sink(&bytes[at..=at]);
                    self.at = LinePosition::Start;
                    at += 1;
                }
                (LinePosition::Cr, _) => {
                    self.bare = true;
                    self.at = LinePosition::Text;
                }
                (LinePosition::Start | LinePosition::Text | LinePosition::Dot, _) => {
                    // The next dot that begins a line is the next byte that is not simply passed on.
                    let text = &bytes[at..];
                    let len = memmem::find(text, b"\r\n.").map_or(text.len(), |crlf| crlf + 2);
                    let text = &text[..len];
                    self.bare = self.bare || has_bare_line_end(text);
                    sink(text);
                    self.at = match text {
                        [.., b'\r', b'\n'] => LinePosition::Start,
                        [.., b'\r'] => LinePosition::Cr,
                        _ => LinePosition::Text,
                    };
                    at += len;
                }
            }
        }
        DataProgress::All
    }
}

/// Returns whether the text contains a lone CR or LF. A CR at the very end does not count: its LF may follow.
fn has_bare_line_end(text: &[u8]) -> bool {
    let mut from = 0;
    while let Some(found) = memchr2(b'\r', b'\n', &text[from..]) {
        let at = from + found;
        match (text[at], text.get(at + 1)) {
            (b'\r', Some(b'\n')) => from = at + 2,
            (b'\r', None) => return false,
            _ => return true,
        }
    }
    false
}

/// A chunk of BDAT: a fixed number of bytes, which are forwarded unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    left: u64,
}

impl Chunk {
    /// Creates a chunk of `bytes` bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { left: bytes }
    }

    /// Passes the chunk's bytes to `sink`. An empty chunk ends after 0 bytes.
    pub fn take(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> DataProgress {
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        if len > 0 {
            sink(&bytes[..len]);
        }
        self.left -= len as u64;
        if self.left == 0 { DataProgress::Ended(len) } else { DataProgress::All }
    }
}
