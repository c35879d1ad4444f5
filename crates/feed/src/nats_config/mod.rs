//! The subset of `nats.conf` that the feed honours, and the name of every other line in it.
//!
//! ```text
//!  bytes ─text::parse─▶ Entry{line, key, Value} … ─options::read─▶ Options, and each line that is not honoured
//! ```
//! Pure. What is wrong has its line. What is not honoured is said and passed over, unless passing over it would open
//! what it closes: an unknown word among users, permissions or TLS is a fault, and so is everything about JWTs.

mod options;
mod text;

pub use options::{Options, Tls, Unhonoured, WebSocket, read};
pub use text::Fault;

#[cfg(test)]
mod tests;
