//! Decoder for a body of any framing, from input pieces of any size (RFC 9112 §6 and §7).
//!
//! ```text
//!              ┌────────────────────────── CRLF after the payload ─────────────────────────┐
//!              v                                                                            │
//!  Chunked ─> Size ─(digits)─> Size ─┬─ ; ─> Extension ─ CR ─> SizeLf ─┬─ size > 0 ─> Payload
//!                                    ├─ CR ───────────────────> SizeLf └─ size = 0 ─> trailer lines ─> Done
//!                                    └─ white space ─> BeforeExtension ─ ; ─> Extension
//! ```
//!
//! The state takes a few words; no input is kept except the trailers. *Need more* therefore means that all
//! input is consumed, and the result does not depend on where the input is cut.

use std::{fmt, ops::Range};

use super::Framing;
use crate::http1::fields::{is_field_value_byte, is_tchar};

/// Maximum length of the line before a chunk, without its CRLF. The line holds the chunk's size and
/// extensions, which are ignored (RFC 9112 §7.1.1); the signatures of some upload protocols take about 90
/// bytes.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Maximum length of all trailers of one body, with their CRLFs (RFC 9112 §7.1.2).
pub const TRAILER_BYTES_MAX: usize = 8 << 10;

/// Result of one call to [`BodyDecoder::decode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Number of input bytes that are consumed.
    pub consumed: usize,
    /// Range of the payload in the input; within `..consumed`, possibly empty.
    pub data: Range<usize>,
    /// Next action of the caller.
    pub state: StepState,
}

/// Action that the caller takes after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepState {
    /// Input is left, and the caller must decode it with another call.
    More,
    /// All input is consumed, but the body is incomplete: the caller reads more.
    NeedMore,
    /// The body is complete. Input that was not consumed belongs to the next message.
    Done,
}

/// Error for a body that was rejected or cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{rule} (byte {at} of the body; {})", rule.section())]
pub struct BodyError {
    /// The rule that the body breaks.
    pub rule: BodyRule,
    /// Offset of the byte from the body's first byte, framing included.
    pub at: u64,
}

macro_rules! rules {
    ($($variant:ident $section:literal $text:literal,)*) => {
        /// The rules that a body can break.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum BodyRule {
            $(#[doc = concat!($text, " (", $section, ").")] $variant,)*
        }

        impl BodyRule {
            /// Returns the RFC section that states the rule.
            pub const fn section(self) -> &'static str {
                match self { $(BodyRule::$variant => $section,)* }
            }
        }

        impl fmt::Display for BodyRule {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(BodyRule::$variant => $text,)* })
            }
        }
    };
}

rules! {
    ChunkSize "RFC 9112 §7.1" "a chunk's size is not hexadecimal digits",
    ChunkSizeOverflow "RFC 9112 §7.1" "a chunk's size is beyond 64 bits",
    ChunkLineTooLong "RFC 9112 §7.1.1" "the line before a chunk is longer than the limit",
    ChunkExtension "RFC 9112 §7.1.1" "a chunk extension holds a control character or ends within a quoted string",
    ChunkEnd "RFC 9112 §7.1" "a chunk is longer than its size says",
    BareLf "RFC 9112 §2.2" "a line ends in LF without CR",
    BareCr "RFC 9112 §2.2" "a CR is not followed by LF",
    Trailer "RFC 9112 §7.1.2" "a trailer is not a field",
    TrailersTooLarge "RFC 9112 §7.1.2" "the trailers are larger than the limit",
    Truncated "RFC 9112 §8" "the connection closed before the body's end",
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Number of payload bytes left until the body ends. Never 0.
    Length(u64),
    UntilClose,
    /// Within the size of a chunk. `line` counts the bytes of the line so far; 0 means that there is no digit
    /// yet.
    Size {
        size: u64,
        line: usize,
    },
    /// White space after the size: only an extension may follow.
    BeforeExtension {
        size: u64,
        line: usize,
    },
    Extension {
        size: u64,
        line: usize,
        quote: Quote,
    },
    SizeLf {
        size: u64,
    },
    /// Number of bytes left in the chunk. Never 0.
    Payload(u64),
    PayloadCr,
    PayloadLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
    Failed(BodyError),
}

/// Quoting state within a chunk's extensions (RFC 9110 §5.6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quote {
    Outside,
    Inside,
    /// After a backslash in a quoted string.
    Escaped,
}

impl Quote {
    fn after(self, b: u8) -> Self {
        match (self, b) {
            (Self::Outside, b'"') | (Self::Escaped, _) => Self::Inside,
            (Self::Inside, b'"') => Self::Outside,
            (Self::Inside, b'\\') => Self::Escaped,
            (Self::Outside | Self::Inside, _) => self,
        }
    }
}

/// Decoder state of one body: a few words. Memory is allocated only if a chunked body has trailers.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    /// Number of bytes of the body consumed so far.
    at: u64,
    /// Whole lines with CRLF, without the empty line that ends them; at most [`TRAILER_BYTES_MAX`].
    trailers: Vec<u8>,
    /// True if blanks are accepted between a chunk's size and the end of its line.
    takes_padding: bool,
}

impl BodyDecoder {
    /// Creates a decoder for a response body, positioned after the head. Old servers pad chunk sizes with
    /// blanks; the meaning is unambiguous, and the body is re-framed for the client. A request with such
    /// padding is refused, because a server behind us may read it differently.
    pub fn of_answer(framing: Framing) -> Self {
        Self { takes_padding: true, ..Self::new(framing) }
    }

    /// Creates a decoder positioned at the first byte after the head.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::UntilClose => State::UntilClose,
            Framing::Chunked => State::Size { size: 0, line: 0 },
        };
        Self { state, at: 0, trailers: Vec::new(), takes_padding: false }
    }

    /// Returns whether the body has been read to its end (never true for [`Framing::UntilClose`]).
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Consumes framing and at most one run of payload.
    ///
    /// If the input holds payload and then an error, this call returns the payload and the next call the
    /// error.
    ///
    /// # Errors
    /// Returns the first rule that the body breaks; every later call returns the same error.
    #[inline]
    pub fn decode(&mut self, input: &[u8]) -> Result<Step, BodyError> {
        let mut data = 0..0;
        let mut consumed = 0;
        while consumed < input.len() && self.state != State::Done {
            // The value is at most the length of the input, so it fits `usize`.
            let payload = self.raw_max().min((input.len() - consumed) as u64) as usize;
            if payload > 0 {
                if !data.is_empty() {
                    break;
                }
                data = consumed..consumed + payload;
                self.take_raw(payload as u64);
                consumed += payload;
                continue;
            }
            let whole = self.whole_framing(&input[consumed..]);
            if whole > 0 {
                consumed += whole;
                continue;
            }
            match self.framing_byte(input[consumed]) {
                Ok(state) => {
                    self.state = state;
                    self.at += 1;
                    consumed += 1;
                }
                Err(_) if !data.is_empty() => break,
                Err(rule) => {
                    let error = match self.state {
                        State::Failed(earlier) => earlier,
                        _ => BodyError { rule, at: self.at },
                    };
                    self.state = State::Failed(error);
                    return Err(error);
                }
            }
        }
        let state = match self.state {
            State::Done => StepState::Done,
            State::Failed(error) => return Err(error),
            _ if consumed < input.len() => StepState::More,
            _ => StepState::NeedMore,
        };
        debug_assert!(data.end <= consumed && consumed <= input.len());
        Ok(Step { consumed, data, state })
    }

    /// Returns the number of payload bytes left in the whole body, if it is known.
    pub fn remaining_known(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// Returns how many of the next bytes are certainly payload, so that the caller may receive them straight
    /// into its own memory and account for them with [`take_raw`](Self::take_raw): the rest of a body of
    /// known length or of a chunk; `u64::MAX` for a body that ends with the connection; 0 where framing comes
    /// next.
    #[inline]
    pub fn raw_max(&self) -> u64 {
        match self.state {
            State::Length(left) | State::Payload(left) => left,
            State::UntilClose => u64::MAX,
            _ => 0,
        }
    }

    /// Accounts for `n` bytes of payload that the caller received directly, without [`decode`](Self::decode).
    ///
    /// # Panics
    /// Panics if `n` exceeds [`raw_max`](Self::raw_max): the caller took bytes of the next message.
    #[inline]
    pub fn take_raw(&mut self, n: u64) {
        assert!(n <= self.raw_max(), "payload taken beyond the body's end");
        self.at += n;
        match &mut self.state {
            State::Length(left) if *left == n => self.state = State::Done,
            State::Payload(left) if *left == n => self.state = State::PayloadCr,
            State::Length(left) | State::Payload(left) => *left -= n,
            _ => {}
        }
    }

    /// Handles the end of the connection at this position.
    ///
    /// # Errors
    /// [`BodyRule::Truncated`] unless the body is complete or ends with the connection; the error of
    /// [`decode`](Self::decode) if there was one.
    pub fn at_eof(&self) -> Result<(), BodyError> {
        match self.state {
            State::Done | State::UntilClose => Ok(()),
            State::Failed(error) => Err(error),
            _ => Err(BodyError { rule: BodyRule::Truncated, at: self.at }),
        }
    }

    /// Returns the trailers as received: whole lines, each with its CRLF; empty if there are none (yet). Each
    /// line matches the grammar `name:value`; the caller checks whether the name is permitted in trailers
    /// ([`permitted`](crate::http1::trailers::permitted)).
    pub fn trailers(&self) -> &[u8] {
        match self.state {
            State::Done => &self.trailers,
            _ => &[],
        }
    }

    /// Iterates over the name and value of each trailer, in their order.
    pub fn trailer_fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.trailers().split_inclusive(|&b| b == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r\n")?;
            let colon = line.iter().position(|&b| b == b':')?;
            Some((
                std::str::from_utf8(&line[..colon]).ok()?,
                crate::http1::fields::trim_ows(&line[colon + 1..]),
            ))
        })
    }

    /// Fast path for the common case: the CRLF after a payload, or a chunk's line without extensions, if the
    /// input holds it completely. Returns the number of bytes consumed; 0 leaves the input to the slow path
    /// [`framing_byte`](Self::framing_byte), which also detects every error.
    #[inline]
    fn whole_framing(&mut self, input: &[u8]) -> usize {
        let (state, len) = match (self.state, input) {
            (State::PayloadCr, [b'\r', b'\n', ..]) => (State::Size { size: 0, line: 0 }, 2),
            (State::Size { line: 0, .. }, _) => {
                let (mut size, mut digits) = (0u64, 0);
                // Sixteen hexadecimal digits fit 64 bits.
                for &b in input.iter().take(16) {
                    let value = HEX_VALUE[b as usize];
                    if value > 15 {
                        break;
                    }
                    size = size << 4 | u64::from(value);
                    digits += 1;
                }
                match &input[digits..] {
                    [b'\r', b'\n', ..] if size > 0 => (State::Payload(size), digits + 2),
                    [b'\r', b'\n', ..] if digits > 0 => (State::TrailerStart, digits + 2),
                    _ => return 0,
                }
            }
            _ => return 0,
        };
        self.state = state;
        self.at += len as u64;
        len
    }

    /// Returns the state after one byte of framing. Never called while payload is expected.
    fn framing_byte(&mut self, b: u8) -> Result<State, BodyRule> {
        let next = match (self.state, b) {
            (State::Size { size, line }, b) if b.is_ascii_hexdigit() => {
                if size >> 60 != 0 {
                    return Err(BodyRule::ChunkSizeOverflow);
                }
                let digit = (b as char).to_digit(16).unwrap_or_default();
                State::Size { size: size << 4 | u64::from(digit), line: longer(line)? }
            }
            (State::Size { line: 0, .. }, _) => return Err(BodyRule::ChunkSize),
            (State::Size { size, .. }, b'\r') => State::SizeLf { size },
            (State::BeforeExtension { size, .. }, b'\r') if self.takes_padding => State::SizeLf { size },
            (State::Size { size, line } | State::BeforeExtension { size, line }, b';') => {
                State::Extension { size, line: longer(line)?, quote: Quote::Outside }
            }
            (State::Size { size, line } | State::BeforeExtension { size, line }, b' ' | b'\t') => {
                State::BeforeExtension { size, line: longer(line)? }
            }
            (State::Size { .. } | State::Extension { .. } | State::BeforeExtension { .. }, b'\n') => {
                return Err(BodyRule::BareLf);
            }
            (State::Size { .. } | State::BeforeExtension { .. }, _) => return Err(BodyRule::ChunkSize),
            // A quoted string cannot contain a line end. Some servers read on to the closing quote, so they
            // would find the body's end elsewhere.
            (State::Extension { size, quote: Quote::Outside, .. }, b'\r') => State::SizeLf { size },
            (State::Extension { size, line, quote }, b) if is_field_value_byte(b) => {
                State::Extension { size, line: longer(line)?, quote: quote.after(b) }
            }
            (State::Extension { .. }, _) => return Err(BodyRule::ChunkExtension),

            (State::SizeLf { size: 0 }, b'\n') => State::TrailerStart,
            (State::SizeLf { size }, b'\n') => State::Payload(size),
            (State::PayloadCr, b'\r') => State::PayloadLf,
            (State::PayloadCr, b'\n') => return Err(BodyRule::BareLf),
            (State::PayloadCr, _) => return Err(BodyRule::ChunkEnd),
            (State::PayloadLf, b'\n') => State::Size { size: 0, line: 0 },

            (State::TrailerStart, b'\r') => State::EndLf,
            (State::EndLf, b'\n') => State::Done,
            (State::TrailerStart, b) if is_tchar(b) => self.trailer_byte(b, State::TrailerName)?,
            (State::TrailerName, b) if is_tchar(b) => self.trailer_byte(b, State::TrailerName)?,
            (State::TrailerName, b':') => self.trailer_byte(b, State::TrailerValue)?,
            (State::TrailerValue, b'\r') => self.trailer_byte(b, State::TrailerLf)?,
            (State::TrailerValue, b) if is_field_value_byte(b) => {
                self.trailer_byte(b, State::TrailerValue)?
            }
            (State::TrailerLf, b'\n') => self.trailer_byte(b, State::TrailerStart)?,
            (State::TrailerStart | State::TrailerName | State::TrailerValue, b'\n') => {
                return Err(BodyRule::BareLf);
            }
            (State::TrailerStart | State::TrailerName | State::TrailerValue, _) => {
                return Err(BodyRule::Trailer);
            }

            (State::SizeLf { .. } | State::PayloadLf | State::TrailerLf | State::EndLf, _) => {
                return Err(BodyRule::BareCr);
            }
            (State::Failed(error), _) => return Err(error.rule),
            (state @ (State::Done | State::Length(_) | State::UntilClose | State::Payload(_)), _) => {
                unreachable!("no framing byte is due in {state:?}")
            }
        };
        Ok(next)
    }

    fn trailer_byte(&mut self, b: u8, next: State) -> Result<State, BodyRule> {
        if self.trailers.len() == TRAILER_BYTES_MAX {
            return Err(BodyRule::TrailersTooLarge);
        }
        self.trailers.push(b);
        Ok(next)
    }
}

/// Values of hexadecimal digits; 255 for any other byte.
static HEX_VALUE: [u8; 256] = {
    let mut table = [255; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u8;
        table[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    table
};

/// Returns the length of a chunk's line after one more byte.
fn longer(line: usize) -> Result<usize, BodyRule> {
    if line == CHUNK_LINE_BYTES_MAX { Err(BodyRule::ChunkLineTooLong) } else { Ok(line + 1) }
}
