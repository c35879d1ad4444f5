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
//! The data lives where the caller received it; what is kept here is offsets ([`head::HeaderSlots`], 2.5 KiB,
//! one per loop, reused) and the decoder's state (a few words, one per body). Nothing allocates, but for the
//! trailers of a chunked body that has any.
//!
//! **Why strict.** A message that two parties could delimit differently lets one client speak in another's name
//! (request smuggling, RFC 9112 §11.2). So whatever the grammar does not allow is refused, even where the RFC
//! would let a recipient repair it: bare LF, folded lines, several lengths, a transfer coding beside `chunked`.
//!
//! - [`head`]: the first line and the headers. [`known`]: the headers that policy asks for, found in the same pass.
//! - [`framing`]: where a body ends, and the bytes of it.
//! - [`fields`]: the values of headers: lists, directives, entity tags, ranges.
//! - [`forwarded`]: who asks, where proxies stand between.
//! - [`trailers`]: which of them go on to the next recipient.
//! - [`url`]: what a request's target and `Host` name.
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
