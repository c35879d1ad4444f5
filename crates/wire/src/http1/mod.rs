//! HTTP/1.0 and HTTP/1.1 in both directions, as functions from bytes to slices.
//!
//! ```text
//!  a client's bytes ──> head::parse_request ──> RequestHead ──> framing::request_framing ──> Framing ─┐
//!  [ caller's buffer ]   (slices of the buffer; offsets in the caller's HeaderSlots)                  v
//!                                                                                            BodyDecoder
//!                              payload, as ranges of the same buffer  <── decode(bytes) ──────────────┤
//!                              or straight from the socket            <── raw_max(), take_raw(n) ─────┘
//!
//!  an origin's bytes ─> head::parse_response ─> ResponseHead ─> framing::response_framing ─> (as above)
//!
//!  a body of unknown length, out  <── ChunkedEncoder: chunk header · payload · CRLF … last chunk, trailers
//! ```
//!
//! The data stays in the caller's receive buffer; this module keeps offsets ([`head::HeaderSlots`], 2.5 KiB,
//! one per loop, reused) and the decoder's state (a few words, one per body). Nothing allocates, except for
//! the trailers of a chunked body that has any.
//!
//! **Strictness.** A message that two parties could delimit differently lets one client send requests in
//! another's name (request smuggling, RFC 9112 §11.2). Everything that the grammar does not allow is
//! therefore refused, even where the RFC would let a recipient repair it: bare LF, folded lines, several
//! lengths, a transfer coding in addition to `chunked`.
//!
//! - [`head`]: the first line and the headers. [`known`]: the headers that policy reads, found in the same pass.
//! - [`framing`]: where a body ends, and the decoding of its bytes.
//! - [`fields`]: the values of headers: lists, directives, entity tags, ranges.
//! - [`forwarded`]: the client's address and scheme behind proxies.
//! - [`trailers`]: which trailers are forwarded to the next recipient.
//! - [`url`]: the host and path that a request's target and `Host` name.
pub mod fields;
pub mod forwarded;
pub mod framing;
pub mod head;
mod head_error;
mod header_slots;
mod kept;
pub mod known;
pub(crate) mod strict;
pub mod trailers;
pub mod url;
