//! Protocols as pure state machines over bytes: no I/O, no clock, no `unsafe`, no allocation on the hot path.
//!
//! Each parser is a function from bytes to a value: *complete*, *need more*, or an error that says which byte
//! and which rule. Whoever owns the socket owns the buffer; nothing here outlives it.
//!
//! - [`filter`]: expressions over the fields of something, as bans are written.
//! - [`http1`]: HTTP/1.1 in both directions (RFC 9112), with the field syntax of RFC 9110 and RFC 9111.
//! - [`http2`]: HTTP/2 as a server speaks it (RFC 9113), with HPACK (RFC 7541).
//! - [`nats`]: the NATS client protocol in both directions.
//! - [`proxy`]: the header by which a proxy says whom it speaks for.
//! - [`transaction`]: records of the log, as loops write them and readers show them.
//! - [`smtp`]: SMTP and LMTP as a receiver speaks them (RFC 5321, RFC 2033).
pub mod filter;
pub mod http1;
pub mod http2;
pub mod nats;
pub mod proxy;
pub mod smtp;
pub mod transaction;
