//! Protocols as pure state machines over bytes: no I/O, no clock, no `unsafe`, no allocation on the hot path.
//!
//! Each parser is a function from bytes to a value: *complete*, *need more*, or an error that names the byte
//! and the rule. The owner of the socket owns the buffer; nothing here outlives it.
//!
//! - [`filter`]: expressions over the fields of a record, such as bans.
//! - [`http1`]: HTTP/1.1 in both directions (RFC 9112), with the field syntax of RFC 9110 and RFC 9111.
//! - [`http2`]: HTTP/2 for servers (RFC 9113), with HPACK (RFC 7541).
//! - [`nats`]: the NATS client protocol in both directions.
//! - [`proxy`]: the PROXY protocol's header, in which a proxy names its client.
//! - [`transaction`]: records of the log, as loops write them and readers show them.
//! - [`smtp`]: SMTP and LMTP for receivers (RFC 5321, RFC 2033).
pub mod filter;
pub mod http1;
pub mod http2;
pub mod nats;
pub mod proxy;
pub mod smtp;
pub mod transaction;
